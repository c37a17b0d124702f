package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/checkcell/checkcell/internal/host"
)

// after looks whether a condition of the case holds, now that all its runs are over.
func (r *hostileRun) after(t *testing.T, condition string) error {
	t.Helper()
	switch condition {
	case "no-survivors":
		return errors.Join(inGroups(r.pids()), byUsers(r.users))
	case "no-cgroup-left":
		return groupsOf(r.pids())
	case "no-mount-left":
		return mountsOf(r.tmp, r.workspace)
	case "no-tmp-left":
		return emptyDir(r.tmp)
	case "no-fd-leak":
		return r.filesLeaked(t)
	case "no-network-packet":
		return r.host.reached()
	case "host-process-untouched":
		return r.host.touched()
	case "host-file-unchanged":
		return errors.Join(r.host.changed(), r.sourcesChanged())
	case "next-run-works":
		r.echo(t)
		return nil
	}
	return errors.New("nobody knows this condition")
}

func (r *hostileRun) pids() []int {
	var pids []int
	for _, p := range r.ran {
		pids = append(pids, p.cmd.Process.Pid)
	}
	return pids
}

// ownedBy matches the path of a group of the checkcell with this pid.
func ownedBy(pids []int) *regexp.Regexp {
	var words []string
	for _, pid := range pids {
		words = append(words, fmt.Sprint(pid))
	}
	return regexp.MustCompile(`/checkcell/(s|supervisor)-(` + strings.Join(words, "|") + `)-`)
}

// inGroups names the processes that are in a group of these checkcells.
func inGroups(pids []int) error {
	ours := ownedBy(pids)
	return eachProcess("cgroup", func(text string) bool { return ours.MatchString(text) })
}

// byUsers names the processes that have one of the user ids, which are those
// of the cells only: a process that left its group would still have it.
func byUsers(users []string) error {
	return eachProcess("status", func(text string) bool {
		_, rest, _ := strings.Cut(text, "\nUid:")
		line, _, _ := strings.Cut(rest, "\n")
		return slices.ContainsFunc(strings.Fields(line), func(id string) bool { return slices.Contains(users, id) })
	})
}

// eachProcess names the live processes whose file of /proc is one of those. A
// zombie holds nothing but its number, and its parent may be any test.
func eachProcess(file string, is func(text string) bool) error {
	paths, err := filepath.Glob("/proc/[0-9]*/" + file)
	if err != nil {
		return err
	}
	var f wrong
	dead := regexp.MustCompile(`(?m)^State:\s+[ZX]`)
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil || !is(string(text)) { // it ended, or is another's
			continue
		}
		status, err := os.ReadFile(filepath.Join(filepath.Dir(path), "status"))
		if err == nil && !dead.Match(status) {
			name, _, _ := strings.Cut(string(status), "\n")
			f.add("left behind: %s %s", filepath.Dir(path), name)
		}
	}
	return errors.Join(f...)
}

// userOf is the user id of a result's cell on the host, where it has one.
func userOf(stdout string) []string {
	var r result
	if json.Unmarshal([]byte(stdout), &r) != nil {
		return nil
	}
	_, id, ok := strings.Cut(r.Receipt.Controls["user"], "host uid ")
	if !ok {
		return nil
	}
	return []string{id}
}

// groupsOf names the groups of these checkcells that are left.
func groupsOf(pids []int) error {
	now, err := host.Look()
	if err != nil {
		return err
	}
	var f wrong
	ours := ownedBy(pids)
	for _, top := range now.Groups {
		entries, err := os.ReadDir(top)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			f = append(f, err)
		}
		for _, e := range entries {
			if path := filepath.Join(top, e.Name()); e.IsDir() && ours.MatchString(path) {
				f.add("left behind: %s", path)
			}
		}
	}
	return errors.Join(f...)
}

// mountsOf names the mounts of the host that show one of the directories, or
// are of a cell.
func mountsOf(dirs ...string) error {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	var f wrong
	for line := range strings.Lines(string(text)) {
		for _, mark := range append([]string{"checkcell", "lowerdir=.lower"}, dirs...) {
			if mark != "" && strings.Contains(line, mark) {
				f.add("left behind: %s", line)
			}
		}
	}
	return errors.Join(f...)
}

func emptyDir(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	if len(entries) > 0 {
		return fmt.Errorf("left behind: %v in %s", entries, dir)
	}
	return nil
}

// sourcesChanged names the files of the workspace that are not as they were.
func (r *hostileRun) sourcesChanged() error {
	var f wrong
	for name, want := range r.sources {
		if got := fingerprint(filepath.Join(r.workspace, name)); got != want {
			f.add("%s is %s, want %s", name, got, want)
		}
	}
	if r.workspace == "" {
		return errors.Join(f...)
	}
	err := filepath.WalkDir(r.workspace, func(path string, d os.DirEntry, err error) error {
		name, _ := filepath.Rel(r.workspace, path)
		if _, ok := r.sources[name]; err == nil && !d.IsDir() && !ok {
			f.add("%s is new", name)
		}
		return err
	})
	return errors.Join(append(f, err)...)
}

// filesLeaked lets one checkcell grade the check between two others, and
// returns an error if it has more open files in the last than in the first.
func (r *hostileRun) filesLeaked(t *testing.T) error {
	t.Helper()
	sleep := func(name string) claim {
		return claim{ID: name, Title: name, Rung: 4, Check: "sleep " + name, Expect: "x"}
	}
	claims := []claim{sleep("1.0501"), {ID: "case", Title: "case", Rung: 4, Check: r.c.script(), Expect: "x"}, sleep("1.0502")}
	p := command{args: []string{"grade", "--json", "--jobs", "1", "-"}, stdin: jsonLines(t, claims), env: []string{"TMPDIR=" + r.tmp}, dir: r.tmp}.as(r.user).start(t)
	var open []int
	for _, name := range []string{"1.0501", "1.0502"} {
		waitForProcess(t, p, "sleep "+name)
		files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", p.cmd.Process.Pid))
		if err != nil {
			return err
		}
		open = append(open, len(files))
	}
	if got := p.wait(t); len(decodeLines[gradeLine](t, got.stdout)) != len(claims) {
		return fmt.Errorf("grade = %d with stdout %q, want %d lines", got.code, got.stdout, len(claims))
	}
	if open[0] == 0 || open[1] > open[0] {
		return fmt.Errorf("checkcell had %d open files before the check and %d behind it, want no more", open[0], open[1])
	}
	return nil
}

// The looks at what is left see what is there.
func TestLeftBehind(t *testing.T) {
	needCells(t)
	leavesNothing(t)
	dir := t.TempDir()
	p := command{args: []string{"run", "--json", "--check", "-"}, stdin: "sleep 605; exit 0", env: []string{"TMPDIR=" + dir}}.start(t)
	check := waitForProcess(t, p, "sleep 605")
	ours, others := []int{p.cmd.Process.Pid}, []int{os.Getpid()}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", check))
	if err != nil {
		t.Fatal(err)
	}
	user := strings.Fields(regexp.MustCompile(`(?m)^Uid:.*`).FindString(string(status)))[1]
	if inGroups(ours) == nil || groupsOf(ours) == nil || byUsers([]string{user}) == nil {
		t.Errorf("while a check runs: in groups %v, groups %v, by user %s %v, want errors", inGroups(ours), groupsOf(ours), user, byUsers([]string{user}))
	}
	if err := errors.Join(inGroups(others), groupsOf(others), byUsers(nil)); err != nil {
		t.Errorf("of another's checkcell: %v, want nothing", err)
	}
	p.signal(t, syscall.SIGINT)
	if got := userOf(p.wait(t).stdout); !slices.Equal(got, []string{user}) {
		t.Errorf("the receipt's user is %q, want %q", got, user)
	}
	if err := errors.Join(inGroups(ours), groupsOf(ours), byUsers([]string{user}), mountsOf(dir), emptyDir(dir)); err != nil {
		t.Errorf("when it is over: %v, want nothing", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "left"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if emptyDir(dir) == nil || emptyDir(filepath.Join(dir, "none")) == nil {
		t.Error("emptyDir of a directory that is not empty, or not there, = nil")
	}
	if mountsOf("/proc") == nil {
		t.Error("mountsOf(/proc) = nil, want its mount")
	}
	r := &hostileRun{workspace: dir, sources: map[string]string{"left": fingerprint(filepath.Join(dir, "left"))}}
	if err := r.sourcesChanged(); err != nil {
		t.Errorf("sourcesChanged() = %v before a change", err)
	}
	for name, text := range map[string]string{"left": "changed", "new": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := r.sourcesChanged(); err == nil || !strings.Contains(err.Error(), name+" is") {
			t.Errorf("sourcesChanged() = %v after a change of %s", err, name)
		}
	}
	if err := r.after(t, "surprise"); err == nil {
		t.Error("after(surprise) = nil, want an error")
	}
}
