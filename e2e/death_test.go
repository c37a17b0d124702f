package e2e

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// phases are those of a run, design.md section 3. A paused run stands where the
// phase begins, and all before it is done.
func phases() []string {
	return []string{"create", "start", "watch", "quiesce", "collect", "settle", "record", "teardown", "result"}
}

// pausable is the path of a checkcell that stands still where it is told to:
// cmd/checkcell/pause.go.
func pausable(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "checkcell-pause")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-tags=pause", "-o", path, "./cmd/checkcell")
	build.Dir = ".."
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build -tags=pause: %v\n%s", err, out)
	}
	return path
}

// paused is a call with a run that is to stand still.
type paused struct {
	*process
	phase        string
	said, resume *os.File
}

// pause starts a call of the program at path that is to stand still in phase of
// the run called id. See await.
func pause(t *testing.T, path, phase, id string, c command) *paused {
	t.Helper()
	said, says := pipe(t)
	waits, resume := pipe(t)
	c.program, c.files = path, []*os.File{says, waits}
	c.env = append(c.env, "CHECKCELL_PAUSE="+phase+":"+id)
	p := &paused{process: c.start(t), phase: phase, said: said, resume: resume}
	for _, f := range []*os.File{says, waits} {
		if err := f.Close(); err != nil { // it has its own
			t.Fatal(err)
		}
	}
	return p
}

// await returns when the run stands still.
func (p *paused) await(t *testing.T) {
	t.Helper()
	if err := p.said.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if word, err := bufio.NewReader(p.said).ReadString('\n'); err != nil || word != p.phase+"\n" {
		t.Fatalf("%q came to %q, %v, want to %s\n%s%s", p.cmd.Args, word, err, p.phase, p.stdout, p.stderr)
	}
}

func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, f := range []*os.File{r, w} {
			if err := f.Close(); err != nil && !errors.Is(err, fs.ErrClosed) {
				t.Error(err)
			}
		}
	})
	return r, w
}

// goOn lets the run go on.
func (p *paused) goOn(t *testing.T) {
	t.Helper()
	if err := p.resume.Close(); err != nil {
		t.Fatal(err)
	}
}

// hardy is a check that holds and leaves processes behind.
const hardy = `setsid sleep 600 & nohup sleep 601 >/dev/null 2>&1 & expr 40 + 2`

// deathClaims are a claim before the one that something happens to, and one
// after it.
func deathClaims() []claim {
	return []claim{
		{ID: "before", Title: "B", Rung: 4, Check: "expr 6 \\* 7", Expect: "42"},
		{ID: "victim", Title: "V", Rung: 4, Check: hardy, Expect: "42"},
		{ID: "after", Title: "A", Rung: 4, Check: "expr 50 - 8", Expect: "42"},
	}
}

// spacesBelow returns the namespaces of all processes below pid that are not
// our own.
func spacesBelow(t *testing.T, pid int) []string {
	t.Helper()
	var found []string
	for one := range below(t, pid) {
		links, err := filepath.Glob("/proc/self/ns/*")
		if err != nil {
			t.Fatal(err)
		}
		for _, link := range links {
			ours, err := os.Readlink(link)
			if err != nil {
				t.Fatal(err)
			}
			theirs, err := os.Readlink(strings.Replace(link, "self", strconv.Itoa(one), 1))
			if err == nil && theirs != ours && !slices.Contains(found, theirs) { // else it has ended
				found = append(found, theirs)
			}
		}
	}
	return found
}

// emptied waits until no process is in any of the groups that came since before.
func emptied(t *testing.T, before []string) {
	t.Helper()
	for _, group := range look(t).Groups {
		if slices.Contains(before, group) {
			continue
		}
		waitFor(t, group+" is empty", func() bool {
			text, err := os.ReadFile(filepath.Join(group, "cgroup.procs"))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
			return len(text) == 0
		})
	}
}

// A kill -9 of checkcell, wherever in a run it comes, leaves nothing of the check
// alive, no word of a run that was not over, and groups only until the next
// start, which says so.
func TestKilledInEachPhase(t *testing.T) {
	needCells(t)
	leavesNothing(t)
	program := pausable(t)
	claims := write(t, "claims.jsonl", jsonLines(t, deathClaims()))
	for _, phase := range phases() {
		t.Run(phase, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "out.jsonl")
			run, _ := killIn(t, program, phase,
				command{args: bash(hardy)},
				command{args: []string{"grade", "--jobs", "1", "--out", out, claims}})
			if run.stdout != "" {
				t.Errorf("a run that was killed in %s printed %q, want nothing: it has no result", phase, run.stdout)
			}
			text, err := os.ReadFile(out)
			if err != nil {
				t.Fatal(err)
			}
			lines := decodeLines[gradeLine](t, string(text))
			if got := verdicts(lines); !slices.Equal(got, []string{"before verified null"}) {
				t.Errorf("a grade that was killed in %s has written %q, want the line of the claim before, and no more", phase, got)
			}
			settled(t, out, phase == "teardown" || phase == "result")
		})
	}
}

// settled wants, beside the grade lines of a killed grade, what was settled by then,
// in regrade's words. A cell that nobody tore down verifies nothing.
func settled(t *testing.T, out string, recorded bool) {
	t.Helper()
	want := []string{"before unrunnable CLEANUP_FAILED", "victim unrunnable CLEANUP_FAILED"}
	if !recorded {
		want = want[:1]
	}
	var all []string
	for _, l := range regrade(t, out+".settled") {
		all = append(all, fmt.Sprint(deref(l.ID), " ", l.Verdict, " ", deref(l.NoteKind)))
	}
	if !slices.Equal(all, want) {
		t.Errorf("regrade of what was settled = %q, want %q", all, want)
	}
}

// killIn kills a run, and a grade in the run of its claim "victim", both in one
// phase, and looks for what is left of them.
func killIn(t *testing.T, program, phase string, run, grade command) (ran, graded ended) {
	t.Helper()
	leavesNothing(t)
	before := look(t)
	temp := t.TempDir()
	run.env, grade.env = []string{"TMPDIR=" + temp}, []string{"TMPDIR=" + temp}
	both := []*paused{pause(t, program, phase, "run", run), pause(t, program, phase, "victim", grade)}
	var spaces []string
	for _, p := range both {
		p.await(t)
		its := spacesBelow(t, p.cmd.Process.Pid)
		if runs := slices.Contains([]string{"start", "watch", "quiesce"}, phase); runs != (len(its) >= 6) {
			t.Errorf("in %s there are namespaces %q, want at least 6: %v", phase, its, runs)
		}
		spaces = append(spaces, its...)
	}
	for _, p := range both {
		p.signal(t, syscall.SIGKILL)
	}
	ran, graded = both[0].wait(t), both[1].wait(t)
	if ran.code != -1 || graded.code != -1 {
		t.Errorf("run and grade under kill -9 = %d, %d, want a death by signal", ran.code, graded.code)
	}
	waitFor(t, "nothing of them runs any more", func() bool { return slices.Equal(look(t).Processes, before.Processes) })
	emptied(t, before.Groups)
	if left := holders(t, spaces); len(left) > 0 {
		t.Errorf("after a kill in %s namespaces are left: %q", phase, left)
	}
	if files, err := os.ReadDir(temp); err != nil || len(files) > 0 {
		t.Errorf("after a kill in %s temporary files are left: %v, %v", phase, files, err)
	}
	next := checkcell(t, "run", "--", "true")
	says := strings.Contains(next.stderr, `"removed what a crashed run left" groups=2 `)
	if had := phase != "create" && phase != "result"; next.code != 0 || says != had { // only then there were groups
		t.Errorf("the start after two kills in %s = %d with stderr %q, want 0, and that it removed two groups: %v", phase, next.code, next.stderr, had)
	}
	return ran, graded
}

// A process of ours dies and checkcell does not: nothing is made of that but what
// it is, and the next claim runs as if nothing had been.
func TestPartsAreKilled(t *testing.T) {
	needCells(t)
	leavesNothing(t)
	program := pausable(t)
	const verified = "victim verified null"
	tests := []struct {
		part, phase string
		want        string
		outcome     string
	}{
		{"launcher", "create", verified, `{"kind":"exited","exit_code":0}`}, // the cloner goes on without it
		{"launcher", "start", verified, `{"kind":"exited","exit_code":0}`},
		{"launcher", "watch", verified, `{"kind":"exited","exit_code":0}`},
		{"cloner", "create", verified, `{"kind":"exited","exit_code":0}`}, // nothing was made yet; it is made by a new one
		{"cloner", "start", verified, `{"kind":"exited","exit_code":0}`},
		{"cloner", "watch", verified, `{"kind":"exited","exit_code":0}`},
		{"init", "start", "victim unrunnable NOT_STARTED", `{"kind":"start_failed","detail":"`},
		{"init", "watch", "victim unrunnable UNKNOWN_STATUS", `{"kind":"unknown","detail":"`},
	}
	for _, tt := range tests {
		t.Run(tt.part+"/"+tt.phase, func(t *testing.T) {
			leavesNothing(t)
			claims := deathClaims()
			if tt.part == "init" {
				claims[1].Check = "sleep 603; expr 40 + 2" // it runs when its init is killed
			}
			p := pause(t, program, tt.phase, "victim", command{args: []string{"grade", "--json", "--jobs", "1", write(t, "claims.jsonl", jsonLines(t, claims))}})
			p.await(t)
			if err := syscall.Kill(partOf(t, p.process, tt.part), syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			p.goOn(t)
			got := p.wait(t)
			lines := decodeLines[gradeLine](t, got.stdout)
			want := []string{"before verified null", tt.want, "after verified null"}
			if all := verdicts(lines); !slices.Equal(all, want) {
				t.Fatalf("the %s was killed in %s: verdicts %q, want %q\n%s%s", tt.part, tt.phase, all, want, got.stdout, got.stderr)
			}
			r := decode[result](t, string(lines[1].Result))
			if !strings.HasPrefix(string(r.Outcome), tt.outcome) || r.Cleanup.State != "done" {
				t.Errorf("the %s was killed in %s: outcome %s, cleanup %+v, want %s and done", tt.part, tt.phase, r.Outcome, r.Cleanup, tt.outcome)
			}
		})
	}
}

// partOf finds the launcher, which is our child, its cloner, or the init of the
// only cell, which is the cloner's.
func partOf(t *testing.T, p *process, part string) int {
	t.Helper()
	pid := p.cmd.Process.Pid
	for _, name := range []string{"launcher", "cloner", "init"} {
		var children []int
		waitFor(t, name+" runs", func() bool {
			children = nil
			for _, one := range processes(t) {
				if parent, ok := stat(t, one); ok && parent == pid {
					children = append(children, one)
				}
			}
			return len(children) > 0
		})
		if len(children) != 1 {
			t.Fatalf("below process %d there are %v, want only the %s", pid, children, name)
		}
		if pid = children[0]; name == part {
			return pid
		}
	}
	t.Fatalf("there is no part %q", part)
	return 0
}

// What Go's runtime ends for want of memory or threads dies of a signal: its exit
// code 2 would be the command's own.
func TestRuntimeDeathIsNoExitCode(t *testing.T) {
	needCells(t)
	leavesNothing(t)
	p := command{args: bash("sleep 605")}.start(t)
	waitForProcess(t, p, "sleep 605")
	p.signal(t, syscall.SIGQUIT) // as fatal errors do, it goes by the traceback's setting
	if got := p.wait(t); got.code != -1 || got.stdout != "" {
		t.Errorf("run under SIGQUIT = %d with stdout %q, want a death by signal and none", got.code, got.stdout)
	}
	sweeps(t)
}
