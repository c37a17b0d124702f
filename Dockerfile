# The image of checkcell: one static binary, no shell. `make image` builds the first
# stage over the binary that make built, and so needs no registry. Where the base
# image of Go can be had, the last stage builds from the sources:
#
#     docker build --target built -t checkcell .
#
# Cells need what the kernel lets a container have; docs/backends.md says how to
# run it, and checkcell doctor in it what is missing.
FROM scratch AS prebuilt
COPY bin/root /
ENV XDG_DATA_HOME=/var/lib PATH=/usr/bin
WORKDIR /var/lib/checkcell
ENTRYPOINT ["/usr/bin/checkcell"]
CMD ["doctor"]

FROM golang:1.26.8-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN make build image-root

FROM scratch AS built
COPY --from=build /src/bin/root /
ENV XDG_DATA_HOME=/var/lib PATH=/usr/bin
WORKDIR /var/lib/checkcell
ENTRYPOINT ["/usr/bin/checkcell"]
CMD ["doctor"]
