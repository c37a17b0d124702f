package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// dir is an open directory of a cgroup hierarchy. Files in it are reached from
// its descriptor, so that a directory made later under the same name is never
// taken for it. Its methods may be called concurrently, with close too.
type dir struct {
	f *os.File
}

// openDir opens the directory at path, which must be of a cgroup file system:
// another mount may hide the one that mountinfo told of.
func openDir(path string) (dir, error) {
	fd, err := retry(func() (int, error) {
		return unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return dir{}, fmt.Errorf("open group %s: %w", path, err)
	}
	d := dir{os.NewFile(uintptr(fd), path)}
	var st unix.Statfs_t
	if err := unix.Fstatfs(fd, &st); err != nil {
		return dir{}, errors.Join(fmt.Errorf("statfs %s: %w", path, err), d.close())
	}
	if st.Type != unix.CGROUP2_SUPER_MAGIC && st.Type != unix.CGROUP_SUPER_MAGIC {
		return dir{}, errors.Join(fmt.Errorf("open group %s: not on a cgroup file system", path), d.close())
	}
	return d, nil
}

func (d dir) path() string { return d.f.Name() }

func (d dir) close() error { return d.f.Close() }

// use calls do with the descriptor, which stays open meanwhile. Once d is closed
// it returns fs.ErrClosed.
func (d dir) use(do func(fd int) error) error {
	conn, err := d.f.SyscallConn()
	if err != nil {
		return fs.ErrClosed
	}
	var result error
	if err := conn.Control(func(fd uintptr) { result = do(int(fd)) }); err != nil {
		return fs.ErrClosed // the only error there is; it comes unnamed
	}
	return result
}

// openAt opens the file or directory called name in d.
func (d dir) openAt(name string, flags int) (*os.File, error) {
	var opened int
	err := d.use(func(at int) (err error) {
		opened, err = retry(func() (int, error) {
			return unix.Openat(at, name, flags|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
		})
		return err
	})
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: filepath.Join(d.path(), name), Err: err}
	}
	return os.NewFile(uintptr(opened), filepath.Join(d.path(), name)), nil
}

// sub opens the directory called name in d.
func (d dir) sub(name string) (dir, error) {
	f, err := d.openAt(name, unix.O_RDONLY|unix.O_DIRECTORY)
	return dir{f}, err
}

// mkdir makes a directory in d, which must not exist yet.
func (d dir) mkdir(name string) error {
	err := d.use(func(at int) error {
		_, err := retry(func() (int, error) { return 0, unix.Mkdirat(at, name, 0o755) })
		return err
	})
	if err != nil {
		return &fs.PathError{Op: "mkdir", Path: filepath.Join(d.path(), name), Err: err}
	}
	return nil
}

// rmdir removes the empty directory called name in d. One that isn't there is
// removed already.
func (d dir) rmdir(name string) error {
	err := d.use(func(at int) error {
		_, err := retry(func() (int, error) { return 0, unix.Unlinkat(at, name, unix.AT_REMOVEDIR) })
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return &fs.PathError{Op: "rmdir", Path: filepath.Join(d.path(), name), Err: err}
	}
	return nil
}

// read returns the text of the file called name in d.
func (d dir) read(name string) ([]byte, error) {
	f, err := d.openAt(name, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	text, err := readAll(f)
	return text, errors.Join(err, f.Close())
}

// readAll reads f from its start. A file of kernfs is made anew by a read at 0.
func readAll(f *os.File) ([]byte, error) {
	text := make([]byte, 0, 512)
	for {
		n, err := retry(func() (int, error) {
			return unix.Pread(int(f.Fd()), text[len(text):cap(text)], int64(len(text)))
		})
		if err != nil {
			return nil, &fs.PathError{Op: "read", Path: f.Name(), Err: err}
		}
		if n == 0 {
			return text, nil
		}
		text = text[:len(text)+n]
		if len(text) == cap(text) {
			text = append(text, 0)[:len(text)]
		}
	}
}

// write writes value to the file called name in d, in one piece.
func (d dir) write(name, value string) error {
	f, err := d.openAt(name, unix.O_WRONLY)
	if err != nil {
		return err
	}
	_, err = retry(func() (int, error) { return unix.Write(int(f.Fd()), []byte(value)) })
	if err != nil {
		err = fmt.Errorf("write %q to %s: %w", value, f.Name(), err)
	}
	return errors.Join(err, f.Close())
}

// has reports whether there is a file called name in d.
func (d dir) has(name string) (bool, error) {
	err := d.use(func(at int) error {
		var st unix.Stat_t
		return unix.Fstatat(at, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	})
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, &fs.PathError{Op: "stat", Path: filepath.Join(d.path(), name), Err: err}
	}
	return true, nil
}

// writable returns an error unless entries may be made in d.
func (d dir) writable() error {
	err := d.use(func(at int) error { return unix.Faccessat(at, ".", unix.W_OK, unix.AT_EACCESS) })
	if err != nil {
		return &fs.PathError{Op: "write to", Path: d.path(), Err: err}
	}
	return nil
}

// subs returns the names of the directories in d. The link count of a kernfs
// directory counts them, which spares most groups the listing.
func (d dir) subs() ([]string, error) {
	var st unix.Stat_t
	if err := d.use(func(fd int) error { return unix.Fstat(fd, &st) }); err != nil {
		return nil, &fs.PathError{Op: "stat", Path: d.path(), Err: err}
	}
	if st.Nlink == 2 {
		return nil, nil
	}
	f, err := d.openAt(".", unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	entries, err := f.ReadDir(-1)
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("list %s: %w", d.path(), err)
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// walk calls visit for d and each directory below it, parents first. One that
// is removed meanwhile is passed over.
func (d dir) walk(visit func(dir) error) error {
	if err := visit(d); err != nil {
		return err
	}
	names, err := d.subs()
	if err != nil {
		return err
	}
	for _, name := range names {
		sub, err := d.sub(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		err = sub.walk(visit)
		if isGone(err) {
			err = nil
		}
		if err := errors.Join(err, sub.close()); err != nil {
			return err
		}
	}
	return nil
}

// isGone reports whether err says that the directory was removed: ENOENT for
// its files, ENODEV for those that were open already.
func isGone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV)
}

// isBusy reports whether err says that a directory holds processes or others.
func isBusy(err error) bool { return errors.Is(err, unix.EBUSY) || errors.Is(err, unix.ENOTEMPTY) }

// members returns the processes in d and below, zombies too where the kernel
// lists them (before Linux 5.2). With errInvisible come those that are visible.
func (d dir) members() (pids []int, err error) {
	var invisible error
	err = d.walk(func(each dir) error {
		text, err := each.read("cgroup.procs")
		if each != d && errors.Is(err, unix.EOPNOTSUPP) {
			return nil // a threaded group: the processes are listed by the one above (cgroup-v2.rst, "Threads")
		}
		if err != nil {
			return err
		}
		some, err := parsePIDs(text)
		pids = append(pids, some...)
		if errors.Is(err, errInvisible) {
			invisible, err = err, nil
		}
		if err != nil {
			return fmt.Errorf("members of %s: %w", each.path(), err)
		}
		return nil
	})
	if err == nil {
		err = invisible
	}
	return pids, err
}

// removeAll removes the directory called name in d with all directories below
// it, children first. It is busy while a process is in one of them.
func (d dir) removeAll(name string) error {
	err := d.rmdir(name)
	if err == nil || !isBusy(err) {
		return err
	}
	sub, openErr := d.sub(name)
	if errors.Is(openErr, fs.ErrNotExist) {
		return nil
	}
	if openErr != nil {
		return openErr
	}
	names, listErr := sub.subs()
	errs := []error{listErr}
	for _, name := range names {
		errs = append(errs, sub.removeAll(name))
	}
	if err := errors.Join(append(errs, sub.close())...); err != nil {
		return err
	}
	return d.rmdir(name)
}

// lock takes the lock on d; ok is false if somebody else has it. It ends when
// the last descriptor of this opening is closed, so at the latest with us.
func (d dir) lock() (ok bool, err error) {
	err = d.use(func(fd int) error {
		_, err := retry(func() (int, error) { return 0, unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) })
		return err
	})
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("lock %s: %w", d.path(), err)
	}
	return true, nil
}

// contains reports whether the directory called name in d is sub: a directory
// that was opened may have been removed before it was locked.
func (d dir) contains(name string, sub dir) (bool, error) {
	var have, want unix.Stat_t
	err := d.use(func(at int) error { return unix.Fstatat(at, name, &have, unix.AT_SYMLINK_NOFOLLOW) })
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err == nil {
		err = sub.use(func(fd int) error { return unix.Fstat(fd, &want) })
	}
	if err != nil {
		return false, &fs.PathError{Op: "stat", Path: filepath.Join(d.path(), name), Err: err}
	}
	return have.Dev == want.Dev && have.Ino == want.Ino, nil
}

// retry calls the system call do until it isn't interrupted. The Go runtime
// interrupts long ones to preempt, and the memory controller gives up on that.
func retry(do func() (int, error)) (int, error) {
	for {
		n, err := do()
		if err != unix.EINTR {
			return n, err
		}
	}
}

// hasSwap reports whether this machine swaps to anything now.
func hasSwap() (bool, error) {
	text, err := os.ReadFile("/proc/swaps")
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil // a kernel without swap
	}
	if err != nil {
		return false, err
	}
	return strings.Count(string(text), "\n") > 1, nil // the first line is a heading
}
