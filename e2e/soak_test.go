package e2e

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The environment of TestSoak.
const (
	soakVar     = "CHECKCELL_SOAK"      // how many runs it makes
	soakSeedVar = "CHECKCELL_SOAK_SEED" // of its draw
)

// soakNumber reads one of these variables.
func soakNumber(t testing.TB, name string, otherwise, least uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 63)
	if err != nil || n < least {
		t.Fatalf("%s is %q, want a number from %d", name, text, least)
	}
	return n
}

// soakJobs is how many runs go on at once: all but one of them in the one
// checkcell that lives through the soak.
const soakJobs = 4

// TestSoak runs the hostile corpus and honest claims at random, four at a
// time. Every run comes to what it is wanted to, and one checkcell, which runs
// most of them, holds no more at its end than at its beginning.
func TestSoak(t *testing.T) {
	needCells(t)
	leavesNothing(t)
	n := int(soakNumber(t, soakVar, 120, 100))
	seed := soakNumber(t, soakSeedVar, rand.Uint64N(1<<32), 0)
	slow := slowness(t) * max(1, soakJobs/float64(runtime.NumCPU()))
	d := draw(t, n, seed, slow, rows[hostileCase](t, hostileTable, hostileCases))
	for _, c := range d.alone {
		c.need(t)
	}
	for _, w := range d.wants {
		w.c.need(t)
	}
	t.Logf("%s=%d %s=%d\n%s", soakVar, n, soakSeedVar, seed, strings.Join(d.log, "\n"))
	around := newSurroundings(t, nil)
	began := time.Now()
	t.Run("at once", func(t *testing.T) {
		t.Run("claims", func(t *testing.T) {
			t.Parallel()
			s := soaked{draw: d, around: around, slow: slow, tmp: t.TempDir(), spent: map[string]spent{}}
			s.run(t)
		})
		t.Run("alone", func(t *testing.T) {
			t.Parallel()
			for i, c := range d.alone {
				t.Run(fmt.Sprintf("%d-%s", i, c.Name), func(t *testing.T) { newHostileRun(t, c, around, nil, slow).do(t) })
			}
		})
	})
	took := time.Since(began)
	t.Logf("%d runs in %v: %v a run, %.1f minutes a thousand", n, took.Round(time.Second), (took / time.Duration(n)).Round(time.Millisecond), took.Minutes()/float64(n)*1000)
}

// soaked is the one checkcell of a soak.
type soaked struct {
	draw   soakDraw
	around *surroundings
	slow   float64
	tmp    string

	pid   int
	users []string // the cells' user ids on the host
	seen  []figures
	spent map[string]spent // by case
}

// run grades all claims and stops reading at some of them. Whatever had begun
// by then ends, and nothing begins as long as the pipe of the grade lines is
// full: what checkcell holds then it holds for good.
func (s *soaked) run(t *testing.T) {
	claims := slices.Clone(s.draw.claims)
	// No pipe takes the last line: checkcell is there until it is read.
	last := claim{ID: "last", Title: strings.Repeat("x", 64<<10), Rung: 4, Check: `expr 6 \* 7`, Expect: "42"}
	claims = append(claims, hostileClaim{claim: last})
	s.draw.wants["last"] = soakWant{verdict: "last verified null"}
	cmd := command{
		args: []string{"grade", "--json", "--jobs", fmt.Sprint(soakJobs - 1), "--timeout", "10m", "--parse-timeout", "30s", "--memory", "1GiB", "--pids", "1100",
			write(t, "claims.jsonl", jsonLines(t, claims))},
		env: []string{canaryEnv, "TMPDIR=" + s.tmp}, dir: s.tmp,
	}.make(t)
	stderr := &buffer{}
	cmd.Stderr = stderr
	out := smallPipe(t, func(w *os.File) error {
		cmd.Stdout = w
		return cmd.Start()
	})
	s.pid = cmd.Process.Pid
	defer func() { t.Logf("%s%s", table(s.seen), dearest(s.spent)) }()
	lines := bufio.NewReader(out)
	n := len(claims)
	for i, c := range claims {
		if slices.Contains([]int{1, n / 10, n / 2, n - n/10, n - 1}, i) {
			s.pause(t, i)
		}
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Errorf("line %d: %v, want that of %s", i+1, err, c.ID)
			break
		}
		s.check(t, c.ID, line)
	}
	rest, err := io.Copy(io.Discard, lines)
	if err := errors.Join(err, cmd.Wait()); rest != 0 || cmd.ProcessState.ExitCode() != 1 { // some are contradicted
		t.Errorf("grade = %v with %d bytes behind the last line, want exit status 1 and none\n%s", err, rest, stderr)
	}
	t.Logf("checkcell itself, with its launcher: %v CPU", (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Round(time.Millisecond))
	s.compare(t)
	if err := errors.Join(inGroups([]int{s.pid}), byUsers(s.users), groupsOf([]int{s.pid}), mountsOf(s.tmp), emptyDir(s.tmp)); err != nil {
		t.Errorf("at the end: %v", err)
	}
}

// smallPipe hands start the end for writing of a pipe that holds 4KiB, and
// returns the other.
func smallPipe(t *testing.T, start func(w *os.File) error) *os.File {
	t.Helper()
	const setPipeSize = 1031 // F_SETPIPE_SZ of fcntl(2); package syscall lacks it
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	defer w.Close()
	if _, _, errno := syscall.Syscall(syscall.SYS_FCNTL, w.Fd(), setPipeSize, 4096); errno != 0 {
		t.Fatalf("make a pipe small: %v", errno)
	}
	if err := start(w); err != nil {
		t.Fatal(err)
	}
	return r
}

// check looks at one grade line.
func (s *soaked) check(t *testing.T, id, text string) {
	t.Helper()
	line := decode[gradeLine](t, text)
	want, ok := s.draw.wants[id]
	if !ok || line.ID != id {
		t.Fatalf("the line of %s is that of %q", id, line.ID)
	}
	s.count(want.c.Name, line.Result)
	if want.verdict != "" {
		if got := verdicts([]gradeLine{line})[0]; got != want.verdict {
			t.Errorf("honest claim: %s, want %s\n%.2000s", got, want.verdict, line.Result)
		}
		return
	}
	if line.Verdict == "verified" || len(line.Clamped) > 0 {
		t.Errorf("%s is %s, clamped %q, want it not verified and not clamped", id, line.Verdict, line.Clamped)
	}
	var r result
	var o outcome
	if err := errors.Join(json.Unmarshal(line.Result, &r), json.Unmarshal(r.Outcome, &o)); err != nil {
		t.Errorf("%s is %s (%s) with result %.300s: %v", id, line.Verdict, deref(line.Note), line.Result, err)
		return
	}
	if err := matchAny(want.c.wants(), ended{code: exitCodeOf(o), stdout: string(line.Result)}, s.slow); err != nil {
		t.Errorf("%s: %v\nwhich %s\n%.2000s", id, err, want.c.Why, line.Result)
	}
	if user := userOf(string(line.Result)); len(user) > 0 && !slices.Contains(s.users, user[0]) {
		s.users = append(s.users, user[0])
	}
}

// count adds a run to what those of its case took. Without a result there
// was none.
func (s *soaked) count(name string, text json.RawMessage) {
	if name == "" {
		name = "(honest)"
	}
	var r measured
	if json.Unmarshal(text, &r) != nil || r.Usage["cpu_ns"] == nil {
		return
	}
	was := s.spent[name]
	s.spent[name] = spent{was.runs + 1, was.wall + r.Ended.Sub(r.Started), was.cpu + time.Duration(*r.Usage["cpu_ns"])}
}

// slowest is how long what had begun may take to end: a few of the longest
// cases may run after one another.
func (s *soaked) slowest() time.Duration {
	const most = 30_000 // of wall_ms in the corpus
	return 2*stretched(most, s.slow) + patience
}

// pause waits until all that runs has ended, and looks at checkcell and the host.
func (s *soaked) pause(t *testing.T, line int) {
	t.Helper()
	const looks = 25 // in a row: between two cells there may be none for a moment
	deadline := time.Now().Add(s.slowest())
	for free := 0; free < looks; {
		running := below(t, s.pid)
		if free++; len(running) != ourProcesses {
			free = 0
		}
		if time.Now().After(deadline) {
			t.Fatalf("waited %v in vain: all that had begun has ended; below checkcell there are %.2000q", s.slowest(), slices.Sorted(maps.Values(running)))
		}
		time.Sleep(2 * time.Millisecond) // between two looks; nothing tells us
	}
	f := measure(t, s.pid)
	f.line = line
	s.seen = append(s.seen, f)
	for _, err := range []error{byUsers(s.users), mountsOf(s.tmp), s.around.reached(), s.around.touched(), s.around.changed()} {
		if err != nil {
			t.Errorf("after %d claims: %v", line, err)
		}
	}
}

// compare fails the test if checkcell held more later than after a tenth.
func (s *soaked) compare(t *testing.T) {
	t.Helper()
	if len(s.seen) != 5 {
		t.Fatalf("checkcell was looked at %d times, want 5", len(s.seen))
	}
	early := s.seen[1].values()
	for _, late := range s.seen[2:] {
		for i, v := range late.values() {
			if v.n > early[i].n+v.slack {
				t.Errorf("%s: %d after %d claims and %d after %d, want at most %d more", v.what, early[i].n, s.seen[1].line, v.n, late.line, v.slack)
			}
		}
	}
}
