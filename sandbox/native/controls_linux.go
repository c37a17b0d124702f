package native

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/checkcell/checkcell/cgroup"
	"github.com/checkcell/checkcell/sandbox"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// initProcesses is how many processes the cell's init is: they are added to
// the process limit and taken off the peak, so that both speak of the check.
const initProcesses = 1

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
func (b *Backend) support(c cgroup.Controller) (s cgroup.Support, fix string) {
	fix = cmp.Or(b.cfg.CgroupFix, "run as root, or below a group that you were given: systemd-run --user --scope -p Delegate=yes checkcell …, or --cgroup-parent")
	if b.cgroups != nil {
		return b.cgroups.Controllers()[c], fix
	}
	s.Detail = b.cgroupErr.Error()
	if missing := (*cgroup.MissingError)(nil); errors.As(b.cgroupErr, &missing) {
		fix = cmp.Or(b.cfg.CgroupFix, missing.Hint)
		for _, why := range missing.Missing {
			s.Detail = why
		}
		if why, ok := missing.Missing[c]; ok {
			s.Detail = why
		}
	}
	return s, fix
}

// Groups says of what kind this host's groups are, and which of the controls that
// groups enforce can't be had in them.
func (b *Backend) Groups() (mode cgroup.Mode, missing []sandbox.Control) {
	var lack *cgroup.MissingError
	switch {
	case b.cgroups != nil:
		mode = b.cgroups.Mode()
	case errors.As(b.cgroupErr, &lack):
		mode = lack.Mode
	}
	for _, n := range groupControls {
		if !b.supports(n.controller) {
			missing = append(missing, n.control)
		}
	}
	return mode, missing
}

func (b *Backend) supports(c cgroup.Controller) bool {
	s, _ := b.support(c)
	return s.Available
}

// refuse fails closed: a control that spec needs and that can't be enforced
// here refuses the run, unless the spec or the backend allows it to be missing.
// Controls that are missing for one reason are named together.
func (b *Backend) refuse(spec sandbox.Spec) (missing []sandbox.Control, err error) {
	allowed := append(slices.Clone(b.cfg.AllowMissing), spec.AllowMissing...)
	refused := map[string][]string{}
	var reasons []string
	for _, n := range groupControls {
		s, fix := b.support(n.controller)
		switch {
		case s.Available || !spec.Limits.Need(n.control):
		case slices.Contains(allowed, n.control):
			missing = append(missing, n.control)
		default:
			reason := s.Detail + "; to fix it: " + fix
			if refused[reason] == nil {
				reasons = append(reasons, reason)
			}
			refused[reason] = append(refused[reason], string(n.control))
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

// groupResources are the limits of the cell's group: those of the description
// whose controller is there, with room for the init.
func (b *Backend) groupResources(r *specs.LinuxResources) *specs.LinuxResources {
	own := &specs.LinuxResources{}
	if r.Memory != nil && b.supports(cgroup.Memory) {
		own.Memory = r.Memory
	}
	if r.Pids != nil && b.supports(cgroup.PIDs) {
		limit := *r.Pids.Limit + initProcesses
		own.Pids = &specs.LinuxPids{Limit: &limit}
	}
	if r.CPU != nil && b.supports(cgroup.CPU) {
		own.CPU = r.CPU
	}
	return own
}

// Probe runs an empty cell and says what of this host's it found in force.
func (b *Backend) Probe(ctx context.Context) []sandbox.Capability {
	var caps []sandbox.Capability
	for _, n := range groupControls {
		s, fix := b.support(n.controller)
		c := sandbox.Capability{Control: n.control, How: s.Detail}
		if s.Available {
			c.State = sandbox.CapabilityInForce
		} else {
			c.Fix = fix
		}
		caps = append(caps, c)
	}
	spec := sandbox.Spec{ID: "probe", Args: []string{"true"}, Limits: sandbox.DefaultLimits()}
	spec.AllowMissing = []sandbox.Control{sandbox.ControlCgroup, sandbox.ControlMemory, sandbox.ControlPIDs, sandbox.ControlCPU, sandbox.ControlCPUTime}
	own := []sandbox.Control{
		sandbox.ControlUser, sandbox.ControlRoot, sandbox.ControlPIDNS, sandbox.ControlNetwork, sandbox.ControlIPCNS, sandbox.ControlUTSNS,
		sandbox.ControlCgroupNS, sandbox.ControlDisk, sandbox.ControlNoFile, sandbox.ControlCaps, sandbox.ControlNoPrivs, sandbox.ControlSeccomp,
	}
	seen := &witness{Backend: b}
	res := (&sandbox.Runner{Backend: seen}).Run(ctx, spec).Last()
	for _, control := range own {
		c := sandbox.Capability{Control: control, How: res.Evidence.Receipt.Controls[control]}
		if res.Success() && c.How != "" {
			c.State = sandbox.CapabilityInForce
		} else {
			c.How = strings.TrimSpace("a trial cell ended " + res.Outcome.String() + " " + res.Cleanup.Detail)
			c.Fix = seen.fix()
		}
		caps = append(caps, c)
	}
	return append(caps, b.probeLandlock(res))
}

// probeLandlock says whether the trial cell was in a Landlock domain. Cells are
// sound without, on kernels that lack it.
func (b *Backend) probeLandlock(trial sandbox.Result) sandbox.Capability {
	c := sandbox.Capability{Control: sandbox.ControlLandlock, How: trial.Evidence.Receipt.Controls[sandbox.ControlLandlock]}
	switch {
	case c.How != "":
		c.State = sandbox.CapabilityInForce
	case b.landlock == 0:
		c.State = sandbox.CapabilityAbsent
		c.How = "this kernel has no Landlock of version 2 or later; it would be a second wall"
		c.Fix = "Linux 5.19 or later, with landlock in its list of security modules (lsm= at boot)"
	default:
		c.How = "no trial cell came up"
	}
	return c
}

// witness is a Backend that keeps what Create came to, for its one caller.
type witness struct {
	*Backend
	err error
}

// Create is that of the Backend, whatever our own limits are: that they leave no
// room for what a spec asks for (Fits) says nothing of what this host enforces.
func (w *witness) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Box, error) {
	var ours unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &ours); err == nil && ours.Max < uint64(spec.Limits.OpenFiles) {
		spec.Limits.OpenFiles = int64(ours.Max)
	}
	var box sandbox.Box
	box, w.err = w.create(ctx, spec)
	return box, w.err
}

// fix is what to do where a trial cell did not come to its end.
func (w *witness) fix() string {
	const namespaces = "this kernel must let this user make namespaces: as root, or with kernel.unprivileged_userns_clone=1, user.max_user_namespaces above 0, and no AppArmor restriction of user namespaces"
	switch {
	case w.err == nil:
		return "remove that reason; the cell itself could be made"
	case remedy(w.err) != "":
		return remedy(w.err)
	}
	return namespaces
}
