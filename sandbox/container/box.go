//go:build linux

// Package container makes cells of containers that a runtime or an engine runs.
// Their process 1 is ours (cellinit), and so is the group around them, so that
// steps, streams, the kill and the proof of emptiness are those of every cell; the
// walls are the container's.
package container

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/checkcell/checkcell/images"
	"github.com/checkcell/checkcell/images/store"
	"github.com/checkcell/checkcell/sandbox"
	"github.com/checkcell/checkcell/sandbox/cellhost"
	"github.com/checkcell/checkcell/sandbox/cellinit"
	"github.com/checkcell/checkcell/sandbox/cellspec"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// InitPath is where a container has its process 1.
const InitPath = "/.checkcell/init"

// Processes is how many processes of a container are not the check's: its init.
const Processes = 1

// Order is what a Maker makes a container of.
type Order struct {
	Spec   *specs.Spec // the cell; the process to start is InitPath, without arguments
	Root   string      // the directory of an image that is the root; "" for the host view
	Group  *cellhost.Group
	Limits sandbox.Limits
}

// Maker makes containers.
type Maker interface {
	// Make makes a container and starts its process 1. What it returns has to be
	// removed; on error nothing is left, or the error wraps sandbox.ErrLeftBehind.
	Make(ctx context.Context, o Order) (Container, error)
}

// Container is one that runs.
type Container interface {
	// Stdin and Stdout are those of its process 1.
	Stdin() io.WriteCloser
	Stdout() io.Reader

	// Process is its process 1 on this host, once that runs.
	Process(ctx context.Context) (Process, error)

	// Words waits for a container that failed to end, and returns what its runtime
	// said about it; "" for nothing.
	Words(ctx context.Context) string

	// Remove removes the container, whose processes were killed. It may be
	// called again.
	Remove(ctx context.Context) error
}

// Process is a container's process 1 as the host sees it.
type Process struct {
	PID    int
	UID    int             // of the check
	UserNS bool            // it is in a user namespace of its own
	Guest  *cellhost.Guest // where it is in a kernel of its own; Shown is left to us
	Kernel []int           // with Guest: the processes of that kernel, where they were not born in the group
}

// Config is what the cells of a backend share.
type Config struct {
	Maker  Maker
	Groups *cellhost.Groups
	Images *store.Store    // nil: none are open
	Lacks  []cellhost.Lack // controls that the backend can't enforce
	Guest  bool            // containers have a kernel of their own
}

// box is one cell.
type box struct {
	cfg       Config
	spec      *specs.Spec
	limits    sandbox.Limits
	missing   []sandbox.Control
	digest    string
	image     images.Digest // of the root, if it is one
	tree      *store.Tree   // of that image
	group     *cellhost.Group
	container Container
	peer      *cellinit.Peer
	pid       int
	receipt   sandbox.Receipt
	destroyed bool
}

// Create makes and sets up a cell. See sandbox.Backend.
func Create(ctx context.Context, cfg Config, spec sandbox.Spec) (sandbox.Box, error) {
	x := &box{cfg: cfg, limits: spec.Limits}
	err := x.build(ctx, spec)
	if err == nil {
		return x, nil
	}
	if x.group != nil {
		err = x.group.Explain(err, x.limits)
	}
	undo, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), sandbox.DefaultTeardownBudget, errors.New("undoing took too long"))
	defer cancel()
	if undoErr := x.Destroy(undo); undoErr != nil {
		err = errors.Join(err, fmt.Errorf("%w: %w", sandbox.ErrLeftBehind, undoErr))
	}
	return nil, cellinit.WithRemedy(err)
}

// build takes the steps of creation, in order. What it made is in x, for Destroy.
func (x *box) build(ctx context.Context, spec sandbox.Spec) error {
	var err error
	if x.missing, err = x.cfg.Groups.Refuse(spec, x.cfg.Lacks...); err != nil {
		return err
	}
	if spec.Root, x.tree, err = cellhost.TakeRoot(ctx, x.cfg.Images, spec.Root); err != nil {
		return err
	}
	if x.spec, err = cellspec.Build(spec); err != nil {
		return err
	}
	if x.digest, err = cellspec.Digest(x.spec); err != nil {
		return err
	}
	layout, err := layOut(spec)
	if err != nil {
		return err
	}
	arena, calls, err := cellinit.Contain(x.spec, layout, x.cfg.Guest)
	if err != nil {
		return err
	}
	if err := x.makeGroup(); err != nil {
		return err
	}
	if !x.group.Exists() {
		return errors.New("a container can't do without a control group, by which it is killed and proven to be empty, so cgroup can't be missing; the native backend can do without")
	}
	order := Order{Spec: x.spec, Group: x.group, Limits: x.limits}
	if dir, ok := spec.Root.Path(); ok {
		order.Root = dir
	} else if x.tree != nil {
		order.Root, x.image = x.tree.Root, x.tree.Image.Digest
	}
	if x.container, err = x.cfg.Maker.Make(ctx, order); err != nil {
		return err
	}
	x.peer = cellinit.NewPeer(x.spec.Process, calls, x.container.Stdin())
	go x.peer.Listen(bufio.NewReader(x.container.Stdout())) // until the container's end
	if err := x.setUp(ctx, arena, layout); err != nil {
		if x.peer.Gone() && ctx.Err() == nil {
			if words := x.container.Words(ctx); words != "" {
				err = fmt.Errorf("%w: %s", err, words)
			}
		}
		return err
	}
	return nil
}

// makeGroup makes the group. Where containers have a kernel of their own, the
// processes in it are that kernel's, whose number says nothing.
func (x *box) makeGroup() error {
	var err error
	if !x.cfg.Guest {
		x.group, err = x.cfg.Groups.Create(x.spec.Linux.Resources, Processes)
		return err
	}
	limits := *x.spec.Linux.Resources
	limits.Pids = nil
	if x.group, err = x.cfg.Groups.Create(&limits, 0); err != nil {
		return err
	}
	x.group.NotCounted("the cell has a kernel of its own", "usage.peak_pids", "usage.pids_max_hits")
	return nil
}

func layOut(spec sandbox.Spec) (cellinit.Layout, error) {
	var s *cellinit.Survey
	if spec.Workspace != "" {
		var err error
		if s, err = cellinit.SurveyWorkspace(spec.Workspace); err != nil {
			return cellinit.Layout{}, fmt.Errorf("workspace: %w", err)
		}
	}
	return cellinit.LayOut(spec, s, false)
}

// setUp has the container's init set the cell up, and reads back what is in force.
func (x *box) setUp(ctx context.Context, arena []byte, layout cellinit.Layout) error {
	if err := x.peer.Hello(ctx, arena); err != nil {
		return fmt.Errorf("start the container: %w", err)
	}
	p, err := x.adopt(ctx)
	if err != nil {
		return err
	}
	if err := x.peer.SetUp(ctx, layout.Content...); err != nil {
		return err
	}
	x.receipt, err = cellhost.Cell{
		PID: p.PID, Spec: x.spec, Limits: x.limits, Group: x.group, UID: p.UID, UserNS: p.UserNS, Guest: p.Guest,
	}.Receipt(x.missing)
	return err
}

// adopt moves the container's processes to our group. A kernel of its own may start
// another while its processes are moved, so they are looked for until none is new.
func (x *box) adopt(ctx context.Context) (Process, error) {
	adopted := map[int]bool{}
	for {
		p, err := x.container.Process(ctx)
		if err != nil {
			return p, err
		}
		x.pid = p.PID
		processes := []int{p.PID}
		if p.Guest != nil {
			p.Guest.Shown = x.peer.Shown
			processes = p.Kernel
		}
		processes = slices.DeleteFunc(processes, func(pid int) bool { return adopted[pid] })
		if len(processes) == 0 {
			return p, nil
		}
		for _, pid := range processes {
			if err := x.group.Adopt(pid); err != nil {
				return p, err
			}
			adopted[pid] = true
		}
		if p.Guest == nil {
			return p, nil
		}
	}
}

// Start starts a step. See sandbox.Box.
func (x *box) Start(ctx context.Context, step sandbox.Step) (sandbox.Process, error) {
	ended, err := x.peer.Start(ctx, step)
	if err != nil {
		return sandbox.Process{}, err
	}
	stdout, stderr := x.peer.Streams(step)
	return sandbox.Process{Stdout: stdout, Stderr: stderr, Ended: ended}, nil
}

// CPUTime is what the cell has used. See sandbox.Box.
func (x *box) CPUTime() (time.Duration, error) { return x.group.CPUTime() }

// Kill ends the cell's processes. See sandbox.Box.
func (x *box) Kill(ctx context.Context) (sandbox.Reading, error) {
	if x.cfg.Guest {
		return x.countInside(ctx), x.group.Kill(ctx)
	}
	return x.group.Leftovers(x.peer.Running(), x.pid), x.group.Kill(ctx)
}

// countBudget is how long an init may take to count. It shares its cell with
// whatever the check left running.
const countBudget = 5 * time.Second

// countInside has the init count the check's processes that are alive, the first
// one left out. An init that gives no answer may be out of our hearing alone, so
// there is none of them only where its kernel is gone too.
func (x *box) countInside(ctx context.Context) sandbox.Reading {
	ctx, cancel := context.WithTimeoutCause(ctx, countBudget, fmt.Errorf("the cell's init did not count them within %v", countBudget))
	defer cancel()
	running := x.peer.Running()
	n, err := x.peer.Count(ctx)
	if err == nil {
		if n -= Processes; running {
			n--
		}
		return sandbox.Read(int64(max(n, 0)))
	}
	if members, listErr := x.group.Members(); listErr == nil && !slices.Contains(members, x.pid) {
		return sandbox.Read(0)
	}
	x.group.NotCounted(err.Error(), "leftovers")
	return sandbox.Reading{}
}

// Collect reads what was used. See sandbox.Box.
func (x *box) Collect() sandbox.Evidence {
	e := sandbox.Evidence{Receipt: x.receipt, SpecDigest: x.digest, ImageDigest: x.image.String()}
	x.group.Collect(&e)
	return e
}

// Destroy removes the cell. See sandbox.Box.
func (x *box) Destroy(ctx context.Context) error {
	if x.destroyed {
		return nil
	}
	var errs []error
	if x.container != nil {
		x.container.Stdin().Close() // the init ends with it, should the kill not reach it
	}
	if x.group != nil {
		errs = append(errs, x.group.Kill(ctx))
	}
	if x.container != nil {
		errs = append(errs, x.container.Remove(ctx))
	}
	if x.group != nil {
		errs = append(errs, x.group.Remove(ctx))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if x.peer != nil {
		x.peer.Close()
		<-x.peer.Done()
	}
	if x.tree != nil {
		x.tree.Close()
	}
	x.destroyed = true
	return nil
}
