package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/checkcell/checkcell/internal/report"
	"github.com/checkcell/checkcell/sandbox"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func doctorCommand(s streams) *cobra.Command {
	var asJSON, attacks bool
	var f cellFlags
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Say what this host enforces, by trying it",
		Long: `Make a trial cell and say, control by control, whether it is in force here, how it is
enforced, and what to do where it is not. Without --backend, the other backends of this
host are listed too, each with its version and what a trial cell of it lacks.

With --attack, try what hostile checks do in cells such as the other flags describe, and
say of each case whether the cell held, a limit kept it small, or it got through.

Exit code: 0 all controls are in force, 4 at least one is missing. With --attack: 0 nothing
got through, 1 something did, 4 the cells can't be had or at least one case was not tried.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if attacks {
				return attackCells(cmd.Context(), s, &f, asJSON)
			}
			if err := probeOnly(cmd.Flags()); err != nil {
				return err
			}
			if err := f.checkBackend(); err != nil {
				return exit(exitUsage, err)
			}
			b, err := f.open(cmd.Context(), 1, &cell{})
			if err != nil {
				return err
			}
			defer b.Close() // nothing of ours is left to lose
			caps := f.sayScope(b.Probe(cmd.Context()))
			if ctx := cmd.Context(); ctx.Err() != nil {
				return exit(exitInterrupted, context.Cause(ctx))
			}
			if asJSON {
				err = doctorJSON(s, caps)
			} else {
				err = doctorTable(s, caps)
				if err == nil && !cmd.Flags().Changed("backend") {
					err = otherBackends(cmd.Context(), s.out)
				}
			}
			if err != nil {
				return exit(exitUsage, err)
			}
			if pattern, err := os.ReadFile("/proc/sys/kernel/core_pattern"); err == nil && pattern[0] == '|' {
				fmt.Fprintf(s.err, "checkcell: warning: this host pipes core dumps to a program (%s): it runs outside of cells when a check crashes\n",
					report.Escape(strings.TrimSpace(string(pattern))))
			}
			for _, c := range caps {
				if c.State == sandbox.CapabilityMissing {
					return exit(exitCannot, nil)
				}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&attacks, "attack", false, "try hostile checks; it takes a minute or two")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object a control, or a case and one for all")
	f.add(cmd)
	return cmd
}

// probeOnly refuses the flags that say nothing to a trial cell.
func probeOnly(flags *pflag.FlagSet) error {
	var errs []error
	flags.Visit(func(f *pflag.Flag) {
		switch f.Name {
		case "json", "attack", "cgroup-parent", "backend", "runtime":
		default:
			errs = append(errs, fmt.Errorf("--%s is for --attack", f.Name))
		}
	})
	if err := errors.Join(errs...); err != nil {
		return exit(exitUsage, err)
	}
	return nil
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
