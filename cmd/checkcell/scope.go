package main

import (
	"context"
	"fmt"
	"os"

	"github.com/checkcell/checkcell/cgroup"
	"github.com/checkcell/checkcell/images/store"
	"github.com/checkcell/checkcell/internal/scope"
	"github.com/checkcell/checkcell/sandbox"
	"github.com/checkcell/checkcell/sandbox/native"
)

// openNative opens the native backend. An ordinary user who can't fill the group
// that this process is in gets it opened once more, in a scope of the user's
// systemd; where that can't be had either, what is missing is missing, and the
// remedy says why.
func (c *cellFlags) openNative(ctx context.Context, kept *store.Store) (*native.Backend, error) {
	cfg := native.Config{CgroupParent: c.cgroupParent, Images: kept}
	b, err := native.Open(cfg)
	if err != nil {
		return nil, err
	}
	mode, missing := b.Groups()
	if !wantsScope(os.Geteuid(), c.cgroupParent, mode, missing) {
		return b, nil
	}
	// Its launcher is in the old group, and would be left there.
	if err := b.Close(); err != nil {
		return nil, err
	}
	if c.scope, err = scope.Enter(ctx, os.Getenv("XDG_RUNTIME_DIR")); err != nil {
		cfg.CgroupFix = fmt.Sprintf("run as root, or below a group that you were given: systemd-run --user --scope -p Delegate=yes -- checkcell …, or --cgroup-parent; none was had by itself: %v", err)
	} else {
		cfg.CgroupFix = scope.DelegateFix(os.Geteuid())
	}
	return native.Open(cfg)
}

// wantsScope reports whether a scope can help: only version 2 hands groups down
// to users, and a parent that was named is what was asked for.
func wantsScope(uid int, parent string, mode cgroup.Mode, missing []sandbox.Control) bool {
	return uid != 0 && parent == "" && mode == cgroup.ModeV2 && len(missing) > 0
}

// sayScope adds to what is said of groups in which scope they are.
func (c *cellFlags) sayScope(caps []sandbox.Capability) []sandbox.Capability {
	for i := range caps {
		if caps[i].Control == sandbox.ControlCgroup && c.scope != "" {
			caps[i].How += ", in " + c.scope + " of your systemd"
		}
	}
	return caps
}
