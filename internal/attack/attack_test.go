package attack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/checkcell/checkcell/internal/host"
	"github.com/checkcell/checkcell/sandbox"
	"github.com/checkcell/checkcell/sandbox/sandboxtest"
)

// The bait has a fixed place on the machine, so the packages that use it take turns.
func TestMain(m *testing.M) { os.Exit(host.Main(m)) }

func TestStandingWords(t *testing.T) {
	if zero := *new(Standing); zero != NotTried {
		t.Errorf("the zero Standing is %v, want %v", zero, NotTried)
	}
	for s, want := range map[Standing]string{NotTried: "not tried", Held: "held", Limited: "limited", GotThrough: "got through", 9: "Standing(9)"} {
		if got := s.String(); got != want {
			t.Errorf("Standing(%d).String() = %q, want %q", s, got, want)
		}
	}
}

func TestStanding(t *testing.T) {
	quiet := func(o sandbox.Outcome, set ...func(*sandbox.Result)) sandbox.Result {
		r := sandbox.Result{Outcome: o, Cleanup: sandbox.Cleanup{State: sandbox.CleanupDone}, Leftovers: sandbox.Read(0)}
		for _, f := range set {
			f(&r)
		}
		return r
	}
	text := func(s string) func(*sandbox.Result) {
		return func(r *sandbox.Result) { r.Stdout.Kept = []byte(s) }
	}
	exited := Want{Kind: "exited", StdoutNotContains: Texts{"ESCAPED"}}
	tests := []struct {
		name   string
		wants  []Want
		have   sandbox.Result
		want   Standing
		detail string
	}{
		{"refused", []Want{exited}, quiet(sandbox.Exited(0), text("tried")), Held, ""},
		{"escaped", []Want{exited}, quiet(sandbox.Exited(0), text("ESCAPED")), GotThrough, `want no "ESCAPED"`},
		{"the second answer", []Want{{Kind: "timed_out"}, exited}, quiet(sandbox.Exited(0)), Held, ""},
		{"no answer", []Want{{Kind: "timed_out"}, {Kind: "canceled"}}, quiet(sandbox.Exited(0)), GotThrough, "want timed_out; it ended as exited 0, want canceled"},
		{"no wants", nil, quiet(sandbox.Exited(0)), GotThrough, ""},
		{"deadline", []Want{{Kind: "timed_out"}}, quiet(sandbox.TimedOut(time.Second)), Limited, "timed_out after 1s"},
		{"memory", []Want{{Kind: "limit_exceeded"}}, quiet(sandbox.LimitExceeded(sandbox.ResourceMemory)), Limited, "limit_exceeded memory"},
		{"forks", []Want{exited}, quiet(sandbox.Exited(0), func(r *sandbox.Result) { r.Evidence.Usage.PIDsMaxHits = sandbox.Read(7) }), Limited, "refused forks: 7"},
		{"kills", []Want{exited}, quiet(sandbox.Exited(0), func(r *sandbox.Result) { r.Evidence.Usage.OOMKills = sandbox.Read(1) }), Limited, "OOM kills: 1"},
		{"leftovers", []Want{exited}, quiet(sandbox.Exited(0), func(r *sandbox.Result) { r.Leftovers = sandbox.Read(2) }), Limited, "processes left and killed: 2"},
		{"not started", []Want{exited}, quiet(sandbox.StartFailed("no cgroup")), NotTried, "start_failed: no cgroup"},
		{"not started, as wanted", []Want{{Kind: "start_failed"}}, quiet(sandbox.StartFailed("no")), Held, ""},
		{"withdrawn", []Want{exited}, quiet(sandbox.Canceled("interrupted")), NotTried, "canceled: interrupted"},
		{"unknown", []Want{exited}, quiet(sandbox.Unknown("lost")), GotThrough, "unknown: lost"},
		{"not removed", []Want{exited}, quiet(sandbox.Exited(0), func(r *sandbox.Result) { r.Cleanup = sandbox.Cleanup{State: sandbox.CleanupFailed, Detail: "busy"} }), GotThrough, "cleanup failed: busy"},
		{"zero", []Want{{Kind: "unknown"}}, sandbox.Result{}, GotThrough, "cleanup unknown"},
	}
	for _, tt := range tests {
		got, detail := standing(tt.wants, tt.have)
		if got != tt.want || !strings.Contains(detail, tt.detail) || got == Held && detail != "" {
			t.Errorf("%s: standing = %v, %q, want %v, %q", tt.name, got, detail, tt.want, tt.detail)
		}
	}
}

// on is an attacker of scripted cells.
func on(f *sandboxtest.Fake) Attacker {
	return Attacker{Runner: &sandbox.Runner{Backend: f}, Spec: sandbox.Spec{Limits: sandbox.DefaultLimits()}}
}

// prints is a cell whose check prints text and exits 0.
func prints(text string) *sandboxtest.Fake {
	return &sandboxtest.Fake{Check: sandboxtest.Behaviour{Stdout: []byte(text), End: sandbox.EndExited(0)}, Leftovers: sandbox.Read(0)}
}

func TestAll(t *testing.T) {
	harmless := Want{Kind: "exited", StdoutNotContains: Texts{"ESCAPED"}}
	c := Case{Name: "c", Check: "true", Want: &harmless}
	next := Case{Name: "next", Check: "true", Want: &harmless, Next: &Second{Check: "true", Want: &Want{Kind: "exited", StdoutContains: Texts{"clean"}}}}
	needs := Case{Name: "needs", Check: "true", Needs: []string{"python3"}, Want: &harmless}
	short := Case{Name: "short", Check: "true", Limits: map[string]int64{"pids": 1000}, Want: &harmless}
	wrong := Case{Name: "wrong", Check: "true", Limits: map[string]int64{"surprise": 1}, Want: &harmless}
	hangs := &sandboxtest.Fake{Check: sandboxtest.Behaviour{Hang: true}, Leftovers: sandbox.Read(1)}
	quick := Case{Name: "quick", Check: "true", Limits: map[string]int64{"wall_ms": 5}, Want: &Want{Kind: "timed_out"}}
	tests := []struct {
		name   string
		on     *sandboxtest.Fake
		c      Case
		want   Standing
		detail string
	}{
		{"held", prints("tried"), c, Held, ""},
		{"got through", prints("ESCAPED"), c, GotThrough, "ESCAPED"},
		{"limited by its own wall time", hangs, quick, Limited, "timed_out after"},
		{"no cell", &sandboxtest.Fake{CreateErr: errors.New("no cgroup")}, c, NotTried, "no cgroup"},
		{"not removed", &sandboxtest.Fake{Check: sandboxtest.Exit0(), DestroyErr: errors.New("busy")}, c, GotThrough, "busy"},
		{"the next run held", prints("clean"), next, Held, ""},
		{"the next run is not clean", prints("tried"), next, GotThrough, `the next run: stdout is "tried", want "clean" in it`},
		{"the first run decides before the next", prints("ESCAPED"), next, GotThrough, `want no "ESCAPED"`},
		{"the program is there", prints("tried"), needs, Held, ""},
		{"the program is not there", &sandboxtest.Fake{Check: sandboxtest.Behaviour{End: sandbox.EndExited(127)}}, needs, NotTried, "no python3 that works: exited 127"},
		{"the user's limit is too small", prints("tried"), short, NotTried, "pids of at least 1000"},
		{"an unknown limit", prints("tried"), wrong, NotTried, "surprise"},
	}
	for _, tt := range tests {
		all := slices.Collect(on(tt.on).All(t.Context(), []Case{tt.c}))
		if len(all) != 1 || all[0].Case.Name != tt.c.Name || all[0].Standing != tt.want || !strings.Contains(all[0].Detail, tt.detail) {
			t.Errorf("%s: All = %+v, want %v with %q", tt.name, all, tt.want, tt.detail)
		}
	}
}

// A program is asked for once, however many cases need it; and a case without
// needs does not ask.
func TestAllAsksOnce(t *testing.T) {
	harmless := Want{Kind: "exited"}
	one := Case{Name: "one", Check: "true", Needs: []string{"python3"}, Want: &harmless}
	fake := prints("")
	found := slices.Collect(on(fake).All(t.Context(), []Case{{Name: "zero", Check: "true", Want: &harmless}, one, one}))
	runs := 0
	for _, call := range fake.Calls() {
		if call == "create" {
			runs++
		}
	}
	if len(found) != 3 || runs != 4 {
		t.Errorf("three cases, two of which need the same: %d findings, %d cells, want 3 and 4", len(found), runs)
	}
}

func TestAllEndsEarly(t *testing.T) {
	c := Case{Name: "c", Check: "true", Want: &Want{Kind: "exited"}}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	seen := 0
	for range on(prints("")).All(ctx, []Case{c, c, c}) {
		seen++
		cancel()
	}
	if seen != 1 {
		t.Errorf("All after a cancel in the first finding yields %d, want 1", seen)
	}
	for range on(prints("")).All(t.Context(), []Case{c, c, c}) {
		break // a loop that is left must not go on
	}
}

// Whoever reaches the bait got through, whatever the run came to.
func TestBait(t *testing.T) {
	bait, err := LayBait()
	if err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(baitFile); err != nil || string(text) != baitText {
		t.Errorf("ReadFile(%s) = %q, %v, want %q", baitFile, text, err, baitText)
	}
	if second, err := LayBait(); err == nil {
		t.Errorf("LayBait() where one lies = %v, want an error", second)
	}
	c := Case{Name: "c", Check: "true", Want: &Want{Kind: "exited"}}
	a := on(prints(""))
	a.Bait = bait
	if f := slices.Collect(a.All(t.Context(), []Case{c})); f[0].Standing != Held {
		t.Errorf("All with bait that nobody reached = %+v, want held", f)
	}
	for _, at := range []struct{ network, address string }{{"tcp", baitTCP}, {"unix", baitSocket}} {
		before := len(bait.taken())
		a.Runner.Sink = func(sandbox.Result) error { // while the case runs
			conn, err := net.Dial(at.network, at.address)
			if err != nil {
				return err
			}
			defer conn.Close()
			if _, err := conn.Read(make([]byte, 1)); err == nil { // its end says that it was noted
				return fmt.Errorf("bait %s speaks", at.address)
			}
			return nil
		}
		f := slices.Collect(a.All(t.Context(), []Case{c}))
		if f[0].Standing != GotThrough || !strings.Contains(f[0].Detail, at.address) || len(bait.taken()) != before+1 {
			t.Errorf("All with bait %s reached = %+v, %q, want got through with it", at.address, f, bait.taken())
		}
	}
	if err := bait.Close(); err != nil {
		t.Errorf("Close() = %v", err)
	}
	if _, err := os.Lstat(baitFile); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after Close(), Lstat(%s) = %v, want it gone", baitFile, err)
	}
}

// What lies there already is not ours, and stays.
func TestBaitIsExclusive(t *testing.T) {
	if err := os.WriteFile(baitFile, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(baitFile)
	bait, err := LayBait()
	if err == nil || bait != nil || !strings.Contains(err.Error(), baitFile) {
		t.Errorf("LayBait() over a file = %v, %v, want an error with its name", bait, err)
	}
	if text, err := os.ReadFile(baitFile); err != nil || string(text) != "mine" {
		t.Errorf("ReadFile after LayBait() = %q, %v, want mine", text, err)
	}
	if l, err := net.Listen("tcp4", baitTCP); err != nil {
		t.Errorf("after LayBait() failed, %s is taken: %v", baitTCP, err)
	} else {
		l.Close()
	}
}
