// Package sandboxtest holds what tests of the sandbox share: a scripted
// backend that makes no cell at all, and the contract that every backend
// passes.
package sandboxtest

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/checkcell/checkcell/sandbox"
)

// Fake is a backend whose cells do what their script says. Its zero value
// makes cells whose steps exit 0 at once. It works under testing/synctest.
type Fake struct {
	CreateErr    error
	CreateTakes  time.Duration
	Syntax       Behaviour
	Check        Behaviour
	CPU          func(sinceStart time.Duration) (time.Duration, error)
	Evidence     sandbox.Evidence
	Leftovers    sandbox.Reading
	KillErr      error
	DestroyErr   error
	DestroyTakes time.Duration

	mu    sync.Mutex
	calls []string
}

// Behaviour is what one step does.
type Behaviour struct {
	StartErr   error
	StartTakes time.Duration
	Stdout     []byte        // written as soon as the step runs
	Stderr     []byte        // written after Stdout
	Hang       bool          // it runs until it is killed
	EndsAfter  time.Duration // from its start, if it does not hang
	End        sandbox.End   // the zero value is a lost status: see Exit0
	KeepOpen   bool          // something else holds the streams until the kill
	NoEOF      bool          // even the kill does not end the streams
}

// Exit0 is a step that exits 0 at once.
func Exit0() Behaviour { return Behaviour{End: sandbox.EndExited(0)} }

// Calls lists the calls that the engine has made of the backend's boxes, in order.
func (f *Fake) Calls() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.calls...)
}

func (f *Fake) called(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, name)
}

// Name returns "fake".
func (f *Fake) Name() string { return "fake" }

// Probe has nothing to say.
func (f *Fake) Probe(context.Context) []sandbox.Capability { return nil }

// Sweep has nothing to remove.
func (f *Fake) Sweep(context.Context) (sandbox.Swept, error) { return sandbox.Swept{}, nil }

// Close does nothing.
func (f *Fake) Close() error { return nil }

// Create makes a scripted cell.
func (f *Fake) Create(ctx context.Context, _ sandbox.Spec) (sandbox.Box, error) {
	f.called("create")
	if err := pause(ctx, f.CreateTakes); err != nil {
		return nil, err
	}
	if f.CreateErr != nil {
		return nil, f.CreateErr
	}
	return &box{fake: f, killed: make(chan struct{})}, nil
}

func pause(ctx context.Context, d time.Duration) error {
	if d == 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

type box struct {
	fake    *Fake
	started time.Time
	once    sync.Once
	killed  chan struct{}
	steps   sync.WaitGroup
}

func (b *box) Start(ctx context.Context, step sandbox.Step) (sandbox.Process, error) {
	b.fake.called("start " + step.String())
	do := b.fake.Check
	if step == sandbox.StepSyntax {
		do = b.fake.Syntax
	}
	if err := pause(ctx, do.StartTakes); err != nil {
		return sandbox.Process{}, err
	}
	if do.StartErr != nil {
		return sandbox.Process{}, do.StartErr
	}
	b.started = time.Now()
	out, outW := io.Pipe()
	errs, errW := io.Pipe()
	ended := make(chan sandbox.End, 1)
	b.steps.Go(func() { b.run(do, outW, errW, ended) })
	return sandbox.Process{Stdout: out, Stderr: errs, Ended: ended}, nil
}

func (b *box) run(do Behaviour, out, errs *io.PipeWriter, ended chan<- sandbox.End) {
	end := time.NewTimer(do.EndsAfter)
	defer end.Stop()
	b.steps.Go(func() {
		<-b.killed
		if !do.NoEOF {
			out.Close()
			errs.Close()
		}
	})
	out.Write(do.Stdout) // fails only after the kill
	errs.Write(do.Stderr)
	if do.Hang {
		<-b.killed
		return
	}
	select {
	case <-end.C:
		if !do.KeepOpen && !do.NoEOF {
			out.Close()
			errs.Close()
		}
		ended <- do.End
	case <-b.killed:
	}
}

func (b *box) CPUTime() (time.Duration, error) {
	if b.fake.CPU == nil {
		return 0, nil
	}
	var since time.Duration
	if !b.started.IsZero() {
		since = time.Since(b.started)
	}
	return b.fake.CPU(since)
}

func (b *box) Kill(context.Context) (sandbox.Reading, error) {
	b.fake.called("kill")
	b.once.Do(func() { close(b.killed) })
	return b.fake.Leftovers, b.fake.KillErr
}

func (b *box) Collect() sandbox.Evidence {
	b.fake.called("collect")
	return b.fake.Evidence
}

func (b *box) Destroy(ctx context.Context) error {
	b.fake.called("destroy")
	b.once.Do(func() { close(b.killed) })
	b.steps.Wait()
	if err := pause(ctx, b.fake.DestroyTakes); err != nil {
		return err
	}
	return b.fake.DestroyErr
}
