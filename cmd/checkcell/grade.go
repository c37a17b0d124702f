package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"

	"github.com/checkcell/checkcell/grade"
	"github.com/checkcell/checkcell/internal/claims"
	"github.com/checkcell/checkcell/internal/intake"
	"github.com/checkcell/checkcell/internal/report"
	"github.com/checkcell/checkcell/sandbox"
	"github.com/spf13/cobra"
)

// maxJobs is far above what one machine can run at once, and far below what
// would take its memory for bookkeeping.
const maxJobs = 4096

type gradeFlags struct {
	cell cellFlags
	json bool
	out  string
	jobs int
}

func gradeCommand(s streams) *cobra.Command {
	var f gradeFlags
	cmd := &cobra.Command{
		Use:   "grade [flags] CLAIMS…",
		Short: "Run the checks of claims and grade the claims",
		Long: `Run the check of each claim in a cell of its own and say which claims hold.

CLAIMS are files or directories: JSON Lines, a JSON array, YAML, Markdown pages with
frontmatter; - is standard input. The limits are also the most that a claim can ask for.

Exit code: 0 every claim verified, 1 at least one contradicted, 3 none contradicted but
not all verified, 2 usage or a file that can't be read as claims, 4 this host can't
enforce what was asked, 130 interrupted.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd.Context(), s, args) },
	}
	f.cell.add(cmd)
	cmd.Flags().BoolVar(&f.json, "json", false, "print grade lines on stdout, and nothing else there")
	cmd.Flags().StringVar(&f.out, "out", "", "file to write the grade lines to")
	cmd.Flags().IntVar(&f.jobs, "jobs", runtime.NumCPU(), "how many checks run at once")
	return cmd
}

// run takes the claims in two passes: one that reads them all, so that every
// problem is found before anything runs, and one that runs them.
func (f *gradeFlags) run(ctx context.Context, s streams, paths []string) error {
	cell, err := f.cell.read()
	if err != nil {
		return err
	}
	if f.jobs < 1 || f.jobs > maxJobs {
		return exit(exitUsage, fmt.Errorf("--jobs %d: want 1 to %d", f.jobs, maxJobs))
	}
	sources, err := claims.Open(paths, s.in)
	if err != nil {
		return exit(exitUsage, err)
	}
	defer claims.Close(sources) // only read from
	batch, total, err := readAll(ctx, sources)
	if err != nil {
		return err
	}
	if err := errors.Join(f.keepSources(sources), f.canWrite()); err != nil {
		return exit(exitUsage, err)
	}
	backend, err := f.cell.open(ctx, f.jobs, &cell)
	if err != nil {
		return err
	}
	path := intake.Path{
		Runner: pausing(&sandbox.Runner{Backend: backend, SetupBudget: f.cell.setup}), Limits: cell.limits, Image: cell.image, Workspace: cell.workspace,
		Env: cell.env, AllowMissing: cell.allowMissing, Jobs: f.jobs,
	}
	err = enforced(ctx, backend, cell)
	if err == nil {
		err = f.gradeAll(ctx, s, path, sources, batch, total)
	}
	if closeErr := backend.Close(); closeErr != nil {
		fmt.Fprintln(s.err, "checkcell:", report.EscapeStream(closeErr.Error()))
		if err == nil {
			err = exit(exitUsage, nil)
		}
	}
	return err
}

// readAll is the first pass.
func readAll(ctx context.Context, sources []claims.Source) (*grade.Batch, int, error) {
	const most = 50
	batch := &grade.Batch{}
	var errs []error
	total, bad := 0, 0
	for c, err := range claims.Read(ctx, sources) {
		if ctx.Err() != nil {
			return nil, 0, exit(exitInterrupted, context.Cause(ctx))
		}
		if err != nil {
			if bad++; bad <= most {
				errs = append(errs, err)
			}
			continue
		}
		total++
		batch.Add(c.ID, c.Title, c.Evidence)
	}
	if bad > most {
		errs = append(errs, fmt.Errorf("and %d problems more", bad-most))
	}
	if bad > 0 {
		errs = append(errs, errors.New("nothing was run"))
		return nil, 0, exit(exitUsage, errors.Join(errs...))
	}
	if total == 0 {
		return nil, 0, exit(exitUsage, errors.New("there are no claims in what was given"))
	}
	return batch, total, nil
}

// keepSources refuses an --out that would empty a file of claims before the
// second pass.
func (f *gradeFlags) keepSources(sources []claims.Source) error {
	if f.out == "" {
		return nil
	}
	for _, name := range []string{f.out, f.out + settledSuffix} {
		out, err := os.Stat(name)
		if err != nil {
			continue // nothing is there yet; os.Create says what else is wrong
		}
		for _, s := range sources {
			if info, err := os.Stat(s.Name()); err == nil && os.SameFile(out, info) {
				return fmt.Errorf("--out %s: it is a file of claims", name)
			}
		}
	}
	return nil
}

// canWrite finds out before anything runs whether --out can be written, and
// leaves what is in the file: it may be that nothing runs.
func (f *gradeFlags) canWrite() error {
	if f.out == "" {
		return nil
	}
	file, err := os.OpenFile(f.out, os.O_WRONLY|os.O_CREATE, 0o666)
	if err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	return file.Close()
}

// outputs are where grade lines go.
type outputs struct {
	writers []io.Writer
	file    *os.File
	settled *report.Settled // nil where there is no file that a crash could leave short
}

// settledSuffix, behind the name of --out, is where results are until their grade
// lines are in that file: after a crash of ours, regrade reads them there.
const settledSuffix = ".settled"

func (f *gradeFlags) outputs(s streams) (*outputs, error) {
	o := &outputs{}
	if f.json {
		o.writers = append(o.writers, s.out)
	}
	if f.out != "" {
		file, err := os.Create(f.out)
		if err != nil {
			return nil, fmt.Errorf("--out: %w", err)
		}
		o.file = file
		o.writers = append(o.writers, file)
		if info, err := file.Stat(); err == nil && info.Mode().IsRegular() {
			var old bool
			if o.settled, old, err = report.KeepSettled(f.out + settledSuffix); err != nil {
				return nil, errors.Join(fmt.Errorf("--out: %w", err), file.Close())
			}
			if old {
				slog.Warn("replaced what a crashed grade had settled", "file", f.out+settledSuffix)
			}
		}
	}
	return o, nil
}

// close ends the file, and keeps what was settled unless all of it is there.
func (o *outputs) close(failed error) error {
	if o.file != nil {
		failed = errors.Join(failed, o.file.Close())
	}
	if o.settled == nil {
		return failed
	}
	if failed == nil {
		return o.settled.Done()
	}
	path, err := o.settled.Keep()
	return errors.Join(failed, err, fmt.Errorf("results that were settled, written or not, are in %s, for regrade", path))
}

// gradeAll is the second pass.
func (f *gradeFlags) gradeAll(ctx context.Context, s streams, path intake.Path, sources []claims.Source, batch *grade.Batch, total int) error {
	out, err := f.outputs(s)
	if err != nil {
		return exit(exitUsage, err)
	}
	w := &gradeWriter{batch: batch, style: styleOf(s.out)}
	for _, to := range out.writers {
		w.lines = append(w.lines, report.NewLines(to, batch))
	}
	if _, ok := terminal(s.err); ok {
		w.progress = report.NewProgress(s.err, total, f.jobs)
	}
	_, onTerminal := terminal(s.out)
	if !f.json && !onTerminal {
		w.plain = bufio.NewWriter(s.out)
	}
	if out.settled != nil {
		path.Settled = out.settled.Add
	}
	var failed error
	for g, err := range path.All(ctx, claims.Read(ctx, sources)) {
		if errors.Is(err, intake.ErrNotRun) {
			w.summary.NotRun = true
			break
		}
		if err == nil {
			err = w.add(g)
		}
		if err != nil {
			failed = err
			break
		}
	}
	w.progress.Close()
	if n := w.summary.Total; failed == nil && ctx.Err() == nil && n != total {
		failed = fmt.Errorf("%d claims were read first, but %d then: a file of claims was changed", total, n)
	}
	failed = out.close(errors.Join(failed, w.close()))
	human := s.out
	if f.json {
		human = s.err
	}
	if err := w.conclude(human, onTerminal && !f.json); err != nil && failed == nil {
		failed = fmt.Errorf("write the summary: %w", err)
	}
	if failed != nil {
		return exit(exitUsage, failed)
	}
	if ctx.Err() != nil {
		return exit(exitInterrupted, nil)
	}
	return exit(w.summary.exitCode(), nil)
}
