package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// stray is a check that does what it can to outlive its cell.
const stray = `setsid sleep 600 & (sleep 601 &) ; nohup sleep 602 >/dev/null 2>&1 & trap "" TERM; sleep 603`

// stat is what /proc/PID/stat says; ok is false once the process is no more
// than a zombie, which holds nothing but its number.
func stat(t testing.TB, pid int) (parent int, ok bool) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, false // it ended since it was listed
	}
	// The name, in parentheses, may hold anything; see proc_pid_stat(5).
	rest := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if parent, err = strconv.Atoi(rest[1]); err != nil {
		t.Fatal(err)
	}
	return parent, rest[0] != "Z" && rest[0] != "X"
}

// processes lists the live processes of the machine.
func processes(t testing.TB) []int {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	var found []int
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := stat(t, pid); ok {
			found = append(found, pid)
		}
	}
	return found
}

// below lists the live processes below pid, with their command lines.
func below(t testing.TB, pid int) map[int]string {
	t.Helper()
	children := map[int][]int{}
	for _, one := range processes(t) {
		if parent, ok := stat(t, one); ok {
			children[parent] = append(children[parent], one)
		}
	}
	found := map[int]string{}
	for queue := []int{pid}; len(queue) > 0; queue = queue[1:] {
		for _, one := range children[queue[0]] {
			if line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", one)); err == nil { // else it ended
				found[one] = strings.TrimSpace(strings.ReplaceAll(string(line), "\x00", " "))
				queue = append(queue, one)
			}
		}
	}
	return found
}

// waitForProcess waits until a process below p has the command line.
func waitForProcess(t testing.TB, p *process, line string) (pid int) {
	t.Helper()
	waitFor(t, line+" runs", func() bool {
		for one, its := range below(t, p.cmd.Process.Pid) {
			if its == line {
				pid = one
			}
		}
		return pid != 0
	})
	return pid
}

// namespaces returns the namespaces of a process that are not our own.
func namespaces(t testing.TB, pid int) []string {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/ns")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, e := range entries {
		ours, err := os.Readlink("/proc/self/ns/" + e.Name())
		if err != nil {
			t.Fatal(err)
		}
		theirs, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, e.Name()))
		if err != nil {
			t.Fatalf("look at the namespaces of the cell: %v", err)
		}
		if theirs != ours && !slices.Contains(found, theirs) {
			found = append(found, theirs)
		}
	}
	return found
}

// holders names what on this machine keeps one of the namespaces alive: a
// process in it, an open file of it, a mount of it.
func holders(t testing.TB, spaces []string) []string {
	t.Helper()
	var found []string
	for _, pid := range processes(t) {
		for _, dir := range []string{"ns", "fd"} {
			links, err := filepath.Glob(fmt.Sprintf("/proc/%d/%s/*", pid, dir))
			if err != nil {
				t.Fatal(err)
			}
			for _, link := range links {
				if to, err := os.Readlink(link); err == nil && slices.Contains(spaces, to) { // else it is gone
					found = append(found, link+" -> "+to)
				}
			}
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		for _, space := range spaces {
			if strings.Contains(line, " "+space+" ") {
				found = append(found, "mount "+line)
			}
		}
	}
	return found
}

// What a run is ended by, and how: after each, nothing of its cell is left, no
// process, group, mount or namespace.
func TestRunIsEnded(t *testing.T) {
	needCells(t)
	tests := []struct {
		name    string
		timeout string
		signal  syscall.Signal // sent when the check runs; 0 is none
		code    int
		outcome string
		stderr  string
	}{
		{"deadline", "300ms", 0, 124, `{"kind":"timed_out","after_ns":3`, ""},
		{"SIGINT", "50s", syscall.SIGINT, 130, `{"kind":"canceled","detail":"interrupted"}`, ""},
		{"SIGTERM", "50s", syscall.SIGTERM, 130, `{"kind":"canceled","detail":"`, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			leavesNothing(t)
			p := command{args: bash(stray, "--timeout", tt.timeout)}.start(t)
			spaces := namespaces(t, waitForProcess(t, p, "sleep 603"))
			if len(spaces) < 6 {
				t.Errorf("the check runs in namespaces %q of its own, want at least 6", spaces)
			}
			if tt.signal != 0 {
				p.signal(t, tt.signal)
			}
			got := p.wait(t)
			if left := holders(t, spaces); len(left) > 0 {
				t.Errorf("after %s namespaces are left: %q", tt.name, left)
			}
			r := decode[result](t, got.stdout)
			if got.code != tt.code || !strings.HasPrefix(string(r.Outcome), tt.outcome) || got.stderr != tt.stderr {
				t.Errorf("after %s: run = %d with outcome %s and stderr %q, want %d, %s, %q", tt.name, got.code, r.Outcome, got.stderr, tt.code, tt.outcome, tt.stderr)
			}
			if !r.Killed || r.Success || r.Cleanup.State != "done" || r.Leftovers == nil || *r.Leftovers < 1 || *r.Leftovers > 3 {
				t.Errorf("after %s: killed %v, success %v, cleanup %+v, leftovers %s, want true, false, done, 1 to 3", tt.name, r.Killed, r.Success, r.Cleanup, orNull(r.Leftovers))
			}
		})
	}
}

// A kill that we can't see coming leaves no process, and groups only until the
// next start, which says so.
func TestRunIsKilled(t *testing.T) {
	needCells(t)
	leavesNothing(t)
	before := look(t).Processes
	p := command{args: bash(stray)}.start(t)
	spaces := namespaces(t, waitForProcess(t, p, "sleep 603"))
	p.signal(t, syscall.SIGKILL)
	if got := p.wait(t); got.code != -1 || got.stdout != "" {
		t.Errorf("run under kill -9 = %d with stdout %q, want a death by signal and none", got.code, got.stdout)
	}
	waitFor(t, "nothing of the cell runs any more", func() bool { return slices.Equal(look(t).Processes, before) })
	if left := holders(t, spaces); len(left) > 0 {
		t.Errorf("after kill -9 namespaces are left: %q", left)
	}
	sweeps(t)
}

// The init of a cell is killed from outside: how the check ended can't be
// learned, and that is neither success nor a verdict of ours.
func TestRunLosesItsCell(t *testing.T) {
	needCells(t)
	leavesNothing(t)
	p := command{args: bash("sleep 604; exit 0")}.start(t)
	check := waitForProcess(t, p, "sleep 604")
	cell := parentOf(t, parentOf(t, check))
	if err := syscall.Kill(cell, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	got := p.wait(t)
	r := decode[result](t, got.stdout)
	if got.code != 125 || !strings.HasPrefix(string(r.Outcome), `{"kind":"unknown","detail":"`) || r.Success {
		t.Errorf("run without its init = %d with outcome %s, success %v, want 125, unknown, false", got.code, r.Outcome, r.Success)
	}
}

func parentOf(t testing.TB, pid int) int {
	t.Helper()
	parent, ok := stat(t, pid)
	if !ok {
		t.Fatalf("process %d has ended", pid)
	}
	return parent
}

// A second interrupt ends the program at once, even where the cell's end hangs,
// here on a launcher that is stopped.
func TestRunIsInterruptedTwice(t *testing.T) {
	needCells(t)
	leavesNothing(t)
	before := look(t).Processes
	p := command{args: bash(stray)}.start(t)
	check := waitForProcess(t, p, "sleep 603")
	launcher := check
	for parent := parentOf(t, launcher); parent != p.cmd.Process.Pid; parent = parentOf(t, launcher) {
		launcher = parent
	}
	if err := syscall.Kill(launcher, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(launcher, syscall.SIGCONT) }) // if the test failed before
	p.signal(t, syscall.SIGINT)
	waitFor(t, "the first interrupt ended the check", func() bool {
		_, runs := stat(t, check)
		return !runs
	})
	p.signal(t, syscall.SIGINT)
	got := p.wait(t)
	if got.code != 130 || !strings.Contains(got.stderr, "interrupted again, ending at once") {
		t.Errorf("run after two interrupts = %d, stdout %q, stderr %q, want 130 and the reason", got.code, got.stdout, got.stderr)
	}
	if err := syscall.Kill(launcher, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the launcher ended", func() bool { return slices.Equal(look(t).Processes, before) })
	if next := checkcell(t, "run", "--", "true"); next.code != 0 { // it sweeps
		t.Errorf("the next run = %d with stderr %q, want 0", next.code, next.stderr)
	}
}
