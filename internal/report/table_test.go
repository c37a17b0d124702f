package report

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/checkcell/checkcell/grade"
	"github.com/checkcell/checkcell/internal/intake"
	"github.com/checkcell/checkcell/sandbox"
	"github.com/google/go-cmp/cmp"
)

// noted gives g a note.
func noted(g intake.Graded, kind grade.NoteKind, note string) intake.Graded {
	g.Grade.NoteKind, g.Grade.Note = kind, note
	return g
}

// used gives g's result time and memory.
func used(g intake.Graded, wall time.Duration, memory sandbox.Reading) intake.Graded {
	g.Result.Evidence.Usage.Wall, g.Result.Evidence.Usage.PeakMemory = wall, memory
	return g
}

func TestTable(t *testing.T) {
	var table Table
	first := "one\x1b"
	table.Add(ran(graded("ok", "", "", grade.Verified), 0), nil)
	table.Add(used(ran(graded("c1", "", "", grade.Contradicted), 1), 1234*time.Millisecond, sandbox.Read(3*int64(sandbox.MiB)/2)), nil)
	table.Add(used(ran(graded("c\x1b[2J", "", "", grade.Contradicted), 0), 0, sandbox.Reading{}), &first)
	table.Add(noted(graded(strings.Repeat("ü", 50), "", "", grade.Uncheckable), grade.NoCheck, "two\nlines"), nil)
	var out strings.Builder
	if err := table.Write(&out, Style{}); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("ü", 39) + "…"
	want := "" +
		"VERDICT       CLAIM                                         TIME     MEMORY  WHY\n" +
		"contradicted  c1                                           1.23s     1.5MiB  exit code 1\n" +
		`contradicted  c\x1b[2J                                     0.00s          -  the output does not hold "rows=17" (duplicate of one\x1b)` + "\n" +
		"uncheckable   " + long + `         -          -  NO_CHECK: two\nlines` + "\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("Write, want - got +:\n%s", diff)
	}
}

func TestTableFitsTheTerminal(t *testing.T) {
	var table Table
	table.Add(noted(graded("a", "", "", grade.Unrunnable), grade.NotStarted, strings.Repeat("long ", 50)), nil)
	for _, width := range []int{80, 120} {
		var out strings.Builder
		if err := table.Write(&out, Style{Width: width}); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(out.String()) {
			if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > width {
				t.Errorf("Write(width %d) = %q of %d columns", width, line, n)
			}
		}
		if !strings.Contains(out.String(), "…") {
			t.Errorf("Write(width %d) = %q, want an ellipsis where it was cut", width, out.String())
		}
	}
	var narrow strings.Builder
	if err := table.Write(&narrow, Style{Width: 30}); err != nil || strings.Contains(narrow.String(), "…") {
		t.Errorf("Write(width 30) = %q, %v, want lines as long as they are: nothing useful would be left", narrow.String(), err)
	}
}

func TestTableOfNothing(t *testing.T) {
	var table Table
	table.Add(graded("a", "", "", grade.Verified), nil)
	var out strings.Builder
	if err := table.Write(&out, Style{}); err != nil || out.Len() != 0 {
		t.Errorf("Write(nothing but verified) = %q, %v, want nothing", out.String(), err)
	}
}

func TestTableKeepsSoManyRows(t *testing.T) {
	var table Table
	for i := range maxRows + 7 {
		table.Add(graded(fmt.Sprint(i), "", "", grade.Unrunnable), nil)
	}
	var out strings.Builder
	if err := table.Write(&out, Style{}); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if want := "and 7 more; --out FILE writes them all"; len(lines) != maxRows+2 || lines[maxRows+1] != want {
		t.Errorf("Write of %d rows has %d lines, the last %q, want %d, %q", maxRows+7, len(lines), lines[len(lines)-1], maxRows+2, want)
	}
	broken := errors.New("broken")
	if err := table.Write(&stingy{err: broken}, Style{}); !errors.Is(err, broken) {
		t.Errorf("Write to a broken writer = %v, want %v", err, broken)
	}
}

func TestPlainLine(t *testing.T) {
	first := "a"
	tests := []struct {
		name   string
		graded intake.Graded
		of     *string
		want   string
	}{
		{"verified", used(ran(graded("a", "", "", grade.Verified), 0), time.Second, sandbox.Read(int64(sandbox.MiB))), nil,
			"verified      a                            1.00s     1.0MiB\n"},
		{"no reason to give", graded("a", "", "", grade.Verified), nil, "verified      a                                -          -\n"},
		{"duplicate", graded("b", "", "", grade.Unrunnable), &first,
			"unrunnable    b                                -          -  there is no check to run (duplicate of a)\n"},
		{"hostile id and note", noted(graded("x\ny\u202e", "", "", grade.Unrunnable), grade.UnreachedInput, "it said \x1b[1m\r"), nil,
			`unrunnable    x\ny\u{202e}                     -          -  UNREACHED_INPUT: it said \x1b[1m\r` + "\n"},
		{"a long id is longer than its column", graded(strings.Repeat("x", 30), "", "", grade.Verified), nil,
			"verified      " + strings.Repeat("x", 30) + "         -          -\n"},
	}
	for _, tt := range tests {
		if got := PlainLine(tt.graded, tt.of); got != tt.want {
			t.Errorf("%s: PlainLine = %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestVerdictColor(t *testing.T) {
	colors := map[grade.Verdict]string{
		grade.Verified: "\x1b[32m", grade.Contradicted: "\x1b[31m", grade.SilentCheck: "\x1b[33m",
		grade.Unrunnable: "\x1b[33m", grade.Uncheckable: "\x1b[33m",
	}
	if len(colors) != len(Verdicts) {
		t.Fatalf("the test knows %d verdicts, want %d", len(colors), len(Verdicts))
	}
	for v, color := range colors {
		want := color + pad(v.String(), 12) + "\x1b[0m"
		if got := (Style{Color: true}).verdict(v); got != want {
			t.Errorf("verdict(%v) in colour = %q, want %q", v, got, want)
		}
		if got := (Style{}).verdict(v); got != pad(v.String(), 12) {
			t.Errorf("verdict(%v) = %q, want %q", v, got, pad(v.String(), 12))
		}
	}
}
