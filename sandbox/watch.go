package sandbox

import (
	"context"
	"fmt"
	"time"
)

// watched is a step that runs.
type watched struct {
	box       Box
	ended     <-chan End
	proc      Process
	stdout    *stream
	stderr    *stream
	stop      chan Resource // has room for both streams
	started   time.Time
	budget    time.Duration
	deadline  *time.Timer
	cpuBudget Limit[time.Duration]
	cpuRate   float64 // how many processors the cell may use at once
	cpuBefore time.Duration
}

// unlimitedCPUs stands for the processors of a cell without a bandwidth limit
// when the next look at its CPU time is planned. A host with more of them
// makes the look late, never wrong.
const unlimitedCPUs = 64

func (r *Runner) newWatched(box Box, proc Process, l Limits, step Step, cpuBefore time.Duration) *watched {
	w := &watched{
		box: box, proc: proc, ended: proc.Ended, stop: make(chan Resource, 2),
		started: time.Now(), budget: l.budget(step), deadline: time.NewTimer(l.budget(step)),
		cpuBudget: l.CPUTime, cpuRate: unlimitedCPUs, cpuBefore: cpuBefore,
	}
	if cpus, ok := l.CPUs.Value(); ok {
		w.cpuRate = max(1, cpus)
	}
	live := r.Live
	if step == StepSyntax {
		live = Live{}
	}
	w.stdout = read(proc.Stdout, l.Stdout, ResourceStdout, w.stop, live.Stdout)
	w.stderr = read(proc.Stderr, l.Stderr, ResourceStderr, w.stop, live.Stderr)
	return w
}

// cpuBaseline is what the cell used before a step starts, so that set-up and
// the syntax pass are not charged to the check.
func cpuBaseline(box Box, l Limits) (time.Duration, error) {
	if _, limited := l.CPUTime.Value(); !limited {
		return 0, nil
	}
	used, err := box.CPUTime()
	if err != nil {
		return 0, fmt.Errorf("limit cpu-time can't be watched: %w", err)
	}
	return used, nil
}

// watch is phase 3: it returns when the first of the things that end a run
// has happened, and latches that one in f.
func (w *watched) watch(ctx context.Context, f *facts) {
	defer w.deadline.Stop()
	cpu := w.cpuTimer()
	defer cpu.Stop()
	for f.cause == causeNone {
		select {
		case end := <-w.ended:
			f.cause, f.end = causeEnded, end
		case f.stopped = <-w.stop:
			f.cause = causeStopped
		case <-w.deadline.C:
			f.cause = causeDeadline
		case <-ctx.Done():
			f.cause, f.canceled = causeCanceled, canceledWords(ctx)
		case <-cpu.C:
			w.lookAtCPU(cpu, f)
		}
	}
	f.after = time.Since(w.started)
	w.breakTies(f)
}

// breakTies looks once more at what had happened by the time that the cause
// was latched: a stream cap beats an end, because bytes are lost; a seen end
// beats a deadline or a cancel that was not yet acted on.
func (w *watched) breakTies(f *facts) {
	if f.cause == causeDeadline || f.cause == causeCanceled {
		select {
		case end := <-w.ended:
			f.cause, f.end, f.canceled = causeEnded, end, ""
		default:
		}
	}
	if f.cause == causeEnded {
		select {
		case f.stopped = <-w.stop:
			f.cause = causeStopped
		default:
		}
	}
}

func (w *watched) cpuTimer() *time.Timer {
	budget, limited := w.cpuBudget.Value()
	if !limited {
		t := time.NewTimer(0)
		t.Stop()
		return t
	}
	return time.NewTimer(w.nextLook(budget))
}

// nextLook is how long the cell needs at least to use up what is left of its
// budget, within bounds that keep the looks cheap and the overrun small.
func (w *watched) nextLook(left time.Duration) time.Duration {
	const shortest, longest = 5 * time.Millisecond, 250 * time.Millisecond
	return min(max(time.Duration(float64(left)/w.cpuRate), shortest), longest)
}

func (w *watched) lookAtCPU(t *time.Timer, f *facts) {
	budget, _ := w.cpuBudget.Value()
	total, err := w.box.CPUTime()
	used := total - w.cpuBefore
	switch {
	case err != nil:
		f.cause, f.lost = causeLost, fmt.Sprintf("limit cpu-time could no longer be watched: %v", err)
	case used >= budget:
		f.cause, f.stopped = causeStopped, ResourceCPU
	default:
		t.Reset(w.nextLook(budget - used))
	}
}

// cleanEnd reports whether the step exited 0 by itself and, within what is
// left of its budget, both streams reached their end whole.
func (w *watched) cleanEnd(f *facts) bool {
	if w == nil || f.cause != causeEnded || f.end != EndExited(0) {
		return false
	}
	rest := time.NewTimer(time.Until(w.started.Add(w.budget)))
	defer rest.Stop()
	for _, s := range []*stream{w.stdout, w.stderr} {
		select {
		case <-s.done:
			if s.err != nil || s.capture.Truncated() {
				return false
			}
		case <-rest.C:
			return false
		}
	}
	return true
}

// drain waits until both streams have been read to their end, which the kill
// of the cell brings about, and notes in f what was lost. When the end does
// not come within ctx, the streams are closed.
func (w *watched) drain(ctx context.Context, f *facts) {
	if w == nil {
		return
	}
	for _, s := range []*stream{w.stdout, w.stderr} {
		select {
		case <-s.done:
			continue
		default:
		}
		select {
		case <-s.done:
		case <-ctx.Done():
			_ = w.proc.Stdout.Close() // the end is forced; its error tells nothing new
			_ = w.proc.Stderr.Close()
			<-s.done
			s.err = fmt.Errorf("%s did not reach its end: %w", s.resource, context.Cause(ctx))
		}
	}
	for _, s := range []*stream{w.stdout, w.stderr} {
		if s.err != nil && f.streamErr == "" {
			f.streamErr = s.err.Error()
		}
		if s.capture.Truncated() && f.truncated == ResourceNone {
			f.truncated = s.resource
		}
	}
	_ = w.proc.Stdout.Close() // both were read to their end
	_ = w.proc.Stderr.Close()
}
