package intake

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/checkcell/checkcell/grade"
	"github.com/checkcell/checkcell/internal/claims"
	"github.com/checkcell/checkcell/sandbox"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// timed is a backend whose checks take the time that their text says, print
// "rows=17" and exit 0. It counts the cells that run and those that were killed.
type timed struct {
	mu           sync.Mutex
	running, top int
	created      int
	canceled     atomic.Int32
}

func (b *timed) Name() string                                       { return "timed" }
func (b *timed) Probe(context.Context) []sandbox.Capability         { return nil }
func (b *timed) Sweep(context.Context) (s sandbox.Swept, err error) { return s, nil }
func (b *timed) Close() error                                       { return nil }

func (b *timed) add(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.running += n
	b.top = max(b.top, b.running)
	b.created += max(n, 0)
}

func (b *timed) Create(_ context.Context, spec sandbox.Spec) (sandbox.Box, error) {
	takes, err := time.ParseDuration(spec.Check)
	b.add(1)
	return &timedBox{b: b, takes: takes, killed: make(chan struct{})}, err
}

type timedBox struct {
	b      *timed
	takes  time.Duration
	killed chan struct{}
	steps  sync.WaitGroup
}

func (x *timedBox) Start(_ context.Context, step sandbox.Step) (sandbox.Process, error) {
	takes, says := x.takes, "rows=17"
	if step == sandbox.StepSyntax {
		takes, says = 0, ""
	}
	ended := make(chan sandbox.End, 1)
	x.steps.Go(func() {
		end := time.NewTimer(takes)
		defer end.Stop()
		select {
		case <-end.C:
			ended <- sandbox.EndExited(0)
		case <-x.killed:
			x.b.canceled.Add(1)
		}
	})
	return sandbox.Process{Stdout: io.NopCloser(strings.NewReader(says)), Stderr: io.NopCloser(strings.NewReader("")), Ended: ended}, nil
}

func (x *timedBox) CPUTime() (time.Duration, error) { return 0, nil }
func (x *timedBox) Collect() (e sandbox.Evidence)   { return e }

func (x *timedBox) Kill(context.Context) (sandbox.Reading, error) {
	select {
	case <-x.killed:
	default:
		close(x.killed)
	}
	return sandbox.Read(0), nil
}

func (x *timedBox) Destroy(context.Context) error {
	x.steps.Wait()
	x.b.add(-1)
	return nil
}

// taking are claims whose checks take the given times, by place.
func taking(times ...time.Duration) iter.Seq2[claims.Claim, error] {
	return func(yield func(claims.Claim, error) bool) {
		for i, d := range times {
			if !yield(claims.Claim{ID: fmt.Sprint(i), Evidence: grade.Evidence{Rung: 4, Check: d.String(), Expect: "rows=17"}}, nil) {
				return
			}
		}
	}
}

// counted counts the claims that are taken from source.
func counted(source iter.Seq2[claims.Claim, error], n *atomic.Int32) iter.Seq2[claims.Claim, error] {
	return func(yield func(claims.Claim, error) bool) {
		for c, err := range source {
			n.Add(1)
			if !yield(c, err) {
				return
			}
		}
	}
}

// collect returns what All yields, a word each: the id and verdict, or "error".
func collect(seq iter.Seq2[Graded, error]) (words []string, last error) {
	for g, err := range seq {
		if err != nil {
			words, last = append(words, "error"), err
			continue
		}
		words = append(words, g.Claim.ID+" "+g.Grade.Verdict.String())
	}
	return words, last
}

func TestAllKeepsTheOrder(t *testing.T) {
	for _, jobs := range []int{-1, 0, 1, 3, 100} {
		synctest.Test(t, func(t *testing.T) {
			var b timed
			var times []time.Duration
			var want []string
			for i := range 40 {
				times = append(times, time.Duration(1+(i*7)%11)*time.Second)
				want = append(want, fmt.Sprintf("%d verified", i))
			}
			got, err := collect(pathTo(&b, jobs).All(t.Context(), taking(times...)))
			if !slices.Equal(got, want) || err != nil {
				t.Errorf("All with %d jobs = %q, %v, want %q", jobs, got, err, want)
			}
			if most := min(max(jobs, 1), 40); b.top != most || b.running != 0 {
				t.Errorf("All with %d jobs ran up to %d at once and left %d, want %d, 0", jobs, b.top, b.running, most)
			}
		})
	}
}

func TestAllOfNothing(t *testing.T) {
	if got, err := collect(pathTo(&timed{}, 2).All(t.Context(), taking())); got != nil || err != nil {
		t.Errorf("All(no claims) = %q, %v, want nothing", got, err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if got, err := collect(pathTo(&timed{}, 2).All(ended, taking())); got != nil || err != nil {
		t.Errorf("All(ended context, no claims) = %q, %v, want nothing: nothing was left", got, err)
	}
}

// However slow the first claim is, only so many are taken from the source.
func TestAllRunsAheadWithinBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const jobs = 3
		var taken atomic.Int32
		times := slices.Repeat([]time.Duration{time.Millisecond}, 1000)
		times[0] = 25 * time.Second
		next, stop := iter.Pull2(pathTo(&timed{}, jobs).All(t.Context(), counted(taking(times...), &taken)))
		defer stop()
		go func() {
			time.Sleep(20 * time.Second)
			if n := taken.Load(); n > RunAhead*jobs+2 || n < jobs+1 {
				t.Errorf("while the first of 1000 claims runs, %d were taken, want more than %d and at most %d", n, jobs, RunAhead*jobs+2)
			}
		}()
		if g, err, ok := next(); !ok || err != nil || g.Claim.ID != "0" {
			t.Errorf("the first of All = %q, %v, %v, want 0", g.Claim.ID, err, ok)
		}
	})
}

func TestAllCanceled(t *testing.T) {
	cause := errors.New("interrupted by a signal")
	tests := []struct {
		name  string
		after time.Duration
		times []time.Duration
		want  []string
		left  bool
	}{
		{"before", 0, []time.Duration{time.Second}, []string{"error"}, true},
		{"in the middle", 1500 * time.Millisecond, slices.Repeat([]time.Duration{time.Second}, 9),
			[]string{"0 verified", "1 verified", "2 unrunnable", "3 unrunnable", "error"}, true},
		{"while the last ones run", 1500 * time.Millisecond, slices.Repeat([]time.Duration{time.Second}, 4),
			[]string{"0 verified", "1 verified", "2 unrunnable", "3 unrunnable"}, false},
		{"after the end", time.Hour, []time.Duration{time.Second}, []string{"0 verified"}, false},
	}
	for _, tt := range tests {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			if tt.after == 0 {
				cancel(cause)
			}
			stop := time.AfterFunc(tt.after, func() { cancel(cause) })
			defer stop.Stop()
			var b timed
			got, err := collect(pathTo(&b, 2).All(ctx, taking(tt.times...)))
			if !slices.Equal(got, tt.want) || errors.Is(err, ErrNotRun) != tt.left || tt.left != errors.Is(err, cause) {
				t.Errorf("%s: All = %q, %v, want %q, with ErrNotRun and the cause: %v", tt.name, got, err, tt.want, tt.left)
			}
			if b.running != 0 {
				t.Errorf("%s: %d cells are left, want none", tt.name, b.running)
			}
		})
	}
}

// What was canceled carries the outcome and the cause of it.
func TestAllCanceledSaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		stop := time.AfterFunc(time.Second, func() { cancel(errors.New("a word of its own")) })
		defer stop.Stop()
		for g, err := range pathTo(&timed{}, 1).All(ctx, taking(time.Minute)) {
			if err != nil || g.Result == nil {
				t.Fatalf("All = %+v, %v, want a result", g, err)
			}
			if o := g.Result.Outcome; o != sandbox.Canceled("a word of its own") || g.Grade.NoteKind != grade.Aborted {
				t.Errorf("the outcome is %v with note %v, want canceled: a word of its own, ABORTED", o, g.Grade.NoteKind)
			}
		}
	})
}

// claims.Read reports the end of its context in the place of the next claim;
// that is no fault of the source.
func TestAllCanceledInSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		source := func(yield func(claims.Claim, error) bool) {
			for c := range taking(time.Second) {
				if !yield(c, nil) {
					return
				}
			}
			cancel(errors.New("interrupted"))
			yield(claims.Claim{}, fmt.Errorf("read claims: %w", context.Cause(ctx)))
		}
		got, err := collect(pathTo(&timed{}, 2).All(ctx, source))
		if want := []string{"0 unrunnable", "error"}; !slices.Equal(got, want) || !errors.Is(err, ErrNotRun) {
			t.Errorf("All = %q, %v, want %q, ErrNotRun", got, err, want)
		}
	})
}

func TestAllSourceError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad := errors.New("line 3 is bad")
		var taken atomic.Int32
		source := counted(func(yield func(claims.Claim, error) bool) {
			for c := range taking(2*time.Second, time.Second) {
				if !yield(c, nil) {
					return
				}
			}
			if yield(claims.Claim{}, bad) {
				t.Error("the source was asked for more after its error")
			}
		}, &taken)
		var b timed
		got, err := collect(pathTo(&b, 4).All(t.Context(), source))
		if want := []string{"0 verified", "1 verified", "error"}; !slices.Equal(got, want) || !errors.Is(err, bad) || errors.Is(err, ErrNotRun) {
			t.Errorf("All = %q, %v, want %q, %v", got, err, want, bad)
		}
	})
}

// A consumer that stops early, by break or by panic, leaves nothing running.
func TestAllStopped(t *testing.T) {
	consume := map[string]func(seq iter.Seq2[Graded, error]){
		"break": func(seq iter.Seq2[Graded, error]) {
			for range seq {
				break
			}
		},
		"panic": func(seq iter.Seq2[Graded, error]) {
			defer func() { _ = recover() }()
			for range seq {
				panic("the consumer fails")
			}
		},
	}
	for name, consume := range consume {
		synctest.Test(t, func(t *testing.T) {
			var b timed
			began := time.Now()
			consume(pathTo(&b, 3).All(t.Context(), taking(time.Second, time.Hour, time.Hour, time.Hour, time.Hour, time.Hour)))
			if took := time.Since(began); took > 2*time.Second {
				t.Errorf("%s: All returned after %v, want at once when the consumer stopped", name, took)
			}
			if b.running != 0 || b.canceled.Load() == 0 {
				t.Errorf("%s: %d cells are left and %d were canceled, want none left, some canceled", name, b.running, b.canceled.Load())
			}
			if b.created > 4 {
				t.Errorf("%s: %d cells were made, want none after the consumer stopped", name, b.created)
			}
		})
	}
}
