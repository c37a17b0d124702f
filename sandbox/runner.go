package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// ErrLeftBehind is wrapped by an error of Backend.Create that could not undo
// what it had done.
var ErrLeftBehind = errors.New("something was left behind")

// Default budgets of a Runner.
const (
	DefaultSetupBudget    = 20 * time.Second
	DefaultTeardownBudget = 30 * time.Second
)

// Runner runs specs on a backend. It holds no state of a run; Run may be
// called from many goroutines at once.
type Runner struct {
	Backend Backend

	// Sink gets every settled result before the cell is torn down, so that a
	// crash from there on loses no outcome; the cleanup of what it gets is
	// unknown. Its error is named in the result's missing evidence. It may be nil.
	Sink func(Result) error

	// Live gets the check's streams while it runs, as far as they are kept.
	Live Live

	SetupBudget    time.Duration // for create and each start; 0 means DefaultSetupBudget
	TeardownBudget time.Duration // for the kill, and again for the removal; 0 means DefaultTeardownBudget
}

// Live is where the kept bytes of a check's streams go as they come. Either may
// be nil. A writer must not block: the stream is read by whoever writes to it.
type Live struct {
	Stdout, Stderr io.Writer
}

// Run runs spec in a cell of its own and returns when the cell is gone.
// It always returns a record: what goes wrong is an outcome. Canceling ctx
// ends the run with outcome canceled and the cause's words as its detail.
func (r *Runner) Run(ctx context.Context, spec Spec) Record {
	began := time.Now()
	box, err := r.create(ctx, spec)
	if err != nil {
		res := r.neverStarted(ctx, spec, began, err)
		return Record{Check: &res}
	}
	var rec Record
	var killErr error
	if spec.SyntaxPass {
		s := r.step(ctx, box, spec, StepSyntax)
		rec.Parse, killErr = &s.result, s.killErr
		if s.clean {
			c := r.step(ctx, box, spec, StepCheck)
			rec.Check, killErr = &c.result, c.killErr
		}
	} else {
		c := r.step(ctx, box, spec, StepCheck)
		rec.Check, killErr = &c.result, c.killErr
	}
	cleanup := r.tearDown(ctx, box, killErr)
	for _, res := range []*Result{rec.Parse, rec.Check} {
		if res != nil {
			res.Cleanup = cleanup
		}
	}
	return rec
}

// create is phase 1.
func (r *Runner) create(ctx context.Context, spec Spec) (Box, error) {
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	setup, cancel := r.budget(ctx, r.SetupBudget, DefaultSetupBudget, "set-up")
	defer cancel()
	return r.Backend.Create(setup, spec)
}

func (r *Runner) budget(ctx context.Context, d, std time.Duration, what string) (context.Context, context.CancelFunc) {
	if d <= 0 {
		d = std
	}
	return context.WithTimeoutCause(ctx, d, fmt.Errorf("%s took longer than its budget of %v", what, d))
}

// neverStarted is the result of a run for which no cell could be made.
func (r *Runner) neverStarted(ctx context.Context, spec Spec, began time.Time, err error) Result {
	f := facts{startErr: err.Error()}
	if ctx.Err() != nil {
		f.canceled = canceledWords(ctx)
	}
	res := Result{
		ID: spec.ID, Step: StepCheck, Backend: r.Backend.Name(), Outcome: settle(f),
		Started: began, Ended: time.Now(), Cleanup: Cleanup{State: CleanupDone},
		Leftovers: Read(0),
	}
	if errors.Is(err, ErrLeftBehind) {
		res.Cleanup = Cleanup{State: CleanupFailed, Detail: err.Error()}
		res.Leftovers = Reading{}
	}
	r.record(&res)
	return res
}

func canceledWords(ctx context.Context) string {
	if words := context.Cause(ctx).Error(); words != "" {
		return words
	}
	return "the caller withdrew"
}

// stepped is one step's result, what the kill of its cell reported, and
// whether the cell is as good as new: the step ended by itself with exit 0,
// left nothing alive and lost nothing, so the next step may start in it.
type stepped struct {
	result  Result
	killErr error
	clean   bool
}

// step takes one step through phases 2 to 6.
func (r *Runner) step(ctx context.Context, box Box, spec Spec, step Step) stepped {
	res := Result{ID: spec.ID, Step: step, Backend: r.Backend.Name(), Started: time.Now()}
	w, err := r.start(ctx, box, spec, step)
	f := facts{}
	if err != nil {
		f.startErr = err.Error()
		if ctx.Err() != nil {
			f.canceled = canceledWords(ctx)
		}
	} else {
		res.Started = w.started
		w.watch(ctx, &f)
		res.Killed = f.cause != causeEnded
	}
	out := stepped{clean: step == StepSyntax && w.cleanEnd(&f)}
	quiesce, cancel := r.budget(context.WithoutCancel(ctx), r.TeardownBudget, DefaultTeardownBudget, "the kill")
	defer cancel()
	res.Leftovers = Read(0)
	if !out.clean {
		res.Leftovers, out.killErr = box.Kill(quiesce)
	}
	w.drain(quiesce, &f)
	res.Evidence = box.Collect()
	res.Evidence.Usage.Wall = f.after
	f.oomKills = res.Evidence.Usage.OOMKills
	if w != nil {
		res.Stdout, res.Stderr = w.stdout.capture, w.stderr.capture
	}
	res.Outcome = settle(f)
	res.Ended = time.Now()
	r.record(&res)
	out.result = res
	return out
}

// start is phase 2.
func (r *Runner) start(ctx context.Context, box Box, spec Spec, step Step) (*watched, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err := spec.misread(); step == StepCheck && err != nil {
		return nil, err // only now: what the syntax pass finds counts before it
	}
	setup, cancel := r.budget(ctx, r.SetupBudget, DefaultSetupBudget, "the start")
	defer cancel()
	cpuBefore, err := cpuBaseline(box, spec.Limits)
	if err != nil {
		return nil, err
	}
	proc, err := box.Start(setup, step)
	if err != nil {
		return nil, err
	}
	return r.newWatched(box, proc, spec.Limits, step, cpuBefore), nil
}

// record is phase 6.
func (r *Runner) record(res *Result) {
	if r.Sink == nil {
		return
	}
	if err := r.Sink(*res); err != nil {
		res.Evidence.Missing = append(res.Evidence.Missing, fmt.Sprintf("record: %v", err))
	}
}

// tearDown is phase 8.
func (r *Runner) tearDown(ctx context.Context, box Box, killErr error) Cleanup {
	own, cancel := r.budget(context.WithoutCancel(ctx), r.TeardownBudget, DefaultTeardownBudget, "teardown")
	defer cancel()
	if err := errors.Join(killErr, box.Destroy(own)); err != nil {
		return Cleanup{State: CleanupFailed, Detail: err.Error()}
	}
	return Cleanup{State: CleanupDone}
}
