//go:build linux

package cellinit

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// This file is what runs as process 1 of a cell, and between its fork and the
// execution of a step's program.
//
// It has one thread and no Go runtime. Nothing here may allocate, grow the stack,
// take a lock, be preempted or touch Go's heap, so every function is nosplit and
// norace and makes raw system calls on its arena; syscall.forkAndExecInChild of
// the standard library does so for the same reason. A clone has all signals
// blocked from before the clone on, and their handlers are reset first, so that
// no handler of Go's runtime can run.

// The descriptors of an init: it gets them in this order, from 1 on, the
// lowest that are free. A cgroup2 directory and detached mounts may follow.
const (
	FdCloner  = iota // the cloner's socket, closed first
	FdArena          // mapped at arenaStart
	FdContent        // the content of the files to lay out, one after the other
	FdControl        // our orders; its end is our end
	FdStatus         // takes our records
	FdStreams        // stdout and stderr of the syntax pass, then of the check
	FdMore    = FdStreams + streams
)

// initArgs is what an arena begins with, as the init sees it. initLayout is
// the same memory as whoever fills it sees it: addresses, not pointers.
type initArgs struct {
	calls *Call
	count uintptr
	steps [2]stepArgs
	proc  uintptr // the text "/proc"
	slots [maxSlots]uintptr

	// scratch memory
	order   [8]byte
	rec     record
	act     Sigaction
	mask    uint64
	info    [128]byte // struct signalfd_siginfo
	polls   [pollStreams + streams]unix.PollFd
	pipe    [2]int32
	errno   uint32
	wstatus int32
	ended   int32   // the wait status of the first process
	waiting int32   // bytes in a pipe
	buffer  uintptr // of a container's init: bufferBytes that streams and files pass through; 0: of a clone
}

// What an init waits for.
const (
	pollOrders   = iota
	pollChildren // a signalfd
	pollStreams  // those that a container's init passes on
)

// streams are stdout and stderr of the syntax pass, and of the check.
const streams = 4

// stepArgs is a step's program: where it may be found, its arguments and
// environment, each closed by nil, and the descriptors of its two streams.
type stepArgs struct {
	paths, argv, envv **byte
	stdout, stderr    uintptr
}

type initLayout struct {
	calls, count uintptr
	steps        [2]stepLayout
	proc         uintptr
}

type stepLayout struct {
	paths, argv, envv, stdout, stderr uintptr
}

const initArgsBytes = unsafe.Sizeof(initArgs{})

// Sigaction is the kernel's struct Sigaction; zero is SIG_DFL.
type Sigaction struct {
	Handler, Flags, Restorer uintptr
	Mask                     uint64
}

const (
	signals   = 64
	MaskBytes = 8 // of a set of signals
)

// Run is process 1 of a cell as a clone: it waits for the order to go on, sets
// the cell up, starts the steps that it is told to, reaps whatever ends, and
// reports. It forwards no signal. When its pipe of orders is closed, by us or by
// our death, it exits, and the kernel kills everything else in its PID namespace.
//
//go:nosplit
//go:norace
func Run(arenaBytes uintptr) {
	addr, _, errno := syscall.RawSyscall6(unix.SYS_MMAP, arenaStart, arenaBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_FIXED_NOREPLACE, FdArena, 0)
	if errno != 0 {
		rec := record{recordSetupFailed, callMap, uint32(errno)}
		syscall.RawSyscall6(unix.SYS_WRITE, FdStatus, uintptr(unsafe.Pointer(&rec)), unsafe.Sizeof(rec), 0, 0, 0)
		Exit(1)
	}
	serve(*(**initArgs)(unsafe.Pointer(&addr))) // memory that is not Go's
}

// serve is an init from when its arena is mapped to its end.
//
//go:nosplit
//go:norace
func serve(a *initArgs) {
	for sig := uintptr(1); sig <= signals; sig++ {
		syscall.RawSyscall6(unix.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(&a.act)), 0, MaskBytes, 0, 0)
	}
	if !nextOrder(a) {
		Exit(0)
	}
	if i, errno, ok := runCalls(a); !ok {
		report(a, recordSetupFailed, uint32(i), uint32(errno))
		Exit(1)
	}
	a.mask = 1 << (uint(syscall.SIGCHLD) - 1)
	sigfd, _, errno := syscall.RawSyscall6(unix.SYS_SIGNALFD4, ^uintptr(0), uintptr(unsafe.Pointer(&a.mask)), MaskBytes, unix.SFD_CLOEXEC, 0, 0)
	if errno != 0 {
		report(a, recordSetupFailed, callSignals, uint32(errno))
		Exit(1)
	}
	report(a, recordReady, 0, 0)
	for i := range a.polls {
		a.polls[i] = unix.PollFd{Fd: -1, Events: unix.POLLIN}
	}
	a.polls[pollOrders].Fd, a.polls[pollChildren].Fd = FdControl, int32(sigfd)
	first := uintptr(0)
	for {
		syscall.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&a.polls)), uintptr(len(a.polls)), 0, 0, 0, 0)
		if a.polls[pollOrders].Revents != 0 {
			if !nextOrder(a) {
				Exit(0)
			}
			if a.order[0] == orderCount {
				count(a)
			}
			if i := a.order[0] - orderStep; int(i) < len(a.steps) {
				child := false
				if errno := openStreams(a, uint32(i)); errno != 0 {
					report(a, recordExecFailed, stageFork, uint32(errno))
				} else if first, child = startStep(a, &a.steps[i]); child {
					execStep(a, &a.steps[i])
				}
			}
		}
		for i := range uint32(streams) {
			if p := &a.polls[pollStreams+i]; p.Revents != 0 {
				relay(a, p, i, bufferBytes)
			}
		}
		if a.polls[pollChildren].Revents != 0 {
			syscall.RawSyscall6(unix.SYS_READ, sigfd, uintptr(unsafe.Pointer(&a.info)), unsafe.Sizeof(a.info), 0, 0, 0)
			if reap(a, first) {
				for i := range uint32(streams) { // what it wrote comes before its end
					p := &a.polls[pollStreams+i]
					for left := held(a, p); left > 0; {
						n := relay(a, p, i, left)
						if n == 0 {
							break
						}
						left -= n
					}
				}
				report(a, recordEnded, uint32(a.ended), 0)
			}
		}
	}
}

// nextOrder reads one order; it is false at the end of the pipe.
//
//go:nosplit
//go:norace
func nextOrder(a *initArgs) bool {
	n, _, errno := syscall.RawSyscall6(unix.SYS_READ, FdControl, uintptr(unsafe.Pointer(&a.order)), 1, 0, 0, 0)
	return errno == 0 && n == 1
}

// runCalls makes the set-up's system calls.
//
//go:nosplit
//go:norace
func runCalls(a *initArgs) (failed uintptr, errno syscall.Errno, ok bool) {
	for i := uintptr(0); i < a.count; i++ {
		c := (*Call)(unsafe.Add(unsafe.Pointer(a.calls), i*unsafe.Sizeof(Call{})))
		for j := range c.From {
			if c.From[j] != 0 {
				c.Arg[j] = a.slots[c.From[j]-1]
			}
		}
		if c.Nr >= callShow { // none of the kernel's numbers is so high
			e := syscall.Errno(0)
			if c.Nr == callFill {
				e = fill(a, c.Arg[0], c.Arg[3])
			} else {
				e = show(a, c.Arg[0], uint32(c.Arg[1]))
			}
			if e != 0 && e != c.Let {
				return i, e, false
			}
			continue
		}
		r, _, e := syscall.RawSyscall6(c.Nr, c.Arg[0], c.Arg[1], c.Arg[2], c.Arg[3], c.Arg[4], c.Arg[5])
		if e != 0 {
			if e != c.Let {
				return i, e, false
			}
			continue
		}
		if c.Only && r != c.Want {
			return i, 0, false
		}
		if c.Save != 0 {
			a.slots[c.Save-1] = r
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
		if a.buffer != 0 && (errno == unix.ENOSYS || errno == unix.EINVAL) {
			errno = 0 // gVisor; what a container's init has open closes by itself
		}
	}
	a.mask = 0
	if errno == 0 {
		_, _, errno = syscall.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&a.mask)), 0, MaskBytes, 0, 0)
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
	Exit(127)
}

// reap takes every ended child, and returns whether the first process was among
// them; its status is in a.ended then.
//
//go:nosplit
//go:norace
func reap(a *initArgs, first uintptr) (ended bool) {
	for {
		pid, _, errno := syscall.RawSyscall6(unix.SYS_WAIT4, ^uintptr(0), uintptr(unsafe.Pointer(&a.wstatus)), unix.WNOHANG, 0, 0, 0)
		if errno != 0 || pid == 0 {
			return ended
		}
		if pid == first {
			a.ended, ended = a.wstatus, true
		}
	}
}

//go:nosplit
//go:norace
func report(a *initArgs, kind, x, y uint32) {
	a.rec = record{kind, x, y}
	syscall.RawSyscall6(unix.SYS_WRITE, FdStatus, uintptr(unsafe.Pointer(&a.rec)), unsafe.Sizeof(a.rec), 0, 0, 0)
}

// Exit ends this process, without Go's runtime.
//
//go:nosplit
//go:norace
func Exit(code uintptr) {
	for {
		syscall.RawSyscall6(unix.SYS_EXIT_GROUP, code, 0, 0, 0, 0, 0)
	}
}
