//go:build linux

package container

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/checkcell/checkcell/sandbox/cellinit"
	"golang.org/x/sys/unix"
)

// Home is the directory of one supervisor: what its containers are made of, and
// the lock that says that it lives.
type Home struct {
	Dir    string
	shared string // where those of all supervisors are
	prefix string
	lock   *os.File
}

// DefaultDir is where supervisors have their directories: on a file system that a
// reboot empties.
const DefaultDir = "/run/checkcell"

const (
	lockName = "lock"
	initName = "init"
)

// OpenHome makes a directory whose name begins with prefix in shared, or in
// DefaultDir where that is "". It can be searched by others, since a container's
// user has to get to its root; what is inside and secret is ours to read alone.
func OpenHome(shared, prefix string) (*Home, error) {
	if shared == "" {
		shared = DefaultDir
	}
	h := &Home{shared: shared, prefix: prefix}
	var err error
	for range homeTries {
		if err = h.make(); !errors.Is(err, errHeld) && !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make a directory for containers: %w", err), h.Close())
	}
	return h, nil
}

// homeTries bounds how often OpenHome starts again because a sweeper took a
// directory before it was locked.
const homeTries = 100

func (h *Home) make() error {
	code, err := cellinit.Executable()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(h.shared, 0o711); err != nil {
		return err
	}
	if h.Dir, err = os.MkdirTemp(h.shared, h.prefix); err != nil {
		return err
	}
	if h.lock, err = locked(h.Dir); err != nil {
		return err
	}
	return errors.Join(os.Chmod(h.Dir, 0o711), os.WriteFile(h.Init(), code, 0o555))
}

// Init is the file that is process 1 of containers.
func (h *Home) Init() string { return filepath.Join(h.Dir, initName) }

// ErrElsewhere is what clean returns for a supervisor whose containers can't be
// looked for from here.
var ErrElsewhere = errors.New("its containers are elsewhere")

// Sweep calls clean for the directory of each supervisor that ended without Close,
// and then removes it, unless clean says ErrElsewhere. Living ones are left alone,
// for they hold their lock.
func (h *Home) Sweep(clean func(dir string) error) error {
	found, err := filepath.Glob(filepath.Join(h.shared, h.prefix+"*"))
	if err != nil {
		return err
	}
	var errs []error
	for _, dir := range found {
		lock, err := locked(dir)
		if errors.Is(err, errHeld) || errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			switch err = clean(dir); {
			case err == nil:
				err = os.RemoveAll(dir)
			case errors.Is(err, ErrElsewhere):
				err = nil
			}
			lock.Close() // nothing was written
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Close removes the directory.
func (h *Home) Close() error {
	var err error
	if h.Dir != "" {
		err = os.RemoveAll(h.Dir)
	}
	_ = os.Remove(h.shared) // others may be in it
	h.Leave()
	return err
}

// Leave gives the directory up as it is, to whoever sweeps.
func (h *Home) Leave() {
	if h.lock != nil {
		h.lock.Close() // nothing was written
	}
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
