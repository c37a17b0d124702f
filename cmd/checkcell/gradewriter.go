package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"

	"github.com/checkcell/checkcell/grade"
	"github.com/checkcell/checkcell/internal/intake"
	"github.com/checkcell/checkcell/internal/report"
)

// gradeWriter writes graded claims as they come, in order, wherever they are
// wanted.
type gradeWriter struct {
	batch    *grade.Batch
	style    report.Style
	lines    []*report.Lines
	plain    *bufio.Writer // a line a claim; nil where that is not wanted
	progress *report.Progress
	table    report.Table
	summary  counts
}

func (w *gradeWriter) add(g intake.Graded) error {
	var duplicateOf *string
	if of, ok := w.batch.Duplicate(g.Claim.ID, g.Claim.Title, g.Claim.Evidence, g.Grade.Verdict); ok {
		duplicateOf = &of
	}
	w.summary.Add(g, duplicateOf != nil)
	w.table.Add(g, duplicateOf)
	w.progress.Add(g)
	var errs []error
	for _, l := range w.lines {
		errs = append(errs, l.Add(g, duplicateOf))
	}
	if w.plain != nil {
		_, err := w.plain.WriteString(report.PlainLine(g, duplicateOf))
		errs = append(errs, err, w.plain.Flush())
	}
	return errors.Join(errs...)
}

func (w *gradeWriter) close() error {
	var errs []error
	for _, l := range w.lines {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}

// conclude writes the table, where there was no line a claim, and the summary.
func (w *gradeWriter) conclude(out io.Writer, table bool) error {
	w.summary.SharedClaims, w.summary.SharedChecks = w.batch.SharedTotals()
	if table {
		if err := w.table.Write(out, w.style); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintln(out, w.summary)
	return err
}

// counts is the summary, with the exit code that it comes to.
type counts struct{ report.Summary }

func (c counts) exitCode() int {
	switch {
	case c.Counts[grade.Contradicted] > 0:
		return exitContradicted
	case c.Counts[grade.Verified] < c.Total || c.Total == 0:
		return exitNotVerified
	}
	return exitOK
}
