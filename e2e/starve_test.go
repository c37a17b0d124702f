package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/checkcell/checkcell/internal/host"
)

// starvedGroup makes a control group with a limit on what runs in it, checkcell
// included, and returns how a program is started in it and how its limit is set.
func starvedGroup(t *testing.T, controller, ample string, files ...string) (under []string, limit func(string)) {
	t.Helper()
	if got := checkcell(t, "run", "--", "true"); got.code != 0 { // on v2 it has the controllers handed down
		t.Fatalf("run = %d with stderr %q, want 0", got.code, got.stderr)
	}
	dir, err := os.MkdirTemp(groupDir(t, controller), "e2e-starved-*")
	if err != nil {
		t.Fatal(err)
	}
	under = []string{"sh", "-c", `echo $$ >"$0/cgroup.procs" && exec "$@"`, dir}
	limit = func(value string) {
		t.Helper()
		reopen(t, dir)
		// Twice, since neither of two limits that hang together may pass the other.
		for range 2 {
			var errs []error
			for _, file := range files {
				path := filepath.Join(dir, file)
				if _, err := os.Stat(path); err == nil {
					errs = append(errs, os.WriteFile(path, []byte(value), 0))
				}
			}
			err = errors.Join(errs...)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		// A start from here, within ample limits, sweeps what died here.
		limit(ample)
		call := slices.Concat(under, []string{"checkcell", "run", "--", "true"})
		if out, err := exec.Command(call[0], call[1:]...).CombinedOutput(); err != nil {
			t.Errorf("run in %s without a limit: %v\n%s", dir, err, out)
		}
		if err := os.Remove(dir); err != nil {
			t.Error(err)
		}
	})
	return under, limit
}

// reopen has a group of cgroup2 take processes again after the death of a supervisor
// in it, which had it hand controllers down: then it may hold none itself. What
// is below it is empty, or soon will be.
func reopen(t *testing.T, dir string) {
	t.Helper()
	control := filepath.Join(dir, "cgroup.subtree_control")
	handed, err := os.ReadFile(control)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	var below []string
	walkErr := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && path != dir {
			below = append(below, path)
		}
		return err
	})
	errs := []error{err, walkErr}
	for _, path := range slices.Backward(below) {
		waitFor(t, path+" can be removed", func() bool { return os.Remove(path) == nil }) // its launcher may be about to end
	}
	for word := range strings.FieldsSeq(string(handed)) {
		errs = append(errs, os.WriteFile(control, []byte("-"+word), 0))
	}
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// groupDir is where groups with a controller can be made: at our own position in
// its version 1 hierarchy, or at the top of cgroup2, whose root hands it down.
func groupDir(t *testing.T, controller string) string {
	t.Helper()
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		before, after, _ := strings.Cut(strings.TrimSpace(line), " - ")
		left, right := strings.Fields(before), strings.Fields(after)
		point := left[4]
		if right[0] == "cgroup2" {
			if has, err := os.ReadFile(filepath.Join(point, "cgroup.subtree_control")); err == nil && slices.Contains(strings.Fields(string(has)), controller) {
				return point
			}
		}
		if right[0] != "cgroup" || !slices.Contains(strings.Split(right[2], ","), controller) {
			continue
		}
		for position := range strings.Lines(string(own)) {
			fields := strings.SplitN(strings.TrimSpace(position), ":", 3)
			if slices.Contains(strings.Split(fields[1], ","), controller) {
				return filepath.Join(point, fields[2])
			}
		}
	}
	t.Fatalf("no mounted hierarchy hands down the controller %s", controller)
	return ""
}

// short is a part of what is said of a shortage, and what is to be done about it.
type short struct{ what, do string }

// starved checks what one run of a command that exits 0 came to while checkcell was
// short of something: it was run and says so, or it was not and says why. It
// returns whether it ran.
func starved(t *testing.T, name string, got ended, wants ...short) bool {
	t.Helper()
	text := got.stderr
	if got.stdout != "" {
		r := decode[result](t, got.stdout)
		if got.code == 0 {
			if !r.Success || string(r.Outcome) != `{"kind":"exited","exit_code":0}` {
				t.Errorf("%s: exit code 0 with outcome %s, success %v", name, r.Outcome, r.Success)
			}
			return true
		}
		if got.code != 125 || !strings.HasPrefix(string(r.Outcome), `{"kind":"start_failed",`) || r.Cleanup.State != "done" {
			t.Errorf("%s: exit code %d with outcome %s, cleanup %+v, want 125, start_failed, done", name, got.code, r.Outcome, r.Cleanup)
		}
		text += string(r.Outcome)
	} else if got.code == 0 {
		t.Errorf("%s: exit code 0 without a result", name)
	}
	for _, want := range wants {
		if strings.Contains(text, want.what) && strings.Contains(text, want.do) {
			return false
		}
	}
	t.Errorf("%s: exit code %d, and it says neither of %q\n%s", name, got.code, wants, text)
	return false
}

// Whatever step it is at when checkcell has no descriptor left: the run is not
// started, and says what was short.
func TestStarvedOfFiles(t *testing.T) {
	needCells(t)
	leavesNothing(t)
	for _, n := range []int{4, 7, 20, 67} {
		limit := fmt.Sprintf("--nofile=%d:%d", n, n)
		got := command{under: []string{"prlimit", limit}, args: []string{"run", "--json", "--nofile", "16", "--", "true"}}.run(t)
		if starved(t, limit, got, short{fmt.Sprintf("may open only %d files", n), "raise the limit (ulimit -n"}) || got.code != 125 {
			t.Errorf("run under %s = %d, want 125", limit, got.code)
		}
	}
	// Enough by the limit, but most of it is taken: what is left is met in the
	// making of the groups, the launcher, the cell's pipes, its memory files, and
	// where the descriptor of its init is received.
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	const limit = 128
	under := []string{"prlimit", fmt.Sprintf("--nofile=%d:%d", limit, limit)} // both: Go raises the soft one to the hard one
	taken := func(left int) []*os.File { return slices.Repeat([]*os.File{null}, limit-left-3) }
	ran, failed := 0, map[string]bool{}
	for left := 9; left <= 54; left += 3 {
		got := command{under: under, files: taken(left), args: []string{"run", "--json", "--nofile", "64", "--", "true"}}.run(t)
		name := fmt.Sprintf("%d descriptors left", left)
		if starved(t, name, got, short{"too many open files", "raise the limit (ulimit -n)"}) {
			ran++
			continue
		}
		for _, step := range []string{"cgroup", "start launcher", "make a pipe", "clone the cell's init"} {
			if strings.Contains(got.stdout+got.stderr, step) {
				failed[step] = true
			}
		}
	}
	if ran == 0 || len(failed) < 3 {
		t.Errorf("of runs with 9 to 54 descriptors left %d were run, and the others failed at %v, want some of both", ran, failed)
	}
	// In a batch what there is room for is run, and no more is made of the rest.
	got, lines := gradeUnder(t, under, taken(56), sums(6), "--nofile", "64", "--jobs", "4")
	onlyUnrunnable(t, got, lines, "NOT_STARTED")
}

// sums are claims that hold, however many of them.
func sums(n int) []claim {
	var all []claim
	for i := range n {
		all = append(all, claim{ID: fmt.Sprint("sum-", i), Title: fmt.Sprint("T", i), Rung: 4, Check: fmt.Sprintf("expr %d + 1000001", i+1), Expect: fmt.Sprint(i + 1000002)})
	}
	return all
}

func gradeUnder(t *testing.T, under []string, files []*os.File, claims []claim, flags ...string) (ended, []gradeLine) {
	t.Helper()
	path := write(t, "claims.jsonl", jsonLines(t, claims))
	got := command{under: under, files: files, args: slices.Concat([]string{"grade", "--json"}, flags, []string{path})}.run(t)
	return got, decodeLines[gradeLine](t, got.stdout)
}

// onlyUnrunnable wants every claim that was not verified to be unrunnable, for
// one of the kinds.
func onlyUnrunnable(t *testing.T, got ended, lines []gradeLine, kinds ...string) {
	t.Helper()
	if len(lines) == 0 && got.code != 4 {
		t.Errorf("grade = %d without a line, want 4\n%s", got.code, got.stderr)
	}
	for _, l := range lines {
		if l.Verdict != "verified" && (l.Verdict != "unrunnable" || !slices.Contains(kinds, deref(l.NoteKind))) {
			t.Errorf("claim %s is %s %s: %s; want it verified, or unrunnable for one of %q", l.ID, l.Verdict, deref(l.NoteKind), deref(l.Note), kinds)
		}
	}
}

// forking is a claim whose check needs many processes at once, and fails at the
// first that it does not get.
func forking() claim {
	return claim{ID: "forks", Title: "F", Rung: 4, Expect: "n=24",
		Check: `python3 -S -c 'import os, signal; p = [os.fork() or signal.pause() for i in range(4 * 6)]; print("n=%d" % len(p))'`}
}

// forkless are what the kernel and Go's runtime say where no process or thread
// can be started.
func forkless() []short {
	return []short{
		{"resource temporarily unavailable", "raise the limit of processes around checkcell"},
		{"failed to create new OS thread", "ulimit -u"},
	}
}

// A limit of processes that lies around checkcell, not around the cell alone, is
// met by checkcell, its launcher, the init or the check itself. None of that
// speaks against a claim.
func TestStarvedOfProcesses(t *testing.T) {
	needCells(t)
	host.Need(t, host.Python3)
	leavesNothing(t)
	under, limit := starvedGroup(t, "pids", "4000", "pids.max")
	for _, n := range []int{3, 6, 9, 11, 12, 13, 14, 15, 16, 64} {
		limit(fmt.Sprint(n))
		got := command{under: under, args: []string{"run", "--json", "--", "true"}}.run(t)
		if ran := starved(t, fmt.Sprintf("%d processes", n), got, forkless()...); n == 3 && ran || n == 64 && !ran {
			t.Errorf("with room for %d processes the run was run: %v", n, ran)
		}
	}
	for _, n := range []int{16, 20, 30} {
		limit(fmt.Sprint(n))
		got, lines := gradeUnder(t, under, nil, append(sums(1), forking()), "--jobs", "1")
		if got.code == 2 { // Go's runtime
			starved(t, "grade", got, forkless()...)
			continue
		}
		onlyUnrunnable(t, got, lines, "NOT_STARTED", "LIMIT")
	}
}

// What the shell that starts checkcell had limited (ulimit) reaches no check: it
// is lifted, as far as root may, and otherwise it refuses the run where a cell
// would come to feel it.
func TestStarvedByUlimit(t *testing.T) {
	needCells(t)
	host.Need(t, host.Python3)
	leavesNothing(t)
	claims := append(sums(1), forking())
	for _, tt := range []struct{ limit, flag string }{
		{"--nproc=12", "pids"}, {"--fsize=100000", "disk"}, {"--cpu=2", "timeout"}, {"--nofile=200", "nofile"},
	} {
		t.Run(tt.flag, func(t *testing.T) {
			got, lines := gradeUnder(t, []string{"prlimit", tt.limit}, nil, claims)
			if mayRaise(t) {
				onlyUnrunnable(t, got, lines)
				return
			}
			if says := "limit " + tt.flag + " can't be enforced"; got.code != 4 || !strings.Contains(got.stderr, says) || !strings.Contains(got.stderr, "or lower --"+tt.flag) {
				t.Errorf("grade under %s = %d with stderr %q, want 4 and %q", tt.limit, got.code, got.stderr, says)
			}
		})
	}
	// An ordinary user may not raise it, and is counted with all that it runs.
	const nproc = 100
	got := command{under: []string{"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "prlimit", fmt.Sprintf("--nproc=%d", nproc)},
		args: []string{"grade", "--json", "--allow-missing=cgroup,memory,pids,cpu", "-"}, stdin: jsonLines(t, claims)}.run(t)
	if got.code != 4 || !strings.Contains(got.stderr, "limit pids can't be enforced: a cell needs 192, and checkcell was started with a limit of 100 processes") {
		t.Errorf("grade by a user with %d processes = %d with stderr %q, want 4 and that it is too few", nproc, got.code, got.stderr)
	}
}

// mayRaise reports whether we may raise our own hard limits: CAP_SYS_RESOURCE,
// bit 24 of capabilities(7). Root in a container often may not.
func mayRaise(t *testing.T) bool {
	t.Helper()
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "CapEff:")
	caps, err := strconv.ParseUint(strings.Fields(rest)[0], 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	return caps&(1<<24) != 0
}

// A memory limit around checkcell kills it, or the check that ate what was
// there. In neither case anything is made of it.
func TestStarvedOfMemory(t *testing.T) {
	needCells(t)
	leavesNothing(t)
	under, limit := starvedGroup(t, "memory", strconv.Itoa(1<<30), "memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.max", "memory.swap.max")
	eater := claim{ID: "eats", Title: "E", Rung: 4, Check: "head -c 300M /dev/zero | tail | wc -c", Expect: "314572800"}
	claims := append([]claim{eater}, sums(1)...)
	limit(strconv.Itoa(2 << 20))
	got, lines := gradeUnder(t, under, nil, claims)
	if got.code != -1 || len(lines) > 0 {
		t.Errorf("grade within 2 MiB = %d with %d lines, want a death by signal and none\n%s", got.code, len(lines), got.stderr)
	}
	limit(strconv.Itoa(24 << 20))
	got, lines = gradeUnder(t, under, nil, claims)
	if want := []string{"eats unrunnable LIMIT", "sum-0 verified null"}; got.code != 3 || !slices.Equal(verdicts(lines), want) {
		t.Errorf("grade within 24 MiB = %d, %q, want 3, %q\n%s", got.code, verdicts(lines), want, got.stderr)
	}
}
