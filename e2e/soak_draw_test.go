package e2e

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// soakRuns is how many runs the acceptance makes, and soakEach how often it
// makes each case of the corpus at least.
const (
	soakRuns = 20_000
	soakEach = 10
)

// soakDraw is what a soak runs: claims for the one checkcell that lives
// through all of it, and cases that need one of their own, beside it.
type soakDraw struct {
	claims []hostileClaim
	wants  map[string]soakWant // by the claim's id
	alone  []hostileCase
	log    []string // what was drawn how
}

// soakWant is what a claim may come to: the verdict of an honest one, or
// the case that it is.
type soakWant struct {
	verdict string
	c       hostileCase
}

// soakAlone says why a case can't be one claim among others, or "".
func (c hostileCase) soakAlone() string {
	switch {
	case c.Action != (hostileAction{}):
		return "something happens to checkcell"
	case len(c.Host.Env)+len(c.Host.Files) > 0:
		return "checkcell is started in surroundings of its own"
	case c.Next != nil || c.Peer != nil:
		return "it is two runs"
	case c.PadTo > 1<<17:
		return "claims of that size are about reading, not running"
	}
	switch c.Name {
	case "syntax-error-after-output", "nul-byte-in-script", "empty-script":
		return "a claim of it is graded without a run of the check"
	}
	return ""
}

// quick is how long a short case lasts, for its weight. Most do.
const quick = 200 * time.Millisecond

// lasts is about how long a case runs, four at a time on two processors. It
// only decides how often the case is drawn, so no measurement enters: the same
// seed draws the same everywhere.
func (c hostileCase) lasts() time.Duration {
	known, ok := map[string]time.Duration{
		"orphans-must-be-reaped": 4 * time.Second, "removes-everything": 4 * time.Second,
		"recursion-until-the-stack-ends": 2 * time.Second, "descriptor-exhaustion": 2 * time.Second,
		"ten-thousand-arguments": 1500 * time.Millisecond, "fork-bomb-then-exit-0": 1500 * time.Millisecond,
		"host-processes-invisible": time.Second, "ends-at-the-deadline": time.Second, "stdout-closed-early": time.Second,
		"cancel-mid-run": time.Second, "cancel-trap-exit-0": time.Second, "runner-dies-mid-run": time.Second,
		"memory-plus-swap": time.Second, "memory-bomb-by-doubling": time.Second, "memory-bomb-touching": time.Second,
		"cpu-spin": time.Second, "script-5000000-bytes": time.Second,
	}[c.Name]
	if ok {
		return known
	}
	if slices.ContainsFunc(c.wants(), func(w hostileWant) bool { return w.Kind != "timed_out" }) {
		return quick
	}
	return max(stretched(c.Limits["wall_ms"], 2), quick)
}

// draw draws n runs: every fourth an honest claim, the others cases, each at
// least as often as its share of the acceptance's minimum and beyond that with
// a weight that falls with its length. The short soaks of every day leave out
// the cases that last longer than 3s, which TestHostile runs.
func draw(t testing.TB, n int, seed uint64, slow float64, corpus []hostileCase) soakDraw {
	t.Helper()
	const longest = 3 * time.Second
	d := soakDraw{wants: map[string]soakWant{}}
	random := rand.New(rand.NewPCG(seed, 0))
	var cases, drawn []hostileCase
	var up []float64 // to which each case's weight reaches
	sum := 0.0
	for _, c := range corpus {
		weight := float64(quick) / float64(c.lasts())
		if weight < 1 {
			d.log = append(d.log, fmt.Sprintf("%s 1/%.1f", c.Name, 1/weight))
		}
		if n < len(corpus)*4 && c.lasts() > longest {
			continue
		}
		sum += weight
		cases, up = append(cases, c), append(up, sum)
		for range n * soakEach / soakRuns {
			drawn = append(drawn, c)
		}
	}
	slices.Sort(d.log)
	d.log = []string{fmt.Sprintf("of %d cases %d are drawn from, each %d times and then by weight, which is 1 but for: %s",
		len(corpus), len(cases), n*soakEach/soakRuns, strings.Join(d.log, ", "))}
	honestRounds := n / 4 / honestKinds
	for len(drawn) < n-honestRounds*honestKinds {
		i, _ := slices.BinarySearch(up, random.Float64()*sum)
		drawn = append(drawn, cases[min(i, len(cases)-1)])
	}
	random.Shuffle(len(drawn), func(i, j int) { drawn[i], drawn[j] = drawn[j], drawn[i] })
	d.fill(t, drawn, honestRounds, slow)
	return d
}

// fill makes claims and lone runs of what was drawn, the honest claims spread
// evenly among them.
func (d *soakDraw) fill(t testing.TB, drawn []hostileCase, honestRounds int, slow float64) {
	t.Helper()
	lone := map[string]bool{}
	rounds := 0
	for i, c := range drawn {
		if c.soakAlone() != "" {
			d.alone = append(d.alone, c)
			lone[c.Name] = true
		} else {
			id := fmt.Sprintf("run-%d-%s", i, c.Name)
			d.claims = append(d.claims, c.claim(t, id, slow))
			d.wants[id] = soakWant{c: c}
		}
		for ; rounds*len(drawn) < honestRounds*(i+1); rounds++ {
			all, want := honest(rounds)
			d.claims = append(d.claims, all...)
			for j, c := range all {
				d.wants[c.ID] = soakWant{verdict: want[j]}
			}
		}
	}
	d.log = append(d.log, fmt.Sprintf("%d claims for one checkcell, %d of them honest; beside it %d runs of %d cases with a checkcell each",
		len(d.claims), rounds*honestKinds, len(d.alone), len(lone)))
}

// The draw is the same for the same seed, of the size that was asked for, and
// has each case as often as is promised.
func TestSoakDraw(t *testing.T) {
	corpus := rows[hostileCase](t, hostileTable, hostileCases)
	count := func(d soakDraw) (sum int, of map[string]int) {
		of = map[string]int{}
		for _, w := range d.wants {
			of[w.c.Name]++
		}
		for _, c := range d.alone {
			of[c.Name]++
		}
		return len(d.claims) + len(d.alone), of
	}
	for _, n := range []int{100, 1000, soakRuns} {
		d := draw(t, n, 1, 1, corpus)
		sum, of := count(d)
		if sum != n || len(d.wants) != len(d.claims) {
			t.Errorf("draw(%d) = %d runs with %d claims and %d wants, want %d", n, sum, len(d.claims), len(d.wants), n)
		}
		if honest := of[""]; honest*honestKinds < n || honest > n/4 {
			t.Errorf("draw(%d) has %d honest claims, want about %d", n, honest, n/4)
		}
		for _, c := range corpus {
			if least := n * soakEach / soakRuns; of[c.Name] < least {
				t.Errorf("draw(%d) has %s %d times, want at least %d", n, c.Name, of[c.Name], least)
			}
		}
	}
	one, same, other := draw(t, 200, 1, 1, corpus), draw(t, 200, 1, 1, corpus), draw(t, 200, 2, 1, corpus)
	ids := func(d soakDraw) (all []string) {
		for _, c := range d.claims {
			all = append(all, c.ID)
		}
		return all
	}
	if !slices.Equal(ids(one), ids(same)) || slices.Equal(ids(one), ids(other)) {
		t.Error("draws of the same seed differ, or those of two seeds do not")
	}
}
