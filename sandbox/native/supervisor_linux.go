package native

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// link is a Backend's side of one launcher.
type link struct {
	cmd    *exec.Cmd
	sock   int
	stderr *tail

	mu      sync.Mutex
	next    uint64
	pending map[uint64]*cellLink // those whose init is not known to be gone
	dead    error                // why the launcher is gone; nil while it lives
	closed  bool                 // no more orders: sock may be gone

	ended chan struct{} // closed when the reading goroutine is done
}

// cellLink is what the launcher says of one cell. Each channel has room for
// all that is ever sent on it.
type cellLink struct {
	id     uint64
	cloned chan message  // one: the init's pid, or an error
	gone   chan struct{} // closed when the init was reaped or the launcher is gone
}

// tail keeps the last bytes written to it: what a launcher says as it fails.
type tail struct {
	mu sync.Mutex
	b  []byte
}

func (t *tail) Write(p []byte) (int, error) {
	const most = 4 << 10
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p...)
	if extra := len(t.b) - most; extra > 0 {
		t.b = append(t.b[:0], t.b[extra:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(bytes.TrimSpace(t.b))
}

// startLauncher executes this program as a launcher, in a session of its own
// so that a terminal's interrupt reaches only us, with an empty environment.
func startLauncher() (*link, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("start launcher: %w", err)
	}
	theirs := os.NewFile(uintptr(pair[1]), "launcher")
	defer theirs.Close()
	l := &link{sock: pair[0], stderr: &tail{}, pending: map[uint64]*cellLink{}, ended: make(chan struct{})}
	l.cmd = &exec.Cmd{
		Path: "/proc/self/exe", Args: []string{launcherName}, Env: []string{}, Dir: "/",
		ExtraFiles: []*os.File{theirs}, Stderr: l.stderr,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if err := l.cmd.Start(); err != nil {
		_ = unix.Close(pair[0]) // nothing was sent
		return nil, fmt.Errorf("start launcher: %w", err)
	}
	go l.read()
	return l, nil
}

// read hands out what the launcher says until it is gone, which close brings about.
func (l *link) read() {
	defer close(l.ended)
	var err error
	for err == nil {
		var m message
		if _, err = receivePacket(l.sock, &m); err != nil {
			break
		}
		l.mu.Lock()
		if c := l.pending[m.ID]; c != nil {
			if m.Gone || m.Err != "" {
				delete(l.pending, m.ID)
				close(c.gone)
			}
			if !m.Gone {
				c.cloned <- m
			}
		}
		l.mu.Unlock()
	}
	waitErr := l.cmd.Wait()
	if errors.Is(err, io.EOF) {
		err = fmt.Errorf("the launcher ended: %v %s; does main call native.RunLauncher first?", waitErr, l.stderr)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dead = err
	for id, c := range l.pending {
		delete(l.pending, id)
		c.cloned <- message{ID: id, Err: err.Error()}
		close(c.gone)
	}
}

// launch asks for a cell. The request's answer comes on the cellLink.
func (l *link) launch(fds []int) (*cellLink, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead != nil || l.closed {
		return nil, fmt.Errorf("ask the launcher for a cell: %w", errors.Join(l.dead, os.ErrClosed))
	}
	l.next++
	// Room for two: an answer, and the launcher's end.
	c := &cellLink{id: l.next, cloned: make(chan message, 2), gone: make(chan struct{})}
	if err := sendPacket(l.sock, order{ID: c.id}, fds...); err != nil {
		return nil, err
	}
	l.pending[c.id] = c
	return c, nil
}

// kill has the launcher kill the init of a cell, whose PID namespace ends with it.
func (l *link) kill(c *cellLink) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead == nil && !l.closed && l.pending[c.id] != nil {
		_ = sendPacket(l.sock, order{ID: c.id, Kill: true}) // fails only when the launcher is gone, and then so is the cell
	}
}

func (l *link) alive() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dead == nil && !l.closed
}

// close ends the launcher and waits for it.
func (l *link) close(ctx context.Context) error {
	l.mu.Lock()
	first := !l.closed
	l.closed = true
	l.mu.Unlock()
	if first {
		_ = unix.Shutdown(l.sock, unix.SHUT_RDWR) // ENOTCONN: it is gone already
	}
	select {
	case <-l.ended:
	case <-ctx.Done():
		_ = l.cmd.Process.Kill() // it hangs; read then sees its end
		<-l.ended
	}
	if first {
		return unix.Close(l.sock)
	}
	return nil
}

// closeBudget is how long a launcher may take to end.
const closeBudget = 5 * time.Second
