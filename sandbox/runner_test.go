package sandbox_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/checkcell/checkcell/sandbox"
	"github.com/checkcell/checkcell/sandbox/sandboxtest"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func spec(change ...func(*sandbox.Spec)) sandbox.Spec {
	s := sandbox.Spec{ID: "t", Check: "echo ok", Limits: sandbox.DefaultLimits()}
	for _, c := range change {
		c(&s)
	}
	return s
}

func withCPU(d time.Duration) func(*sandbox.Spec) {
	return func(s *sandbox.Spec) { s.Limits.CPUTime = sandbox.At(d) }
}

var hang = sandboxtest.Behaviour{Hang: true}

func TestRunOutcomes(t *testing.T) {
	withdrawn := errors.New("the caller went home")
	flood := bytes.Repeat([]byte("x"), int(sandbox.MiB)+1)
	tests := []struct {
		name    string
		fake    *sandboxtest.Fake
		spec    sandbox.Spec
		cancel  time.Duration // withdraw after that; 0: never; <0: before the run
		want    sandbox.Outcome
		success bool
		killed  bool
	}{
		{name: "exit 0", fake: &sandboxtest.Fake{Check: sandboxtest.Exit0()}, want: sandbox.Exited(0), success: true},
		{name: "exit 7", fake: &sandboxtest.Fake{Check: sandboxtest.Behaviour{EndsAfter: time.Second, End: sandbox.EndExited(7)}}, want: sandbox.Exited(7)},
		{name: "signal", fake: &sandboxtest.Fake{Check: sandboxtest.Behaviour{End: sandbox.EndSignaled(11)}}, want: sandbox.Signaled(11)},
		{name: "kill by itself", fake: &sandboxtest.Fake{Check: sandboxtest.Behaviour{End: sandbox.EndSignaled(9)}}, want: sandbox.Signaled(9)},
		{name: "lost status", fake: &sandboxtest.Fake{Check: sandboxtest.Behaviour{End: sandbox.EndLost("gone")}}, want: sandbox.Unknown("gone")},
		{name: "zero end", fake: &sandboxtest.Fake{}, want: sandbox.Unknown("the first process's status was lost")},
		{name: "deadline", fake: &sandboxtest.Fake{Check: hang}, want: sandbox.TimedOut(30 * time.Second), killed: true},
		{name: "canceled in the run", fake: &sandboxtest.Fake{Check: hang}, cancel: time.Second, want: sandbox.Canceled(withdrawn.Error()), killed: true},
		{name: "canceled before", fake: &sandboxtest.Fake{Check: hang}, cancel: -1, want: sandbox.Canceled(withdrawn.Error())},
		{name: "canceled in create", fake: &sandboxtest.Fake{CreateTakes: 3 * time.Second, Check: hang}, cancel: time.Second, want: sandbox.Canceled(withdrawn.Error())},
		{name: "canceled in start", fake: &sandboxtest.Fake{Check: sandboxtest.Behaviour{StartTakes: 3 * time.Second}}, cancel: time.Second, want: sandbox.Canceled(withdrawn.Error())},
		{name: "create fails", fake: &sandboxtest.Fake{CreateErr: errors.New("no group")}, want: sandbox.StartFailed("no group")},
		{name: "create hangs", fake: &sandboxtest.Fake{CreateTakes: time.Hour}, want: sandbox.StartFailed("set-up took longer than its budget of 20s")},
		{name: "start fails", fake: &sandboxtest.Fake{Check: sandboxtest.Behaviour{StartErr: errors.New("no bash")}}, want: sandbox.StartFailed("no bash")},
		{name: "start hangs", fake: &sandboxtest.Fake{Check: sandboxtest.Behaviour{StartTakes: time.Hour}}, want: sandbox.StartFailed("the start took longer than its budget of 20s")},
		{name: "bad spec", spec: sandbox.Spec{ID: "t", Check: "true"}, want: sandbox.Outcome{}},
		{name: "stdout flood", fake: &sandboxtest.Fake{Check: sandboxtest.Behaviour{Stdout: flood, Hang: true}}, want: sandbox.LimitExceeded(sandbox.ResourceStdout), killed: true},
		{name: "stderr flood", fake: &sandboxtest.Fake{Check: sandboxtest.Behaviour{Stderr: flood, Hang: true}}, want: sandbox.LimitExceeded(sandbox.ResourceStderr), killed: true},
		{name: "stdout exactly full", fake: &sandboxtest.Fake{Check: sandboxtest.Behaviour{Stdout: flood[1:], End: sandbox.EndExited(0)}}, want: sandbox.Exited(0), success: true},
		{name: "memory, first process", fake: &sandboxtest.Fake{Check: sandboxtest.Behaviour{End: sandbox.EndSignaled(9)}, Evidence: oom(1)}, want: sandbox.LimitExceeded(sandbox.ResourceMemory)},
		{name: "memory, whole group", fake: &sandboxtest.Fake{Check: sandboxtest.Behaviour{End: sandbox.EndLost("init gone")}, Evidence: oom(3)}, want: sandbox.LimitExceeded(sandbox.ResourceMemory)},
		{name: "memory, a child", fake: &sandboxtest.Fake{Check: sandboxtest.Behaviour{End: sandbox.EndExited(0)}, Evidence: oom(1)}, want: sandbox.Exited(0), success: true},
		{name: "memory, another signal", fake: &sandboxtest.Fake{Check: sandboxtest.Behaviour{End: sandbox.EndSignaled(6)}, Evidence: oom(1)}, want: sandbox.Signaled(6)},
		{name: "cpu budget", fake: &sandboxtest.Fake{Check: hang, CPU: busy}, spec: spec(withCPU(2 * time.Second)), want: sandbox.LimitExceeded(sandbox.ResourceCPU), killed: true},
		{name: "cpu budget not used up", fake: &sandboxtest.Fake{Check: sandboxtest.Behaviour{EndsAfter: time.Second, End: sandbox.EndExited(0)}, CPU: busy}, spec: spec(withCPU(2 * time.Second)), want: sandbox.Exited(0), success: true},
		{name: "cpu can't be read", fake: &sandboxtest.Fake{Check: hang, CPU: unreadable}, spec: spec(withCPU(time.Second)), want: sandbox.StartFailed("limit cpu-time can't be watched: no such file")},
		{name: "cpu can no longer be read", fake: &sandboxtest.Fake{Check: hang, CPU: unreadableSoon}, spec: spec(withCPU(time.Second)), want: sandbox.Unknown("limit cpu-time could no longer be watched: no such file"), killed: true},
		{name: "kill fails", fake: &sandboxtest.Fake{Check: sandboxtest.Exit0(), KillErr: errors.New("2 processes left")}, want: sandbox.Exited(0)},
		{name: "destroy fails", fake: &sandboxtest.Fake{Check: sandboxtest.Exit0(), DestroyErr: errors.New("EBUSY")}, want: sandbox.Exited(0)},
		{name: "destroy hangs", fake: &sandboxtest.Fake{Check: sandboxtest.Exit0(), DestroyTakes: time.Hour}, want: sandbox.Exited(0)},
		{name: "a stream never ends", fake: &sandboxtest.Fake{Check: sandboxtest.Behaviour{End: sandbox.EndExited(0), NoEOF: true}}, want: sandbox.Unknown("stdout did not reach its end: the kill took longer than its budget of 30s")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				if tt.cancel < 0 {
					cancel(withdrawn)
				} else if tt.cancel > 0 {
					defer time.AfterFunc(tt.cancel, func() { cancel(withdrawn) }).Stop()
				}
				s := tt.spec
				if s.ID == "" {
					s = spec()
				}
				runner := &sandbox.Runner{Backend: tt.fake}
				res := runner.Run(ctx, s).Last()
				if tt.name == "bad spec" {
					if res.Outcome.Kind() != sandbox.KindStartFailed || !strings.Contains(res.Outcome.Detail(), "limit memory") {
						t.Errorf("Run(%s) = %v, want start_failed naming limit memory", tt.name, res.Outcome)
					}
					return
				}
				if res.Outcome != tt.want {
					t.Errorf("Run(%s) outcome = %v, want %v", tt.name, res.Outcome, tt.want)
				}
				if res.Success() != tt.success || res.Killed != tt.killed {
					t.Errorf("Run(%s) success = %v, killed = %v, want %v, %v (cleanup %v)", tt.name, res.Success(), res.Killed, tt.success, tt.killed, res.Cleanup)
				}
			})
		})
	}
}

func oom(n int64) sandbox.Evidence {
	return sandbox.Evidence{Usage: sandbox.Usage{OOMKills: sandbox.Read(n)}}
}

func busy(since time.Duration) (time.Duration, error) { return since, nil }

func unreadable(time.Duration) (time.Duration, error) { return 0, errors.New("no such file") }

func unreadableSoon(since time.Duration) (time.Duration, error) {
	if since == 0 {
		return 0, nil
	}
	return unreadable(since)
}

// Teardown may only take success away: for every outcome, a run whose teardown
// fails has the outcome of the same run whose teardown works, and no success.
func TestTeardownOnlyTakesSuccessAway(t *testing.T) {
	behaviours := map[string]sandboxtest.Behaviour{
		"exit 0":   sandboxtest.Exit0(),
		"exit 3":   {End: sandbox.EndExited(3)},
		"signal":   {End: sandbox.EndSignaled(15)},
		"lost":     {End: sandbox.EndLost("x")},
		"deadline": hang,
		"no start": {StartErr: errors.New("no bash")},
		"flood":    {Stdout: make([]byte, sandbox.MiB+5), Hang: true},
	}
	for name, do := range behaviours {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				run := func(f *sandboxtest.Fake) sandbox.Result {
					return (&sandbox.Runner{Backend: f}).Run(t.Context(), spec()).Last()
				}
				good := run(&sandboxtest.Fake{Check: do})
				for _, bad := range []*sandboxtest.Fake{
					{Check: do, KillErr: errors.New("not empty")},
					{Check: do, DestroyErr: errors.New("busy")},
				} {
					res := run(bad)
					if res.Outcome != good.Outcome {
						t.Errorf("failed teardown gives outcome %v, want %v", res.Outcome, good.Outcome)
					}
					if res.Success() || res.Cleanup.State != sandbox.CleanupFailed {
						t.Errorf("failed teardown gives success %v, cleanup %v", res.Success(), res.Cleanup)
					}
					_, exited := res.Outcome.ExitCode()
					if got := res.Terminal() == "cleanup_failed"; got != exited {
						t.Errorf("terminal of %v = %s", res.Outcome, res.Terminal())
					}
				}
			})
		})
	}
}

func TestRunOrderOfPhases(t *testing.T) {
	f := &sandboxtest.Fake{Syntax: sandboxtest.Exit0(), Check: sandboxtest.Exit0()}
	var recorded []sandbox.Result
	var callsAtRecord []string
	runner := &sandbox.Runner{Backend: f, Sink: func(r sandbox.Result) error {
		recorded = append(recorded, r)
		callsAtRecord = f.Calls()
		return nil
	}}
	rec := runner.Run(t.Context(), spec(func(s *sandbox.Spec) { s.SyntaxPass = true }))
	want := []string{"create", "start syntax pass", "collect", "start check", "kill", "collect", "destroy"}
	if diff := cmp.Diff(want, f.Calls()); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	if len(recorded) != 2 || slices.Contains(callsAtRecord, "destroy") {
		t.Errorf("%d results recorded, calls by then %v; want 2, before destroy", len(recorded), callsAtRecord)
	}
	if recorded[1].Success() {
		t.Error("a result that was recorded before teardown must not be a success yet")
	}
	if !rec.Parse.Success() || !rec.Check.Success() {
		t.Errorf("parse %v, check %v, want both successful", rec.Parse.Outcome, rec.Check.Outcome)
	}
}

func TestSyntaxPassThatFailsEndsTheRun(t *testing.T) {
	for _, do := range []sandboxtest.Behaviour{
		{End: sandbox.EndExited(2), Stderr: []byte("bash: syntax error")},
		{End: sandbox.EndSignaled(9)},
		{StartErr: errors.New("no bash")},
		{Hang: true},
		{End: sandbox.EndExited(0), KeepOpen: true}, // left something behind
		{End: sandbox.EndExited(0), Stdout: make([]byte, sandbox.MiB+1)},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := &sandboxtest.Fake{Syntax: do, Check: sandboxtest.Exit0()}
			rec := (&sandbox.Runner{Backend: f}).Run(t.Context(), spec(func(s *sandbox.Spec) { s.SyntaxPass = true }))
			if rec.Check != nil || rec.Parse == nil || slices.Contains(f.Calls(), "start check") {
				t.Errorf("syntax pass %+v: record %+v, calls %v; the check must not start", do, rec, f.Calls())
			}
			if !slices.Contains(f.Calls(), "kill") {
				t.Errorf("syntax pass %+v: calls %v; the cell must be killed", do, f.Calls())
			}
		})
	}
}

func TestSyntaxPassHasItsOwnBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &sandboxtest.Fake{Syntax: hang}
		rec := (&sandbox.Runner{Backend: f}).Run(t.Context(), spec(func(s *sandbox.Spec) { s.SyntaxPass = true }))
		if want := sandbox.TimedOut(5 * time.Second); rec.Parse.Outcome != want {
			t.Errorf("syntax pass that hangs = %v, want %v", rec.Parse.Outcome, want)
		}
	})
}

func TestLeftoversAndSinkError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &sandboxtest.Fake{Check: sandboxtest.Behaviour{Stdout: []byte("done\n"), End: sandbox.EndExited(0), KeepOpen: true}, Leftovers: sandbox.Read(1)}
		r := &sandbox.Runner{Backend: f, Sink: func(sandbox.Result) error { return errors.New("disk full") }}
		res := r.Run(t.Context(), spec()).Last()
		if n, ok := res.Leftovers.Value(); n != 1 || !ok || res.Outcome != sandbox.Exited(0) || string(res.Stdout.Kept) != "done\n" {
			t.Errorf("leftovers %v, outcome %v, stdout %q; want 1, exited 0, done", res.Leftovers, res.Outcome, res.Stdout.Kept)
		}
		if got := fmt.Sprint(res.Evidence.Missing); got != "[record: disk full]" {
			t.Errorf("missing evidence = %s, want the sink's error", got)
		}
	})
}

func TestLeftBehindIsCleanupFailed(t *testing.T) {
	f := &sandboxtest.Fake{CreateErr: fmt.Errorf("x: %w", sandbox.ErrLeftBehind)}
	res := (&sandbox.Runner{Backend: f}).Run(t.Context(), spec()).Last()
	if res.Cleanup.State != sandbox.CleanupFailed || res.Outcome.Kind() != sandbox.KindStartFailed {
		t.Errorf("create that left something = %v, cleanup %v; want start_failed, failed", res.Outcome, res.Cleanup)
	}
}
