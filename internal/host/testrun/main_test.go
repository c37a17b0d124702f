package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/checkcell/checkcell/internal/host"
)

func TestMain(m *testing.M) { os.Exit(host.Main(m)) }

func TestRun(t *testing.T) {
	tests := []struct {
		name    string
		command []string
		want    int
		says    []string // on stdout
		warns   []string // on stderr
	}{
		{"pass", sh(`echo fine; echo note >&2`), 0, []string{"fine\n", "nothing was skipped\n", "nothing was left behind\n"}, []string{"note\n"}},
		{"fail", sh(`exit 3`), 3, []string{"nothing was skipped\n", "nothing was left behind\n"}, nil},
		{"skip", sh(`echo "p TestB: no" >>$CHECKCELL_SKIPLOG; echo "p TestA: no" >>$CHECKCELL_SKIPLOG`), 0,
			[]string{"skipped, 2 in all:\n  p TestA: no\n  p TestB: no\n", "nothing was left behind\n"}, nil},
		{"unreadable log", sh(`mkdir $CHECKCELL_SKIPLOG`), 1, nil, []string{"testrun: read the skip log: "}},
		{"leave", sh(`: >$TMPDIR/checkcell-left`), 1, []string{"nothing was skipped\n"}, []string{"testrun: left behind: temporary file ", "/checkcell-left"}},
		{"leave and fail", sh(`: >$TMPDIR/checkcell-left; exit 3`), 3, nil, []string{"left behind: temporary file "}},
		{"killed", sh(`kill -9 $$`), 1, nil, []string{"testrun: run /bin/sh: signal: killed"}},
		{"not there", []string{"/nonexistent/program"}, 1, nil, []string{"testrun: run /nonexistent/program: "}},
		{"no command", nil, 2, nil, []string{"usage: "}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("TMPDIR", t.TempDir())
			var stdout, stderr bytes.Buffer
			if got := run(t.Context(), host.Look, tt.command, &stdout, &stderr); got != tt.want {
				t.Errorf("run(%q) = %d, want %d", tt.command, got, tt.want)
			}
			expectWords(t, "stdout", stdout.String(), tt.says)
			expectWords(t, "stderr", stderr.String(), tt.warns)
			left, err := filepath.Glob(filepath.Join(os.TempDir(), "testrun-*"))
			if err != nil || len(left) > 0 {
				t.Errorf("run(%q) left %q (%v), want nothing", tt.command, left, err)
			}
		})
	}
}

func sh(script string) []string { return []string{"/bin/sh", "-c", script} }

func expectWords(t *testing.T, stream, got string, want []string) {
	t.Helper()
	if want == nil && stream == "stderr" && got != "" {
		t.Errorf("%s = %q, want nothing", stream, got)
	}
	for _, words := range want {
		if !strings.Contains(got, words) {
			t.Errorf("%s = %q, want it to hold %q", stream, got, words)
		}
	}
}

// A command that is interrupted may tidy up, and its own status counts.
func TestRunInterruptsAndWaits(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	ready := filepath.Join(t.TempDir(), "ready")
	if err := syscall.Mkfifo(ready, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	go func() { // ends when the command has opened the pipe, or has ended
		if f, err := os.Open(ready); err == nil {
			f.Close()
		}
		cancel()
	}()
	var stdout, stderr bytes.Buffer
	script := `trap 'echo tidied; exit 5' INT; : >` + ready + `; while :; do sleep 0.01; done`
	if got := run(ctx, host.Look, sh(script), &stdout, &stderr); got != 5 || !strings.Contains(stdout.String(), "tidied\n") {
		t.Errorf("run(%q) = %d with %q, want 5 with tidied; stderr %q", script, got, stdout.String(), stderr.String())
	}
}

func TestIsGoCommand(t *testing.T) {
	tests := []struct {
		process string
		want    bool
	}{{"7 go started 11", true}, {"7 sleep started 11", false}, {"7 gopher started 11", false}, {"7 a go b started 11", false}}
	for _, tt := range tests {
		if got := isGoCommand(tt.process); got != tt.want {
			t.Errorf("isGoCommand(%q) = %v, want %v", tt.process, got, tt.want)
		}
	}
}

// What can't be seen is not nothing.
func TestRunFailsWithoutALook(t *testing.T) {
	failure := errors.New("no look")
	for _, failing := range []int{1, 2} { // the look before, the look after
		n := 0
		look := func() (host.Traces, error) {
			n++
			if n == failing {
				return host.Traces{}, failure
			}
			return host.Traces{}, nil
		}
		var stdout, stderr bytes.Buffer
		got := run(t.Context(), look, sh("exit 0"), &stdout, &stderr)
		if got != 1 || !strings.Contains(stderr.String(), failure.Error()) || strings.Contains(stdout.String(), "nothing was left") {
			t.Errorf("run with look %d failing = %d, %q, %q, want 1 and the failure", failing, got, stdout.String(), stderr.String())
		}
	}
}

// The go command's own child is no leftover; any other process is.
func TestRunOverlooksOnlyTheGoCommand(t *testing.T) {
	for process, want := range map[string]int{"7 go started 11": 0, "7 sleep started 11": 1} {
		var seen host.Traces
		look := func() (host.Traces, error) {
			now := seen
			seen = host.Traces{Processes: []string{process}}
			return now, nil
		}
		var stdout, stderr bytes.Buffer
		if got := run(t.Context(), look, sh("exit 0"), &stdout, &stderr); got != want {
			t.Errorf("run that leaves %q = %d, want %d; stderr %q", process, got, want, stderr.String())
		}
	}
}
