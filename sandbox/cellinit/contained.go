//go:build linux

package cellinit

import (
	"syscall"
	"unsafe"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// This file is what a container's init has beside init.go, under the same rules.
// It was executed, so nobody passed it descriptors but the standard streams. Its
// orders come on standard input, behind its arena, and it reports on standard
// output, where the streams of the steps come too, in pieces.

// Inside are the files of /proc/self that an init shows of a cell which this host's
// /proc tells nothing of.
var Inside = []string{"status", "limits", "mountinfo"}

// Contain returns the arena of a container's init, which lays out layout and
// then runs the steps of spec, and the names of its calls for NewPeer. With inside,
// for a kernel of its own, it shows the files of Inside that there are, for Peer.Shown.
func Contain(spec *specs.Spec, layout Layout, inside bool) (arena []byte, calls []string, err error) {
	p := NewProgram()
	p.streamed, p.guest = true, inside
	null := p.NewSlot()
	p.Call("open /dev/null", Call{Nr: unix.SYS_OPENAT, Save: null, Arg: [6]uintptr{AtCwd, p.Text("/dev/null"), unix.O_RDWR | unix.O_CLOEXEC}})
	for fd := range uintptr(3) {
		p.Call("open /dev/null", Call{Nr: unix.SYS_DUP3, From: [6]Slot{null}, Arg: [6]uintptr{0, fd, 0}})
	}
	p.Close(null)
	p.Simple("make the init unreadable", unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 0)
	p.Simple("set umask", unix.SYS_UMASK, 0)
	p.LayOut(spec.Process.Cwd, layout)
	if mask := spec.Process.User.Umask; mask != nil {
		p.Simple("set umask", unix.SYS_UMASK, uintptr(*mask))
	}
	if inside {
		for i, name := range Inside {
			p.Call("read /proc/self/"+name, Call{Nr: callShow, Arg: [6]uintptr{p.Text("/proc/self/" + name), uintptr(i)}, Let: unix.ENOENT})
		}
	}
	return p.Finish(spec)
}

// bufferBytes is how much of a stream or a file is passed on at once.
const bufferBytes = 64 << 10

// What is no system call, but done by an init all the same.
const (
	callFill = ^uintptr(0)     // a file is filled with what comes behind the orders
	callShow = ^uintptr(0) - 1 // a file is passed on
)

// containedPC is the address of enterContained. See entry_*.s.
var containedPC uintptr

// enterContained is where the executable of a container's init begins.
//
//lint:ignore U1000 its address is taken in entry_*.s
func enterContained()

// runContained is process 1 of a container.
//
//lint:ignore U1000 it is called in entry_*.s
//go:nosplit
//go:norace
func runContained() {
	mask := ^uint64(0)
	syscall.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&mask)), 0, MaskBytes, 0, 0)
	syscall.RawSyscall6(unix.SYS_DUP3, 0, FdControl, unix.O_CLOEXEC, 0, 0, 0)
	syscall.RawSyscall6(unix.SYS_DUP3, 1, FdStatus, unix.O_CLOEXEC, 0, 0, 0)
	arenaBytes := uintptr(0)
	errno := readFull(uintptr(unsafe.Pointer(&arenaBytes)), unsafe.Sizeof(arenaBytes))
	addr := uintptr(0)
	if errno == 0 {
		addr, _, errno = syscall.RawSyscall6(unix.SYS_MMAP, arenaStart, arenaBytes+bufferBytes, unix.PROT_READ|unix.PROT_WRITE,
			unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_FIXED_NOREPLACE, ^uintptr(0), 0)
	}
	if errno == 0 && addr != arenaStart {
		errno = unix.EEXIST // a kernel that takes the address for a hint
	}
	if errno == 0 {
		errno = readFull(addr, arenaBytes)
	}
	if errno != 0 {
		rec := record{recordSetupFailed, callMap, uint32(errno)}
		syscall.RawSyscall6(unix.SYS_WRITE, FdStatus, uintptr(unsafe.Pointer(&rec)), unsafe.Sizeof(rec), 0, 0, 0)
		Exit(1)
	}
	a := *(**initArgs)(unsafe.Pointer(&addr)) // memory that is not Go's
	a.buffer = arenaStart + arenaBytes
	report(a, recordHello, 0, 0)
	serve(a)
}

// readFull reads n bytes of what we are told.
//
//go:nosplit
//go:norace
func readFull(addr, n uintptr) syscall.Errno {
	for n > 0 {
		got, _, errno := syscall.RawSyscall6(unix.SYS_READ, FdControl, addr, n, 0, 0, 0)
		if errno != 0 {
			return errno
		}
		if got == 0 {
			return unix.EPIPE
		}
		addr, n = addr+got, n-got
	}
	return 0
}

// fill fills a file with the next n bytes of what we are told.
//
//go:nosplit
//go:norace
func fill(a *initArgs, fd, n uintptr) syscall.Errno {
	for n > 0 {
		got, _, errno := syscall.RawSyscall6(unix.SYS_READ, FdControl, a.buffer, min(n, bufferBytes), 0, 0, 0)
		if errno != 0 {
			return errno
		}
		if got == 0 {
			return unix.EPIPE
		}
		n -= got
		for at := a.buffer; got > 0; {
			put, _, errno := syscall.RawSyscall6(unix.SYS_WRITE, fd, at, got, 0, 0, 0)
			if errno != 0 {
				return errno
			}
			at, got = at+put, got-put
		}
	}
	return 0
}

// openStreams makes the pipes of a step's streams, whose other ends are ours to
// pass on. A clone has the ends that it was given.
//
//go:nosplit
//go:norace
func openStreams(a *initArgs, step uint32) syscall.Errno {
	if a.buffer == 0 {
		return 0
	}
	for i := range uint32(2) {
		_, _, errno := syscall.RawSyscall6(unix.SYS_PIPE2, uintptr(unsafe.Pointer(&a.pipe)), unix.O_CLOEXEC, 0, 0, 0, 0)
		if errno != 0 {
			return errno
		}
		a.polls[pollStreams+2*step+i].Fd = a.pipe[0]
		if i == 0 {
			a.steps[step].stdout = uintptr(a.pipe[1])
		} else {
			a.steps[step].stderr = uintptr(a.pipe[1])
		}
	}
	return 0
}

// relay passes on what the stream of p has, up to most bytes, and returns how many
// they were. At the stream's end it closes it, and says so. An error is no end: it
// ends the init, so that nobody takes the stream for whole.
//
//go:nosplit
//go:norace
func relay(a *initArgs, p *unix.PollFd, stream uint32, most uintptr) uintptr {
	n, _, errno := syscall.RawSyscall6(unix.SYS_READ, uintptr(p.Fd), a.buffer, min(most, bufferBytes), 0, 0, 0)
	if errno != 0 {
		Exit(1)
	}
	report(a, recordStream, stream, uint32(n))
	if n == 0 {
		syscall.RawSyscall6(unix.SYS_CLOSE, uintptr(p.Fd), 0, 0, 0, 0, 0)
		p.Fd = -1
	}
	for at, left := a.buffer, n; left > 0; {
		put, _, errno := syscall.RawSyscall6(unix.SYS_WRITE, FdStatus, at, left, 0, 0, 0)
		if errno != 0 {
			Exit(1) // nobody listens any more
		}
		at, left = at+put, left-put
	}
	return n
}

// held is how much the stream of p holds at this moment. Not to know it ends the
// init, as in relay.
//
//go:nosplit
//go:norace
func held(a *initArgs, p *unix.PollFd) uintptr {
	a.waiting = 0
	if p.Fd >= 0 {
		if _, _, errno := syscall.RawSyscall6(unix.SYS_IOCTL, uintptr(p.Fd), unix.TIOCINQ, uintptr(unsafe.Pointer(&a.waiting)), 0, 0, 0); errno != 0 {
			Exit(1)
		}
	}
	return uintptr(a.waiting)
}

// show passes on a file, in pieces.
//
//go:nosplit
//go:norace
func show(a *initArgs, path uintptr, number uint32) syscall.Errno {
	fd, _, errno := syscall.RawSyscall6(unix.SYS_OPENAT, AtCwd, path, unix.O_RDONLY|unix.O_CLOEXEC, 0, 0, 0)
	if errno != 0 {
		return errno
	}
	for {
		n, _, errno := syscall.RawSyscall6(unix.SYS_READ, fd, a.buffer, bufferBytes, 0, 0, 0)
		if errno != 0 || n == 0 {
			syscall.RawSyscall6(unix.SYS_CLOSE, fd, 0, 0, 0, 0, 0)
			return errno
		}
		report(a, recordShown, number, uint32(n))
		for at := a.buffer; n > 0; {
			put, _, errno := syscall.RawSyscall6(unix.SYS_WRITE, FdStatus, at, n, 0, 0, 0)
			if errno != 0 {
				return errno
			}
			at, n = at+put, n-put
		}
	}
}

// dirent is the head of a struct linux_dirent64 of getdents64(2).
type dirent struct {
	inode, offset uint64
	bytes         uint16
	kind          uint8
	name          [1]byte
}

// count reports how many processes /proc lists: the entries that begin with a digit.
//
//go:nosplit
//go:norace
func count(a *initArgs) {
	number := uint32(0)
	fd, _, errno := syscall.RawSyscall6(unix.SYS_OPENAT, AtCwd, a.proc, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0, 0, 0)
	for errno == 0 {
		n := uintptr(0)
		n, _, errno = syscall.RawSyscall6(unix.SYS_GETDENTS64, fd, a.buffer, bufferBytes, 0, 0, 0)
		if errno != 0 || n == 0 {
			break
		}
		for at := uintptr(0); at < n; {
			e := (*dirent)(unsafe.Add(*(*unsafe.Pointer)(unsafe.Pointer(&a.buffer)), at))
			if c := e.name[0]; c >= '1' && c <= '9' {
				number++
			}
			at += uintptr(e.bytes)
		}
	}
	syscall.RawSyscall6(unix.SYS_CLOSE, fd, 0, 0, 0, 0, 0)
	report(a, recordCounted, number, uint32(errno))
}
