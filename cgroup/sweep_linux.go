package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
)

// Swept counts what [Host.Sweep] removed.
type Swept struct {
	Runs      int // groups
	Processes int // members that were alive, seen from our PID namespace, and were killed
}

// Sweep kills and removes the groups of owners that ended without Close, in all
// hierarchies, below the same parent as h. Living owners are left alone, for they
// hold the lock on their directory. Many processes may sweep at the same time.
// What can't be swept is an error, after the rest was.
func (h *Host) Sweep(ctx context.Context) (Swept, error) {
	var total Swept
	var errs []error
	done := map[string]bool{h.name: true}
	for _, one := range h.all {
		names, err := one.top.subs()
		if err != nil {
			errs = append(errs, err)
		}
		for _, name := range names {
			switch {
			case strings.HasPrefix(name, leafPrefix):
				if err := one.top.rmdir(name); err != nil && !isBusy(err) { // busy: its supervisor lives
					errs = append(errs, err)
				}
			case strings.HasPrefix(name, ownerPrefix) && !done[name]:
				done[name] = true
				some, err := h.sweep(ctx, name)
				total.Runs += some.Runs
				total.Processes += some.Processes
				errs = append(errs, err)
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return total, fmt.Errorf("sweep: %w", err)
	}
	return total, nil
}

// sweep removes the directory of one owner, unless that is alive.
func (h *Host) sweep(ctx context.Context, name string) (Swept, error) {
	dead, err := h.seize(name)
	if err != nil || dead == nil {
		return Swept{}, err
	}
	swept, err := dead.clear(ctx)
	if isGone(err) {
		err = nil // its owner was about to lock it, and gave up when we had
	}
	return swept, errors.Join(err, dead.close())
}

// clear kills and removes what is in the directory of an owner, and that.
func (t *tree) clear(ctx context.Context) (Swept, error) {
	runs := map[string]bool{}
	for _, n := range t.nodes {
		names, err := n.dir.subs()
		if err != nil {
			return Swept{}, err
		}
		for _, run := range names {
			runs[run] = true
		}
	}
	pids, err := members(t.nodes)
	if err != nil && !errors.Is(err, errInvisible) { // they needn't be seen to be killed
		return Swept{}, err
	}
	if err := t.kill(ctx); err != nil {
		return Swept{}, err
	}
	if err := t.remove(ctx); err != nil {
		return Swept{Processes: len(pids)}, err
	}
	return Swept{Runs: len(runs), Processes: len(pids)}, nil
}

// seize locks the directory of an owner in every hierarchy that has it, and
// returns nil if somebody else holds one of them: the owner, or another sweeper.
func (h *Host) seize(name string) (_ *tree, err error) {
	t := &tree{name: name}
	seized := false
	defer func() {
		if !seized {
			err = errors.Join(err, t.close())
		}
	}()
	for _, one := range h.all {
		d, err := one.top.sub(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // a leftover of another hierarchy only
		}
		if err != nil {
			return nil, err
		}
		t.nodes = append(t.nodes, node{hierarchy: one, parent: one.top, dir: d})
		locked, err := d.lock()
		if err != nil || !locked {
			return nil, err
		}
		same, err := one.top.contains(name, d)
		if err != nil || !same {
			return nil, err
		}
	}
	if len(t.nodes) == 0 {
		return nil, nil
	}
	seized = true
	return t, nil
}
