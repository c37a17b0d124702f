package native

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/checkcell/checkcell/images"
	"github.com/checkcell/checkcell/images/store"
	"github.com/checkcell/checkcell/sandbox"
	"github.com/checkcell/checkcell/sandbox/cellhost"
	"github.com/checkcell/checkcell/sandbox/cellinit"
	"github.com/checkcell/checkcell/sandbox/cellspec"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// box is one native cell.
type box struct {
	backend *Backend
	req     request
	group   *cellhost.Group // nil until it was made
	uid     int             // the host user of the cell; 0 if it is ours
	link    *link
	peer    *cellinit.Peer // nil until the init was cloned
	pid     int            // of the init, outside
	pidfd   *os.File       // of the init; nil until it was cloned
	mounts  *os.File       // the cell's mount namespace; nil where it can't be had
	control *os.File       // our end; closing it ends the cell
	streams [2]streamPair  // our ends, by step
	receipt sandbox.Receipt
	limits  sandbox.Limits
	tree    *store.Tree       // of the image that is the root; nil for others
	missing []sandbox.Control // needed, not to be had here, and allowed to be missing
	digest  string
	image   images.Digest // of the root, if it is an image

	destroyed bool
}

type streamPair struct {
	stdout, stderr *os.File
}

// Create makes and sets up a cell. See sandbox.Backend.
func (b *Backend) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Box, error) {
	if err := cellhost.Fits(spec.Limits); err != nil {
		return nil, err
	}
	return b.create(ctx, spec)
}

func (b *Backend) create(ctx context.Context, spec sandbox.Spec) (sandbox.Box, error) {
	if b.powerless {
		return nil, errPowerless
	}
	missing, err := b.groups.Refuse(spec)
	if err != nil {
		return nil, err
	}
	root, tree, err := cellhost.TakeRoot(ctx, b.cfg.Images, spec.Root)
	if err != nil {
		return nil, err
	}
	spec.Root = root
	x, err := b.createIn(ctx, spec, tree, missing)
	if err != nil {
		if tree != nil {
			tree.Close()
		}
		return nil, cellinit.WithRemedy(err)
	}
	x.tree = tree // until the cell is gone
	return x, nil
}

// createIn is create with the tree of the spec's root, which stays the caller's
// on error.
func (b *Backend) createIn(ctx context.Context, spec sandbox.Spec, tree *store.Tree, missing []sandbox.Control) (*box, error) {
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
		x.limits = spec.Limits
		x.missing, x.digest = missing, digest
		x.req.Overlay = overlay
		if dir, ok := spec.Root.Path(); ok {
			x.req.Root = dir
		} else if tree != nil {
			x.req.Root, x.image = tree.Root, tree.Image.Digest
		}
		return x, x.make(ctx, spec)
	}
	overlay := spec.Workspace != "" && !b.copyOnly.Load()
	x, err := try(overlay)
	if errors.Is(err, errNoAnswer) && ctx.Err() == nil && !errors.Is(err, sandbox.ErrLeftBehind) {
		// The launcher had died. What there was of the cell is gone and nothing of
		// the check ran, so all of it is made again, by a launcher that lives.
		x, err = try(overlay)
	}
	if err != nil && overlay && ctx.Err() == nil && !errors.Is(err, sandbox.ErrLeftBehind) {
		// A kernel or a file system that can't do it: a copy is always right.
		first := err
		if x, err = try(false); err == nil {
			b.copyOnly.Store(true)
		} else if err.Error() != first.Error() {
			err = fmt.Errorf("%w (and as an overlay: %w)", err, first)
		}
	}
	return x, err
}

func newBox(b *Backend, oci *specs.Spec) *box {
	return &box{backend: b, req: request{Spec: oci, Privileged: b.privileged, HostUID: os.Geteuid(), HostGID: os.Getegid(), Landlock: b.landlock}}
}

// make builds the cell, or undoes what was built.
func (x *box) make(ctx context.Context, spec sandbox.Spec) error {
	err := x.build(ctx, spec)
	if err == nil {
		x.receipt, err = x.inForce()
	}
	if err == nil {
		return nil
	}
	if x.group != nil {
		err = x.group.Explain(err, x.limits)
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
		if x.uid, err = b.uids.Take(); err != nil {
			return err
		}
		x.req.HostUID, x.req.HostGID = x.uid, x.uid
	}
	content, err := x.layOut(spec)
	if err != nil {
		return err
	}
	defer content.Close()
	if x.group, err = b.groups.Create(x.req.Spec.Linux.Resources, initProcesses); err != nil {
		return err
	}
	if x.link, err = b.link(); err != nil {
		return err
	}
	if err := x.launch(content); err != nil {
		return err
	}
	if err := x.mapIDs(); err != nil {
		return err
	}
	if err := x.group.Add(x.pid); err != nil {
		return err
	}
	return x.peer.SetUp(ctx)
}

// launch has the init cloned and starts to read its reports. What of it has
// to be passed is closed here when it was.
func (x *box) launch(content *os.File) error {
	theirs, status, err := x.pipes()
	reading := false
	defer func() {
		for _, f := range theirs {
			f.Close() // the init has its own copies
		}
		if status != nil && !reading {
			status.Close()
		}
	}()
	if err != nil {
		return err
	}
	trees, paths, err := x.openTrees()
	if err != nil {
		return err
	}
	theirs = append(theirs, trees...)
	req := cloneRequest{flags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWNET}
	var group []int
	if fd, ok := x.group.FD(); ok {
		group = []int{fd}
		req.cgroup = 1 + cellinit.FdMore
	}
	numbers := map[string]int{}
	for i, path := range paths {
		numbers[path] = cellinit.FdMore + len(group) + i
	}
	program, calls, err := plan(x.req, numbers)
	if err != nil {
		return err
	}
	arena, err := memoryFile("checkcell-arena", program)
	if err != nil {
		return err
	}
	theirs = append(theirs, arena)
	req.arenaBytes = uint64(len(program))
	fds := []int{int(arena.Fd()), int(content.Fd())}
	for _, f := range theirs[:cellinit.FdMore-cellinit.FdControl] {
		fds = append(fds, int(f.Fd()))
	}
	fds = append(fds, group...)
	for _, f := range trees {
		fds = append(fds, int(f.Fd()))
	}
	if x.pid, x.pidfd, err = x.link.clone(req, fds); err != nil {
		return err
	}
	// While it is held the init does not take its mounts apart as it ends, so that
	// the kill of a cell is over milliseconds earlier. Where it can't be, it takes
	// those; nothing else hangs on it.
	x.mounts, _ = os.Open(fmt.Sprintf("/proc/%d/ns/mnt", x.pid))
	reading = true
	x.peer = cellinit.NewPeer(x.req.Spec.Process, calls, x.control)
	go func() { // until the init's end
		defer status.Close()
		x.peer.Listen(status)
	}()
	return nil
}

// pipes makes the pipes between us and the init and returns the init's ends in
// the order of its descriptors, from fdControl on, and our end of the status.
func (x *box) pipes() (theirs []*os.File, status *os.File, err error) {
	for _, p := range []struct {
		ours  **os.File
		write bool // our end is the one that writes
	}{{&x.control, true}, {&status, false},
		{&x.streams[0].stdout, false}, {&x.streams[0].stderr, false},
		{&x.streams[1].stdout, false}, {&x.streams[1].stderr, false}} {
		r, w, err := os.Pipe()
		if err != nil {
			return theirs, status, fmt.Errorf("make a pipe: %w", err)
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
			return theirs, status, fmt.Errorf("give a pipe to the cell's user: %w", err)
		}
	}
	return theirs, status, nil
}

// Start starts a step. See sandbox.Box.
func (x *box) Start(ctx context.Context, step sandbox.Step) (sandbox.Process, error) {
	ended, err := x.peer.Start(ctx, step)
	if err != nil {
		return sandbox.Process{}, err
	}
	s := x.streams[step]
	return sandbox.Process{Stdout: s.stdout, Stderr: s.stderr, Ended: ended}, nil
}
