package host

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestSince(t *testing.T) {
	full := Traces{Processes: []string{"7 sleep"}, Groups: []string{"/c/checkcell-1"}, Mounts: []string{"/m"}, Files: []string{"/tmp/checkcell-x"}}
	tests := []struct {
		name          string
		now, before   Traces
		want, wantNot []string
	}{
		{"nothing", Traces{}, Traces{}, nil, nil},
		{"there before", full, full, nil, nil},
		{"gone", Traces{}, full, nil, nil},
		{"all new", full, Traces{}, []string{"process 7 sleep", "control group /c/checkcell-1", "mount /m", "temporary file /tmp/checkcell-x"}, nil},
		{"one new", Traces{Mounts: []string{"/m", "/n"}}, full, []string{"mount /n"}, []string{"mount /m"}},
	}
	for _, tt := range tests {
		err := tt.now.Since(tt.before)
		if (err == nil) != (tt.want == nil) {
			t.Errorf("%s: Since = %v, want %q", tt.name, err, tt.want)
			continue
		}
		for _, word := range tt.want {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%s: Since = %q, want it to name %q", tt.name, err, word)
			}
		}
		for _, word := range tt.wantNot {
			if strings.Contains(err.Error(), word) {
				t.Errorf("%s: Since = %q, want it not to name %q", tt.name, err, word)
			}
		}
	}
}

// sinceNow calls leave, which returns what takes it back, and returns what
// Since says in between. After undo, nothing may be left.
func sinceNow(t *testing.T, leave func() (undo func())) string {
	t.Helper()
	before, err := Look()
	if err != nil {
		t.Fatalf("Look() = %v", err)
	}
	undo := leave()
	during, lookErr := Look()
	undo()
	after, err := Look()
	if err := errors.Join(lookErr, err); err != nil {
		t.Fatalf("Look() = %v", err)
	}
	if err := after.Since(before); err != nil {
		t.Errorf("Since() after it was undone = %v, want nil", err)
	}
	if err := during.Since(before); err != nil {
		return err.Error()
	}
	return ""
}

func TestLookSeesFile(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	path := filepath.Join(os.TempDir(), "checkcell-left")
	got := sinceNow(t, func() func() {
		for _, name := range []string{path, filepath.Join(os.TempDir(), "other")} {
			if err := os.WriteFile(name, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return func() { os.Remove(path) }
	})
	if want := "left behind: temporary file " + path; got != want {
		t.Errorf("Since() = %q, want %q", got, want)
	}
}

func TestLookSeesGroup(t *testing.T) {
	Need(t, Root, CgroupWritable)
	all, err := hierarchies()
	if err != nil {
		t.Fatalf("hierarchies() = %v", err)
	}
	for _, h := range all {
		outer, err := os.MkdirTemp(h.dir, "host-test-*")
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(outer, "checkcell-left")
		got := sinceNow(t, func() func() {
			if err := os.Mkdir(path, 0o755); err != nil {
				t.Error(err)
			}
			return func() { os.Remove(path) }
		})
		if want := "left behind: control group " + path; got != want {
			t.Errorf("Since() = %q, want %q", got, want)
		}
		if err := os.Remove(outer); err != nil {
			t.Error(err)
		}
	}
}

func TestLookSeesMount(t *testing.T) {
	Need(t, Root)
	dir := filepath.Join(t.TempDir(), "checkcell left")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	got := sinceNow(t, func() func() {
		if err := syscall.Mount("none", dir, "tmpfs", 0, "size=4k"); err != nil {
			t.Fatal(err)
		}
		return func() {
			if err := syscall.Unmount(dir, 0); err != nil {
				t.Error(err)
			}
		}
	})
	if want := "left behind: mount " + dir + " (tmpfs of none)"; got != want {
		t.Errorf("Since() = %q, want %q", got, want)
	}
}

// An orphan is seen although its own parent, and the session they had, are gone.
func TestLookSeesOrphan(t *testing.T) {
	got := sinceNow(t, func() func() {
		// The shell that setsid runs prints its number, then waits for the end of its input.
		cmd := exec.Command("/bin/sh", "-c", `exec 3<&0; setsid /bin/sh -c 'echo $$; read x <&3; exit 0' & exit 0`)
		in, hold, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stdin = in
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		in.Close()
		lines := bufio.NewReader(out)
		if _, err := lines.ReadString('\n'); err != nil {
			t.Errorf("the orphan said nothing: %v", err)
		}
		if _, err := cmd.Process.Wait(); err != nil {
			t.Error(err)
		}
		return func() {
			hold.Close()
			if _, err := io.Copy(io.Discard, lines); err != nil { // ends when the orphan does
				t.Error(err)
			}
			out.Close()
			reap(t)
		}
	})
	if !strings.HasPrefix(got, "left behind: process ") || strings.Count(got, "\n") != 0 {
		t.Errorf("Since() = %q, want one process", got)
	}
}

// reap waits for every child of this process, adopted ones too.
func reap(t *testing.T) {
	t.Helper()
	for {
		_, err := syscall.Wait4(-1, nil, 0, nil)
		if errors.Is(err, syscall.ECHILD) {
			return
		}
		if err != nil && !errors.Is(err, syscall.EINTR) {
			t.Fatalf("wait for orphans: %v", err)
		}
	}
}

func TestRun(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	path := filepath.Join(os.TempDir(), "checkcell-left")
	leave := func(code int) func() int {
		return func() int {
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Error(err)
			}
			return code
		}
	}
	tests := []struct {
		name  string
		tests func() int
		want  int
		clean bool
	}{
		{"pass", func() int { return 0 }, 0, true},
		{"fail", func() int { return 2 }, 2, true},
		{"pass and leave", leave(0), 1, false},
		{"fail and leave", leave(2), 2, false},
	}
	for _, tt := range tests {
		code, err := watch(tt.tests)
		if code != tt.want || (err == nil) != tt.clean {
			t.Errorf("%s: watch = %d, %v, want %d and nil to be %v", tt.name, code, err, tt.want, tt.clean)
		}
		os.Remove(path)
	}
}

// Main holds the turn while this test runs, so nobody else can have it. The
// wait that is given up here ends with the test binary.
func TestTakeTurnExcludes(t *testing.T) {
	if unlock, err := takeTurn(10 * time.Millisecond); err == nil {
		unlock()
		t.Error("takeTurn() while Main has the turn = nil, want an error")
	} else if !strings.Contains(err.Error(), "/proc/locks") {
		t.Errorf("takeTurn() = %v, want it to say where to look", err)
	}
}

func TestTakeTurnNeedsAModule(t *testing.T) {
	t.Chdir("/")
	if traces, err := LookInTurn(); err == nil {
		t.Errorf("LookInTurn() in / = %v, want an error", traces)
	}
}

// In a directory of its own a test can take the turn, give it back and take it again.
func TestTakeTurnAgain(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module m\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	for range 2 {
		unlock, err := takeTurn(time.Minute)
		if err != nil {
			t.Fatalf("takeTurn() = %v, want nil", err)
		}
		unlock()
	}
}
