package report_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/checkcell/checkcell/grade"
	"github.com/checkcell/checkcell/internal/claims"
	"github.com/checkcell/checkcell/internal/report"
	"github.com/checkcell/checkcell/sandbox"
)

func TestSettled(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.jsonl.settled")
	s, old, err := report.KeepSettled(path)
	if err != nil || old {
		t.Fatalf("KeepSettled = %v, %v, want a new file", old, err)
	}
	c := claims.Claim{ID: "a", Title: "T", Evidence: grade.Evidence{Rung: 4, Check: "echo '<&>'", Expect: "<"}}
	const most = 50
	var writers sync.WaitGroup
	for range most {
		writers.Go(func() {
			if err := s.Add(c, sandbox.Result{ID: "a", Outcome: sandbox.Exited(3)}); err != nil {
				t.Errorf("Add: %v", err)
			}
		})
	}
	writers.Wait()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const begin = `{"id":"a","title":"T","evidence":{"rung":4,"check":"echo '<&>'","expect":"<"},"execution":{"schema":"checkcell.result/v1","id":"a",`
	lines := strings.SplitAfter(string(text), "\n")
	for _, line := range lines[:len(lines)-1] {
		if !strings.HasPrefix(line, begin) || !strings.Contains(line, `"outcome":{"kind":"exited","exit_code":3}`) || !strings.Contains(line, `"cleanup":{"state":"unknown"`) {
			t.Errorf("line %q, want it to begin with %q, with the outcome and a cleanup that is not known", line, begin)
		}
	}
	if len(lines) != most+1 || lines[most] != "" {
		t.Errorf("%d lines, the last %q, want %d whole ones", len(lines)-1, lines[len(lines)-1], most)
	}
	if err := s.Done(); err != nil {
		t.Errorf("Done: %v", err)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after Done the file is there: %v", err)
	}
}

func TestSettledIsKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "settled")
	for _, want := range []bool{false, true} {
		s, old, err := report.KeepSettled(path)
		if err != nil || old != want {
			t.Fatalf("KeepSettled = %v, %v, want %v", old, err, want)
		}
		if name, err := s.Keep(); name != path || err != nil {
			t.Errorf("Keep = %q, %v, want %q", name, err, path)
		}
	}
	if _, _, err := report.KeepSettled(filepath.Join(path, "x")); err == nil {
		t.Error("KeepSettled below a file = nil, want an error")
	}
}
