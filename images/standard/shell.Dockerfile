# The standard image for checks in bash: std:shell. Debian 12 of 2025-12-29.
# It adds settings and no files, so its base, pulled by this digest, is the same tree.
FROM debian:bookworm-slim@sha256:d5d3f9c23164ea16f31852f95bd5959aad1c5e854332fe00f7b3a20fcc9f635c
ENV LANG=C.UTF-8 LC_ALL=C.UTF-8 TZ=UTC
CMD ["bash"]
