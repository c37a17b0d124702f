//go:build linux

package cellhost

import (
	"context"
	"slices"
	"strings"

	"github.com/checkcell/checkcell/sandbox"
	"github.com/checkcell/checkcell/sandbox/cellinit"
)

// walls are the controls that the cell enforces, not its group.
var walls = []sandbox.Control{
	sandbox.ControlUser, sandbox.ControlRoot, sandbox.ControlPIDNS, sandbox.ControlNetwork, sandbox.ControlIPCNS, sandbox.ControlUTSNS,
	sandbox.ControlCgroupNS, sandbox.ControlDisk, sandbox.ControlNoFile, sandbox.ControlCaps, sandbox.ControlNoPrivs, sandbox.ControlSeccomp,
}

// Trial runs an empty cell on b and says of every control that cells need whether
// it was in force there, or can be had in groups. Where no cell came up, fix
// is what to do, unless the error itself tells. The result is the trial's.
// Lacks are those that the backend can't enforce anywhere.
func (g *Groups) Trial(ctx context.Context, b sandbox.Backend, fix string, lacks ...Lack) ([]sandbox.Capability, sandbox.Result) {
	caps := g.Probe()
	spec := sandbox.Spec{ID: "probe", Args: []string{"true"}, Limits: sandbox.DefaultLimits()}
	for _, n := range groupControls {
		spec.AllowMissing = append(spec.AllowMissing, n.control)
	}
	for _, l := range lacks {
		spec.AllowMissing = append(spec.AllowMissing, l.Control)
	}
	seen := &witness{Backend: b}
	res := (&sandbox.Runner{Backend: seen}).Run(ctx, spec).Last()
	// A cell that could be made was read back, whether its root has such a program or not.
	stood := res.Success() || seen.err == nil && res.Outcome.Kind() == sandbox.KindStartFailed && res.Cleanup.State == sandbox.CleanupDone
	for _, control := range walls {
		c := sandbox.Capability{Control: control, How: res.Evidence.Receipt.Controls[control]}
		switch {
		case stood && c.How != "":
			c.State = sandbox.CapabilityInForce
		case stood:
			c.How, c.Fix = "no trial cell had it", fix
		default:
			c.How = strings.TrimSpace("a trial cell ended " + res.Outcome.String() + " " + res.Cleanup.Detail)
			c.Fix = seen.fix(fix)
		}
		caps = append(caps, c)
	}
	for i, c := range caps {
		if at := slices.IndexFunc(lacks, func(l Lack) bool { return l.Control == c.Control }); at >= 0 {
			caps[i] = sandbox.Capability{Control: c.Control, How: lacks[at].Why, Fix: lacks[at].Fix}
		}
	}
	return caps, res
}

// witness is a Backend that keeps what Create came to, for its one caller.
type witness struct {
	sandbox.Backend
	err error
}

// Create is that of the Backend.
func (w *witness) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Box, error) {
	var box sandbox.Box
	box, w.err = w.Backend.Create(ctx, spec)
	return box, w.err
}

// fix is what to do where a trial cell did not come to its end.
func (w *witness) fix(otherwise string) string {
	switch {
	case w.err == nil:
		return "remove that reason; the cell itself could be made"
	case cellinit.Remedy(w.err) != "":
		return cellinit.Remedy(w.err)
	}
	return otherwise
}
