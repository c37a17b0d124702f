package native

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// This file is what runs as PID 1 of a cell, and between its fork and the
// execution of a step's program.
//
// The launcher clones it without an exec: a copy of a Go process that has one
// thread and no runtime. Nothing here may allocate, grow the stack, take a
// lock or be preempted, so every function is nosplit and norace and makes raw
// system calls on memory that was laid out before the clone; this is what
// syscall.forkAndExecInChild of the standard library does for the same reason.
// All signals are blocked from before the clone on, and their handlers are
// reset first, so that no handler of Go's runtime can run.

// initArgs is all that the init works on.
type initArgs struct {
	calls   []call
	slots   [maxSlots]uintptr
	control uintptr // our end of the pipe of orders; its end is our end
	status  uintptr // our end of the pipe of records
	steps   [2]stepArgs

	// scratch memory
	order   [1]byte
	rec     record
	act     sigaction
	mask    uint64
	info    [128]byte // struct signalfd_siginfo
	polls   [2]unix.PollFd
	pipe    [2]int32
	errno   uint32
	wstatus int32
	pidfd   int32 // of the init itself, for the launcher
}

// stepArgs is a step's program: where it may be found, its arguments and
// environment, and the pipes of its two streams.
type stepArgs struct {
	paths  []*byte
	argv   []*byte // closed by nil
	envv   []*byte // closed by nil
	stdout uintptr
	stderr uintptr
}

// sigaction is the kernel's struct sigaction; zero is SIG_DFL.
type sigaction struct {
	handler, flags, restorer uintptr
	mask                     uint64
}

const (
	signals   = 64
	maskBytes = 8
)

// forkInit clones the init into the namespaces and the group that args name
// and returns its process id. It must run on a locked thread.
//
//go:nosplit
//go:norace
//go:noinline
func forkInit(args *cloneArgs, a *initArgs) (pid uintptr, errno syscall.Errno) {
	args.pidFD = uint64(uintptr(unsafe.Pointer(&a.pidfd)))
	all, old := ^uint64(0), uint64(0)
	_, _, errno = syscall.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK,
		uintptr(unsafe.Pointer(&all)), uintptr(unsafe.Pointer(&old)), maskBytes, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	pid, _, errno = syscall.RawSyscall(unix.SYS_CLONE3, uintptr(unsafe.Pointer(args)), unsafe.Sizeof(*args), 0)
	if errno == 0 && pid == 0 {
		runInit(a)
	}
	syscall.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK,
		uintptr(unsafe.Pointer(&old)), 0, maskBytes, 0, 0)
	return pid, errno
}

// cloneArgs is struct clone_args of clone3(2).
type cloneArgs struct {
	flags, pidFD, childTID, parentTID, exitSignal, stack, stackSize, tls, setTID, setTIDSize, cgroup uint64
}

// runInit is PID 1: it waits for the order to go on, sets the cell up, starts
// the steps that it is told to, reaps whatever ends, and reports. It forwards
// no signal. When its pipe of orders is closed, by us or by our death, it
// exits, and the kernel kills everything else in its PID namespace.
//
//go:nosplit
//go:norace
func runInit(a *initArgs) {
	for sig := uintptr(1); sig <= signals; sig++ {
		syscall.RawSyscall6(unix.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(&a.act)), 0, maskBytes, 0, 0)
	}
	if !nextOrder(a) {
		exit(0)
	}
	if i, errno, ok := runCalls(a); !ok {
		report(a, recordSetupFailed, uint32(i), uint32(errno))
		exit(1)
	}
	a.mask = 1 << (uint(syscall.SIGCHLD) - 1)
	sigfd, _, errno := syscall.RawSyscall6(unix.SYS_SIGNALFD4, ^uintptr(0), uintptr(unsafe.Pointer(&a.mask)), maskBytes, unix.SFD_CLOEXEC, 0, 0)
	if errno != 0 {
		report(a, recordSetupFailed, uint32(len(a.calls)), uint32(errno))
		exit(1)
	}
	report(a, recordReady, 0, 0)
	first := uintptr(0)
	for {
		a.polls[0] = unix.PollFd{Fd: int32(a.control), Events: unix.POLLIN}
		a.polls[1] = unix.PollFd{Fd: int32(sigfd), Events: unix.POLLIN}
		syscall.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&a.polls)), 2, 0, 0, 0, 0)
		if a.polls[0].Revents != 0 {
			if !nextOrder(a) {
				exit(0)
			}
			if i := a.order[0] - orderStep; int(i) < len(a.steps) {
				first = startStep(a, &a.steps[i])
			}
		}
		if a.polls[1].Revents != 0 {
			syscall.RawSyscall(unix.SYS_READ, sigfd, uintptr(unsafe.Pointer(&a.info)), unsafe.Sizeof(a.info))
			reap(a, first)
		}
	}
}

// nextOrder reads one order; it is false at the end of the pipe.
//
//go:nosplit
//go:norace
func nextOrder(a *initArgs) bool {
	n, _, errno := syscall.RawSyscall(unix.SYS_READ, a.control, uintptr(unsafe.Pointer(&a.order)), 1)
	return errno == 0 && n == 1
}

// runCalls makes the set-up's system calls.
//
//go:nosplit
//go:norace
func runCalls(a *initArgs) (failed int, errno syscall.Errno, ok bool) {
	for i := 0; i < len(a.calls); i++ {
		c := &a.calls[i]
		for j := range c.from {
			if c.from[j] != 0 {
				c.arg[j] = a.slots[c.from[j]-1]
			}
		}
		r, _, e := syscall.RawSyscall6(c.nr, c.arg[0], c.arg[1], c.arg[2], c.arg[3], c.arg[4], c.arg[5])
		if e != 0 {
			if e != c.let {
				return i, e, false
			}
			continue
		}
		if c.only && r != c.want {
			return i, 0, false
		}
		if c.save != 0 {
			a.slots[c.save-1] = r
		}
	}
	return 0, 0, true
}

// startStep forks the step's first process and reports that its program is
// being executed, or why not. It returns the process id, 0 if there is none.
//
//go:nosplit
//go:norace
func startStep(a *initArgs, s *stepArgs) uintptr {
	_, _, errno := syscall.RawSyscall(unix.SYS_PIPE2, uintptr(unsafe.Pointer(&a.pipe)), unix.O_CLOEXEC, 0)
	if errno != 0 {
		report(a, recordExecFailed, stageFork, uint32(errno))
		return 0
	}
	pid, _, errno := syscall.RawSyscall6(unix.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
	if errno == 0 && pid == 0 {
		execStep(a, s)
	}
	syscall.RawSyscall(unix.SYS_CLOSE, uintptr(a.pipe[1]), 0, 0)
	syscall.RawSyscall(unix.SYS_CLOSE, s.stdout, 0, 0)
	syscall.RawSyscall(unix.SYS_CLOSE, s.stderr, 0, 0)
	if errno != 0 {
		report(a, recordExecFailed, stageFork, uint32(errno))
		syscall.RawSyscall(unix.SYS_CLOSE, uintptr(a.pipe[0]), 0, 0)
		return 0
	}
	n, _, _ := syscall.RawSyscall(unix.SYS_READ, uintptr(a.pipe[0]), uintptr(unsafe.Pointer(&a.errno)), unsafe.Sizeof(a.errno))
	syscall.RawSyscall(unix.SYS_CLOSE, uintptr(a.pipe[0]), 0, 0)
	if n != 0 {
		errno = syscall.Errno(a.errno)
		syscall.RawSyscall6(unix.SYS_WAIT4, pid, uintptr(unsafe.Pointer(&a.wstatus)), 0, 0, 0, 0)
		report(a, recordExecFailed, stageExec, uint32(errno))
		return 0
	}
	report(a, recordStarted, 0, 0)
	return pid
}

// execStep is the forked process: a session of its own, the init's /dev/null
// and the step's two streams, no other descriptor, no blocked signal, and the program.
//
//go:nosplit
//go:norace
func execStep(a *initArgs, s *stepArgs) {
	var last syscall.Errno = unix.ENOENT
	_, _, errno := syscall.RawSyscall(unix.SYS_SETSID, 0, 0, 0)
	if errno == 0 {
		_, _, errno = syscall.RawSyscall(unix.SYS_DUP3, s.stdout, 1, 0)
	}
	if errno == 0 {
		_, _, errno = syscall.RawSyscall(unix.SYS_DUP3, s.stderr, 2, 0)
	}
	if errno == 0 {
		_, _, errno = syscall.RawSyscall(unix.SYS_CLOSE_RANGE, 3, uintptr(^uint32(0)), unix.CLOSE_RANGE_CLOEXEC)
	}
	a.mask = 0
	if errno == 0 {
		_, _, errno = syscall.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&a.mask)), 0, maskBytes, 0, 0)
	}
	if errno != 0 {
		last = errno
	}
	for i := 0; errno == 0 && i < len(s.paths); i++ {
		_, _, e := syscall.RawSyscall(unix.SYS_EXECVE, uintptr(unsafe.Pointer(s.paths[i])),
			uintptr(unsafe.Pointer(&s.argv[0])), uintptr(unsafe.Pointer(&s.envv[0])))
		if e != unix.ENOENT && e != unix.ENOTDIR {
			last = e // as execvp(3): what was found and could not be run counts for more
			if e != unix.EACCES {
				break
			}
		}
	}
	a.errno = uint32(last)
	syscall.RawSyscall(unix.SYS_WRITE, uintptr(a.pipe[1]), uintptr(unsafe.Pointer(&a.errno)), unsafe.Sizeof(a.errno))
	exit(127)
}

// reap takes every ended child and reports the end of the first process.
//
//go:nosplit
//go:norace
func reap(a *initArgs, first uintptr) {
	for {
		pid, _, errno := syscall.RawSyscall6(unix.SYS_WAIT4, ^uintptr(0), uintptr(unsafe.Pointer(&a.wstatus)), unix.WNOHANG, 0, 0, 0)
		if errno != 0 || pid == 0 {
			return
		}
		if pid == first {
			report(a, recordEnded, uint32(a.wstatus), 0)
		}
	}
}

//go:nosplit
//go:norace
func report(a *initArgs, kind, x, y uint32) {
	a.rec = record{kind, x, y}
	syscall.RawSyscall(unix.SYS_WRITE, a.status, uintptr(unsafe.Pointer(&a.rec)), unsafe.Sizeof(a.rec))
}

//go:nosplit
//go:norace
func exit(code uintptr) {
	for {
		syscall.RawSyscall(unix.SYS_EXIT_GROUP, code, 0, 0)
	}
}
