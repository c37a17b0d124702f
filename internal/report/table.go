package report

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/checkcell/checkcell/grade"
	"github.com/checkcell/checkcell/internal/intake"
)

// Style is how text for people is written.
type Style struct {
	Color bool // verdicts in colour
	Width int  // of the terminal, in columns; 0: lines are as long as they are
}

// Table lists the claims that are not verified. It keeps at most maxRows of them.
type Table struct {
	rows []row
	more int
}

const maxRows = 500

type row struct {
	verdict      grade.Verdict
	id, why      string
	wall, memory string
}

// Add takes a claim into the table, unless it is verified.
func (t *Table) Add(g intake.Graded, duplicateOf *string) {
	if g.Grade.Verdict == grade.Verified {
		return
	}
	if len(t.rows) == maxRows {
		t.more++
		return
	}
	t.rows = append(t.rows, newRow(g, duplicateOf))
}

func newRow(g intake.Graded, duplicateOf *string) row {
	r := row{verdict: g.Grade.Verdict, id: cut(Escape(g.Claim.ID), 40), why: Escape(Why(g))}
	r.wall, r.memory = cost(g)
	if duplicateOf != nil {
		r.why += " (duplicate of " + Escape(*duplicateOf) + ")"
	}
	return r
}

// Write writes the table, headed, and how many rows did not fit.
func (t *Table) Write(w io.Writer, s Style) error {
	if len(t.rows) == 0 {
		return nil
	}
	width := 5
	for _, r := range t.rows {
		width = max(width, utf8.RuneCountInString(r.id))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%-12s  %s  %8s  %9s  %s\n", "VERDICT", pad("CLAIM", width), "TIME", "MEMORY", "WHY")
	for _, r := range t.rows {
		r.write(&b, width, s)
	}
	if t.more > 0 {
		fmt.Fprintf(&b, "and %d more; --out FILE writes them all\n", t.more)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (r row) write(b *strings.Builder, width int, s Style) {
	why := r.why
	const fixed = 12 + 2 + 2 + 8 + 2 + 9 + 2
	if s.Width > fixed+width+20 {
		why = cut(why, s.Width-fixed-width)
	}
	fmt.Fprintf(b, "%s  %s  %8s  %9s  %s\n", s.verdict(r.verdict), pad(r.id, width), r.wall, r.memory, why)
}

// PlainLine is one claim on a line of its own, for output that is no terminal.
func PlainLine(g intake.Graded, duplicateOf *string) string {
	var b strings.Builder
	newRow(g, duplicateOf).write(&b, 24, Style{})
	return strings.TrimRight(b.String(), " \n") + "\n"
}

func pad(s string, width int) string {
	return s + strings.Repeat(" ", max(0, width-utf8.RuneCountInString(s)))
}

// verdict is the word, padded, in its colour.
func (s Style) verdict(v grade.Verdict) string {
	word := pad(v.String(), 12)
	if !s.Color {
		return word
	}
	color := 33 // yellow: it says nothing on the claim
	switch v {
	case grade.Verified:
		color = 32
	case grade.Contradicted:
		color = 31
	case grade.SilentCheck, grade.Unrunnable, grade.Uncheckable:
	}
	return fmt.Sprintf("\x1b[%dm%s\x1b[0m", color, word)
}
