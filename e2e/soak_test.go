package e2e

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// soakVar names how many claims TestSoak grades.
const soakVar = "CHECKCELL_SOAK"

// figures is what checkcell and its launcher hold at one moment.
type figures struct {
	rssKiB, files, threads, groups, mounts, processes int
}

// measure looks at a process and the ones below it.
func measure(t testing.TB, pid int) figures {
	t.Helper()
	var f figures
	f.groups = len(look(t).Groups)
	mounts, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
	if err != nil {
		t.Fatal(err)
	}
	f.mounts = strings.Count(string(mounts), "\n")
	all := below(t, pid)
	f.processes = len(all)
	ours := []int{pid}
	for one := range all {
		if parent, ok := stat(t, one); ok && parent == pid { // the launcher: it lives as long as we do
			ours = append(ours, one)
		}
	}
	if len(ours) != 2 {
		t.Fatalf("checkcell has %d children, want its launcher only", len(ours)-1)
	}
	for _, one := range ours {
		files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", one))
		if err != nil {
			t.Fatal(err)
		}
		f.files += len(files)
		f.rssKiB += status(t, one, "VmRSS:")
		f.threads += status(t, one, "Threads:")
	}
	return f
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

// soakSize is how many claims are graded: what CI can afford, or what is asked for.
func soakSize(t testing.TB) int {
	t.Helper()
	text := os.Getenv(soakVar)
	if text == "" {
		return 1000
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 100 {
		t.Fatalf("%s is %q, want a number of claims, at least 100", soakVar, text)
	}
	return n
}

// However many claims there are, memory, files, groups and mounts stay as they
// are after the first few.
func TestSoak(t *testing.T) {
	needCells(t)
	leavesNothing(t)
	n := soakSize(t)
	claims := make([]claim, n)
	for i := range claims {
		claims[i] = claim{ID: fmt.Sprint(i), Title: fmt.Sprintf("Title %d", i), Rung: 4, Check: fmt.Sprintf("expr %d + 1000001", i+1), Expect: fmt.Sprint(i + 1000002)}
	}
	cmd := command{args: []string{"grade", "--json", "--jobs", "2", write(t, "claims.jsonl", jsonLines(t, claims))}}.make(t)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var early, late figures
	seen := 0
	for lines := bufio.NewReader(out); ; seen++ {
		line, err := lines.ReadString('\n')
		if err != nil {
			break
		}
		if want := fmt.Sprintf(`{"schema":"checkcell.grade/v1","id":"%d",`, seen); !strings.HasPrefix(line, want) {
			t.Errorf("line %d begins with %.60q, want %q", seen+1, line, want)
		}
		switch seen {
		case n / 10:
			early = measure(t, cmd.Process.Pid)
		case n - n/10:
			late = measure(t, cmd.Process.Pid)
		}
	}
	if err := cmd.Wait(); err != nil || seen != n {
		t.Errorf("grade of %d claims: %d lines, %v, want %d and no error", n, seen, err, n)
	}
	t.Logf("%d claims in %v; after a tenth %+v, before the last tenth %+v", n, time.Since(began).Round(time.Millisecond), early, late)
	// Two cells at most are in the making or at work in either moment; each has
	// a group in four hierarchies, and about a dozen files.
	for _, bound := range []struct {
		what        string
		early, late int
		most        int
	}{
		{"KiB of memory", early.rssKiB, late.rssKiB, 16 << 10},
		{"open files", early.files, late.files, 2 * 24},
		{"threads", early.threads, late.threads, 16},
		{"groups", early.groups, late.groups, 2 * 4},
		{"mounts", early.mounts, late.mounts, 0},
		{"processes", early.processes, late.processes, 2 * 4},
	} {
		if bound.late > bound.early+bound.most {
			t.Errorf("%s grew from %d to %d, want at most %d more", bound.what, bound.early, bound.late, bound.most)
		}
	}
}
