//go:build linux

package oci

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/checkcell/checkcell/images/store"
	"github.com/checkcell/checkcell/sandbox"
	"github.com/checkcell/checkcell/sandbox/cellhost"
	"github.com/checkcell/checkcell/sandbox/container"
)

// Config says how cells are made. Its zero value uses runc.
type Config struct {
	Runtime      string            // a name or path of a program; "" for runc
	CgroupParent string            // see native.Config
	AllowMissing []sandbox.Control // controls that may be missing on this host
	Images       *store.Store      // where images are looked up; nil for the host view and directories alone
	Dir          string            // where supervisors keep what their containers are made of; "" for container.DefaultDir
}

// Backend makes cells with one runtime. Its methods may be called at the same
// time.
type Backend struct {
	runtime *program
	cells   container.Config
	uids    *cellhost.UIDs
	home    *container.Home
	count   atomic.Uint64
}

// Open finds the runtime, asks it for its version, and makes a directory and
// groups for containers. It needs root, and raises this process's limits (ulimit),
// since containers can have no more; see cellhost.Fits. Call Close when done.
func Open(ctx context.Context, cfg Config) (*Backend, error) {
	p, err := find(ctx, cfg.Runtime)
	if err != nil {
		return nil, err
	}
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf("the oci backend has to be run as root, for %s and its groups; the native backend needs no root", p.name)
	}
	b := &Backend{runtime: p}
	if b.uids, err = cellhost.NewUIDs(); err != nil {
		return nil, err
	}
	cellhost.RaiseInherited()
	cellhost.RaiseSoft()
	if b.home, err = container.OpenHome(cfg.Dir, "oci-"); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(b.home.Dir, runtimeName), []byte(p.path), 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("make a directory for containers: %w", err), b.Close())
	}
	for dir, mode := range map[string]fs.FileMode{stateName: 0o700, cellsName: 0o711} {
		if err := os.Mkdir(filepath.Join(b.home.Dir, dir), mode); err != nil {
			return nil, errors.Join(fmt.Errorf("make a directory for containers: %w", err), b.Close())
		}
	}
	b.cells = container.Config{
		Maker: b, Images: cfg.Images,
		Groups: cellhost.Open(cellhost.Config{Parent: cfg.CgroupParent, AllowMissing: cfg.AllowMissing}),
	}
	if p.ownsKernel() {
		b.cells.Guest = true
		b.cells.Lacks = []cellhost.Lack{{
			Control: sandbox.ControlPIDs, Why: "the processes of a check are those of " + p.String() + ", a kernel of its own, and nothing here counts them",
			Fix: "use the native backend or runc",
		}}
	}
	if mode, _ := b.cells.Groups.Missing(); p.refuses(mode) {
		return nil, errors.Join(fmt.Errorf("%s runs containers only where cgroup v2 is the one hierarchy, and this host's is %v; use runc, or another backend", p, mode), b.Close())
	}
	return b, nil
}

// The entries of our directory.
const (
	runtimeName = "runtime" // holds the path of the runtime
	stateName   = "state"   // the runtime's
	cellsName   = "cells"
)

// Name returns "oci".
func (b *Backend) Name() string { return "oci" }

// String names the runtime with its version.
func (b *Backend) String() string { return b.runtime.String() }

// Create makes and sets up a cell. See sandbox.Backend.
func (b *Backend) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Box, error) {
	if err := cellhost.Fits(spec.Limits); err != nil {
		return nil, err
	}
	return container.Create(ctx, b.cells, spec)
}

// Sweep kills and removes what crashed supervisors left: groups, and containers, by
// the runtime that made them. Their processes ended with their supervisor's pipes.
func (b *Backend) Sweep(ctx context.Context) (sandbox.Swept, error) {
	swept, err := b.cells.Groups.Sweep(ctx)
	return swept, errors.Join(err, b.home.Sweep(func(dir string) error {
		path, err := os.ReadFile(filepath.Join(dir, runtimeName))
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it crashed before it made a container
		}
		if err != nil {
			return err
		}
		p, err := find(ctx, string(path))
		if err != nil {
			return fmt.Errorf("remove containers of a crashed supervisor: %w", err)
		}
		return p.removeAll(ctx, filepath.Join(dir, stateName))
	}))
}

// Close removes our directories. Boxes must be destroyed before.
func (b *Backend) Close() error {
	var errs []error
	if b.cells.Groups != nil {
		errs = append(errs, b.cells.Groups.Close())
	}
	errs = append(errs, b.home.Close())
	return errors.Join(errs...)
}
