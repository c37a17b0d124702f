package e2e

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// BenchmarkGrade says how many trivial claims a second the built binary
// grades, two and four at a time, beside a loop of plain bash over the same
// checks, in turns in one run.
func BenchmarkGrade(b *testing.B) {
	needCells(b)
	const claims = 200
	var lines, loop strings.Builder
	for i := range claims {
		check := fmt.Sprintf("x=%d; echo value=$((x + 1))", i)
		fmt.Fprintf(&lines, `{"id":"c%d","title":"t%d","rung":4,"check":"%s","expect":"value=%d"}`+"\n", i, i, check, i+1)
		fmt.Fprintf(&loop, "bash --norc --noprofile -c '%s'\n", check)
	}
	file := write(b, "claims.jsonl", lines.String())
	rate := map[string][]float64{}
	timed := func(name string, do func() error) {
		began := time.Now()
		if err := do(); err != nil {
			b.Fatalf("%s: %v", name, err)
		}
		rate[name] = append(rate[name], claims/time.Since(began).Seconds())
	}
	for b.Loop() {
		timed("bash", exec.Command("bash", "-c", loop.String()).Run)
		for _, jobs := range []string{"2", "4"} {
			timed("jobs-"+jobs, func() error {
				if got := checkcell(b, "grade", "--jobs", jobs, file); got.code != 0 {
					return fmt.Errorf("exit %d: %s", got.code, got.stderr)
				}
				return nil
			})
		}
	}
	for name, all := range rate {
		sum := 0.0
		for _, r := range all {
			sum += r
		}
		b.ReportMetric(sum/float64(len(all)), name+"-claims/s")
	}
}
