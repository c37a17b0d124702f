package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/checkcell/checkcell/sandbox"
	"go.uber.org/goleak"
)

// asProgramVar makes the test binary behave as the program itself.
const asProgramVar = "CHECKCELL_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgramVar) != "" {
		os.Exit(run(context.Background(), os.Args[1:], streams{os.Stdin, os.Stdout, os.Stderr}))
	}
	goleak.VerifyTestMain(m)
}

const recordedLine = `{"name":"a","evidence":{"rung":4,"check":"./c","expect":"rows=17"},"execution":{"exit_code":0,"stdout":"rows=17"}}` + "\n"

func TestRoot(t *testing.T) {
	contradicted := strings.Replace(recordedLine, `"stdout":"rows=17"`, `"stdout":"rows=18"`, 1)
	silent := strings.Replace(recordedLine, `"stdout":"rows=17"`, `"stdout":""`, 1)
	tests := []struct {
		name, stdin string
		args        []string
		code        int
		out, errs   string // a part of each; "" for nothing
	}{
		{"no command", "", nil, exitUsage, "", "Usage:"},
		{"an unknown command", "", []string{"frobnicate"}, exitUsage, "", "see checkcell --help"},
		{"an unknown flag", "", []string{"--frobnicate"}, exitUsage, "", "--frobnicate"},
		{"help", "", []string{"--help"}, exitOK, "Available Commands:", ""},
		{"version", "", []string{"version"}, exitOK, "checkcell devel " + runtime.Version(), ""},
		{"version of something", "", []string{"version", "x"}, exitUsage, "", "see checkcell --help"},
		{"doctor of something", "", []string{"doctor", "x"}, exitUsage, "", "see checkcell --help"},
		{"regrade nothing", "", []string{"regrade"}, exitUsage, "", "accepts 1 arg"},
		{"regrade a file that is not there", "", []string{"regrade", "/no/such/file"}, exitUsage, "", "/no/such/file"},
		{"regrade an empty file", "", []string{"regrade", "-"}, exitUsage, "", "standard input: there is no recorded execution in it\nnothing was graded"},
		{"regrade a bad line", recordedLine + "{}\n", []string{"regrade", "-"}, exitUsage, "", "standard input:2: evidence: it is missing"},
		{"regrade verified", recordedLine, []string{"regrade", "-"}, exitOK, `{"name":"a","id":null,"verdict":"verified",`, ""},
		{"regrade contradicted", recordedLine + contradicted, []string{"regrade", "-"}, exitContradicted, `"verdict":"contradicted"`, ""},
		{"regrade silent", recordedLine + silent, []string{"regrade", "-"}, exitNotVerified, `"verdict":"silent-check"`, ""},
	}
	for _, tt := range tests {
		var out, errs bytes.Buffer
		code := run(t.Context(), tt.args, streams{strings.NewReader(tt.stdin), &out, &errs})
		if code != tt.code {
			t.Errorf("%s: run(%q) = %d, want %d; stderr %q", tt.name, tt.args, code, tt.code, errs.String())
		}
		for stream, pair := range map[string][2]string{"stdout": {out.String(), tt.out}, "stderr": {errs.String(), tt.errs}} {
			if !strings.Contains(pair[0], pair[1]) || pair[1] == "" && pair[0] != "" {
				t.Errorf("%s: run(%q) prints on %s %q, want %q", tt.name, tt.args, stream, pair[0], pair[1])
			}
		}
	}
}

// What a stranger wrote does not reach the terminal as it is.
func TestErrorsAreEscaped(t *testing.T) {
	var errs bytes.Buffer
	if code := run(t.Context(), []string{"regrade", "/no/\x1b[2Jsuch"}, streams{nil, io.Discard, &errs}); code != exitUsage {
		t.Errorf("run = %d, want %d", code, exitUsage)
	}
	if strings.Contains(errs.String(), "\x1b") || !strings.Contains(errs.String(), `\x1b[2J`) {
		t.Errorf("stderr is %q, want the escape sequence written out", errs.String())
	}
}

// fullWriter is a stdout on a full disk.
type fullWriter struct{}

func (fullWriter) Write([]byte) (int, error) { return 0, errors.New("no space left") }

func TestRegradeToAFullDisk(t *testing.T) {
	var errs bytes.Buffer
	code := run(t.Context(), []string{"regrade", "-"}, streams{strings.NewReader(recordedLine), fullWriter{}, &errs})
	if code != exitUsage || !strings.Contains(errs.String(), "write results: no space left") {
		t.Errorf("regrade to a full disk = %d with %q, want %d and why", code, errs.String(), exitUsage)
	}
}

// A stdout whose reader went away is a failed write, not our death by SIGPIPE:
// cells are still to be torn down then.
func TestBrokenPipe(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	defer w.Close()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "regrade", "-")
	cmd.Env = append(os.Environ(), asProgramVar+"=1")
	cmd.Stdin, cmd.Stdout = strings.NewReader(recordedLine), w
	var errs bytes.Buffer
	cmd.Stderr = &errs
	err = cmd.Run()
	var ended *exec.ExitError
	if !errors.As(err, &ended) || ended.ExitCode() != exitUsage || !strings.Contains(errs.String(), "broken pipe") {
		t.Errorf("regrade to a broken pipe: %v with %q, want exit code %d and broken pipe", err, errs.String(), exitUsage)
	}
}

func TestExitError(t *testing.T) {
	if err := exit(exitOK, nil); err != nil {
		t.Errorf("exit(0, nil) = %v, want nil", err)
	}
	cause := errors.New("why")
	tests := []struct {
		err  error
		code int
		text string
	}{
		{exit(exitContradicted, nil), exitContradicted, "exit code 1"},
		{exit(exitUsage, cause), exitUsage, "why"},
		{exit(exitOK, cause), exitOK, "why"},
		{fmt.Errorf("outside: %w", exit(exitCannot, cause)), exitCannot, "outside: why"},
	}
	for _, tt := range tests {
		if code, ok := codeOf(tt.err); code != tt.code || !ok || tt.err.Error() != tt.text {
			t.Errorf("exit = %q with code %d, %v, want %q, %d", tt.err, code, ok, tt.text, tt.code)
		}
	}
	if !errors.Is(exit(exitUsage, cause), cause) {
		t.Error("exit(2, cause) does not wrap its cause")
	}
}

func TestTerminal(t *testing.T) {
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for name, w := range map[string]io.Writer{"buffer": &bytes.Buffer{}, "file": file, "nil": nil} {
		if width, ok := terminal(w); ok || width != 0 {
			t.Errorf("terminal(%s) = %d, %v, want 0, false", name, width, ok)
		}
		if s := styleOf(w); s.Color || s.Width != 0 {
			t.Errorf("styleOf(%s) = %+v, want no colour and no width", name, s)
		}
	}
}

func TestDoctorOutput(t *testing.T) {
	caps := []sandbox.Capability{
		{Control: sandbox.ControlMemory, State: sandbox.CapabilityInForce, How: "memory.max", Fix: "nothing"},
		{Control: sandbox.ControlCPU, How: "no \x1bcontroller", Fix: "mount it"},
	}
	var out bytes.Buffer
	if err := doctorTable(streams{nil, &out, nil}, caps); err != nil {
		t.Fatal(err)
	}
	want := "CONTROL  STATE     HOW IT IS ENFORCED  WHAT TO DO\n" +
		"memory   in force  memory.max          -\n" +
		`cpu      missing   no \x1bcontroller   mount it` + "\n"
	if out.String() != want {
		t.Errorf("doctorTable prints\n%s, want\n%s", out.String(), want)
	}
	out.Reset()
	if err := doctorJSON(streams{nil, &out, nil}, caps); err != nil {
		t.Fatal(err)
	}
	want = `{"control":"memory","state":"in force","how":"memory.max","fix":"nothing"}` + "\n" +
		`{"control":"cpu","state":"missing","how":"no \u001bcontroller","fix":"mount it"}` + "\n"
	if out.String() != want {
		t.Errorf("doctorJSON prints\n%s, want\n%s", out.String(), want)
	}
	if doctorTable(streams{nil, fullWriter{}, nil}, caps) == nil || doctorJSON(streams{nil, fullWriter{}, nil}, caps) == nil {
		t.Error("doctor to a full disk has no error")
	}
}
