package cgroup

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

// This file is for containers whose runtime makes a group of its own: it is told
// where, and the container is then moved to ours.

// RuntimePath returns what to tell an OCI runtime as cgroupsPath so that it makes
// a group called leaf for a container which Adopt is then called for. On pure v2
// it lies in g. Elsewhere it is relative, and lies beside g for a runtime that is
// started by a thread that called Enter; see "cgroupsPath" in the runtime
// specification, config-linux.md.
func (g *Group) RuntimePath(leaf string) string {
	n, ok := g.unified()
	if !ok || len(g.nodes) > 1 {
		return leaf
	}
	return path.Join("/", strings.TrimPrefix(n.dir.path(), n.point), leaf)
}

// Enter moves the calling thread, which must be locked to its goroutine and should
// end with it, beside the groups of h in every hierarchy of version 1, where
// threads can be moved. What it starts is born there. Unlike the move of a process
// it waits for nothing.
func (h *Host) Enter() error {
	for _, one := range h.all {
		if one.v2 {
			continue
		}
		if err := one.owner.write("tasks", "0"); err != nil {
			return fmt.Errorf("enter %s: %w", one.owner.path(), err)
		}
	}
	return nil
}

// Enter moves the calling thread into the group in every hierarchy of version 1, as
// Host.Enter does beside it. What is started with FD too is born in the group. While
// the thread lives version 1 lists our whole process as a member, so nothing can
// prove the group empty; Kill leaves us out.
func (g *Group) Enter() error {
	for _, n := range g.nodes {
		if n.v2 {
			continue
		}
		if err := n.dir.write("tasks", "0"); err != nil {
			return fmt.Errorf("enter %s: %w", n.dir.path(), err)
		}
	}
	return nil
}

// Adopt moves process pid, which has no children, into the group in every
// hierarchy. On cgroup2 one that is in it or below stays where it is.
func (g *Group) Adopt(pid int) error {
	for _, n := range g.nodes {
		if n.v2 {
			members, err := n.dir.members()
			if err != nil {
				return fmt.Errorf("adopt process %d: %w", pid, err)
			}
			if slices.Contains(members, pid) {
				continue
			}
		}
		if err := n.dir.write("cgroup.procs", strconv.Itoa(pid)); err != nil {
			return fmt.Errorf("adopt process %d into %s: %w", pid, n.dir.path(), err)
		}
	}
	return nil
}
