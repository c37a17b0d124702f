package native

import (
	"fmt"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"github.com/checkcell/checkcell/sandbox/cellhost"
	"github.com/checkcell/checkcell/sandbox/cellinit"
	"golang.org/x/sys/unix"
)

// The launcher is this program, executed once more by a Backend under the name
// launcherName. It forks one process, the cloner, which then clones the init
// of every cell. The cloner has one thread, no Go runtime, no memory but a few
// pages, and neither secret nor descriptor of the Backend's program, so its
// clones are small and quick, and nothing of ours is in a cell.

const (
	launcherName = "checkcell-launcher"
	launcherSock = 3
)

// RunLauncher makes this process a launcher if a Backend started it as one,
// and returns when it is done: was is true, and the caller exits with code.
// Programs that use this package call it first thing in main, before they read
// flags or start goroutines:
//
//	if code, was := native.RunLauncher(); was {
//		os.Exit(code)
//	}
func RunLauncher() (code int, was bool) {
	if len(os.Args) != 1 || os.Args[0] != launcherName {
		return 0, false
	}
	resetInherited()
	c := &cloner{}
	c.heap = heapOutside(uintptr(unsafe.Pointer(c)))
	runtime.LockOSThread()
	pid, errno := forkCloner(c)
	if errno != 0 {
		fmt.Fprintln(os.Stderr, "launcher:", cellinit.WithRemedy(fmt.Errorf("fork: %w", errno)))
		return 1, true
	}
	_ = unix.Close(launcherSock) // the cloner's alone from here on
	for {
		var status unix.WaitStatus
		_, err := unix.Wait4(int(pid), &status, 0, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil || !status.Exited() || status.ExitStatus() != 0 {
			fmt.Fprintf(os.Stderr, "launcher: the cloner ended: %v, status %#x\n", err, status)
			return 1, true
		}
		return 0, true
	}
}

// resetInherited gives up what cells would inherit of whoever started us, as
// far as we may: priority, scheduling policy, and a place before others when
// the kernel is out of memory, where a check rather comes first.
func resetInherited() {
	_ = unix.Setpriority(unix.PRIO_PROCESS, 0, 0) // lowering it takes a privilege that we may lack
	_ = unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_NORMAL}, 0)
	cellhost.RaiseSoft()
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("500"), 0) // refused where ours is above it
}

// cloneRequest asks the cloner for a clone. The descriptors of the init come
// beside it.
type cloneRequest struct {
	flags      uint64
	arenaBytes uint64
	cgroup     uint64 // 1 + which descriptor to be born into with CLONE_INTO_CGROUP; 0: none
}

// cloneReply is the answer; a pidfd comes beside it where pid is not 0.
type cloneReply struct {
	pid   int32
	errno uint32
}

// cloner is the memory of the cloner process.
type cloner struct {
	heap  [2]memoryRange // what it gives up of its launcher's
	req   cloneRequest
	reply cloneReply
	args  cloneArgs
	pidfd int32
	msg   msghdr
	iov   iovec
	oob   [cmsgHeader + 4*maxRights]byte
	act   cellinit.Sigaction
	mask  uint64
	old   uint64 // the launcher's signal mask
}

// cloneArgs is struct clone_args of clone3(2).
type cloneArgs struct {
	flags, pidFD, childTID, parentTID, exitSignal, stack, stackSize, tls, setTID, setTIDSize, cgroup uint64
}

// msghdr, iovec and cmsghdr are the kernel's, on 64-bit machines.
type (
	msghdr struct {
		name, nameLen         uintptr
		iov, iovLen           uintptr
		control, controlBytes uintptr
		flags                 uintptr
	}
	iovec struct {
		start, bytes uintptr
	}
	cmsghdr struct {
		bytes       uintptr
		level, kind int32
	}
)

const (
	cmsgHeader = unsafe.Sizeof(cmsghdr{})
	maxRights  = 64 // how many descriptors can come with a request
)

// memoryRange is a range of addresses.
type memoryRange struct {
	start, bytes uintptr
}

// forkCloner forks the cloner. It must run on a locked thread.
//
//go:nosplit
//go:norace
//go:noinline
func forkCloner(c *cloner) (pid uintptr, errno syscall.Errno) {
	c.mask = ^uint64(0)
	_, _, errno = syscall.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK,
		uintptr(unsafe.Pointer(&c.mask)), uintptr(unsafe.Pointer(&c.old)), cellinit.MaskBytes, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	pid, _, errno = syscall.RawSyscall6(unix.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
	if errno == 0 && pid == 0 {
		cellinit.Run(runCloner(c)) // here is a clone
	}
	syscall.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK,
		uintptr(unsafe.Pointer(&c.old)), 0, cellinit.MaskBytes, 0, 0)
	return pid, errno
}

// runCloner is the cloner: it answers requests until the socket ends.
// Children are reaped by the kernel, since SIGCHLD is ignored (sigaction(2),
// SA_NOCLDWAIT); the Backend sees their end by the pidfd. It returns in the
// clones, so that they have its stack to themselves, with the size of their
// arena.
//
//go:nosplit
//go:norace
func runCloner(c *cloner) (arenaBytes uintptr) {
	for i := range c.heap {
		syscall.RawSyscall6(unix.SYS_MADVISE, c.heap[i].start, c.heap[i].bytes, unix.MADV_DONTNEED, 0, 0, 0)
	}
	syscall.RawSyscall6(unix.SYS_DUP3, launcherSock, cellinit.FdCloner, 0, 0, 0, 0)
	c.act.Handler = 1 // SIG_IGN
	syscall.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(syscall.SIGCHLD), uintptr(unsafe.Pointer(&c.act)), 0, cellinit.MaskBytes, 0, 0)
	for {
		// So the descriptors of the next request are 1, 2, 3 and so on.
		syscall.RawSyscall6(unix.SYS_CLOSE_RANGE, cellinit.FdCloner+1, uintptr(^uint32(0)), 0, 0, 0, 0)
		c.iov = iovec{uintptr(unsafe.Pointer(&c.req)), unsafe.Sizeof(c.req)}
		c.msg = msghdr{iov: uintptr(unsafe.Pointer(&c.iov)), iovLen: 1, control: uintptr(unsafe.Pointer(&c.oob)), controlBytes: unsafe.Sizeof(c.oob)}
		n, _, errno := syscall.RawSyscall6(unix.SYS_RECVMSG, cellinit.FdCloner, uintptr(unsafe.Pointer(&c.msg)), unix.MSG_CMSG_CLOEXEC, 0, 0, 0)
		if errno == unix.EINTR {
			continue
		}
		if errno != 0 || n == 0 {
			cellinit.Exit(uintptr(errno))
		}
		c.reply = cloneReply{errno: uint32(unix.EBADMSG)}
		if n == unsafe.Sizeof(c.req) && c.msg.flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) == 0 {
			pid := uintptr(0)
			prepare(c)
			pid, _, errno = syscall.RawSyscall6(unix.SYS_CLONE3, uintptr(unsafe.Pointer(&c.args)), unsafe.Sizeof(c.args), 0, 0, 0, 0)
			if errno == 0 && pid == 0 {
				return uintptr(c.req.arenaBytes)
			}
			c.reply = cloneReply{pid: int32(pid), errno: uint32(errno)}
		}
		answer(c)
	}
}

// prepare turns the request into the arguments of clone3(2).
//
//go:nosplit
//go:norace
func prepare(c *cloner) {
	c.args = cloneArgs{flags: c.req.flags | unix.CLONE_PIDFD, pidFD: uint64(uintptr(unsafe.Pointer(&c.pidfd))), exitSignal: uint64(syscall.SIGCHLD)}
	if c.req.cgroup != 0 {
		c.args.flags |= unix.CLONE_INTO_CGROUP
		c.args.cgroup = c.req.cgroup - 1
	}
}

// answer sends the reply, and the pidfd of the clone if there is one.
//
//go:nosplit
//go:norace
func answer(c *cloner) {
	c.iov = iovec{uintptr(unsafe.Pointer(&c.reply)), unsafe.Sizeof(c.reply)}
	c.msg = msghdr{iov: uintptr(unsafe.Pointer(&c.iov)), iovLen: 1}
	if c.reply.errno == 0 {
		header := (*cmsghdr)(unsafe.Pointer(&c.oob))
		*header = cmsghdr{cmsgHeader + 4, unix.SOL_SOCKET, unix.SCM_RIGHTS}
		*(*int32)(unsafe.Add(unsafe.Pointer(&c.oob), cmsgHeader)) = c.pidfd
		c.msg.control, c.msg.controlBytes = uintptr(unsafe.Pointer(&c.oob)), cmsgHeader+8
	}
	_, _, errno := syscall.RawSyscall6(unix.SYS_SENDMSG, cellinit.FdCloner, uintptr(unsafe.Pointer(&c.msg)), unix.MSG_NOSIGNAL, 0, 0, 0)
	if errno != 0 {
		cellinit.Exit(uintptr(errno))
	}
}

// heapOutside returns the parts of Go's heap before and behind the neighbourhood of
// an address on the heap and of the running stack: memory that the cloner
// gives up, so that its clones have little to copy.
func heapOutside(used uintptr) [2]memoryRange {
	const arena, near = 64 << 20, 256 << 10
	var onStack byte
	stack := uintptr(unsafe.Pointer(&onStack))
	low, high := min(used, stack)&^(near-1)-near, (max(used, stack)+2*near)&^(near-1)
	start := low &^ (arena - 1)
	if high-start >= arena {
		return [2]memoryRange{} // they lie far apart; the cloner is then as large as its launcher
	}
	return [2]memoryRange{{start, low - start}, {high, start + arena - high}}
}
