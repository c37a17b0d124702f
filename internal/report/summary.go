package report

import (
	"fmt"
	"strings"
	"time"

	"github.com/checkcell/checkcell/grade"
	"github.com/checkcell/checkcell/internal/intake"
	"github.com/checkcell/checkcell/sandbox"
)

// Verdicts are all verdicts, in the order in which people want them.
var Verdicts = [...]grade.Verdict{grade.Verified, grade.Contradicted, grade.SilentCheck, grade.Unrunnable, grade.Uncheckable}

// Summary counts graded claims. Its zero value has counted none.
type Summary struct {
	Total        int
	Counts       map[grade.Verdict]int
	Duplicates   int
	SharedClaims int // claims that share a check with another
	SharedChecks int // the checks that they share: each counts as one verification
	Clamped      int // claims whose wishes were cut down to the caller's limits
	NotRun       bool
}

// Add counts one claim in.
func (s *Summary) Add(g intake.Graded, duplicate bool) {
	s.Count(g.Grade.Verdict)
	if duplicate {
		s.Duplicates++
	}
	if len(g.Clamped) > 0 {
		s.Clamped++
	}
}

// Count counts one verdict in.
func (s *Summary) Count(v grade.Verdict) {
	if s.Counts == nil {
		s.Counts = map[grade.Verdict]int{}
	}
	s.Total++
	s.Counts[v]++
}

// String writes the summary as one line.
func (s Summary) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: ", plural(s.Total, "claim"))
	for i, v := range Verdicts {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%d %s", s.Counts[v], v)
	}
	if s.Duplicates > 0 {
		fmt.Fprintf(&b, "; %s", plural(s.Duplicates, "duplicate"))
	}
	if s.SharedClaims > 0 {
		each := "each of which counts as one verification"
		if s.SharedChecks == 1 {
			each = "which counts as one verification"
		}
		fmt.Fprintf(&b, "; %s lean on %s, %s", plural(s.SharedClaims, "claim"), plural(s.SharedChecks, "shared check"), each)
	}
	if s.Clamped > 0 {
		fmt.Fprintf(&b, "; %s asked for more than the limits given here and got the limits", plural(s.Clamped, "claim"))
	}
	if s.NotRun {
		b.WriteString("; interrupted, the rest was not run")
	}
	return b.String()
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Why says in a few words why a claim has its verdict.
func Why(g intake.Graded) string {
	switch {
	case g.Grade.Note != "":
		return fmt.Sprintf("%s: %s", g.Grade.NoteKind, g.Grade.Note)
	case g.Grade.Verdict == grade.SilentCheck:
		return "exit 0, but nothing was printed"
	case g.Grade.Verdict == grade.Unrunnable:
		return "there is no check to run"
	case g.Grade.Verdict == grade.Verified || g.Result == nil:
		return ""
	}
	if code, ok := g.Result.Outcome.ExitCode(); ok && code != 0 {
		return fmt.Sprintf("exit code %d", code)
	}
	return fmt.Sprintf("the output does not hold %q", g.Claim.Evidence.Expect)
}

// cost returns the time and memory of a claim's run, "-" for what is not known.
func cost(g intake.Graded) (wall, memory string) {
	res := g.Result
	if res == nil {
		res = g.Parse
	}
	wall, memory = "-", "-"
	if res == nil || res.Outcome.Kind() == sandbox.KindStartFailed {
		return wall, memory
	}
	wall = fmt.Sprintf("%.2fs", res.Evidence.Usage.Wall.Round(10*time.Millisecond).Seconds())
	if n, ok := res.Evidence.Usage.PeakMemory.Value(); ok {
		memory = fmt.Sprintf("%.1fMiB", float64(n)/float64(sandbox.MiB))
	}
	return wall, memory
}
