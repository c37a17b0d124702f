package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/checkcell/checkcell/internal/report"
	"github.com/checkcell/checkcell/sandbox"
	"github.com/spf13/cobra"
)

func doctorCommand(s streams) *cobra.Command {
	var asJSON bool
	var f cellFlags
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Say what this host enforces, by trying it",
		Long: `Make a trial cell and say, control by control, whether it is in force here, how it is
enforced, and what to do where it is not.

Exit code: 0 all controls are in force, 4 at least one is missing.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b, err := f.open(cmd.Context())
			if err != nil {
				return err
			}
			defer b.Close() // nothing of ours is left to lose
			caps := b.Probe(cmd.Context())
			if ctx := cmd.Context(); ctx.Err() != nil {
				return exit(exitInterrupted, context.Cause(ctx))
			}
			if asJSON {
				err = doctorJSON(s, caps)
			} else {
				err = doctorTable(s, caps)
			}
			if err != nil {
				return exit(exitUsage, err)
			}
			if pattern, err := os.ReadFile("/proc/sys/kernel/core_pattern"); err == nil && pattern[0] == '|' {
				fmt.Fprintf(s.err, "checkcell: warning: this host pipes core dumps to a program (%s): it runs outside of cells when a check crashes\n",
					report.Escape(strings.TrimSpace(string(pattern))))
			}
			for _, c := range caps {
				if c.State != sandbox.CapabilityInForce {
					return exit(exitCannot, nil)
				}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object a control")
	cmd.Flags().StringVar(&f.cgroupParent, "cgroup-parent", "", "existing cgroup to make ours below, as in /proc/self/cgroup")
	return cmd
}

func doctorTable(s streams, caps []sandbox.Capability) error {
	w := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "CONTROL\tSTATE\tHOW IT IS ENFORCED\tWHAT TO DO")
	for _, c := range caps {
		fix := c.Fix
		if c.State == sandbox.CapabilityInForce {
			fix = "-"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", c.Control, c.State, report.Escape(c.How), report.Escape(fix))
	}
	return w.Flush()
}

func doctorJSON(s streams, caps []sandbox.Capability) error {
	enc := json.NewEncoder(s.out)
	for _, c := range caps {
		line := struct {
			Control sandbox.Control `json:"control"`
			State   string          `json:"state"`
			How     string          `json:"how"`
			Fix     string          `json:"fix"`
		}{c.Control, c.State.String(), c.How, c.Fix}
		if err := enc.Encode(line); err != nil {
			return err
		}
	}
	return nil
}
