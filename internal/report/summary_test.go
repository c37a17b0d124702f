package report

import (
	"fmt"
	"testing"
	"time"

	"github.com/checkcell/checkcell/grade"
	"github.com/checkcell/checkcell/internal/intake"
	"github.com/checkcell/checkcell/sandbox"
)

func TestSummary(t *testing.T) {
	const none = "0 verified, 0 contradicted, 0 silent-check, 0 unrunnable, 0 uncheckable"
	tests := []struct {
		name string
		sum  Summary
		want string
	}{
		{"zero", Summary{}, "0 claims: " + none},
		{"one", Summary{Total: 1, Counts: map[grade.Verdict]int{grade.Verified: 1}},
			"1 claim: 1 verified, 0 contradicted, 0 silent-check, 0 unrunnable, 0 uncheckable"},
		{"each verdict", Summary{Total: 15, Counts: map[grade.Verdict]int{grade.Verified: 1, grade.Contradicted: 2, grade.SilentCheck: 3, grade.Unrunnable: 4, grade.Uncheckable: 5}},
			"15 claims: 1 verified, 2 contradicted, 3 silent-check, 4 unrunnable, 5 uncheckable"},
		{"a duplicate", Summary{Duplicates: 1}, "0 claims: " + none + "; 1 duplicate"},
		{"duplicates", Summary{Duplicates: 2}, "0 claims: " + none + "; 2 duplicates"},
		{"a shared check", Summary{SharedClaims: 3, SharedChecks: 1},
			"0 claims: " + none + "; 3 claims lean on 1 shared check, which counts as one verification"},
		{"shared checks", Summary{SharedClaims: 5, SharedChecks: 2},
			"0 claims: " + none + "; 5 claims lean on 2 shared checks, each of which counts as one verification"},
		{"clamped", Summary{Clamped: 1}, "0 claims: " + none + "; 1 claim asked for more than the limits given here and got the limits"},
		{"interrupted", Summary{NotRun: true}, "0 claims: " + none + "; interrupted, the rest was not run"},
	}
	for _, tt := range tests {
		if got := tt.sum.String(); got != tt.want {
			t.Errorf("%s: String() = %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestSummaryAdd(t *testing.T) {
	var s Summary
	clamped := graded("a", "", "", grade.Verified)
	clamped.Clamped = []string{"memory", "pids"}
	s.Add(clamped, false)
	s.Add(graded("b", "", "", grade.Verified), true)
	s.Count(grade.Unrunnable)
	got := fmt.Sprint(s.Total, s.Counts, s.Duplicates, s.Clamped)
	if want := fmt.Sprint(3, map[grade.Verdict]int{grade.Verified: 2, grade.Unrunnable: 1}, 1, 1); got != want {
		t.Errorf("after three claims the summary is %s, want %s", got, want)
	}
}

// Every verdict of the set stands in Verdicts, so that the counts add up.
func TestVerdictsAreAll(t *testing.T) {
	seen := map[grade.Verdict]bool{}
	for _, v := range Verdicts {
		seen[v] = true
	}
	n := 0
	for v := grade.Verdict(0); ; v++ {
		if _, err := v.MarshalText(); err != nil {
			break
		}
		if n++; !seen[v] {
			t.Errorf("Verdicts lacks %v", v)
		}
	}
	if n != len(Verdicts) {
		t.Errorf("Verdicts has %d members, want %d", len(Verdicts), n)
	}
}

func TestWhy(t *testing.T) {
	tests := []struct {
		name   string
		graded intake.Graded
		want   string
	}{
		{"verified", ran(graded("a", "", "", grade.Verified), 0), ""},
		{"exit code", ran(graded("a", "", "", grade.Contradicted), 3), "exit code 3"},
		{"expectation", ran(graded("a", "", "", grade.Contradicted), 0), `the output does not hold "rows=17"`},
		{"silent", ran(graded("a", "", "", grade.SilentCheck), 0), "exit 0, but nothing was printed"},
		{"never executed", graded("a", "", "", grade.Unrunnable), "there is no check to run"},
		{"a note comes first", ran(noted(graded("a", "", "", grade.Unrunnable), grade.Deadline, "too late"), 124), "DEADLINE: too late"},
		{"no result", graded("a", "", "", grade.Contradicted), ""},
	}
	for _, tt := range tests {
		if got := Why(tt.graded); got != tt.want {
			t.Errorf("%s: Why = %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestCost(t *testing.T) {
	parsed := graded("a", "", "", grade.Uncheckable)
	parsed.Parse = &sandbox.Result{Outcome: sandbox.Exited(2)}
	parsed.Parse.Evidence.Usage.Wall = 20 * time.Millisecond
	unstarted := ran(graded("a", "", "", grade.Unrunnable), 0)
	unstarted.Result.Outcome = sandbox.StartFailed("no cgroup")
	tests := []struct {
		name         string
		graded       intake.Graded
		wall, memory string
	}{
		{"known", used(ran(graded("a", "", "", grade.Verified), 0), 1555*time.Millisecond, sandbox.Read(512*int64(sandbox.KiB))), "1.56s", "0.5MiB"},
		{"memory not read", used(ran(graded("a", "", "", grade.Verified), 0), time.Minute, sandbox.Reading{}), "60.00s", "-"},
		{"the syntax pass", parsed, "0.02s", "-"},
		{"not started", unstarted, "-", "-"},
		{"nothing ran", graded("a", "", "", grade.Uncheckable), "-", "-"},
	}
	for _, tt := range tests {
		if wall, memory := cost(tt.graded); wall != tt.wall || memory != tt.memory {
			t.Errorf("%s: cost = %q, %q, want %q, %q", tt.name, wall, memory, tt.wall, tt.memory)
		}
	}
}
