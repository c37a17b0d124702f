package native

import (
	"context"

	"github.com/checkcell/checkcell/cgroup"
	"github.com/checkcell/checkcell/sandbox"
	"golang.org/x/sys/unix"
)

// initProcesses is how many processes the cell's init is: they are added to
// the process limit and taken off the peak, so that both speak of the check.
const initProcesses = 1

// Groups says of what kind this host's groups are, and which of the controls that
// groups enforce can't be had in them.
func (b *Backend) Groups() (mode cgroup.Mode, missing []sandbox.Control) { return b.groups.Missing() }

// Probe runs an empty cell and says what of this host's it found in force.
func (b *Backend) Probe(ctx context.Context) []sandbox.Capability {
	const namespaces = "this kernel must let this user make namespaces: as root, or with kernel.unprivileged_userns_clone=1, user.max_user_namespaces above 0, and no AppArmor restriction of user namespaces"
	caps, trial := b.groups.Trial(ctx, unbounded{b}, namespaces)
	return append(caps, b.probeLandlock(trial))
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

// unbounded is a Backend that makes cells whatever our own limits are: that they
// leave no room for what a spec asks for (cellhost.Fits) says nothing of what this host
// enforces.
type unbounded struct{ *Backend }

// Create makes a cell. See sandbox.Backend.
func (u unbounded) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Box, error) {
	var ours unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &ours); err == nil && ours.Max < uint64(spec.Limits.OpenFiles) {
		spec.Limits.OpenFiles = int64(ours.Max)
	}
	return u.create(ctx, spec)
}
