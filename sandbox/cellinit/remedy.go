//go:build linux

package cellinit

import (
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// shortages are what the kernel says when something ran out or isn't there, and
// what to do.
var shortages = [...]struct {
	errno syscall.Errno
	fix   string
}{
	{unix.EMFILE, "checkcell may open too few files: raise the limit (ulimit -n), or run fewer checks at once (--jobs)"},
	{unix.ENFILE, "all of this machine's open files are in use: raise fs.file-max, or end programs"},
	{unix.EAGAIN, "no more processes may be started here: raise the limit of processes around checkcell (ulimit -u, pids.max of its groups), or run fewer checks at once (--jobs)"},
	{unix.ENOSYS, "this kernel is older than Linux 5.14, or a filter of system calls around checkcell forbids it: in a container, docker run --security-opt seccomp=unconfined, or a profile that lets clone3, mount and what belongs to them through"},
	{unix.ENOMEM, "memory is short: raise the memory limit around checkcell (memory.max of its groups, ulimit -v), or run fewer checks at once (--jobs)"},
}

// Remedy says what to do about an error that comes of a shortage; "" for others.
func Remedy(err error) string {
	for _, s := range shortages {
		if errors.Is(err, s.errno) {
			return s.fix
		}
	}
	return ""
}

// WithRemedy adds to err what to do about it, where that is known.
func WithRemedy(err error) error {
	if fix := Remedy(err); fix != "" {
		return fmt.Errorf("%w; %s", err, fix)
	}
	return err
}
