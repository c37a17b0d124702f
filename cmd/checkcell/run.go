package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"

	"github.com/checkcell/checkcell/internal/report"
	"github.com/checkcell/checkcell/sandbox"
	"github.com/spf13/cobra"
)

type runFlags struct {
	cell  cellFlags
	json  bool
	raw   bool
	check string
}

func runCommand(s streams) *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run [flags] -- CMD ARG…",
		Short: "Run one command in a cell",
		Long: `Run one command, or with --check the text of a check, in a cell of its own.

Exit code: the command's own; 124 timed out, 137 killed by a limit or by signal 9,
128+n by signal n, 130 canceled by an interrupt, 125 not started, unknown, or the
cell could not be cleaned up.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			// Go's runtime, out of memory or threads, ends the program with 2, which
			// here would be the command's own code. So it is to die of a signal.
			debug.SetTraceback("crash")
			err := f.run(cmd.Context(), s, args)
			var chosen *exitError
			if err != nil && (!errors.As(err, &chosen) || chosen.err != nil) {
				return exit(exitNotRun, err)
			}
			return err
		},
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		return exit(exitNotRun, fmt.Errorf("%w\nsee checkcell run --help", err))
	})
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return exit(exitNotRun, err) })
	f.cell.add(cmd)
	cmd.Flags().BoolVar(&f.json, "json", false, "print one result object on stdout, and nothing else there")
	cmd.Flags().BoolVar(&f.raw, "raw", false, "let control characters of the streams through to a terminal")
	cmd.Flags().SetInterspersed(false) // what follows the command is the command's
	cmd.Flags().StringVar(&f.check, "check", "", "file with the text of a check to run instead of a command; - is standard input")
	return cmd
}

func (f *runFlags) run(ctx context.Context, s streams, args []string) error {
	cell, err := f.cell.read()
	if err != nil {
		return err
	}
	spec := sandbox.Spec{
		ID: "run", Root: cell.image, Args: args, Workspace: cell.workspace, Env: cell.env,
		Limits: cell.limits, AllowMissing: cell.allowMissing,
	}
	if (f.check != "") == (len(args) > 0) {
		return exit(exitUsage, errors.New("want a command after --, or --check FILE"))
	}
	if f.check != "" {
		if spec.Check, err = readCheck(f.check, s.in); err != nil {
			return exit(exitUsage, err)
		}
		if spec.Check == "" && !f.json { // with it the result says so
			return exit(exitUsage, fmt.Errorf("--check %s: the check is empty", f.check))
		}
	}
	backend, err := f.cell.open(ctx, 1, &cell)
	if err != nil {
		return err
	}
	runner := pausing(&sandbox.Runner{Backend: backend, SetupBudget: f.cell.setup})
	live := &passThrough{}
	if !f.json {
		live = newPassThrough(s, f.raw)
		runner.Live = sandbox.Live{Stdout: live.out, Stderr: live.err}
	}
	res := runner.Run(ctx, spec).Last()
	live.close()
	if f.json {
		enc := json.NewEncoder(s.out)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(res); err != nil {
			return errors.Join(fmt.Errorf("write the result: %w", err), backend.Close())
		}
	} else if words := explain(res); words != "" {
		fmt.Fprintln(s.err, "checkcell:", report.EscapeStream(words))
	}
	if err := backend.Close(); err != nil {
		return exit(exitNotRun, err)
	}
	return exit(exitCode(res), nil)
}

func readCheck(name string, stdin io.Reader) (string, error) {
	var b []byte
	var err error
	if name == "-" {
		b, err = io.ReadAll(stdin)
	} else {
		b, err = os.ReadFile(name)
	}
	if err != nil {
		return "", fmt.Errorf("--check: %w", err)
	}
	return string(b), nil
}

// exitCode is the table of design.md, section 5.
func exitCode(r sandbox.Result) int {
	if r.CleanupFailed() {
		return exitNotRun
	}
	o := r.Outcome
	switch o.Kind() {
	case sandbox.KindExited:
		code, _ := o.ExitCode()
		return code
	case sandbox.KindTimedOut:
		return exitTimedOut
	case sandbox.KindLimitExceeded:
		return exitKilled
	case sandbox.KindSignaled:
		signal, _ := o.Signal()
		return exitSignal + signal
	case sandbox.KindCanceled:
		return exitInterrupted
	case sandbox.KindUnknown, sandbox.KindStartFailed:
		return exitNotRun
	}
	return exitNotRun
}

// explain says what a reader of the streams alone would not know; "" if
// nothing is left to say.
func explain(r sandbox.Result) string {
	var words []string
	if r.Outcome.Kind() != sandbox.KindExited {
		words = append(words, r.Outcome.String())
	}
	if n, ok := r.Leftovers.Value(); ok && n > 0 && !r.Killed {
		words = append(words, fmt.Sprintf("killed %s that the command left behind", counted(n, "process", "processes")))
	}
	if n, ok := r.Evidence.Usage.OOMKills.Value(); ok && n > 0 {
		words = append(words, fmt.Sprintf("the kernel killed %s for the memory limit", counted(n, "process", "processes")))
	}
	if n, ok := r.Evidence.Usage.PIDsMaxHits.Value(); ok && n > 0 {
		words = append(words, counted(n, "fork was", "forks were")+" refused for the process limit")
	}
	if r.Cleanup.State != sandbox.CleanupDone {
		words = append(words, fmt.Sprintf("cleanup %s: %s", r.Cleanup.State, cmp.Or(r.Cleanup.Detail, "no reason is known")))
	}
	return strings.Join(words, "\n")
}

func counted(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
