package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/checkcell/checkcell/internal/report"
	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// Exit codes of design.md, section 5, that belong to no outcome.
const (
	exitOK           = 0
	exitContradicted = 1
	exitUsage        = 2
	exitNotVerified  = 3
	exitCannot       = 4
	exitTimedOut     = 124 // run, as timeout(1)
	exitNotRun       = 125 // run, as container tools
	exitInterrupted  = 130
	exitKilled       = 137
	exitSignal       = 128 // plus the signal
)

// streams are the program's own.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

// exitError is an error that has chosen the exit code. Its err may be nil,
// where all was said already.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

func exit(code int, err error) error {
	if code == exitOK && err == nil {
		return nil
	}
	return &exitError{code, err}
}

// errInterrupted is the cause of a run that a signal withdrew.
var errInterrupted = errors.New("interrupted")

// run is the program: arguments in, exit code out. A first SIGINT or SIGTERM
// cancels ctx, and what runs is then canceled, reported and cleaned up; a
// second one ends the program at once. The cells' inits see our end and end
// their cells then.
func run(ctx context.Context, args []string, s streams) int {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	defer signal.Stop(signals)
	// A reader of ours that goes away must not end us before the cells are gone:
	// while someone is notified, the write fails with EPIPE instead (os/signal).
	broken := make(chan os.Signal, 1)
	signal.Notify(broken, syscall.SIGPIPE)
	defer signal.Stop(broken)

	done := make(chan int, 1)
	go func() { done <- execute(ctx, args, s) }()
	for first := true; ; first = false {
		select {
		case code := <-done:
			return code
		case <-signals:
			if !first {
				fmt.Fprintln(s.err, "checkcell: interrupted again, ending at once; what is left of the groups is swept by the next start")
				return exitInterrupted
			}
			cancel(errInterrupted)
		}
	}
}

func execute(ctx context.Context, args []string, s streams) int {
	slog.SetDefault(slog.New(slog.NewTextHandler(s.err, &slog.HandlerOptions{Level: slog.LevelWarn})))
	root := &cobra.Command{
		Use:           "checkcell",
		Short:         "Run checks that you don't trust, each in a cell of its own, and grade the claims they stand for",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return exit(exitUsage, errors.New("want a command\n"+cmd.UsageString()))
		},
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddCommand(gradeCommand(s), runCommand(s), regradeCommand(s), doctorCommand(s), imageCommand(s), versionCommand(s))
	root.SetArgs(args)
	root.SetIn(s.in)
	root.SetOut(s.out)
	root.SetErr(s.err)
	err := root.ExecuteContext(ctx)
	var chosen *exitError
	switch {
	case err == nil:
		return exitOK
	case !errors.As(err, &chosen):
		chosen = &exitError{exitUsage, fmt.Errorf("%w\nsee checkcell --help", err)}
	}
	if chosen.err != nil {
		fmt.Fprintln(s.err, "checkcell:", report.EscapeStream(chosen.err.Error()))
	}
	return chosen.code
}

// terminal returns the width of w if it is a terminal.
func terminal(w io.Writer) (width int, ok bool) {
	f, isFile := w.(*os.File)
	if !isFile || !term.IsTerminal(int(f.Fd())) {
		return 0, false
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		width = 80
	}
	return width, true
}

// styleOf is how text for people is written to w: in colour only on a terminal
// and not where NO_COLOR is set (no-color.org).
func styleOf(w io.Writer) report.Style {
	width, ok := terminal(w)
	return report.Style{Width: width, Color: ok && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}
