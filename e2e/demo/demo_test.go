package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/checkcell/checkcell/internal/host"
)

func TestMain(m *testing.M) { os.Exit(host.Main(m)) }

// The examples are graded by the built binary as the table beside them says.
func TestExamples(t *testing.T) {
	host.Need(t, host.Root, host.CgroupWritable, host.MemoryCgroup, host.PidsCgroup, host.UserNS, host.Bash, host.Python3)
	binary := filepath.Join(t.TempDir(), "checkcell")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", binary, "./cmd/checkcell")
	build.Dir = "../.."
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	var stdout, stderr bytes.Buffer
	if got := run(t.Context(), []string{binary, "../../examples"}, &stdout, &stderr); got != 0 {
		t.Errorf("run(checkcell, examples) = %d, want 0\n%s%s", got, stdout.String(), stderr.String())
	}
}

// The examples show every verdict.
func TestExamplesShowEveryVerdict(t *testing.T) {
	want, err := load("../../examples/expected.tsv", readExpected)
	if err != nil {
		t.Fatal(err)
	}
	for _, verdict := range []string{"verified", "silent-check", "contradicted", "unrunnable", "uncheckable"} {
		seen := false
		for _, e := range want {
			seen = seen || e.verdict == verdict
		}
		if !seen {
			t.Errorf("expected.tsv has no example of %s", verdict)
		}
	}
}

// script writes a program that stands for checkcell: it copies grades to the
// file after --out and exits with code.
func script(t *testing.T, grades string, code string) string {
	t.Helper()
	dir := t.TempDir()
	data, program := filepath.Join(dir, "grades"), filepath.Join(dir, "checkcell")
	text := fmt.Sprintf("#!/bin/sh\n[ \"$1 $2\" = 'grade --out' ] || exit 99\necho \"the table of $4\"\ncat %s >\"$3\"\n%s\n", data, code)
	for path, content := range map[string]string{data: grades, program: text} {
		if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return program
}

func line(id, verdict, kind string) string {
	return fmt.Sprintf(`{"schema":"checkcell.grade/v1","id":%q,"verdict":%q,"note_kind":%q,"result":null}`+"\n", id, verdict, kind)
}

func TestRun(t *testing.T) {
	good := line("a", "verified", "") + line("b", "contradicted", "") + line("c", "unrunnable", "LIMIT")
	tests := []struct {
		name, grades, code string
		want               int
		says, warns        string
	}{
		{"as expected", good, "exit 1", 0, "examples: 3 of 3 graded as ", ""},
		{"another verdict", strings.Replace(good, "verified", "unrunnable", 1), "exit 1", 1, "examples: 2 of 3 ", "a: unrunnable -, want verified -\n"},
		{"another note", strings.Replace(good, "LIMIT", "DEADLINE", 1), "exit 1", 1, "examples: 2 of 3 ", "c: unrunnable DEADLINE, want unrunnable LIMIT\n"},
		{"one missing", line("a", "verified", "") + line("b", "contradicted", ""), "exit 1", 1, "examples: 2 of 3 ", "c: not graded"},
		{"one more", good + line("d", "verified", ""), "exit 1", 1, "examples: 3 of 3 ", "d: verified -, but it is not expected"},
		{"one twice", good + line("a", "verified", ""), "exit 1", 1, "examples: 3 of 3 ", "a: graded twice"},
		{"another exit code", good, "exit 0", 1, "examples: 3 of 3 ", "exited with 0, want 1"},
		{"killed", good, "kill -9 $$", 1, "", "signal: killed"},
		{"another schema", strings.Replace(good, "/v1", "/v2", 1), "exit 1", 1, "", `"checkcell.grade/v2"`},
		{"cut short", good[:len(good)-5], "exit 1", 1, "", "read grade 3: "},
		{"no grades", "", "exit 4", 1, "examples: 0 of 3 ", "3 differences"},
		{"no output file", good, `rm "$3"; exit 4`, 1, "", "exited with 4: load"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("TMPDIR", t.TempDir())
			examples := t.TempDir()
			table := header + "\na\tverified\t-\nb\tcontradicted\t-\nc\tunrunnable\tLIMIT\n"
			if err := os.WriteFile(filepath.Join(examples, "expected.tsv"), []byte(table), 0o600); err != nil {
				t.Fatal(err)
			}
			var stdout, stderr bytes.Buffer
			if got := run(t.Context(), []string{script(t, tt.grades, tt.code), examples}, &stdout, &stderr); got != tt.want {
				t.Errorf("run(%s) = %d, want %d; stderr %q", tt.name, got, tt.want, stderr.String())
			}
			if want := "the table of " + examples + "\n" + tt.says; !strings.HasPrefix(stdout.String(), want) {
				t.Errorf("stdout = %q, want it to begin with %q", stdout.String(), want)
			}
			if got := stderr.String(); !strings.Contains(got, tt.warns) || tt.warns == "" && got != "" {
				t.Errorf("stderr = %q, want %q in it", got, tt.warns)
			}
			if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) > 0 {
				t.Errorf("run(%s) left %v (%v), want nothing", tt.name, left, err)
			}
		})
	}
}

func TestRunUsage(t *testing.T) {
	for _, args := range [][]string{nil, {"one"}, {"one", "two", "three"}} {
		var stdout, stderr bytes.Buffer
		if got := run(t.Context(), args, &stdout, &stderr); got != 2 || !strings.HasPrefix(stderr.String(), "usage: ") {
			t.Errorf("run(%q) = %d with %q, want 2 with the usage", args, got, stderr.String())
		}
	}
}

func TestReadExpected(t *testing.T) {
	tests := []struct {
		text string
		want []example
		ok   bool
	}{
		{header + "\na\tverified\t-\nb\tunrunnable\tLIMIT\n", []example{{"a", "verified", "-"}, {"b", "unrunnable", "LIMIT"}}, true},
		{"", nil, false},
		{header + "\n", nil, false},
		{"a\tverified\t-\n", nil, false},
		{header + "\na\tverified\n", nil, false},
		{header + "\na\tverified\t\n", nil, false},
		{header + "\na verified -\n", nil, false},
		{header + "\na\tverified\t-\na\tverified\t-\n", nil, false},
	}
	for _, tt := range tests {
		got, err := readExpected(strings.NewReader(tt.text))
		if (err == nil) != tt.ok || !reflect.DeepEqual(got, tt.want) {
			t.Errorf("readExpected(%q) = %v, %v, want %v and nil to be %v", tt.text, got, err, tt.want, tt.ok)
		}
	}
}

func TestExitCode(t *testing.T) {
	tests := []struct {
		verdicts string
		want     int
	}{
		{"verified verified", 0}, {"verified unrunnable", 3}, {"silent-check", 3}, {"uncheckable", 3},
		{"unrunnable contradicted verified", 1}, {"contradicted unrunnable", 1},
	}
	for _, tt := range tests {
		var all []example
		for verdict := range strings.FieldsSeq(tt.verdicts) {
			all = append(all, example{verdict: verdict})
		}
		if got := exitCode(all); got != tt.want {
			t.Errorf("exitCode(%s) = %d, want %d", tt.verdicts, got, tt.want)
		}
	}
}
