package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// readProcess looks at one process. One that ended is not an error: ok is
// false. One that /proc hides from us (hidepid) is there, in the state '?'.
func readProcess(pid int) (p Process, ok bool, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission), errors.Is(err, unix.ESRCH):
		gone := unix.Kill(pid, 0) == unix.ESRCH
		return Process{PID: pid, State: '?', threads: 1}, !gone, nil
	case err != nil:
		return Process{}, false, fmt.Errorf("read process %d: %w", pid, err)
	}
	p, err = parseStat(text)
	if err != nil {
		return Process{}, false, fmt.Errorf("read process %d: %w", pid, err)
	}
	return p, true, nil
}

// checkProc returns an error unless /proc shows the processes of our own PID
// namespace, by the numbers that groups list them under.
func checkProc() error {
	self, err := os.Readlink("/proc/self")
	if err != nil {
		return err
	}
	if own := strconv.Itoa(os.Getpid()); self != own {
		return fmt.Errorf("/proc is of another PID namespace: we are process %s there and %s here; mount it anew", self, own)
	}
	return nil
}

// members returns the live processes in nodes, in ascending order. With
// errInvisible come those that are visible.
//
// A cgroup2 group lists nobody who has ended with all threads
// (css_task_iter_advance in kernel/cgroup/cgroup.c), so its members need no
// second look, which would cost a large group's kill more than the kill does.
func members(nodes []node) (live []int, err error) {
	var listed []int // by version 1
	var invisible error
	for _, n := range nodes {
		some, err := n.dir.members()
		if errors.Is(err, errInvisible) {
			invisible, err = fmt.Errorf("%s: %w", n.dir.path(), err), nil
		}
		switch {
		case err != nil:
			return nil, err
		case n.v2:
			live = append(live, some...)
		default:
			listed = append(listed, some...)
		}
	}
	slices.Sort(live)
	slices.Sort(listed)
	sure := len(live)
	for _, pid := range slices.Compact(listed) {
		if _, ok := slices.BinarySearch(live[:sure], pid); ok {
			continue
		}
		p, ok, err := readProcess(pid)
		if err != nil {
			return nil, err
		}
		if ok && !p.dead() {
			live = append(live, pid)
		}
	}
	slices.Sort(live)
	return slices.Compact(live), invisible
}

// signalBatch is how many processes signalAll takes on at once: it holds a
// descriptor for each.
const signalBatch = 256

// signalAll sends SIGKILL to the processes in nodes, to signalBatch at most. A
// process id may pass to a stranger between listing and signal. So each process
// is pinned by a pidfd and then must be listed once more: now the pidfd is that
// of a member, or of a process that has ended. Who is invisible can't be signaled.
func signalAll(nodes []node) error {
	pids, err := members(nodes)
	if err != nil && !errors.Is(err, errInvisible) {
		return err
	}
	pinned := map[int]int{} // pidfd by process id
	defer func() {
		for _, fd := range pinned {
			unix.Close(fd)
		}
	}()
	// A thread of ours that is leaving has us listed in version 1: see Group.Enter.
	pids = slices.DeleteFunc(pids, func(pid int) bool { return pid == os.Getpid() })
	for _, pid := range pids[:min(len(pids), signalBatch)] {
		fd, ok, err := pin(pid)
		if noPidfd(err) {
			return signalByNumber(pids)
		}
		if err != nil {
			return fmt.Errorf("open process %d: %w", pid, err)
		}
		if ok {
			pinned[pid] = fd
		}
	}
	if pids, err = members(nodes); err != nil && !errors.Is(err, errInvisible) {
		return err
	}
	var errs []error
	for _, pid := range pids {
		fd, ok := pinned[pid]
		if !ok {
			continue // it came later, or is of the next batch
		}
		if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && err != unix.ESRCH {
			errs = append(errs, fmt.Errorf("signal process %d: %w", pid, err))
		}
	}
	return errors.Join(errs...)
}

// pin opens a process. One that has ended is not an error: ok is false. The kernel
// may find its id still in use and no process led by it any more, if it is being
// reaped meanwhile: then it says EINVAL, or ENOENT since Linux 6.16 (pidfd_prepare
// in kernel/fork.c).
func pin(pid int) (fd int, ok bool, err error) {
	fd, err = unix.PidfdOpen(pid, 0)
	switch err {
	case nil:
		return fd, true, nil
	case unix.ESRCH, unix.EINVAL, unix.ENOENT:
		return 0, false, nil
	}
	return 0, false, err
}

// hasPidfd reports whether signalAll can pin processes.
func hasPidfd() bool {
	fd, err := unix.PidfdOpen(os.Getpid(), 0)
	if err == nil {
		unix.Close(fd)
	}
	return !noPidfd(err)
}

// noPidfd reports whether err is that of pidfd_open before Linux 5.3, or under a
// seccomp filter that doesn't know it.
func noPidfd(err error) bool { return err == unix.ENOSYS || err == unix.EPERM }

// signalByNumber is signalAll for kernels without pidfd_open. Where there is a
// freezer the group is frozen meanwhile, so that no id changes hands.
func signalByNumber(pids []int) error {
	var errs []error
	for _, pid := range pids {
		if err := unix.Kill(pid, unix.SIGKILL); err != nil && err != unix.ESRCH {
			errs = append(errs, fmt.Errorf("signal process %d: %w", pid, err))
		}
	}
	return errors.Join(errs...)
}
