// Command testrun runs a command that tests, such as go test, and then says
// which tests were skipped and what they left behind on the machine.
//
//	go run ./internal/host/testrun go test -count=1 ./...
//
// It exits as the command did, but with 1 if that passed and left something.
// Only freshly run tests tell of their skips, hence -count=1.
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
	"slices"
	"strings"
	"syscall"

	"github.com/checkcell/checkcell/internal/host"
)

func main() { os.Exit(run(context.Background(), host.LookInTurn, os.Args[1:], os.Stdout, os.Stderr)) }

// looker takes stock of the machine.
type looker func() (host.Traces, error)

// run returns the status to exit with.
func run(ctx context.Context, look looker, command []string, stdout, stderr io.Writer) int {
	if len(command) == 0 {
		fmt.Fprintln(stderr, "usage: testrun COMMAND ARG…")
		return 2
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	code, err := watch(ctx, look, command, stdout, stderr)
	if err != nil {
		fmt.Fprintf(stderr, "testrun: %v\n", err)
		if code == 0 {
			code = 1
		}
	}
	return code
}

// watch runs command between two looks at the machine, and reports on stdout.
// The error says what was left behind, or why that isn't known.
func watch(ctx context.Context, look looker, command []string, stdout, stderr io.Writer) (code int, err error) {
	if err := host.AdoptOrphans(); err != nil {
		return 1, err
	}
	dir, err := os.MkdirTemp("", "testrun-*")
	if err != nil {
		return 1, fmt.Errorf("make a directory for the skip log: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	before, err := look()
	if err != nil {
		return 1, fmt.Errorf("look before the tests: %w", err)
	}
	log := filepath.Join(dir, "skips")
	code, err = execute(ctx, command, log, stdout, stderr)
	if err != nil {
		return 1, err
	}
	if err := reportSkips(log, stdout); err != nil {
		return code, err
	}
	after, err := look()
	if err != nil {
		return code, fmt.Errorf("look after the tests: %w", err)
	}
	after.Processes = slices.DeleteFunc(after.Processes, isGoCommand)
	if err := after.Since(before); err != nil {
		return code, err
	}
	fmt.Fprintln(stdout, "nothing was left behind")
	return code, nil
}

// isGoCommand knows the go command in a description of a process: about once a
// day it leaves a child that tidies its own telemetry and soon ends.
func isGoCommand(process string) bool { return strings.Contains(process, " go started ") }

// execute runs command, which notes skips in log, and returns its exit code.
// When ctx ends it interrupts the command and waits for it.
func execute(ctx context.Context, command []string, log string, stdout, stderr io.Writer) (int, error) {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Env = append(os.Environ(), host.SkipLogVar+"="+log)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Exited() {
		return exit.ExitCode(), nil
	}
	if err != nil {
		return 1, fmt.Errorf("run %s: %w", command[0], err)
	}
	return 0, nil
}

// reportSkips prints what the file called log says, if it is there.
func reportSkips(log string, stdout io.Writer) error {
	text, err := os.ReadFile(log)
	if errors.Is(err, os.ErrNotExist) {
		fmt.Fprintln(stdout, "nothing was skipped")
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the skip log: %w", err)
	}
	lines := slices.Sorted(strings.Lines(string(text)))
	fmt.Fprintf(stdout, "skipped, %d in all:\n", len(lines))
	for _, line := range lines {
		fmt.Fprintf(stdout, "  %s", line)
	}
	return nil
}
