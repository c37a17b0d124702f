package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// hostileClaim is a case as a claim, which grade runs beside others.
type hostileClaim struct {
	claim
	hostileLimits
	Files map[string]string `json:"files,omitempty"`
}

// claim is the case as a claim under an id of its own. At rung 3 no check is
// refused for what it looks like, and the expectation holds of none.
func (c hostileCase) claim(t testing.TB, id string, slow float64) hostileClaim {
	t.Helper()
	limits, err := c.allLimits(slow)
	if err != nil {
		t.Fatal(err)
	}
	return hostileClaim{
		claim:         claim{ID: id, Title: id, Rung: 3, Check: c.script(), Expect: "nothing of the kind"},
		hostileLimits: limits, Files: c.Files,
	}
}

// honestKinds is how many claims a round of honest has.
const honestKinds = 7

// togetherMS is the most wall time that any claim has among the others.
const togetherMS = 15_000

// honest are claims and the verdicts that they have whatever runs beside them.
func honest(round int) (all []hostileClaim, want []string) {
	for _, one := range []struct{ name, check, expect, verdict string }{
		{"sum", "expr 6 \\* 7", "42", "verified null"},
		{"wrong-sum", "expr 6 \\* 7", "43", "contradicted null"},
		{"exit-1", "expr 6 \\* 7; exit 1", "42", "contradicted null"},
		{"silent", "expr 6 \\* 7 >/dev/null", "42", "silent-check null"},
		{"file", "tr a-z A-Z < word.txt", "WORD", "verified null"},
		{"clean", `ls -A /tmp /work /dev/shm | tr -d '\n'`, "/dev/shm:/tmp:/work:", "verified null"},
		{"many", "for i in 1 2 3 4 5 6 7 8; do sleep 0.1 & done; wait; expr 6 \\* 7", "42", "verified null"},
	} {
		id := fmt.Sprintf("honest-%d-%s", round, one.name)
		c := hostileClaim{claim: claim{ID: id, Title: id, Rung: 4, Check: one.check, Expect: one.expect}}
		if one.name == "file" {
			c.Files = map[string]string{"word.txt": "word\n"}
		}
		all = append(all, c)
		want = append(want, id+" "+one.verdict)
	}
	return all, want
}

// TestHostileTogether has one checkcell run the whole corpus at once, with honest
// claims in between: their verdicts do not change, and the host is as it was.
func TestHostileTogether(t *testing.T) {
	needCells(t)
	leavesNothing(t)
	slow := slowness(t)
	around := newSurroundings(t, nil)
	var all []hostileClaim
	var want []string
	for i, c := range rows[hostileCase](t, hostileTable, hostileCases) {
		c.need(t)
		if len(c.script()) > 1<<17 { // as claims they are text of another kind, and prove nothing here
			continue
		}
		if c.Limits["wall_ms"] > togetherMS {
			c.Limits["wall_ms"] = togetherMS
		}
		all = append(all, c.claim(t, c.Name, 1)) // nobody looks at what it comes to
		if i%16 == 0 {
			good, verdicts := honest(i)
			all, want = append(all, good...), append(want, verdicts...)
		}
	}
	tmp := t.TempDir()
	cmd := command{
		args: []string{"grade", "--json", "--jobs", fmt.Sprint(len(all)), "--timeout", stretched(togetherMS, slow).String(), "--parse-timeout", stretched(30_000, slow).String(), "--setup-timeout", stretched(20_000, slow).String(), "--memory", "1GiB", "--pids", "1100", "--stdout-cap", "64KiB", "--stderr-cap", "64KiB", "-"},
		env:  []string{canaryEnv, "TMPDIR=" + tmp}, dir: tmp, stdin: jsonLines(t, all),
	}
	p := cmd.start(t)
	got := p.wait(t)
	lines := decodeLines[gradeLine](t, got.stdout)
	if len(lines) != len(all) {
		t.Errorf("grade of %d claims = %d with %d lines\n%s", len(all), got.code, len(lines), got.stderr)
	}
	lines = slices.DeleteFunc(lines, func(l gradeLine) bool { return !strings.HasPrefix(l.ID, "honest-") })
	if diff := cmp.Diff(want, verdicts(lines)); diff != "" {
		t.Errorf("verdicts of the honest claims, - want, + got:\n%s", diff)
		for _, l := range lines {
			if l.Note != nil {
				t.Logf("%s: %s", l.ID, *l.Note)
			}
		}
	}
	pids := []int{p.cmd.Process.Pid}
	for _, err := range []error{around.reached(), around.touched(), around.changed(), inGroups(pids), groupsOf(pids), mountsOf(tmp), emptyDir(tmp)} {
		if err != nil {
			t.Error(err)
		}
	}
}
