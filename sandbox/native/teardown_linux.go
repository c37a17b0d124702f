package native

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/checkcell/checkcell/sandbox"
	"github.com/checkcell/checkcell/sandbox/cellhost"
)

// CPUTime is what the cell has used. See sandbox.Box.
func (x *box) CPUTime() (time.Duration, error) { return x.group.CPUTime() }

// Kill ends the cell's processes. See sandbox.Box. The init's end is proof by
// itself, since its PID namespace is then empty; with a group there are two.
func (x *box) Kill(ctx context.Context) (sandbox.Reading, error) {
	leftovers := x.group.Leftovers(x.peer.Running(), x.pid)
	return leftovers, errors.Join(x.group.Kill(ctx), signalKill(x.pidfd), waitGone(ctx, x.pidfd))
}

// Collect reads what was used. See sandbox.Box.
func (x *box) Collect() sandbox.Evidence {
	e := sandbox.Evidence{Receipt: x.receipt, SpecDigest: x.digest, ImageDigest: x.image.String()}
	x.group.Collect(&e)
	return e
}

// inForce reads back from the kernel what is in force on the set-up cell.
func (x *box) inForce() (sandbox.Receipt, error) {
	r, err := cellhost.Cell{
		PID: x.pid, Spec: x.req.Spec, Limits: x.limits, Group: x.group, UID: x.req.HostUID, UserNS: true, Opaque: !x.req.Privileged,
	}.Receipt(x.missing)
	if x.req.Landlock > 0 { // the set-up would have failed
		r.Controls[sandbox.ControlLandlock] = fmt.Sprintf("ABI %d, a mount in the cell was refused", x.req.Landlock)
	}
	return r, err
}

// Destroy removes the cell. See sandbox.Box.
func (x *box) Destroy(ctx context.Context) error { return x.undo(ctx) }

// undo removes whatever of the cell there is, taking every step and joining
// what went wrong. It may be called again.
func (x *box) undo(ctx context.Context) error {
	if x.destroyed {
		return nil
	}
	var errs []error
	if x.control != nil {
		x.control.Close()
	}
	if x.group != nil {
		errs = append(errs, x.group.Kill(ctx))
	}
	if x.pidfd != nil {
		if err := errors.Join(signalKill(x.pidfd), waitGone(ctx, x.pidfd)); err != nil {
			errs = append(errs, err)
		} else {
			<-x.peer.Done() // the init's end closed the pipe
		}
	}
	if x.mounts != nil {
		x.mounts.Close() // here the mounts go
		x.mounts = nil
	}
	for _, f := range []*os.File{x.streams[0].stdout, x.streams[0].stderr, x.streams[1].stdout, x.streams[1].stderr} {
		if f != nil {
			f.Close() // closed before, or never used; we only read from it
		}
	}
	if x.group != nil {
		errs = append(errs, x.group.Remove(ctx))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if x.uid != 0 {
		x.backend.uids.Give(x.uid)
	}
	if x.tree != nil {
		x.tree.Close()
	}
	if x.pidfd != nil {
		x.pidfd.Close()
	}
	x.destroyed = true
	return nil
}
