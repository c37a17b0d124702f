# A bare Debian or Ubuntu with Go and make is enough: .ci/deps installs the rest.

VERSION  := $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
PACKAGES ?= ./...
FUZZTIME ?= 10s

# The version is given by hand, and git refuses to tell it to another user.
export GOFLAGS += -buildvcs=false

TESTRUN := go run ./internal/host/testrun

.PHONY: build test race lint fuzz bench demo image image-root test-backends test-vm test-vm-all test-vm-systemd clean

build:
	@.ci/deps build
	CGO_ENABLED=0 go build -trimpath -ldflags '-X main.version=$(VERSION)' -o bin/checkcell ./cmd/checkcell

test: ## every test; says what was skipped and what was left behind
	@.ci/deps test
	$(TESTRUN) .ci/with-dockerd go test -count=1 $(PACKAGES)

race:
	@.ci/deps race
	$(TESTRUN) .ci/with-dockerd env CGO_ENABLED=1 go test -race -count=1 $(PACKAGES)

lint:
	@.ci/deps lint
	@.ci/lint

fuzz: ## each target for FUZZTIME
	@.ci/deps test
	.ci/fuzz $(FUZZTIME)

bench:
	@.ci/deps test
	go test -run '^$$' -bench . -benchmem $(PACKAGES)

demo: build ## grade the examples
	@.ci/deps run
	go run ./e2e/demo bin/checkcell examples

image: build image-root ## of checkcell itself, in the Docker Engine of this host
	docker build --quiet --target prebuilt --tag checkcell:$(VERSION) .

BINARY := bin/checkcell
ROOT := bin/root

image-root: # what the image holds: the program, and where anyone may write
	@rm -rf $(ROOT)
	@install -d $(ROOT)/usr/bin $(ROOT)/var/lib/checkcell && install -d -m 1777 $(ROOT)/tmp
	@install $(BINARY) $(ROOT)/usr/bin/checkcell

HUMANEVAL := $(wildcard ../shared/data/humaneval/*.jsonl)

test-backends: build ## the same claims and attacks in cells of every backend, side by side
	@.ci/deps run containers
	.ci/with-dockerd go run ./e2e/backends bin/checkcell examples $(HUMANEVAL)

test-vm: ## groups, cells and the hostile corpus on a cgroup v2 kernel, in an emulated machine
	@.ci/deps vm
	e2e/vm/run.sh

test-vm-all: ## and runc, crun, and what we ourselves may run short of
	@.ci/deps vm
	e2e/vm/run.sh all

test-vm-systemd: build ## cells for an ordinary user of systemd, in an emulated machine
	@.ci/deps vm
	e2e/vm/systemd.sh bin/checkcell

clean:
	rm -rf bin
