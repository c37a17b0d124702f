package native

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/checkcell/checkcell/cgroup"
	"github.com/checkcell/checkcell/sandbox"
	"github.com/checkcell/checkcell/sandbox/cellspec"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
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
		} else {
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
			x.ready <- x.setupError(int(r.x), syscall.Errno(r.y))
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

// setupError names the call that failed. The plan is made again for its names:
// it depends on the request alone.
func (x *box) setupError(index int, errno syscall.Errno) error {
	trees, err := openTrees(x.req)
	if err != nil {
		return fmt.Errorf("set up the cell: call %d: %w", index, errno)
	}
	for _, fd := range trees {
		_ = unix.Close(fd) // only their names are wanted
	}
	prog, err := plan(x.req, opened{keep: make([]int, fdContent-fdControl), trees: trees})
	if err != nil {
		return fmt.Errorf("set up the cell: call %d: %w", index, errno)
	}
	return fmt.Errorf("set up the cell: %w", prog.describe(index, errno))
}

func (x *box) execError(stage uint32, errno syscall.Errno) error {
	name := x.req.Spec.Process.Args[0]
	switch {
	case stage == stageFork:
		return fmt.Errorf("start %s: fork: %w", name, errno)
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

// CPUTime is what the cell has used. See sandbox.Box.
func (x *box) CPUTime() (time.Duration, error) {
	if x.group == nil {
		return 0, errors.New("the cell has no group")
	}
	return x.group.CPUTime()
}

// Kill ends the cell's processes. See sandbox.Box.
func (x *box) Kill(ctx context.Context) (sandbox.Reading, error) {
	leftovers := x.countLeftovers()
	var err error
	if x.group != nil {
		err = x.group.Kill(ctx)
	}
	x.link.kill(x.cell)
	select {
	case <-x.cell.gone:
	case <-ctx.Done():
		return leftovers, errors.Join(err, fmt.Errorf("the cell's init was not reaped: %w", context.Cause(ctx)))
	}
	if x.group == nil {
		// The init was reaped, so its PID namespace is empty
		// (pid_namespaces(7)): that is the proof without a group.
		return leftovers, nil
	}
	return leftovers, err
}

// countLeftovers counts the group's members but the init and a first process
// that still runs.
func (x *box) countLeftovers() sandbox.Reading {
	x.mu.Lock()
	running := x.running
	x.mu.Unlock()
	if x.group == nil {
		x.lists = append(x.lists, "leftovers: the cell has no group to count")
		return sandbox.Reading{}
	}
	members, err := x.group.Members()
	if err != nil {
		x.lists = append(x.lists, fmt.Sprintf("leftovers: %v", err))
		return sandbox.Reading{}
	}
	n := len(members)
	if slices.Contains(members, x.pid) {
		n--
	}
	if running {
		n--
	}
	return sandbox.Read(int64(max(n, 0)))
}

// Collect reads what was used. See sandbox.Box.
func (x *box) Collect() sandbox.Evidence {
	e := sandbox.Evidence{Receipt: x.receipt, SpecDigest: x.digest, Missing: slices.Clone(x.lists)}
	if x.group == nil {
		for _, name := range []string{"cpu_ns", "peak_memory_bytes", "peak_pids", "oom_kills", "pids_max_hits"} {
			e.Missing = append(e.Missing, "usage."+name+": the cell has no group")
		}
		return e
	}
	u := x.group.Usage()
	take := func(name string, r cgroup.Reading, ours int64) sandbox.Reading {
		n, ok := r.Value()
		if !ok {
			e.Missing = append(e.Missing, fmt.Sprintf("usage.%s: %v", name, r.Err()))
			return sandbox.Reading{}
		}
		return sandbox.Read(max(n-ours, 0))
	}
	e.Usage = sandbox.Usage{
		CPU:         take("cpu_ns", u.CPU, 0),
		PeakMemory:  take("peak_memory_bytes", u.PeakMemory, 0),
		PeakPIDs:    take("peak_pids", u.PeakPIDs, initProcesses),
		OOMKills:    take("oom_kills", u.OOMKills, 0),
		PIDsMaxHits: take("pids_max_hits", u.PIDsMaxHits, 0),
	}
	return e
}

// Destroy removes the cell. See sandbox.Box.
func (x *box) Destroy(ctx context.Context) error { return x.undo(ctx) }

// undo removes whatever of the cell there is, taking every step and joining
// what went wrong. It may be called again.
func (x *box) undo(ctx context.Context) error {
	if x.destroyed {
		return nil
	}
	var errs []error
	if x.control != nil {
		// Whenever the init comes to read its orders, it exits. That reaches
		// one that the launcher is still about to clone, too.
		x.control.Close()
	}
	if x.group != nil {
		errs = append(errs, x.group.Kill(ctx))
	}
	if x.cell != nil {
		x.link.kill(x.cell)
		select {
		case <-x.cell.gone:
			<-x.reports // the init's end closed the pipe
		case <-ctx.Done():
			errs = append(errs, fmt.Errorf("the cell's init was not reaped: %w", context.Cause(ctx)))
		}
	}
	for _, f := range []*os.File{x.streams[0].stdout, x.streams[0].stderr, x.streams[1].stdout, x.streams[1].stderr} {
		if f != nil {
			f.Close() // closed before, or never used; we only read from it
		}
	}
	if x.group != nil {
		errs = append(errs, x.group.Remove(ctx))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if x.uid != 0 {
		x.backend.uids.give(x.uid)
	}
	x.destroyed = true
	return nil
}
