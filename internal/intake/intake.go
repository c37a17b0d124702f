// Package intake is the one path of a claim: refused, or run and graded.
// Values go forward only: a claim in, a graded claim out.
package intake

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/checkcell/checkcell/grade"
	"github.com/checkcell/checkcell/images"
	"github.com/checkcell/checkcell/internal/claims"
	"github.com/checkcell/checkcell/sandbox"
)

// Path says how claims are run.
type Path struct {
	Runner       *sandbox.Runner
	Limits       sandbox.Limits // the limits, and the most that a claim can ask for
	Image        images.Ref     // for claims that name none
	Workspace    string         // "" for none
	Env          map[string]string
	AllowMissing []sandbox.Control
	Jobs         int // how many run at once; at least 1

	// Settled gets the result of each check that a cell was asked for, before that
	// is torn down, after the Runner's own Sink and by the same rules. It may be nil.
	Settled func(claims.Claim, sandbox.Result) error
}

// Graded is a claim with its grade and the evidence for it.
type Graded struct {
	Claim   claims.Claim
	Grade   grade.Grade
	Parse   *sandbox.Result // the syntax pass; nil where none ran
	Result  *sandbox.Result // the check; nil where it was not run
	Clamped []string        // what the claim asked for and the caller's limits cut down
}

// One takes one claim down the path.
func (p Path) One(ctx context.Context, c claims.Claim) Graded {
	g := Graded{Claim: c}
	var refused bool
	if g.Grade, refused = grade.Refuse(c.Evidence); refused {
		return g
	}
	if c.Evidence.Rung < 4 && grade.Trim(c.Evidence.Check) == "" {
		g.Grade = grade.For(c.Evidence, nil) // there, nothing has to be run
		return g
	}
	spec, clamped, err := p.spec(c)
	g.Clamped = clamped
	if err != nil {
		res := p.neverStarted(c.ID, err)
		g.Result = &res
		g.Grade = gradeOf(c.Evidence, res)
		return g
	}
	rec := p.runner(c).Run(ctx, spec)
	g.Parse, g.Result = rec.Parse, rec.Check
	if rec.Check != nil {
		g.Grade = gradeOf(c.Evidence, *rec.Check)
		return g
	}
	var passed bool
	if g.Grade, passed = grade.ForSyntax(*rec.Parse); passed {
		const why = "the syntax pass ended with status 0, but its cell was not as good as new"
		g.Grade = grade.For(c.Evidence, &grade.Execution{Outcome: sandbox.StartFailed(why)})
	}
	return g
}

// runner is the Runner for one claim. What the syntax pass came to is no result
// of the check, and is not handed on.
func (p Path) runner(c claims.Claim) *sandbox.Runner {
	if p.Settled == nil {
		return p.Runner
	}
	r := *p.Runner
	r.Sink = func(res sandbox.Result) error {
		var err error
		if p.Runner.Sink != nil {
			err = p.Runner.Sink(res)
		}
		if res.Step == sandbox.StepCheck {
			err = errors.Join(err, p.Settled(c, res))
		}
		return err
	}
	return &r
}

// neverStarted is the result of a claim that asks for what it can't have.
func (p Path) neverStarted(id string, err error) sandbox.Result {
	now := time.Now()
	return sandbox.Result{
		ID: id, Backend: p.Runner.Backend.Name(), Outcome: sandbox.StartFailed(err.Error()),
		Leftovers: sandbox.Read(0), Cleanup: sandbox.Cleanup{State: sandbox.CleanupDone}, Started: now, Ended: now,
	}
}

func gradeOf(ev grade.Evidence, r sandbox.Result) grade.Grade {
	e := grade.Observed(r)
	return grade.For(ev, &e)
}

func (p Path) spec(c claims.Claim) (sandbox.Spec, []string, error) {
	limits, clamped := clamp(p.Limits, c.Settings)
	root := p.Image
	if name, ok := c.Settings.Image.Value(); ok {
		var err error
		if root, err = images.Parse(name); err != nil {
			return sandbox.Spec{}, clamped, err
		}
		if root.IsPlace() {
			return sandbox.Spec{}, clamped, fmt.Errorf("image %s: a claim can't choose a directory or file of the host; give it with --image", root)
		}
	}
	return sandbox.Spec{
		ID: c.ID, Root: root, Check: c.Evidence.Check, SyntaxPass: true,
		Workspace: p.Workspace, Files: c.Files, Env: p.Env,
		Limits: limits, AllowMissing: p.AllowMissing,
	}, clamped, nil
}

// clamp gives a claim the limits it asks for, none of them above the caller's,
// and names those that were cut down.
func clamp(most sandbox.Limits, s claims.Settings) (sandbox.Limits, []string) {
	got := s.Over(most)
	var cut []string
	least(&cut, "timeout", &got.Wall, most.Wall)
	least(&cut, "parse-timeout", &got.Parse, most.Parse)
	leastLimit(&cut, "cpu-time", &got.CPUTime, most.CPUTime)
	leastLimit(&cut, "cpus", &got.CPUs, most.CPUs)
	leastLimit(&cut, "memory", &got.Memory, most.Memory)
	leastLimit(&cut, "pids", &got.Processes, most.Processes)
	least(&cut, "stdout-cap", &got.Stdout, most.Stdout)
	least(&cut, "stderr-cap", &got.Stderr, most.Stderr)
	least(&cut, "disk", &got.Disk, most.Disk)
	least(&cut, "inodes", &got.Inodes, most.Inodes)
	least(&cut, "nofile", &got.OpenFiles, most.OpenFiles)
	return got, cut
}

func least[T ~int64](cut *[]string, name string, got *T, most T) {
	if *got > most {
		*got = most
		*cut = append(*cut, name)
	}
}

func leastLimit[T ~int64 | ~float64](cut *[]string, name string, got *sandbox.Limit[T], most sandbox.Limit[T]) {
	bound, bounded := most.Value()
	if !bounded {
		return
	}
	if v, ok := got.Value(); !ok || v > bound {
		*got = most
		*cut = append(*cut, name)
	}
}

// ErrNotRun is yielded by All once, last, where ctx ended before every claim
// had begun to run.
var ErrNotRun = errors.New("claims were left that did not run")

// All takes claims down the path, Jobs at a time, and yields them in the order
// of source. At most RunAhead claims for each of Jobs, and two more, are in
// memory. When ctx ends, what runs is canceled and yielded, and what has not
// begun is not. An error of source is yielded in its place and ends the
// sequence. When the sequence ends, however it does, nothing runs any more.
func (p Path) All(ctx context.Context, source iter.Seq2[claims.Claim, error]) iter.Seq2[Graded, error] {
	return func(yield func(Graded, error) bool) {
		p.Jobs = max(p.Jobs, 1)
		run, stop := context.WithCancelCause(ctx)
		order := make(chan chan outcome, RunAhead*p.Jobs)
		var workers sync.WaitGroup
		defer func() { // a panic of yield comes here too
			stop(errors.New("the results were no longer wanted"))
			for range order { // let the feeder end
			}
			workers.Wait()
		}()
		workers.Go(func() { p.feed(run, ctx, source, order, &workers) })
		for slot := range order {
			o := <-slot
			if !yield(o.graded, o.err) || o.err != nil {
				return
			}
		}
	}
}

// RunAhead is how many claims, for each one that may run at once, fast claims
// run ahead of a slow one.
const RunAhead = 4

type outcome struct {
	graded Graded
	err    error
}

// feed starts a goroutine a claim, at most Jobs at a time, each of which
// leaves its outcome in the slot that holds its place in the order. The end of
// caller, which ctx descends from, is an end even before ctx has noticed it:
// source may have.
func (p Path) feed(ctx, caller context.Context, source iter.Seq2[claims.Claim, error], order chan<- chan outcome, workers *sync.WaitGroup) {
	defer close(order)
	running := make(chan struct{}, p.Jobs)
	for c, err := range source {
		slot := make(chan outcome, 1)
		select {
		case running <- struct{}{}:
		case <-ctx.Done():
		}
		if err := cmp.Or(caller.Err(), ctx.Err()); err != nil {
			slot <- outcome{err: fmt.Errorf("%w: %w", ErrNotRun, cmp.Or(context.Cause(caller), context.Cause(ctx)))}
			order <- slot
			return
		}
		order <- slot // All reads on until the channel is closed
		if err != nil {
			slot <- outcome{err: err}
			return
		}
		workers.Go(func() {
			slot <- outcome{graded: p.One(ctx, c)}
			<-running
		})
	}
}
