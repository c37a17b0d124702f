package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"

	"github.com/checkcell/checkcell/internal/attack"
	"github.com/checkcell/checkcell/internal/report"
	"github.com/checkcell/checkcell/sandbox"
)

// attackCells is doctor --attack.
func attackCells(ctx context.Context, s streams, f *cellFlags, asJSON bool) error {
	cell, err := f.read()
	if err != nil {
		return err
	}
	if cell.workspace != "" {
		return exit(exitUsage, errors.New("--workspace: the attacks bring their own"))
	}
	cases, err := attack.Corpus()
	if err != nil {
		return exit(exitUsage, err)
	}
	backend, err := f.open(ctx, 1, &cell)
	if err != nil {
		return err
	}
	defer backend.Close() // every cell is gone, and was seen to be
	if err := enforced(ctx, backend, cell); err != nil {
		return err
	}
	bait, err := attack.LayBait()
	if err != nil {
		return exit(exitCannot, err)
	}
	a := attack.Attacker{
		Runner: &sandbox.Runner{Backend: backend, SetupBudget: f.setup},
		Spec:   sandbox.Spec{Root: cell.image, Env: cell.env, Limits: cell.limits, AllowMissing: cell.allowMissing},
		Bait:   bait,
	}
	counts, err := attackLines(s, a.All(ctx, cases), asJSON)
	if err := errors.Join(err, bait.Close()); err != nil {
		return exit(exitUsage, err)
	}
	if ctx.Err() != nil {
		return exit(exitInterrupted, context.Cause(ctx))
	}
	return exit(counts.code(), nil)
}

// attackCounts is how many cases came to what.
type attackCounts struct {
	Held       int `json:"held"`
	Limited    int `json:"limited"`
	GotThrough int `json:"got_through"`
	NotTried   int `json:"not_tried"`
}

func (c *attackCounts) add(s attack.Standing) {
	switch s {
	case attack.Held:
		c.Held++
	case attack.Limited:
		c.Limited++
	case attack.GotThrough:
		c.GotThrough++
	case attack.NotTried:
		c.NotTried++
	}
}

// code is the exit code: what was not tried proves nothing.
func (c attackCounts) code() int {
	switch {
	case c.GotThrough > 0:
		return exitContradicted
	case c.NotTried > 0 || c.Held+c.Limited == 0:
		return exitCannot
	}
	return exitOK
}

// attackLines prints each finding as it comes, and a summary.
func attackLines(s streams, findings iter.Seq[attack.Finding], asJSON bool) (attackCounts, error) {
	var counts attackCounts
	enc := json.NewEncoder(s.out)
	for f := range findings {
		counts.add(f.Standing)
		var err error
		if asJSON {
			err = enc.Encode(struct {
				Name     string `json:"name"`
				Family   string `json:"family"`
				Standing string `json:"standing"`
				Detail   string `json:"detail"`
			}{f.Case.Name, f.Case.Family, f.Standing.String(), f.Detail})
		} else {
			_, err = fmt.Fprintln(s.out, attackLine(f))
		}
		if err != nil {
			return counts, err
		}
	}
	if asJSON {
		return counts, enc.Encode(struct {
			Summary attackCounts `json:"summary"`
		}{counts})
	}
	_, err := fmt.Fprintf(s.out, "%s: %d held, %d limited, %d got through, %d not tried\n",
		counted(int64(counts.Held+counts.Limited+counts.GotThrough+counts.NotTried), "attack", "attacks"),
		counts.Held, counts.Limited, counts.GotThrough, counts.NotTried)
	return counts, err
}

// attackLine is a finding for people. What a check printed may be in its detail.
func attackLine(f attack.Finding) string {
	line := fmt.Sprintf("%-11s  %-14s  %s", f.Standing, f.Case.Family, f.Case.Name)
	if f.Detail != "" {
		line += "  (" + report.Escape(f.Detail) + ")"
	}
	return line
}
