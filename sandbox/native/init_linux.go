package native

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// This file is what runs as PID 1 of a cell, and between its fork and the
// execution of a step's program.
//
// It is cloned without an exec: a copy of a process of Go's that has one
// thread and no runtime. Nothing here may allocate, grow the stack, take a
// lock, be preempted or touch Go's heap, so every function is nosplit and
// norace and makes raw system calls on its arena; syscall.forkAndExecInChild
// of the standard library does so for the same reason. All signals are blocked
// from before the clone on, and their handlers are reset first, so that no
// handler of Go's runtime can run.

// The descriptors of an init: it gets them in this order, from 1 on, the
// lowest that are free. A cgroup2 directory and detached mounts may follow.
const (
	fdCloner  = iota // the cloner's socket, closed first
	fdArena          // mapped at arenaStart
	fdContent        // the content of the files to lay out, one after the other
	fdControl        // our orders; its end is our end
	fdStatus         // takes our records
	fdStreams        // stdout and stderr of the syntax pass, then of the check
	fdMore    = fdStreams + 4
)

// initArgs is what an arena begins with, as the init sees it. initLayout is
// the same memory as whoever fills it sees it: addresses, not pointers.
type initArgs struct {
	calls *call
	count uintptr
	steps [2]stepArgs
	slots [maxSlots]uintptr

	// scratch memory
	order   [8]byte
	rec     record
	act     sigaction
	mask    uint64
	info    [128]byte // struct signalfd_siginfo
	polls   [2]unix.PollFd
	pipe    [2]int32
	errno   uint32
	wstatus int32
}

// stepArgs is a step's program: where it may be found, its arguments and
// environment, each closed by nil, and the descriptors of its two streams.
type stepArgs struct {
	paths, argv, envv **byte
	stdout, stderr    uintptr
}

type initLayout struct {
	calls, count uintptr
	steps        [2]stepLayout
}

type stepLayout struct {
	paths, argv, envv, stdout, stderr uintptr
}

const initArgsBytes = unsafe.Sizeof(initArgs{})

// sigaction is the kernel's struct sigaction; zero is SIG_DFL.
type sigaction struct {
	handler, flags, restorer uintptr
	mask                     uint64
}

const (
	signals   = 64
	maskBytes = 8
)

// runInit is PID 1: it waits for the order to go on, sets the cell up, starts
// the steps that it is told to, reaps whatever ends, and reports. It forwards
// no signal. When its pipe of orders is closed, by us or by our death, it
// exits, and the kernel kills everything else in its PID namespace.
//
//go:nosplit
//go:norace
func runInit(arenaBytes uintptr) {
	addr, _, errno := syscall.RawSyscall6(unix.SYS_MMAP, arenaStart, arenaBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_FIXED_NOREPLACE, fdArena, 0)
	if errno != 0 {
		rec := record{recordSetupFailed, callMap, uint32(errno)}
		syscall.RawSyscall6(unix.SYS_WRITE, fdStatus, uintptr(unsafe.Pointer(&rec)), unsafe.Sizeof(rec), 0, 0, 0)
		exit(1)
	}
	a := *(**initArgs)(unsafe.Pointer(&addr)) // memory that is not Go's
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
		report(a, recordSetupFailed, callSignals, uint32(errno))
		exit(1)
	}
	report(a, recordReady, 0, 0)
	first := uintptr(0)
	for {
		a.polls[0] = unix.PollFd{Fd: fdControl, Events: unix.POLLIN}
		a.polls[1] = unix.PollFd{Fd: int32(sigfd), Events: unix.POLLIN}
		syscall.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&a.polls)), 2, 0, 0, 0, 0)
		if a.polls[0].Revents != 0 {
			if !nextOrder(a) {
				exit(0)
			}
			if i := a.order[0] - orderStep; int(i) < len(a.steps) {
				child := false
				if first, child = startStep(a, &a.steps[i]); child {
					execStep(a, &a.steps[i])
				}
			}
		}
		if a.polls[1].Revents != 0 {
			syscall.RawSyscall6(unix.SYS_READ, sigfd, uintptr(unsafe.Pointer(&a.info)), unsafe.Sizeof(a.info), 0, 0, 0)
			reap(a, first)
		}
	}
}

// nextOrder reads one order; it is false at the end of the pipe.
//
//go:nosplit
//go:norace
func nextOrder(a *initArgs) bool {
	n, _, errno := syscall.RawSyscall6(unix.SYS_READ, fdControl, uintptr(unsafe.Pointer(&a.order)), 1, 0, 0, 0)
	return errno == 0 && n == 1
}

// runCalls makes the set-up's system calls.
//
//go:nosplit
//go:norace
func runCalls(a *initArgs) (failed uintptr, errno syscall.Errno, ok bool) {
	for i := uintptr(0); i < a.count; i++ {
		c := (*call)(unsafe.Add(unsafe.Pointer(a.calls), i*unsafe.Sizeof(call{})))
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
// In the forked process it returns at once, with child true.
//
//go:nosplit
//go:norace
func startStep(a *initArgs, s *stepArgs) (pid uintptr, child bool) {
	_, _, errno := syscall.RawSyscall6(unix.SYS_PIPE2, uintptr(unsafe.Pointer(&a.pipe)), unix.O_CLOEXEC, 0, 0, 0, 0)
	if errno != 0 {
		report(a, recordExecFailed, stageFork, uint32(errno))
		return 0, false
	}
	pid, _, errno = syscall.RawSyscall6(unix.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
	if errno == 0 && pid == 0 {
		return 0, true
	}
	syscall.RawSyscall6(unix.SYS_CLOSE, uintptr(a.pipe[1]), 0, 0, 0, 0, 0)
	syscall.RawSyscall6(unix.SYS_CLOSE, s.stdout, 0, 0, 0, 0, 0)
	syscall.RawSyscall6(unix.SYS_CLOSE, s.stderr, 0, 0, 0, 0, 0)
	if errno != 0 {
		report(a, recordExecFailed, stageFork, uint32(errno))
		syscall.RawSyscall6(unix.SYS_CLOSE, uintptr(a.pipe[0]), 0, 0, 0, 0, 0)
		return 0, false
	}
	n, _, _ := syscall.RawSyscall6(unix.SYS_READ, uintptr(a.pipe[0]), uintptr(unsafe.Pointer(&a.errno)), unsafe.Sizeof(a.errno), 0, 0, 0)
	syscall.RawSyscall6(unix.SYS_CLOSE, uintptr(a.pipe[0]), 0, 0, 0, 0, 0)
	if n != 0 {
		syscall.RawSyscall6(unix.SYS_WAIT4, pid, uintptr(unsafe.Pointer(&a.wstatus)), 0, 0, 0, 0)
		report(a, recordExecFailed, stageExec, a.errno)
		return 0, false
	}
	report(a, recordStarted, 0, 0)
	return pid, false
}

// execStep is the forked process: a session of its own, the init's /dev/null
// and the step's two streams, no other descriptor, no blocked signal, and the
// program.
//
//go:nosplit
//go:norace
func execStep(a *initArgs, s *stepArgs) {
	var last syscall.Errno = unix.ENOENT
	_, _, errno := syscall.RawSyscall6(unix.SYS_SETSID, 0, 0, 0, 0, 0, 0)
	if errno == 0 {
		_, _, errno = syscall.RawSyscall6(unix.SYS_DUP3, s.stdout, 1, 0, 0, 0, 0)
	}
	if errno == 0 {
		_, _, errno = syscall.RawSyscall6(unix.SYS_DUP3, s.stderr, 2, 0, 0, 0, 0)
	}
	if errno == 0 {
		_, _, errno = syscall.RawSyscall6(unix.SYS_CLOSE_RANGE, 3, uintptr(^uint32(0)), unix.CLOSE_RANGE_CLOEXEC, 0, 0, 0)
	}
	a.mask = 0
	if errno == 0 {
		_, _, errno = syscall.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&a.mask)), 0, maskBytes, 0, 0)
	}
	if errno != 0 {
		last = errno
	}
	for path := s.paths; errno == 0 && *path != nil; path = (**byte)(unsafe.Add(unsafe.Pointer(path), unsafe.Sizeof(path))) {
		_, _, e := syscall.RawSyscall6(unix.SYS_EXECVE, uintptr(unsafe.Pointer(*path)),
			uintptr(unsafe.Pointer(s.argv)), uintptr(unsafe.Pointer(s.envv)), 0, 0, 0)
		if e != unix.ENOENT && e != unix.ENOTDIR {
			last = e // as execvp(3): what was found and could not be run counts for more
			if e != unix.EACCES {
				break
			}
		}
	}
	a.errno = uint32(last)
	syscall.RawSyscall6(unix.SYS_WRITE, uintptr(a.pipe[1]), uintptr(unsafe.Pointer(&a.errno)), unsafe.Sizeof(a.errno), 0, 0, 0)
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
	syscall.RawSyscall6(unix.SYS_WRITE, fdStatus, uintptr(unsafe.Pointer(&a.rec)), unsafe.Sizeof(a.rec), 0, 0, 0)
}

//go:nosplit
//go:norace
func exit(code uintptr) {
	for {
		syscall.RawSyscall6(unix.SYS_EXIT_GROUP, code, 0, 0, 0, 0, 0)
	}
}
