//go:build pause

package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync/atomic"

	"github.com/checkcell/checkcell/sandbox"
)

// This file makes a checkcell that stands still where it is told to, for tests
// that end it, or a process of its, right there. It is in no binary but one
// built with -tags=pause.

// pauseVar says where: the word of a phase of design.md section 3, a colon, and
// the id of the run. Where it is not set, nothing stands still.
const pauseVar = "CHECKCELL_PAUSE"

// The ends of two pipes that whoever starts us holds: one takes the word of the
// phase when it has come; a byte or the end of the other has us go on.
const (
	pausedFD = 3
	resumeFD = 4
)

// pauser is a backend whose calls from the engine stand still before, or
// after, they do what they are for. Only the check counts, not the syntax pass.
type pauser struct {
	sandbox.Backend
	phase, id string
	checking  atomic.Bool // the check of the run was started, or is about to be
}

// pausing has the runs of r stand still where pauseVar says.
func pausing(r *sandbox.Runner) *sandbox.Runner {
	phase, id, ok := strings.Cut(os.Getenv(pauseVar), ":")
	if !ok {
		return r
	}
	p := &pauser{Backend: r.Backend, phase: phase, id: id}
	r.Backend, r.Sink = p, p.record
	return r
}

// at stands still if phase is the one.
func (p *pauser) at(phase string) {
	if phase != p.phase || phase != "create" && !p.checking.Load() {
		return
	}
	if _, err := fmt.Fprintln(os.NewFile(pausedFD, "paused"), phase); err != nil {
		panic(err) // a test that can't know must not go on
	}
	_, _ = os.NewFile(resumeFD, "resume").Read(make([]byte, 1)) // its end is a word too
}

func (p *pauser) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Box, error) {
	if spec.ID != p.id {
		return p.Backend.Create(ctx, spec)
	}
	p.at("create")
	box, err := p.Backend.Create(ctx, spec)
	if err != nil {
		return nil, err
	}
	return &pausedBox{Box: box, p: p}, nil
}

// record comes before whatever else is done with a settled result.
func (p *pauser) record(res sandbox.Result) error {
	if res.ID == p.id {
		p.at("record")
	}
	return nil
}

type pausedBox struct {
	sandbox.Box
	p *pauser
}

func (b *pausedBox) Start(ctx context.Context, step sandbox.Step) (sandbox.Process, error) {
	b.p.checking.Store(step == sandbox.StepCheck)
	b.p.at("start")
	proc, err := b.Box.Start(ctx, step)
	b.p.at("watch")
	return proc, err
}

func (b *pausedBox) Kill(ctx context.Context) (sandbox.Reading, error) {
	b.p.at("quiesce")
	return b.Box.Kill(ctx)
}

func (b *pausedBox) Collect() sandbox.Evidence {
	b.p.at("collect")
	e := b.Box.Collect()
	b.p.at("settle")
	return e
}

func (b *pausedBox) Destroy(ctx context.Context) error {
	b.p.at("teardown")
	err := b.Box.Destroy(ctx)
	b.p.at("result")
	return err
}
