package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/checkcell/checkcell/grade"
	"github.com/checkcell/checkcell/internal/claims"
	"github.com/checkcell/checkcell/internal/intake"
	"github.com/checkcell/checkcell/internal/report"
	"github.com/checkcell/checkcell/sandbox"
	"github.com/checkcell/checkcell/sandbox/sandboxtest"
	"github.com/google/go-cmp/cmp"
)

// graded is what one call of gradeAll came to.
type graded struct {
	code      int
	err       error
	out, errs string
	file      string // what --out holds
}

// saying is a backend whose checks print out and exit with code.
func saying(out string, code uint8) *sandboxtest.Fake {
	return &sandboxtest.Fake{Syntax: sandboxtest.Exit0(), Check: sandboxtest.Behaviour{Stdout: []byte(out), End: sandbox.EndExited(code)}}
}

// write makes a file of text and returns its name.
func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// gradeFile takes a file of claims through both passes on a scripted backend;
// between, if that is not nil, is called between the two.
func gradeFile(t *testing.T, ctx context.Context, f gradeFlags, b sandbox.Backend, file string, between func()) graded {
	t.Helper()
	sources, err := claims.Open([]string{file}, nil)
	if err != nil {
		t.Fatal(err)
	}
	batch, total, err := readAll(t.Context(), sources)
	if err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	s := streams{nil, &out, &errs}
	f.jobs = 1
	if between != nil {
		between()
	}
	path := intake.Path{Runner: &sandbox.Runner{Backend: b}, Limits: sandbox.DefaultLimits(), Jobs: f.jobs}
	g := graded{err: f.gradeAll(ctx, s, path, sources, batch, total)}
	if err := claims.Close(sources); err != nil {
		t.Fatal(err)
	}
	g.code, _ = codeOf(g.err)
	g.out, g.errs = out.String(), errs.String()
	if info, err := os.Stat(f.out); err == nil && info.Mode().IsRegular() {
		b, err := os.ReadFile(f.out)
		if err != nil {
			t.Fatal(err)
		}
		g.file = string(b)
	}
	return g
}

const oneClaim = `{"id":"a","rung":4,"check":"./c","expect":"rows=17"}` + "\n"

func TestGradeExitCodes(t *testing.T) {
	const refused = `{"id":"r","rung":4,"check":"true","expect":"x"}` + "\n"
	tests := []struct {
		name, text string
		fake       *sandboxtest.Fake
		code       int
		summary    string
	}{
		{"all verified", oneClaim, saying("rows=17", 0), exitOK, "1 claim: 1 verified,"},
		{"contradicted", oneClaim, saying("rows=18", 0), exitContradicted, "1 contradicted"},
		{"silent", oneClaim, saying("", 0), exitNotVerified, "1 silent-check"},
		{"refused beside verified", oneClaim + refused, saying("rows=17", 0), exitNotVerified, "2 claims: 1 verified"},
		{"refused beside contradicted", oneClaim + refused, saying("rows=18", 0), exitContradicted, "2 claims: 0 verified, 1 contradicted"},
		{"nothing starts", oneClaim, &sandboxtest.Fake{CreateErr: errors.New("no cgroup")}, exitNotVerified, "1 unrunnable"},
	}
	for _, tt := range tests {
		got := gradeFile(t, t.Context(), gradeFlags{}, tt.fake, write(t, "c.jsonl", tt.text), nil)
		if got.code != tt.code || !strings.Contains(got.out, tt.summary) || got.errs != "" {
			t.Errorf("%s: gradeAll = %d (%v) with %q, want %d with %q", tt.name, got.code, got.err, got.out, tt.code, tt.summary)
		}
	}
}

// lineIDs are the ids of grade lines, all of which must be whole.
func lineIDs(t *testing.T, text string) []string {
	t.Helper()
	var ids []string
	for line := range strings.Lines(text) {
		var l struct {
			Schema, ID string
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil || l.Schema != report.LineSchema {
			t.Fatalf("line %q: %v, want a grade line", line, err)
		}
		ids = append(ids, l.ID)
	}
	return ids
}

func TestGradeOutputs(t *testing.T) {
	text := oneClaim + strings.Replace(oneClaim, `"a"`, `"b"`, 1)
	file := write(t, "c.jsonl", text)
	to := filepath.Join(t.TempDir(), "out.jsonl")
	both := []string{"a", "b"}

	plain := gradeFile(t, t.Context(), gradeFlags{}, saying("rows=17", 0), file, nil)
	if lines := strings.Split(plain.out, "\n"); len(lines) != 4 || !strings.HasPrefix(lines[0], "verified      a ") || !strings.HasPrefix(lines[2], "2 claims: ") {
		t.Errorf("grade prints %q, want a line a claim and the summary", plain.out)
	}
	asJSON := gradeFile(t, t.Context(), gradeFlags{json: true}, saying("rows=17", 0), file, nil)
	if diff := cmp.Diff(both, lineIDs(t, asJSON.out)); diff != "" || !strings.HasPrefix(asJSON.errs, "2 claims: ") {
		t.Errorf("grade --json prints ids, want - got +:\n%s\nand on stderr %q, want the summary", diff, asJSON.errs)
	}
	outFile := gradeFile(t, t.Context(), gradeFlags{out: to}, saying("rows=17", 0), file, nil)
	if diff := cmp.Diff(both, lineIDs(t, outFile.file)); diff != "" || !strings.Contains(outFile.out, "2 claims: ") {
		t.Errorf("grade --out writes ids, want - got +:\n%s\nand prints %q, want the summary", diff, outFile.out)
	}
	all := gradeFile(t, t.Context(), gradeFlags{json: true, out: to}, saying("rows=17", 0), file, nil)
	if diff := cmp.Diff(lineIDs(t, all.file), lineIDs(t, all.out)); diff != "" {
		t.Errorf("grade --json --out writes other ids than it prints, - file + stdout:\n%s", diff)
	}
}

func TestGradeInterrupted(t *testing.T) {
	var text strings.Builder
	for i := range 20 {
		text.WriteString(strings.Replace(oneClaim, `"a"`, fmt.Sprintf(`"c%d"`, i), 1))
	}
	file := write(t, "c.jsonl", text.String())
	hang := saying("rows=17", 0)
	hang.Check.Hang = true
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := time.AfterFunc(50*time.Millisecond, func() { cancel(errInterrupted) })
	defer stop.Stop()
	to := filepath.Join(t.TempDir(), "out.jsonl")
	got := gradeFile(t, ctx, gradeFlags{out: to}, hang, file, nil)
	if got.code != exitInterrupted || !strings.Contains(got.out, "interrupted, the rest was not run") {
		t.Errorf("gradeAll, interrupted = %d (%v) with %q, want %d and that the rest was not run", got.code, got.err, got.out, exitInterrupted)
	}
	if diff := cmp.Diff([]string{"c0"}, lineIDs(t, got.file)); diff != "" || !strings.Contains(got.file, `"ABORTED"`) {
		t.Errorf("what was known at the interrupt, want - got +:\n%s\n%s", diff, got.file)
	}
}

// A file that is changed between the passes never ends in exit code 0.
func TestGradeOfAChangedFile(t *testing.T) {
	for name, text := range map[string]string{"emptied": "", "fewer": oneClaim, "other ids twice": oneClaim + oneClaim} {
		file := write(t, "c.jsonl", oneClaim+strings.Replace(oneClaim, `"a"`, `"b"`, 1))
		got := gradeFile(t, t.Context(), gradeFlags{}, saying("rows=17", 0), file, func() {
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		})
		if got.code != exitUsage {
			t.Errorf("%s: gradeAll of a changed file = %d (%v), want %d", name, got.code, got.err, exitUsage)
		}
	}
}

func TestGradeToAFullDevice(t *testing.T) {
	got := gradeFile(t, t.Context(), gradeFlags{out: "/dev/full"}, saying("rows=17", 0), write(t, "c.jsonl", oneClaim), nil)
	if got.code != exitUsage || !strings.Contains(fmt.Sprint(got.err), "write results") {
		t.Errorf("gradeAll to /dev/full = %d (%v), want %d and what failed", got.code, got.err, exitUsage)
	}
}

func TestGradeToNoFile(t *testing.T) {
	b := saying("rows=17", 0)
	got := gradeFile(t, t.Context(), gradeFlags{out: "/no/such/dir/out"}, b, write(t, "c.jsonl", oneClaim), nil)
	if got.code != exitUsage || !strings.Contains(fmt.Sprint(got.err), "--out: open /no/such/dir/out") || len(b.Calls()) != 0 {
		t.Errorf("gradeAll to no file = %d (%v) after %q, want %d, the flag, and nothing run", got.code, got.err, b.Calls(), exitUsage)
	}
}

func TestReadAll(t *testing.T) {
	read := func(text string) (int, error) {
		sources, err := claims.Open([]string{write(t, "c.jsonl", text)}, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, total, err := readAll(t.Context(), sources)
		return total, err
	}
	if total, err := read(oneClaim); total != 1 || err != nil {
		t.Errorf("readAll(one claim) = %d, %v, want 1", total, err)
	}
	_, err := read(oneClaim + strings.Repeat("{}\n", 60))
	code, _ := codeOf(err)
	if text := fmt.Sprint(err); code != exitUsage || strings.Count(text, "c.jsonl:") != 50 || !strings.Contains(text, "and 10 problems more\nnothing was run") {
		t.Errorf("readAll(60 bad lines) = %v with exit code %d, want 50 of them, the number of the rest, %d", err, code, exitUsage)
	}
	if _, err := read("\n"); err == nil {
		t.Error("readAll(an empty file) has no error")
	}
	gone, cancel := context.WithCancelCause(t.Context())
	cancel(errInterrupted)
	sources, err := claims.Open([]string{write(t, "c.jsonl", oneClaim)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = readAll(gone, sources)
	if code, _ := codeOf(err); code != exitInterrupted {
		t.Errorf("readAll(interrupted) = %v with exit code %d, want %d", err, code, exitInterrupted)
	}
}

// What can be seen to be wrong ends grade before anything runs.
func TestGradeRefuses(t *testing.T) {
	file := write(t, "c.jsonl", oneClaim)
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		args []string
		want string
	}{
		{"no file", nil, "requires at least 1 arg"},
		{"a file that is not there", []string{"/no/such/file"}, "/no/such/file"},
		{"a flag", []string{"--timeout=0", file}, "--timeout"},
		{"no jobs", []string{"--jobs=0", file}, "--jobs 0: want 1 to 4096"},
		{"too many jobs", []string{"--jobs=999999999", file}, "--jobs 999999999: want 1 to 4096"},
		{"jobs of words", []string{"--jobs=all", file}, "--jobs"},
		{"a bad claim", []string{write(t, "bad.jsonl", "{}\n")}, "bad.jsonl:1: "},
		{"the claims as output", []string{"--out=" + file, file}, "--out " + file + ": it is a file of claims"},
		{"a link to them as output", []string{"--out=" + link, file}, "it is a file of claims"},
	}
	for _, tt := range tests {
		var out, errs bytes.Buffer
		code := run(t.Context(), append([]string{"grade"}, tt.args...), streams{strings.NewReader(""), &out, &errs})
		if code != exitUsage || !strings.Contains(errs.String(), tt.want) || out.Len() != 0 {
			t.Errorf("%s: grade %q = %d with stderr %q, stdout %q, want %d, %q, nothing", tt.name, tt.args, code, errs.String(), out.String(), exitUsage, tt.want)
		}
	}
	if text, err := os.ReadFile(file); string(text) != oneClaim || err != nil {
		t.Errorf("the file of claims holds %q, %v, want it as it was", text, err)
	}
}

func TestCountsExitCode(t *testing.T) {
	tests := []struct {
		verdicts []grade.Verdict
		want     int
	}{
		{nil, exitNotVerified}, // nothing was verified
		{[]grade.Verdict{grade.Verified}, exitOK},
		{[]grade.Verdict{grade.Verified, grade.Contradicted}, exitContradicted},
		{[]grade.Verdict{grade.Contradicted, grade.Unrunnable}, exitContradicted},
		{[]grade.Verdict{grade.Verified, grade.SilentCheck}, exitNotVerified},
		{[]grade.Verdict{grade.Verified, grade.Unrunnable}, exitNotVerified},
		{[]grade.Verdict{grade.Uncheckable}, exitNotVerified},
	}
	for _, tt := range tests {
		var c counts
		for _, v := range tt.verdicts {
			c.Count(v)
		}
		if got := c.exitCode(); got != tt.want {
			t.Errorf("exitCode(%v) = %d, want %d", tt.verdicts, got, tt.want)
		}
	}
}

// Duplicates and shared checks reach the writers, each in its place.
func TestGradeWriter(t *testing.T) {
	text := `{"id":"a","title":"t","rung":4,"check":"./c","expect":"rows=17"}` + "\n" +
		`{"id":"b","title":"T.md","rung":4,"check":"./c","expect":"rows=17"}` + "\n" +
		`{"id":"c","title":"u","rung":4,"check":"./c","expect":"rows=17"}` + "\n"
	got := gradeFile(t, t.Context(), gradeFlags{json: true}, saying("rows=17", 0), write(t, "c.jsonl", text), nil)
	lines := strings.Split(got.out, "\n")
	if len(lines) != 4 || !strings.Contains(lines[0], `"duplicate_of":null,"shared_check":["a","b","c"]`) || !strings.Contains(lines[1], `"duplicate_of":"a"`) {
		t.Errorf("grade --json of a duplicate prints %q, want it marked", got.out)
	}
	if want := "1 duplicate; 3 claims lean on 1 shared check, which counts as one verification"; !strings.Contains(got.errs, want) {
		t.Errorf("the summary is %q, want %q in it", got.errs, want)
	}
}
