package native

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"github.com/checkcell/checkcell/sandbox"
	"golang.org/x/sys/unix"
)

func (x *box) order(o byte) error {
	if _, err := x.control.Write([]byte{o}); err != nil {
		return fmt.Errorf("the cell's init is gone: %w", err)
	}
	return nil
}

// readReports hands out what the init reports, until the init's end closes
// the pipe. Whoever still waits then learns that nothing will come.
func (x *box) readReports(status *os.File) {
	defer close(x.reports)
	defer status.Close()
	for {
		r, err := readRecord(status)
		if err != nil {
			x.lost(err)
			return
		}
		x.mu.Lock()
		step := x.step
		if r.kind == recordEnded || r.kind == recordExecFailed {
			x.running = false
		}
		x.mu.Unlock()
		switch r.kind {
		case recordReady:
			x.ready <- nil
		case recordSetupFailed:
			x.ready <- fmt.Errorf("set up the cell: %w", describeCall(x.calls, r.x, syscall.Errno(r.y)))
		case recordStarted:
			x.started[step] <- nil
		case recordExecFailed:
			x.started[step] <- x.execError(r.x, syscall.Errno(r.y))
		case recordEnded:
			x.ended[step] <- endOf(r.x)
		}
	}
}

// lost tells everyone who may wait that the init is gone. A channel that is
// full has its value already.
func (x *box) lost(err error) {
	why := "the cell's init ended without a report"
	if err != io.EOF {
		why += ": " + err.Error()
	}
	for _, c := range []chan error{x.ready, x.started[0], x.started[1]} {
		select {
		case c <- errors.New(why):
		default:
		}
	}
	for _, c := range x.ended {
		select {
		case c <- sandbox.EndLost(why):
		default:
		}
	}
}

func (x *box) execError(stage uint32, errno syscall.Errno) error {
	name := x.req.Spec.Process.Args[0]
	switch {
	case stage == stageFork:
		return withRemedy(fmt.Errorf("start %s: fork: %w", name, errno))
	case errno == unix.ENOENT:
		return fmt.Errorf("start %s: not found in the cell's root file system (PATH %s): %w", name, optionOf(x.req.Spec.Process.Env, "PATH"), errno)
	case errno == unix.E2BIG:
		return fmt.Errorf("start %s: the arguments and the environment are too long for the kernel: %w", name, errno)
	}
	return fmt.Errorf("start %s: %w", name, errno)
}

// Start starts a step. See sandbox.Box.
func (x *box) Start(ctx context.Context, step sandbox.Step) (sandbox.Process, error) {
	if int(step) >= len(x.started) {
		return sandbox.Process{}, fmt.Errorf("start %v: there is no such step", step)
	}
	x.mu.Lock()
	x.step, x.running = step, true
	x.mu.Unlock()
	if err := x.order(orderStep + byte(step)); err != nil {
		return sandbox.Process{}, err
	}
	select {
	case err := <-x.started[step]:
		if err != nil {
			return sandbox.Process{}, err
		}
		s := x.streams[step]
		return sandbox.Process{Stdout: s.stdout, Stderr: s.stderr, Ended: x.ended[step]}, nil
	case <-ctx.Done():
		return sandbox.Process{}, context.Cause(ctx)
	}
}
