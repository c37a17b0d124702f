package main

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/checkcell/checkcell/images/store"
	"github.com/checkcell/checkcell/sandbox"
	"github.com/checkcell/checkcell/sandbox/cellhost"
	"github.com/checkcell/checkcell/sandbox/docker"
	"github.com/checkcell/checkcell/sandbox/oci"
)

// The words of --backend.
const (
	backendNative = "native"
	backendOCI    = "oci"
	backendDocker = "docker"
)

// checkBackend checks the flags that choose a backend.
func (c *cellFlags) checkBackend() error {
	switch c.backend {
	case backendOCI, backendDocker:
		return nil
	case backendNative:
		if c.runtime != "" {
			return fmt.Errorf("--runtime %s: it is for --backend %s and --backend %s", c.runtime, backendOCI, backendDocker)
		}
		return nil
	}
	return fmt.Errorf("--backend %q: there are %s, %s and %s", c.backend, backendNative, backendOCI, backendDocker)
}

// open opens the backend and has it remove what crashed runs left. Jobs is how
// many cells there will be at once. The cells' image is looked up.
func (c *cellFlags) open(ctx context.Context, jobs int, cells *cell) (sandbox.Backend, error) {
	if err := enoughFiles(jobs); err != nil {
		return nil, exit(exitCannot, err)
	}
	kept, err := c.openImages(ctx, cells)
	if err != nil {
		return nil, exit(exitCannot, fmt.Errorf("%w\nnothing was run", err))
	}
	b, err := c.openBackend(ctx, kept)
	if err != nil {
		return nil, exit(exitCannot, err)
	}
	swept, err := b.Sweep(ctx)
	if err != nil {
		slog.Warn("could not remove all that earlier runs left", "err", err)
	}
	if swept.Runs > 0 {
		slog.Warn("removed what a crashed run left", "groups", swept.Runs, "processes", swept.Processes)
	}
	return b, nil
}

func (c *cellFlags) openBackend(ctx context.Context, kept *store.Store) (sandbox.Backend, error) {
	if err := cellhost.Fits(c.limits); err != nil {
		return nil, fmt.Errorf("%w\nnothing was run", err)
	}
	var b sandbox.Backend
	var err error
	switch c.backend {
	case backendOCI:
		b, err = oci.Open(ctx, oci.Config{Runtime: c.runtime, CgroupParent: c.cgroupParent, Images: kept})
	case backendDocker:
		b, err = docker.Open(ctx, docker.Config{Runtime: c.runtime, CgroupParent: c.cgroupParent, Images: kept})
	default:
		b, err = c.openNative(ctx, kept)
	}
	if err != nil {
		return nil, fmt.Errorf("%w\nnothing was run", err)
	}
	return b, nil
}
