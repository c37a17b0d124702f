//go:build linux

package cellhost

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/checkcell/checkcell/cgroup"
	"github.com/checkcell/checkcell/sandbox"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// Config says where groups are made. Its zero value is the usual one.
type Config struct {
	Parent       string            // see cgroup.Config
	AllowMissing []sandbox.Control // controls that may be missing on this host
	Fix          string            // what to do where groups or controllers are missing, if the caller knows better; "" for the usual words
}

// Groups makes the groups of a backend's cells. Its methods may be called at
// the same time.
type Groups struct {
	cfg   Config
	host  *cgroup.Host  // nil where groups can't be had
	err   error         // why not
	cells atomic.Uint64 // how many were asked for; names their groups
}

// Open finds out what groups can be had and makes a directory for them. Where
// groups, or a controller of them, can't be had, Refuse says so of specs that
// need them.
func Open(cfg Config) *Groups {
	g := &Groups{cfg: cfg}
	var all []cgroup.Controller
	for _, c := range groupControls {
		all = append(all, c.controller)
	}
	g.host, g.err = cgroup.Open(cgroup.Config{Parent: cfg.Parent, AllowMissing: all})
	return g
}

// Close removes the directory.
func (g *Groups) Close() error {
	if g.host == nil {
		return nil
	}
	return g.host.Close()
}

// Sweep kills and removes what crashed supervisors left in groups.
func (g *Groups) Sweep(ctx context.Context) (sandbox.Swept, error) {
	if g.host == nil {
		return sandbox.Swept{}, nil
	}
	swept, err := g.host.Sweep(ctx)
	return sandbox.Swept{Runs: swept.Runs, Processes: swept.Processes}, err
}

// groupControls are the controls that a group enforces, and by what.
var groupControls = []struct {
	control    sandbox.Control
	controller cgroup.Controller
}{
	{sandbox.ControlCgroup, cgroup.Kill},
	{sandbox.ControlMemory, cgroup.Memory},
	{sandbox.ControlPIDs, cgroup.PIDs},
	{sandbox.ControlCPU, cgroup.CPU},
	{sandbox.ControlCPUTime, cgroup.CPUTime},
}

// support says whether a group can do c here, and what to do if it can't.
func (g *Groups) support(c cgroup.Controller) (s cgroup.Support, fix string) {
	fix = cmp.Or(g.cfg.Fix, "run as root, or below a group that you were given: systemd-run --user --scope -p Delegate=yes checkcell …, or --cgroup-parent")
	if g.host != nil {
		return g.host.Controllers()[c], fix
	}
	s.Detail = g.err.Error()
	if missing := (*cgroup.MissingError)(nil); errors.As(g.err, &missing) {
		fix = cmp.Or(g.cfg.Fix, missing.Hint)
		for _, why := range missing.Missing {
			s.Detail = why
		}
		if why, ok := missing.Missing[c]; ok {
			s.Detail = why
		}
	}
	return s, fix
}

// Missing says of what kind this host's groups are, and which of the controls that
// groups enforce can't be had in them.
func (g *Groups) Missing() (mode cgroup.Mode, missing []sandbox.Control) {
	var lack *cgroup.MissingError
	switch {
	case g.host != nil:
		mode = g.host.Mode()
	case errors.As(g.err, &lack):
		mode = lack.Mode
	}
	for _, n := range groupControls {
		if !g.supports(n.controller) {
			missing = append(missing, n.control)
		}
	}
	return mode, missing
}

func (g *Groups) supports(c cgroup.Controller) bool {
	s, _ := g.support(c)
	return s.Available
}

// Probe says of every control that a group enforces whether it can be had here.
func (g *Groups) Probe() []sandbox.Capability {
	var caps []sandbox.Capability
	for _, n := range groupControls {
		s, fix := g.support(n.controller)
		c := sandbox.Capability{Control: n.control, How: s.Detail}
		if s.Available {
			c.State = sandbox.CapabilityInForce
		} else {
			c.Fix = fix
		}
		caps = append(caps, c)
	}
	return caps
}

// Lack is a control that a backend can't enforce, why, and what to do.
type Lack struct {
	Control sandbox.Control
	Why     string
	Fix     string
}

// Refuse fails closed: a control that spec needs and that can't be enforced
// here refuses the run, unless the spec or the configuration allows it to be
// missing. More are those that the backend lacks beside groups. Controls that are
// missing for one reason are named together.
func (g *Groups) Refuse(spec sandbox.Spec, more ...Lack) (missing []sandbox.Control, err error) {
	lacks := more
	for _, n := range groupControls {
		if s, fix := g.support(n.controller); !s.Available {
			lacks = append(lacks, Lack{n.control, s.Detail, fix})
		}
	}
	allowed := append(slices.Clone(g.cfg.AllowMissing), spec.AllowMissing...)
	refused := map[string][]string{}
	var reasons []string
	for _, l := range lacks {
		switch {
		case !spec.Limits.Need(l.Control):
		case slices.Contains(allowed, l.Control):
			missing = append(missing, l.Control)
		default:
			reason := l.Why + "; to fix it: " + l.Fix
			if refused[reason] == nil {
				reasons = append(reasons, reason)
			}
			refused[reason] = append(refused[reason], string(l.Control))
		}
	}
	var errs []error
	for _, reason := range reasons {
		names := refused[reason]
		errs = append(errs, fmt.Errorf("this host can't enforce %s: %s; to run without: --allow-missing=%s",
			strings.Join(names, ", "), reason, strings.Join(names, ",")))
	}
	return missing, errors.Join(errs...)
}

// Create makes the group of a cell with the limits of r whose controller is
// there, and room for own processes that are not the check's. Where groups can't be
// had the Group has none inside.
func (g *Groups) Create(r *specs.LinuxResources, own int64) (*Group, error) {
	if g.host == nil {
		return &Group{groups: g}, nil
	}
	limits := &specs.LinuxResources{}
	if r.Memory != nil && g.supports(cgroup.Memory) {
		limits.Memory = r.Memory
	}
	if r.Pids != nil && g.supports(cgroup.PIDs) {
		limit := *r.Pids.Limit + own
		limits.Pids = &specs.LinuxPids{Limit: &limit}
	}
	if r.CPU != nil && g.supports(cgroup.CPU) {
		limits.CPU = r.CPU
	}
	made, err := g.host.Create(fmt.Sprintf("cell-%d", g.cells.Add(1)), limits)
	if err != nil {
		return nil, err
	}
	return &Group{Group: made, groups: g, own: own}, nil
}
