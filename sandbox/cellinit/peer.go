//go:build linux

package cellinit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"syscall"

	"github.com/checkcell/checkcell/sandbox"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// Peer is an init as its supervisor sees it. Its methods may be called at the
// same time.
type Peer struct {
	process *specs.Process
	calls   []string
	streams [streams]stream // of a container's init
	shown   [][]byte        // by it, of the files of Inside; written before it is ready
	done    chan struct{}

	mu      sync.Mutex
	orders  io.Writer
	step    sandbox.Step // the step that was started last
	running bool         // its first process was not seen to end
	lost    bool
	hello   chan error    // one value: a container's init is there, or why not
	ready   chan error    // one value: the cell is set up, or why not
	started [2]chan error // one value each: a step's program is executed, or why not
	ended   [2]chan sandbox.End
	counted chan counted // of a container's init: one value for each order
}

// counted is how many processes an init sees, or why that is not known.
type counted struct {
	n   int
	err error
}

// stream is one that an init passes on.
type stream struct {
	r *io.PipeReader
	w *io.PipeWriter
}

// NewPeer returns the peer of an init that runs process and whose set-up makes
// calls, which are named for errors. Orders go to orders.
func NewPeer(process *specs.Process, calls []string, orders io.Writer) *Peer {
	p := &Peer{process: process, calls: calls, orders: orders, shown: make([][]byte, len(Inside)), counted: make(chan counted, 1), hello: make(chan error, 1), ready: make(chan error, 1), done: make(chan struct{})}
	for i := range p.started {
		p.started[i], p.ended[i] = make(chan error, 1), make(chan sandbox.End, 1)
	}
	for i := range p.streams {
		p.streams[i].r, p.streams[i].w = io.Pipe()
	}
	return p
}

func (p *Peer) order(o byte) error {
	if _, err := p.orders.Write([]byte{o}); err != nil {
		return fmt.Errorf("the cell's init is gone: %w", err)
	}
	return nil
}

// Listen hands out what the init reports on status, until its end. Whoever
// still waits then learns that nothing will come, and why if the caller of Lost
// did not say so first.
func (p *Peer) Listen(status io.Reader) {
	defer close(p.done)
	for {
		r, err := readRecord(status)
		if err == nil && (r.kind == recordStream || r.kind == recordShown) {
			err = p.pass(status, r)
		}
		if err != nil {
			why := "the cell's init ended without a report"
			if err != io.EOF {
				why += ": " + err.Error()
			}
			p.Lost(why)
			return
		}
		p.take(r)
	}
}

// Done is closed when Listen has returned.
func (p *Peer) Done() <-chan struct{} { return p.done }

func (p *Peer) take(r record) {
	p.mu.Lock()
	step := p.step
	if r.kind == recordEnded || r.kind == recordExecFailed {
		p.running = false
	}
	p.mu.Unlock()
	switch r.kind {
	case recordHello:
		p.hello <- nil
	case recordReady:
		p.ready <- nil
	case recordSetupFailed:
		p.ready <- fmt.Errorf("set up the cell: %w", describeCall(p.calls, r.x, syscall.Errno(r.y)))
	case recordStarted:
		p.started[step] <- nil
	case recordExecFailed:
		p.started[step] <- p.execError(r.x, syscall.Errno(r.y))
	case recordEnded:
		p.ended[step] <- endOf(r.x)
	case recordCounted:
		c := counted{n: int(r.x)}
		if r.y != 0 {
			c.err = fmt.Errorf("count processes in the cell: %w", syscall.Errno(r.y))
		}
		select {
		case p.counted <- c:
		default: // nobody asked
		}
	}
}

// pass hands on the bytes that follow a record.
func (p *Peer) pass(status io.Reader, r record) error {
	places := len(p.streams)
	if r.kind == recordShown {
		places = len(p.shown)
	}
	if int(r.x) >= places || r.y > bufferBytes {
		return fmt.Errorf("read the init's report: %d bytes of number %d", r.y, r.x)
	}
	b := make([]byte, r.y)
	if _, err := io.ReadFull(status, b); err != nil {
		return fmt.Errorf("read the init's report: cut off in what it passes on: %w", err)
	}
	if r.kind == recordShown {
		p.shown[r.x] = append(p.shown[r.x], b...)
		return nil
	}
	w := p.streams[r.x].w
	if r.y == 0 {
		return w.Close()
	}
	_, _ = w.Write(b) // refused where the reader was closed and wants no more
	return nil
}

// Lost tells everyone who may wait that the init is gone, and why. Who was told
// something before is not told again.
func (p *Peer) Lost(why string) {
	p.mu.Lock()
	p.lost = true
	p.mu.Unlock()
	for _, c := range []chan error{p.hello, p.ready, p.started[0], p.started[1]} {
		select {
		case c <- errors.New(why):
		default:
		}
	}
	for _, c := range p.ended {
		select {
		case c <- sandbox.EndLost(why):
		default:
		}
	}
	for _, s := range p.streams {
		s.w.Close() // never fails
	}
}

func (p *Peer) execError(stage uint32, errno syscall.Errno) error {
	name := p.process.Args[0]
	switch {
	case stage == stageFork:
		return WithRemedy(fmt.Errorf("start %s: fork: %w", name, errno))
	case errno == unix.ENOENT:
		return fmt.Errorf("start %s: not found in the cell's root file system (PATH %s): %w", name, variable(p.process.Env, "PATH"), errno)
	case errno == unix.E2BIG:
		return fmt.Errorf("start %s: the arguments and the environment are too long for the kernel: %w", name, errno)
	}
	return fmt.Errorf("start %s: %w", name, errno)
}

// Hello tells a container's init on its standard input what to set up, and returns
// when it was read: its process is there. Nothing of the container ran before.
func (p *Peer) Hello(ctx context.Context, arena []byte) error {
	go func() { // ends with the init, which reads or closes its end
		for _, b := range [][]byte{Raw(uintptr(len(arena))), arena} {
			if _, err := p.orders.Write(b); err != nil {
				return // its end is reported by Listen
			}
		}
	}()
	return wait(ctx, p.hello)
}

// SetUp orders the init to set the cell up, and returns when it is. Content is
// that of a Layout, for an init that was not given it in a file.
func (p *Peer) SetUp(ctx context.Context, content ...[]byte) error {
	told := make(chan error, 1)
	go func() { // ends with the init, which reads or closes its end
		err := p.order(orderGo)
		for _, part := range content {
			if err == nil {
				_, err = p.orders.Write(part)
			}
		}
		told <- err
	}()
	if err := wait(ctx, p.ready); err != nil {
		return err
	}
	return <-told
}

// Start orders the init to start a step, and returns when its program has been
// executed. The channel gets the end of its first process.
func (p *Peer) Start(ctx context.Context, step sandbox.Step) (<-chan sandbox.End, error) {
	if int(step) >= len(p.started) {
		return nil, fmt.Errorf("start %v: there is no such step", step)
	}
	p.mu.Lock()
	p.step, p.running = step, true
	p.mu.Unlock()
	if err := p.order(orderStep + byte(step)); err != nil {
		return nil, err
	}
	return p.ended[step], wait(ctx, p.started[step])
}

func wait(ctx context.Context, c <-chan error) error {
	select {
	case err := <-c:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Running reports whether the first process of the step that was started last
// was not seen to end.
func (p *Peer) Running() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.running
}

// Shown is what the init showed of a file of Inside, once it is set up.
func (p *Peer) Shown(name string) []byte {
	i := slices.Index(Inside, name)
	if i < 0 {
		return nil
	}
	return p.shown[i]
}

// Count asks a container's init how many processes there are, itself among them.
func (p *Peer) Count(ctx context.Context) (int, error) {
	if err := p.order(orderCount); err != nil {
		return 0, err
	}
	select {
	case c := <-p.counted:
		return c.n, c.err
	case <-p.done:
		return 0, errors.New("the cell's init is gone")
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}

// Close has the streams that an init passes on refuse what still comes.
func (p *Peer) Close() {
	for _, s := range p.streams {
		s.r.Close() // never fails
	}
}

// Gone reports whether the init was lost.
func (p *Peer) Gone() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lost
}

// Streams are a step's stdout and stderr, where the init passes them on.
func (p *Peer) Streams(step sandbox.Step) (stdout, stderr io.ReadCloser) {
	return p.streams[streamOf(step, 0)].r, p.streams[streamOf(step, 1)].r
}
