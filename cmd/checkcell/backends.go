package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/checkcell/checkcell/internal/report"
	"github.com/checkcell/checkcell/sandbox"
	"github.com/checkcell/checkcell/sandbox/docker"
	"github.com/checkcell/checkcell/sandbox/oci"
)

// choice is a backend as flags name it.
type choice struct{ backend, runtime string }

// others are the backends beside native that a host may have.
var others = []choice{{backendOCI, "runc"}, {backendOCI, "crun"}, {backendOCI, "runsc"}, {backendDocker, ""}}

func (c choice) String() string {
	if c.runtime == "" {
		return "--backend " + c.backend
	}
	return "--backend " + c.backend + " --runtime " + c.runtime
}

// otherBackends says of every backend but the one at hand whether this host has it,
// which version, and what a trial cell of it lacks.
func otherBackends(ctx context.Context, w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "\nOTHER BACKENDS\tVERSION\tWHAT THEY ENFORCE")
	for _, c := range others {
		version, enforces := "-", ""
		b, err := c.open(ctx)
		if err != nil {
			enforces = "can't be had: " + firstLine(err.Error())
		} else {
			version = fmt.Sprint(b)
			enforces = inForce(b.Probe(ctx))
			if err := b.Close(); err != nil {
				enforces += "; " + firstLine(err.Error())
			}
		}
		fmt.Fprintf(t, "%s\t%s\t%s\n", c, report.Escape(version), report.Escape(enforces))
	}
	return t.Flush()
}

func (c choice) open(ctx context.Context) (sandbox.Backend, error) {
	if c.backend == backendDocker {
		return docker.Open(ctx, docker.Config{Runtime: c.runtime})
	}
	return oci.Open(ctx, oci.Config{Runtime: c.runtime})
}

// inForce sums up what a trial cell had.
func inForce(caps []sandbox.Capability) string {
	var missing []string
	for _, c := range caps {
		if c.State == sandbox.CapabilityMissing {
			missing = append(missing, string(c.Control))
		}
	}
	if len(missing) == 0 {
		return "all controls"
	}
	return "all controls but " + strings.Join(missing, ", ")
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}
