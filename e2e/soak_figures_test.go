package e2e

import (
	"cmp"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"
	"time"
)

// ourProcesses is how many processes are below a checkcell that runs nothing:
// the launcher and the cloner.
const ourProcesses = 2

// figures is what checkcell, its launcher and its cloner hold at a moment
// when nothing runs.
type figures struct {
	line                                                           int // of the grade lines
	rssKiB, files, threads, groups, mounts, spaces, zombies, temps int
}

// value is one figure and by how much it may grow.
type value struct {
	what     string
	n, slack int
}

func (f figures) values() []value {
	return []value{
		// The heap of Go is what the collector lets it be after results of some MiB
		// each, and threads are kept.
		{"KiB of memory", f.rssKiB, 32 << 10},
		{"threads", f.threads, 8},
		{"open files", f.files, 0},
		{"groups", f.groups, 0},
		{"mounts", f.mounts, 0},
		{"namespaces", f.spaces, 0},
		{"zombies", f.zombies, 0},
		{"temporary files", f.temps, 0},
	}
}

// table shows figures beside each other.
func table(all []figures) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "after claims\t")
	for _, f := range all {
		fmt.Fprintf(w, "%d\t", f.line)
	}
	for i, v := range (figures{}).values() {
		fmt.Fprintf(w, "\n%s\t", v.what)
		for _, f := range all {
			fmt.Fprintf(w, "%d\t", f.values()[i].n)
		}
	}
	fmt.Fprintln(w)
	w.Flush() // a Builder takes it all
	return "\n" + b.String()
}

// spent is what the runs of one case took.
type spent struct {
	runs      int
	wall, cpu time.Duration
}

// dearest lists the cases whose runs took the most time, and all together.
func dearest(of map[string]spent) string {
	const shown = 12
	names := slices.SortedFunc(maps.Keys(of), func(a, b string) int { return cmp.Compare(of[b].wall, of[a].wall) })
	var sum spent
	var b strings.Builder
	for i, name := range names {
		s := of[name]
		sum.runs, sum.wall, sum.cpu = sum.runs+s.runs, sum.wall+s.wall, sum.cpu+s.cpu
		if i < shown {
			n := time.Duration(s.runs)
			fmt.Fprintf(&b, "\n%5d %-30s %8v wall %8v CPU a run", s.runs, name, (s.wall / n).Round(time.Millisecond), (s.cpu / n).Round(time.Millisecond))
		}
	}
	return fmt.Sprintf("in cells: %d runs, %v wall, %v CPU; most of it by:%s", sum.runs, sum.wall.Round(time.Second), sum.cpu.Round(time.Second), b.String())
}

// measure looks at a checkcell that runs nothing. Its directory for temporary
// files is its own.
func measure(t testing.TB, pid int) figures {
	t.Helper()
	var f figures
	ours := []int{pid}
	for one := range below(t, pid) {
		ours = append(ours, one)
	}
	if len(ours) != 1+ourProcesses {
		t.Fatalf("below checkcell there are %d processes, want its launcher and its cloner", len(ours)-1)
	}
	f.groups = groupsBelow(t, pid)
	f.zombies = zombies(t, ours)
	for _, one := range ours {
		mounts, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", one))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(mounts)) {
			if strings.Contains(line, "checkcell") {
				f.mounts++
			}
		}
		files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", one))
		if err != nil {
			t.Fatal(err)
		}
		f.files += len(files)
		for _, file := range files {
			if to, err := os.Readlink(file); err == nil && strings.Contains(to, ":[") && !strings.HasPrefix(to, "pipe:") && !strings.HasPrefix(to, "socket:") {
				f.spaces++ // net:[4026531833]
			}
		}
		f.spaces += len(namespaces(t, one))
		f.rssKiB += status(t, one, "RssAnon:")
		f.threads += status(t, one, "Threads:")
	}
	entries, err := os.ReadDir(environ(t, pid, "TMPDIR"))
	if err != nil {
		t.Fatal(err)
	}
	f.temps = len(entries)
	return f
}

// groupsBelow counts the groups of the checkcell with this pid.
func groupsBelow(t testing.TB, pid int) int {
	t.Helper()
	n := 0
	for _, top := range ownGroups(t, pid) {
		err := filepath.WalkDir(top, func(_ string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				n++
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return n
}

// ownGroups are the directories of the checkcell with this pid, one a hierarchy.
func ownGroups(t testing.TB, pid int) []string {
	t.Helper()
	var found []string
	ours := ownedBy([]int{pid})
	for _, top := range look(t).Groups {
		entries, err := os.ReadDir(top)
		if err != nil {
			continue // it was another's, and is gone
		}
		for _, e := range entries {
			if path := filepath.Join(top, e.Name()); e.IsDir() && ours.MatchString(path) {
				found = append(found, path)
			}
		}
	}
	return found
}

// zombies counts the children of these processes that nobody waits for.
func zombies(t testing.TB, parents []int) int {
	t.Helper()
	n := 0
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range stats {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			t.Fatal(err)
		}
		parent, alive := stat(t, pid)
		for _, one := range parents {
			if parent == one && !alive {
				n++
			}
		}
	}
	return n
}

// environ is a variable of the environment that a process was started with.
func environ(t testing.TB, pid int, name string) string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		t.Fatal(err)
	}
	for entry := range strings.SplitSeq(string(text), "\x00") {
		if value, ok := strings.CutPrefix(entry, name+"="); ok {
			return value
		}
	}
	t.Fatalf("process %d has no %s", pid, name)
	return ""
}

// status reads a number of /proc/PID/status.
func status(t testing.TB, pid int, key string) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, key); ok {
			n, err := strconv.Atoi(strings.Fields(value)[0])
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("/proc/%d/status has no %s", pid, key)
	return 0
}
