package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"

	"github.com/checkcell/checkcell/internal/recorded"
	"github.com/spf13/cobra"
)

func regradeCommand(s streams) *cobra.Command {
	return &cobra.Command{
		Use:   "regrade RECORDED.jsonl",
		Short: "Grade recorded executions without running anything",
		Long: `Read lines {"name"?, "id"?, "title"?, "evidence": {rung, check, expect}, "execution": null |
{exit_code, stdout, stderr, timed_out, aborted, truncated} | a checkcell.result/v1 object} and
print one line each: name, id, verdict, note_kind, note, duplicate_of, shared_check.
A line {"claims": [such objects]} is a batch of its own. - is standard input.

Exit code: as grade.`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return regrade(s, args[0]) },
	}
}

func regrade(s streams, name string) error {
	in := s.in
	if name == "-" {
		name = "standard input"
	} else {
		f, err := os.Open(name)
		if err != nil {
			return exit(exitUsage, err)
		}
		defer f.Close() // only read from
		in = f
	}
	lines, err := recorded.Regrade(in, name)
	if err != nil {
		return exit(exitUsage, fmt.Errorf("%w\nnothing was graded", err))
	}
	w := bufio.NewWriter(s.out)
	if err := writeRegraded(w, lines); err != nil {
		return exit(exitUsage, fmt.Errorf("write results: %w", err))
	}
	var c counts
	for _, l := range lines {
		c.Count(l.Verdict)
	}
	return exit(c.exitCode(), nil)
}

func writeRegraded(w *bufio.Writer, lines []recorded.Regraded) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	for _, l := range lines {
		if err := enc.Encode(l); err != nil {
			return err
		}
	}
	return w.Flush()
}
