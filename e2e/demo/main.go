// Command demo grades the examples with a built checkcell, which shows its
// table, and compares what came out with what the examples are there to show.
//
//	go run ./e2e/demo bin/checkcell examples
//
// Whoever is not root needs a sudo that asks for no password.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
)

func main() { os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr)) }

// run returns the status to exit with: 0 if every example was graded as
// expected, 1 if not, 2 for wrong usage.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) != 2 {
		fmt.Fprintln(stderr, "usage: demo CHECKCELL EXAMPLES")
		return 2
	}
	// A terminal's interrupt reaches checkcell too, which then ends by itself;
	// the demo catches it only to outlive checkcell and remove its files.
	_, stop := signal.NotifyContext(ctx, os.Interrupt)
	defer stop()
	if err := show(ctx, args[0], args[1], stdout, stderr); err != nil {
		fmt.Fprintf(stderr, "demo: %v\n", err)
		return 1
	}
	return 0
}

// show grades the claims in the folder examples and compares the grades with
// its expected.tsv.
func show(ctx context.Context, checkcell, examples string, stdout, stderr io.Writer) (err error) {
	file := filepath.Join(examples, "expected.tsv")
	want, err := load(file, readExpected)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "demo-*")
	if err != nil {
		return fmt.Errorf("make a directory for the grades: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	out := filepath.Join(dir, "grades.jsonl")
	code, err := grade(ctx, checkcell, examples, out, stdout, stderr)
	if err != nil {
		return err
	}
	got, err := load(out, readGrades)
	if err != nil {
		return fmt.Errorf("%s exited with %d: %w", checkcell, code, err)
	}
	differences := compare(got, want)
	for _, d := range differences {
		fmt.Fprintln(stderr, d)
	}
	fmt.Fprintf(stdout, "examples: %d of %d graded as %s says\n", agreeing(got, want), len(want), file)
	if len(differences) > 0 {
		return fmt.Errorf("%d differences from %s", len(differences), file)
	}
	if wantCode := exitCode(want); code != wantCode {
		return fmt.Errorf("%s exited with %d, want %d for these verdicts", checkcell, code, wantCode)
	}
	return nil
}

// grade runs checkcell grade, as root if that can be, and returns its exit code.
func grade(ctx context.Context, checkcell, examples, out string, stdout, stderr io.Writer) (int, error) {
	command := []string{checkcell, "grade", "--out", out, examples}
	if os.Geteuid() != 0 && exec.CommandContext(ctx, "sudo", "-n", "true").Run() == nil {
		command = append([]string{"sudo", "-n"}, command...)
	}
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Exited() {
		return exit.ExitCode(), nil
	}
	if err != nil {
		return 0, fmt.Errorf("run %s: %w", strings.Join(command, " "), err)
	}
	return 0, nil
}

// load opens path and hands it to read.
func load[T any](path string, read func(io.Reader) (T, error)) (T, error) {
	var none T
	f, err := os.Open(path)
	if err != nil {
		return none, fmt.Errorf("load: %w", err)
	}
	got, err := read(f)
	if err := errors.Join(err, f.Close()); err != nil {
		return none, fmt.Errorf("load %s: %w", path, err)
	}
	return got, nil
}
