//go:build linux

package oci

import (
	"context"

	"github.com/checkcell/checkcell/sandbox"
)

// Probe runs an empty cell and says what of this host's it found in force.
func (b *Backend) Probe(ctx context.Context) []sandbox.Capability {
	caps, _ := b.cells.Groups.Trial(ctx, b, "run checkcell run --backend oci -- true, which says what "+b.runtime.name+" says", b.cells.Lacks...)
	return caps
}
