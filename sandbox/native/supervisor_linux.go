package native

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"github.com/checkcell/checkcell/sandbox/cellhost"
	"github.com/checkcell/checkcell/sandbox/cellinit"
	"golang.org/x/sys/unix"
)

// link is a Backend's side of one launcher and its cloner.
type link struct {
	cmd    *exec.Cmd
	stderr *cellhost.Words

	mu   sync.Mutex // one request at a time
	sock int        // -1 once it was closed
	dead error      // why no request can be answered any more; nil while they can
}

// answerBudget is how long the cloner may take for one clone.
const answerBudget = 20 * time.Second

// lastWords is how long a launcher that gives no answer may take to say why.
const lastWords = time.Second

// closeBudget is how long a launcher may take to end.
const closeBudget = 5 * time.Second

// startLauncher executes this program as a launcher, in a session of its own
// so that a terminal's interrupt reaches only us, with an empty environment.
func startLauncher() (*link, error) {
	if os.Args[0] == launcherName {
		// A main that does not call RunLauncher would start itself for ever.
		return nil, errors.New("start launcher: this process was started as one; call native.RunLauncher first in main")
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("start launcher: %w", err)
	}
	theirs := os.NewFile(uintptr(pair[1]), "launcher")
	defer theirs.Close()
	l := &link{sock: pair[0], stderr: &cellhost.Words{}}
	timeout := unix.NsecToTimeval(answerBudget.Nanoseconds())
	err = unix.SetsockoptTimeval(l.sock, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout)
	l.cmd = &exec.Cmd{
		Path: "/proc/self/exe", Args: []string{launcherName}, Env: []string{}, Dir: "/",
		ExtraFiles: []*os.File{theirs}, Stderr: l.stderr,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if err == nil {
		err = l.cmd.Start()
	}
	if err != nil {
		_ = unix.Close(l.sock) // nothing was sent
		return nil, fmt.Errorf("start launcher: %w", err)
	}
	return l, nil
}

// errNoAnswer is wrapped by an error of clone for a launcher or cloner that is
// gone. There may be a clone all the same, that nobody can tell of: it holds
// our pipe of orders, and ends when that is closed.
var errNoAnswer = errors.New("the launcher gave no answer")

// clone has the cloner clone an init with these descriptors, from 1 on, and
// returns its process id and a pidfd, which is the caller's to close.
func (l *link) clone(req cloneRequest, fds []int) (pid int, pidfd *os.File, err error) {
	if len(fds) > maxRights {
		return 0, nil, fmt.Errorf("clone the cell's init: it needs %d descriptors, %d can be passed", len(fds), maxRights)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead != nil {
		return 0, nil, l.dead
	}
	reply, rights, err := l.exchange(req, fds)
	if err != nil {
		ctx, cancel := context.WithTimeout(context.Background(), lastWords)
		defer cancel()
		l.reap(ctx)
		l.dead = fmt.Errorf("%w: %w: %s", errNoAnswer, err, cmp.Or(l.stderr.String(), "it said nothing; is native.RunLauncher called first in main?"))
		return 0, nil, l.dead
	}
	if len(rights) == 1 {
		_ = unix.SetNonblock(rights[0], true) // so that its end can be waited for
		pidfd = os.NewFile(uintptr(rights[0]), "pidfd")
	}
	if reply.errno != 0 || pidfd == nil {
		return 0, nil, fmt.Errorf("clone the cell's init into its namespaces: %w", syscall.Errno(reply.errno))
	}
	return int(reply.pid), pidfd, nil
}

func (l *link) exchange(req cloneRequest, fds []int) (reply cloneReply, rights []int, err error) {
	err = retry(func() error {
		return unix.Sendmsg(l.sock, cellinit.Raw(req), unix.UnixRights(fds...), nil, unix.MSG_NOSIGNAL)
	})
	if err != nil {
		return reply, nil, err
	}
	b, oob := make([]byte, unsafe.Sizeof(reply)), make([]byte, unix.CmsgSpace(4))
	var n, oobn, flags int
	err = retry(func() error {
		n, oobn, flags, _, err = unix.Recvmsg(l.sock, b, oob, unix.MSG_CMSG_CLOEXEC)
		return err
	})
	switch {
	case err != nil:
		return reply, nil, err
	case n != len(b):
		return reply, nil, errors.New("it ended")
	}
	reply = *(*cloneReply)(unsafe.Pointer(unsafe.SliceData(b)))
	if reply.errno == 0 && flags&unix.MSG_CTRUNC != 0 {
		reply.errno = uint32(unix.EMFILE) // it was cloned, and we have no room for its pidfd (unix(7), SCM_RIGHTS)
	}
	messages, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err == nil && len(messages) == 1 {
		rights, err = unix.ParseUnixRights(&messages[0])
	}
	return reply, rights, err
}

// retry calls do again while a signal interrupts it.
func retry(do func() error) error {
	for {
		if err := do(); err != unix.EINTR {
			return err
		}
	}
}

func (l *link) alive() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dead == nil
}

// close ends the launcher and waits for it. It may be called again.
func (l *link) close(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sock < 0 {
		return nil
	}
	err := unix.Close(l.sock)
	l.sock = -1
	if l.dead == nil {
		l.dead = errors.New("the launcher was closed")
	}
	l.reap(ctx)
	return err
}

// reap waits for the launcher's end, which it kills when ctx ends. It may be
// called again.
func (l *link) reap(ctx context.Context) {
	hung := context.AfterFunc(ctx, func() {
		_ = l.cmd.Process.Kill() // it does not end by itself
	})
	defer hung()
	_ = l.cmd.Wait() // how it ended changes nothing: it holds nothing of a cell
}

// waitGone returns when the process of pidfd has ended. For an init that means
// that its PID namespace is empty: the kernel kills and reaps all others in it
// before the init counts as ended (pid_namespaces(7)).
func waitGone(ctx context.Context, pidfd *os.File) error {
	raw, err := pidfd.SyscallConn()
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = pidfd.SetReadDeadline(time.Now()) })
	defer stop()
	var pollErr error
	err = raw.Read(func(fd uintptr) bool {
		polls := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(polls, 0)
		if err != nil && err != unix.EINTR {
			pollErr = err
		}
		return n > 0 || pollErr != nil
	})
	if errors.Is(err, os.ErrDeadlineExceeded) {
		_ = pidfd.SetReadDeadline(time.Time{}) // it may be waited for again
		return fmt.Errorf("the cell's init did not end: %w", context.Cause(ctx))
	}
	return errors.Join(err, pollErr)
}

// signalKill kills the process of pidfd.
func signalKill(pidfd *os.File) error {
	raw, err := pidfd.SyscallConn()
	if err != nil {
		return err
	}
	var killErr error
	err = raw.Control(func(fd uintptr) { killErr = unix.PidfdSendSignal(int(fd), unix.SIGKILL, nil, 0) })
	if killErr == unix.ESRCH { // it has ended, which is what is wanted
		killErr = nil
	}
	return errors.Join(err, killErr)
}

// memoryFile returns an anonymous file that holds the parts, read from its start.
func memoryFile(name string, parts ...[]byte) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make memory file %s: %w", name, err)
	}
	f := os.NewFile(uintptr(fd), name)
	for _, part := range parts {
		if _, err := f.Write(part); err != nil {
			f.Close()
			return nil, fmt.Errorf("fill memory file %s: %w", name, err)
		}
	}
	if _, err := f.Seek(0, 0); err != nil {
		f.Close()
		return nil, fmt.Errorf("rewind memory file %s: %w", name, err)
	}
	return f, nil
}
