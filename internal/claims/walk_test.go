package claims

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

func TestSetLabels(t *testing.T) {
	for _, tt := range []struct{ names, want []string }{
		{nil, nil},
		{[]string{"a/x.jsonl"}, []string{"x.jsonl"}},
		{[]string{"a/x.jsonl", "a/y.jsonl", "stdin"}, []string{"x.jsonl", "y.jsonl", "stdin"}},
		{[]string{"a/x.jsonl", "b/x.jsonl", "y.jsonl"}, []string{"a/x.jsonl", "b/x.jsonl", "y.jsonl"}},
		{[]string{"stdin", "d/stdin"}, []string{"stdin", "d/stdin"}},
	} {
		var sources []Source
		for _, name := range tt.names {
			sources = append(sources, Source{name: name})
		}
		setLabels(sources)
		var got []string
		for _, s := range sources {
			got = append(got, s.label)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("setLabels(%q) = %q, want %q", tt.names, got, tt.want)
		}
	}
}

// A pipe in a directory would be read by nobody's wish, and could wait for
// ever.
func TestPipeInDirectory(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"a.jsonl": one})
	pipe := filepath.Join(dir, "b.jsonl")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err := Open([]string{dir}, nil); err == nil || !strings.Contains(err.Error(), pipe+": not a regular file") {
		t.Errorf("Open(a directory with a pipe) = %v, %v, want an error that names the pipe", s, err)
	}
}

func TestOpenEmptyDevice(t *testing.T) {
	got, errs := collect(open(t, nil, os.DevNull)...)
	if len(got) > 0 {
		t.Errorf("Read(%s) = %v, want no claim", os.DevNull, idsOf(got))
	}
	matchErrors(t, os.DevNull, errs, []string{os.DevNull + ": …it is empty"})
}

// A file that is gone when a pass begins is an error of that pass, which goes
// on with the next source.
func TestFileGoneBetweenPasses(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"a.jsonl": one, "b.jsonl": one})
	sources := open(t, nil, dir)
	if got, errs := collect(sources...); len(got) != 2 || len(errs) > 0 {
		t.Fatalf("first pass = %v, %v, want two claims", idsOf(got), errs)
	}
	if err := os.Remove(filepath.Join(dir, "a.jsonl")); err != nil {
		t.Fatal(err)
	}
	got, errs := collect(sources...)
	if !slices.Equal(idsOf(got), []string{"b.jsonl:1"}) {
		t.Errorf("second pass = %v, want the claim of b.jsonl", idsOf(got))
	}
	matchErrors(t, "a file that is gone", errs, []string{filepath.Join(dir, "a.jsonl") + ": …no such file"})
}

func TestCloseReportsAll(t *testing.T) {
	sources, err := Open([]string{"-"}, strings.NewReader(one))
	if err != nil {
		t.Fatal(err)
	}
	if err := Close(sources); err != nil {
		t.Errorf("Close = %v, want nil", err)
	}
	if err := Close(sources); err == nil || !strings.Contains(err.Error(), "close claims of stdin") {
		t.Errorf("Close again = %v, want an error that names stdin", err)
	}
	got, errs := collect(sources...)
	if len(got) != 0 || len(errs) != 1 {
		t.Errorf("Read after Close = %v, %q, want one error", idsOf(got), errorTexts(errs))
	}
}

// Read yields claims in the order of the paths, not of their names.
func TestOrderOfSources(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"z.jsonl": one, "a.md": "---\nrung: 1\n---\n", "sub/b.json": one, "sub/a.yaml": "rung: 1\n"})
	at := func(name string) string { return filepath.Join(dir, name) }
	got, errs := collect(open(t, strings.NewReader(one), at("z.jsonl"), "-", at("sub"), at("a.md"))...)
	want := []string{"z.jsonl:1", "stdin:1", "a.yaml:1", "b.json:1", "a.md:1"}
	if !slices.Equal(idsOf(got), want) || len(errs) > 0 {
		t.Errorf("Read = %v, %v, want %v", idsOf(got), errs, want)
	}
}

// Nesting is the author's choice. It ends in an error, not in a deep stack.
func TestNestingIsBounded(t *testing.T) {
	const depth = 9_000
	for name, text := range map[string]string{
		"c.jsonl": strings.Repeat(`{"a":`, depth),
		"c.json":  strings.Repeat("[", depth),
		"a.yaml":  "x: " + strings.Repeat("[", depth),
		"b.yaml":  strings.Repeat("- ", depth) + "x",
		"c.yaml":  strings.Repeat("? ", depth) + "x",
		"d.yaml":  "x: " + strings.Repeat("{a: ", depth) + strings.Repeat("}", depth),
		"c.md":    "---\nrung: 1\nx: " + strings.Repeat("[", depth) + strings.Repeat("]", depth) + "\n---\n",
	} {
		got, errs := readText(name, text)
		if len(got) != 0 || len(errs) != 1 {
			t.Errorf("Read(%s, %d levels) = %v, %q, want one error", name, depth, idsOf(got), errorTexts(errs))
		}
	}
}
