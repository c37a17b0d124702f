package e2e

import (
	"errors"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// The scripts that make no cell run on any machine.
func TestScripts(t *testing.T) { runScripts(t, "testdata/script", 4, nil) }

// The scripts that make cells.
func TestCellScripts(t *testing.T) {
	needCells(t)
	leavesNothing(t)
	runScripts(t, "testdata/script/cell", 8, nil)
}

// runScripts runs the scripts of dir, of which there must be at least some: a
// folder that was moved must not pass. Each is set up by setup, if there is one.
func runScripts(t *testing.T, dir string, least int, setup func(*testscript.Env) error) {
	found, err := filepath.Glob(filepath.Join(dir, "*.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	if len(found) < least {
		t.Fatalf("%s holds %d scripts, want at least %d", dir, len(found), least)
	}
	// In a test of its own, which ends when its parallel scripts have.
	t.Run("all", func(t *testing.T) {
		testscript.Run(t, testscript.Params{
			Files:           found,
			ContinueOnError: true,
			Setup:           setup,
			Cmds:            map[string]func(*testscript.TestScript, bool, []string){"exits": exits, "wholelines": wholeLines, "push": push},
		})
	})
}

// exits CODE PROGRAM ARG… runs a program and wants that exit code of it.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM [ARG…]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%q: %v", args[1:], err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("%q exited with %d, want %d", args[1:], got, want)
	}
}

// wholelines FILE LEAST MOST wants a file of that many lines, each of them a
// whole grade line.
func wholeLines(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: wholelines FILE LEAST MOST")
	}
	least, err := strconv.Atoi(args[1])
	ts.Check(err)
	most, err := strconv.Atoi(args[2])
	ts.Check(err)
	text := ts.ReadFile(args[0])
	if text != "" && !strings.HasSuffix(text, "\n") {
		ts.Fatalf("%s ends in half a line: %q", args[0], text[max(0, len(text)-60):])
	}
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if text == "" {
		lines = nil
	}
	if len(lines) < least || len(lines) > most {
		ts.Fatalf("%s has %d lines, want %d to %d", args[0], len(lines), least, most)
	}
	for i, line := range lines {
		if !strings.HasPrefix(line, `{"schema":"checkcell.grade/v1","id":`) || !strings.HasSuffix(line, `"extra":{}}`) {
			ts.Fatalf("%s:%d is no whole grade line: %.120q", args[0], i+1, line)
		}
	}
}
