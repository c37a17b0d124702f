package native

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/checkcell/checkcell/cgroup"
	"github.com/checkcell/checkcell/sandbox"
	"github.com/checkcell/checkcell/sandbox/cellspec"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// box is one native cell.
type box struct {
	backend *Backend
	req     request
	group   *cgroup.Group // nil where groups are missing and may be
	uid     int           // the host user of the cell; 0 if it is ours
	link    *link
	cell    *cellLink // nil until the launcher was asked
	pid     int       // of the init, outside
	control *os.File  // our end; closing it ends the cell
	reports chan struct{}
	streams [2]streamPair // our ends, by step
	receipt sandbox.Receipt
	digest  string
	lists   []string // evidence that can't be had

	destroyed bool

	mu      sync.Mutex
	step    sandbox.Step  // the step that was started last
	running bool          // its first process was not seen to end
	started [2]chan error // one value each: a step's program is executed, or why not
	ended   [2]chan sandbox.End
	ready   chan error // one value: the cell is set up, or why not
}

type streamPair struct {
	stdout, stderr *os.File
}

// Create makes and sets up a cell. See sandbox.Backend.
func (b *Backend) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Box, error) {
	missing, err := b.refuse(spec)
	if err != nil {
		return nil, err
	}
	oci, err := cellspec.Build(spec)
	if err != nil {
		return nil, err
	}
	digest, err := cellspec.Digest(oci)
	if err != nil {
		return nil, err
	}
	try := func(overlay bool) (*box, error) {
		x := newBox(b, oci)
		x.receipt.Missing, x.digest = missing, digest
		x.req.Overlay = overlay
		return x, x.make(ctx, spec)
	}
	overlay := spec.Workspace != "" && !b.copyOnly.Load()
	x, err := try(overlay)
	if err != nil && overlay && ctx.Err() == nil && !errors.Is(err, sandbox.ErrLeftBehind) {
		// A kernel or a file system that can't do it: a copy is always right.
		first := err
		if x, err = try(false); err == nil {
			b.copyOnly.Store(true)
		} else if err.Error() != first.Error() {
			err = fmt.Errorf("%w (and as an overlay: %w)", err, first)
		}
	}
	if err != nil {
		return nil, err
	}
	return x, nil
}

func newBox(b *Backend, oci *specs.Spec) *box {
	x := &box{backend: b, ready: make(chan error, 1), reports: make(chan struct{})}
	x.req = request{Spec: oci, Privileged: b.privileged, HostUID: os.Geteuid(), HostGID: os.Getegid()}
	for i := range x.started {
		x.started[i], x.ended[i] = make(chan error, 1), make(chan sandbox.End, 1)
	}
	return x
}

// make builds the cell, or undoes what was built.
func (x *box) make(ctx context.Context, spec sandbox.Spec) error {
	err := x.build(ctx, spec)
	if err == nil {
		x.receipt.Cgroup, x.receipt.Controls = x.inForce()
		return nil
	}
	undo, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), sandbox.DefaultTeardownBudget, errors.New("undoing took too long"))
	defer cancel()
	if undoErr := x.undo(undo); undoErr != nil {
		err = errors.Join(err, fmt.Errorf("%w: %w", sandbox.ErrLeftBehind, undoErr))
	}
	return err
}

// build takes the steps of creation, in order. What it made is in x, for undo.
func (x *box) build(ctx context.Context, spec sandbox.Spec) error {
	b := x.backend
	var err error
	if b.privileged {
		if x.uid, err = b.uids.take(); err != nil {
			return err
		}
		x.req.HostUID, x.req.HostGID = x.uid, x.uid
	}
	content, err := x.layOut(spec)
	if err != nil {
		return err
	}
	defer content.Close()
	if b.cgroups != nil {
		if x.group, err = b.cgroups.Create(fmt.Sprintf("cell-%d", b.cells.Add(1)), b.groupResources(x.req.Spec.Linux.Resources)); err != nil {
			return err
		}
	}
	if x.link, err = b.link(); err != nil {
		return err
	}
	if err := x.launch(content); err != nil {
		return err
	}
	select {
	case m := <-x.cell.cloned:
		if m.Err != "" {
			return errors.New(m.Err)
		}
		x.pid = m.PID
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if x.group != nil {
		if err := x.group.Add(x.pid); err != nil {
			return err
		}
	}
	if err := x.order(orderGo); err != nil {
		return err
	}
	select {
	case err := <-x.ready:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// launch makes the pipes, asks the launcher for the cell, and starts to read
// the init's reports.
func (x *box) launch(content *os.File) error {
	var theirs []*os.File
	defer func() {
		for _, f := range theirs {
			f.Close()
		}
	}()
	var status *os.File
	for _, p := range []struct {
		ours  **os.File
		write bool // our end is the one that writes
	}{{&x.control, true}, {&status, false},
		{&x.streams[0].stdout, false}, {&x.streams[0].stderr, false},
		{&x.streams[1].stdout, false}, {&x.streams[1].stderr, false}} {
		r, w, err := os.Pipe()
		if err != nil {
			return fmt.Errorf("make a pipe: %w", err)
		}
		if p.write {
			*p.ours = w
			theirs = append(theirs, r)
			continue
		}
		*p.ours = r
		theirs = append(theirs, w)
		// The check may open its streams again, by /dev/stdout for one, and
		// that looks at the pipe's owner.
		if err := w.Chown(x.req.HostUID, x.req.HostGID); err != nil {
			return fmt.Errorf("give a pipe to the cell's user: %w", err)
		}
	}
	if x.group != nil {
		_, x.req.InGroup = x.group.FD()
	}
	b, err := json.Marshal(x.req)
	if err != nil {
		return fmt.Errorf("write the request: %w", err)
	}
	reqFile, err := memoryFile("checkcell-request", b)
	if err != nil {
		return err
	}
	defer reqFile.Close()
	fds := []int{int(reqFile.Fd())}
	for _, f := range theirs {
		fds = append(fds, int(f.Fd()))
	}
	fds = append(fds, int(content.Fd()))
	if x.req.InGroup {
		fd, _ := x.group.FD()
		fds = append(fds, fd)
	}
	if x.cell, err = x.link.launch(fds); err != nil {
		status.Close()
		return err
	}
	go x.readReports(status)
	return nil
}
