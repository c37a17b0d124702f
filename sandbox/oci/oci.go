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
	"time"

	"github.com/checkcell/checkcell/images/store"
	"github.com/checkcell/checkcell/sandbox"
	"github.com/checkcell/checkcell/sandbox/cellhost"
	"github.com/checkcell/checkcell/sandbox/cellinit"
	"github.com/checkcell/checkcell/sandbox/container"
	"golang.org/x/sys/unix"
)

// Config says how cells are made. Its zero value uses runc.
type Config struct {
	Runtime      string            // a name or path of a program; "" for runc
	CgroupParent string            // see native.Config
	AllowMissing []sandbox.Control // controls that may be missing on this host
	Images       *store.Store      // where images are looked up; nil for the host view and directories alone
	Dir          string            // where supervisors keep what their containers are made of; "" for /run/checkcell
}

// Backend makes cells with one runtime. Its methods may be called at the same
// time.
type Backend struct {
	runtime *program
	cells   container.Config
	uids    *cellhost.UIDs
	shared  string // of all supervisors
	dir     string // ours, locked
	lock    *os.File
	count   atomic.Uint64
}

// defaultDir is on a file system that a reboot empties.
const defaultDir = "/run/checkcell"

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
	b := &Backend{runtime: p, shared: cfg.Dir}
	if b.shared == "" {
		b.shared = defaultDir
	}
	if b.uids, err = cellhost.NewUIDs(); err != nil {
		return nil, err
	}
	cellhost.RaiseInherited()
	cellhost.RaiseSoft()
	if err := b.claim(); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	b.cells = container.Config{
		Maker: b, Images: cfg.Images,
		Groups: cellhost.Open(cellhost.Config{Parent: cfg.CgroupParent, AllowMissing: cfg.AllowMissing}),
	}
	if mode, _ := b.cells.Groups.Missing(); p.refuses(mode) {
		return nil, errors.Join(fmt.Errorf("%s runs containers only where cgroup v2 is the one hierarchy, and this host's is %v; use runc, or another backend", p, mode), b.Close())
	}
	return b, nil
}

// The entries of a supervisor's directory.
const (
	lockName  = "lock"
	initName  = "init"
	stateName = "state" // the runtime's
	cellsName = "cells"
)

// claim makes our directory. It can be searched by others, since a container's
// user has to get to its root; what is inside and secret is ours to read alone.
func (b *Backend) claim() error {
	if err := os.MkdirAll(b.shared, 0o711); err != nil {
		return fmt.Errorf("make a directory for containers: %w", err)
	}
	dir, err := os.MkdirTemp(b.shared, "oci-")
	if err != nil {
		return fmt.Errorf("make a directory for containers: %w", err)
	}
	b.dir = dir
	if b.lock, err = locked(dir); err != nil {
		return fmt.Errorf("make a directory for containers: %w", err)
	}
	code, err := cellinit.Executable()
	if err != nil {
		return err
	}
	return errors.Join(
		os.Chmod(dir, 0o711),
		os.WriteFile(filepath.Join(dir, initName), code, 0o555),
		os.Mkdir(filepath.Join(dir, stateName), 0o700),
		os.Mkdir(filepath.Join(dir, cellsName), 0o711),
	)
}

// locked takes the lock of a supervisor's directory; it is errHeld where that
// supervisor lives. The lock goes with its last descriptor, and so with us.
func locked(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close() // nothing was written
		if err == unix.EWOULDBLOCK {
			return nil, errHeld
		}
		return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	return f, nil
}

var errHeld = errors.New("its supervisor lives")

// Name returns "oci".
func (b *Backend) Name() string { return "oci" }

// Create makes and sets up a cell. See sandbox.Backend.
func (b *Backend) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Box, error) {
	if err := cellhost.Fits(spec.Limits); err != nil {
		return nil, err
	}
	return container.Create(ctx, b.cells, spec)
}

// Sweep kills and removes what crashed supervisors left: groups, and containers of
// this runtime. The containers' processes ended with their supervisor's pipes.
func (b *Backend) Sweep(ctx context.Context) (sandbox.Swept, error) {
	swept, err := b.cells.Groups.Sweep(ctx)
	errs := []error{err}
	found, err := filepath.Glob(filepath.Join(b.shared, "oci-*"))
	if err != nil {
		return swept, errors.Join(append(errs, err)...)
	}
	for _, dir := range found {
		lock, err := locked(dir)
		switch {
		case errors.Is(err, errHeld), errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			errs = append(errs, err)
			continue
		}
		errs = append(errs, b.runtime.deleteAll(ctx, filepath.Join(dir, stateName)), os.RemoveAll(dir))
		lock.Close() // nothing was written
	}
	return swept, errors.Join(errs...)
}

// Close removes our directories. Boxes must be destroyed before.
func (b *Backend) Close() error {
	var errs []error
	if b.cells.Groups != nil {
		errs = append(errs, b.closeGroups())
	}
	if b.dir != "" {
		errs = append(errs, os.RemoveAll(b.dir))
		_ = os.Remove(b.shared) // others may be in it
	}
	if b.lock != nil {
		b.lock.Close() // nothing was written
	}
	return errors.Join(errs...)
}

// closeGroups removes our directories of groups, once the last thread that was in
// them is gone: a thread ends a moment after its goroutine.
func (b *Backend) closeGroups() error {
	var err error
	for range 100 {
		if err = b.cells.Groups.Close(); !errors.Is(err, unix.EBUSY) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	return err
}
