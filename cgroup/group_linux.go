package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// Group is one group, in every hierarchy that its Host uses. Its methods may be
// called concurrently, Remove only once nobody uses FD any more.
type Group struct {
	tree
	host     *Host
	controls map[string]string
	removed  atomic.Bool
}

// Create makes a new group with the limits of res, which may be nil. A group of
// that name that exists already is an error that wraps fs.ErrExist, and is left
// alone. A name is made of letters, digits, '-', '_' and '.', begins with a
// letter or digit and has at most 128 bytes.
//
// Memory.Limit, Pids.Limit, CPU.Quota and CPU.Period are used: a positive limit
// is written, read back and compared; nil or -1 is no limit. With a memory
// limit swap is 0, and on cgroup2 an OOM kill ends the whole group; on version 1
// it ends one process, so poll OOMKills there. Anything else in res is an error,
// Devices aside, which are ignored. A limit whose controller is missing is a
// *MissingError. On error nothing is left.
func (h *Host) Create(name string, res *specs.LinuxResources) (*Group, error) {
	if !validName(name) {
		return nil, fmt.Errorf("create group %q: not a name for a group", name)
	}
	g, err := h.create(name, res)
	if err != nil {
		return nil, fmt.Errorf("create group %s: %w", name, err)
	}
	return g, nil
}

func (h *Host) create(name string, res *specs.LinuxResources) (g *Group, err error) {
	l, err := limitsOf(res)
	if err != nil {
		return nil, err
	}
	settings := l.settings(func(c Controller) bool { home := h.homes[c]; return home != nil && home.v2 })
	if err := h.refuse(settings); err != nil {
		return nil, err
	}
	g = &Group{tree: tree{name: name}, host: h, controls: map[string]string{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, g.abandon())
		}
	}()
	for _, one := range h.all {
		if err := one.owner.mkdir(name); err != nil {
			return g, err
		}
		n := node{hierarchy: one, parent: one.owner}
		n.dir, err = one.owner.sub(name)
		if err != nil {
			return g, errors.Join(err, one.owner.rmdir(name))
		}
		g.nodes = append(g.nodes, n)
	}
	for _, s := range settings {
		if err := g.apply(s); err != nil {
			return g, err
		}
	}
	return g, nil
}

// refuse returns a *MissingError if a setting can't be made on this host.
func (h *Host) refuse(settings []setting) error {
	e := &MissingError{Mode: h.mode, Missing: map[Controller]string{}, Hint: hint(h.mode, os.Geteuid())}
	for _, s := range settings {
		if h.homes[s.controller] == nil {
			e.Missing[s.controller] = h.support[s.controller].Detail
		}
	}
	if len(e.Missing) == 0 {
		return nil
	}
	return e
}

// abandon removes a group that nobody has entered yet.
func (g *Group) abandon() error {
	errs := []error{g.close()}
	for _, n := range g.nodes {
		errs = append(errs, n.parent.rmdir(g.name))
	}
	return errors.Join(errs...)
}

// apply makes one setting and proves that it is in force.
func (g *Group) apply(s setting) error {
	n, err := g.home(s.controller)
	if err != nil {
		return err
	}
	err = n.dir.write(s.file, s.value)
	if s.optional && errors.Is(err, fs.ErrNotExist) {
		return g.withoutSwapFile(n, s)
	}
	if err != nil {
		return err
	}
	text, err := n.dir.read(s.file)
	if err != nil {
		return err
	}
	got := strings.TrimSpace(string(text))
	if !s.holds(got, int64(os.Getpagesize())) {
		return fmt.Errorf("%s of %s reads %q after %q was written", s.file, n.dir.path(), got, s.value)
	}
	g.note(n, s, s.file+"="+got)
	return nil
}

// note adds what was found in force.
func (g *Group) note(n node, s setting, fact string) {
	if known := g.controls[s.key]; known != "" {
		g.controls[s.key] = known + " " + fact
	} else {
		g.controls[s.key] = n.version() + " " + fact
	}
}

const noSwap = "without swap on this machine"

// withoutSwapFile accepts that swap can't be bounded while there is none.
func (g *Group) withoutSwapFile(n node, s setting) error {
	swaps, err := hasSwap()
	if err != nil {
		return err
	}
	if swaps {
		return &MissingError{
			Mode:    g.host.mode,
			Missing: map[Controller]string{s.controller: "this machine swaps and the kernel has no " + s.file},
			Hint:    "Boot with swapaccount=1, or turn swap off: swapoff -a",
		}
	}
	g.note(n, s, noSwap)
	return nil
}

// home returns the node that provides c.
func (g *Group) home(c Controller) (node, error) {
	home := g.host.homes[c]
	for _, n := range g.nodes {
		if n.hierarchy == home {
			return n, nil
		}
	}
	return node{}, &MissingError{Mode: g.host.mode, Missing: map[Controller]string{c: g.host.support[c].Detail}}
}

// Name returns the name that the group was created with.
func (g *Group) Name() string { return g.name }

// FD is a descriptor of the cgroup2 directory, for SysProcAttr.CgroupFD or
// clone3(2) with CLONE_INTO_CGROUP: a child started with it is born in the group.
// It belongs to the Group and is good until Remove. ok is false on version 1 and
// after Remove; use Add then.
func (g *Group) FD() (fd int, ok bool) {
	n, ok := g.unified()
	if !ok || g.removed.Load() {
		return 0, false
	}
	return int(n.dir.f.Fd()), true
}

// Add moves process pid, with all its threads, into the hierarchies in which a
// child started with FD isn't born: those of version 1. On pure v2 it does
// nothing. Children of a member are born members.
//
// After an idle time each write takes 5 to 20 ms, because the kernel waits for
// an RCU grace period.
func (g *Group) Add(pid int) error {
	if pid <= 0 {
		return fmt.Errorf("add process %d to group %s: not a process id", pid, g.name)
	}
	for _, n := range g.nodes {
		if n.v2 {
			continue
		}
		if err := n.dir.write("cgroup.procs", strconv.Itoa(pid)); err != nil {
			return fmt.Errorf("add process %d to group %s: %w", pid, g.name, err)
		}
	}
	return nil
}

// Members returns the ids of the live processes in the group and in groups that
// they made below it, in ascending order. On cgroup2 a member that our PID
// namespace doesn't hold is an error; version 1 doesn't list it.
func (g *Group) Members() ([]int, error) {
	pids, err := members(g.nodes[:1])
	if err != nil {
		return nil, fmt.Errorf("list members of group %s: %w", g.name, err)
	}
	return pids, nil
}

// Kill ends every process in the group and below, those too that are born
// meanwhile, and returns nil only when it is proven that none is left in any
// hierarchy. It kills at least once however short ctx is; when ctx ends first
// the error is a *RemainingError. It may be called again. The group itself stays;
// see Remove.
//
// On version 1 alone the proof is that the kernel lists nobody, and it lists only
// who our PID namespace or one below it holds; whoever was started from here does.
//
// The limit of processors is lifted for it: a process that is throttled dies only
// when its group may run again, up to a period later.
func (g *Group) Kill(ctx context.Context) error {
	if !g.removed.Load() {
		g.unthrottle()
	}
	return g.kill(ctx)
}

// unthrottle lifts the limit of processors. Where it can't, dying takes longer.
func (g *Group) unthrottle() {
	n, err := g.home(CPU)
	switch {
	case err != nil || g.controls["cpu"] == "":
	case n.v2:
		_ = n.dir.write("cpu.max", "max")
	default:
		_ = n.dir.write("cpu.cfs_quota_us", "-1")
	}
}

// Remove removes the group from every hierarchy, with the groups that members
// made below it. It doesn't kill: while a process is in it, it waits, and when
// ctx ends first the error is a *RemainingError. It may be called again; to remove
// a removed group is no error.
func (g *Group) Remove(ctx context.Context) error {
	if g.removed.Load() {
		return nil
	}
	if err := g.remove(ctx); err != nil {
		return err
	}
	g.removed.Store(true)
	return nil
}

// Controls says for every limit in force which file holds which value, as read
// back from the kernel: "memory" is "cgroup2 memory.max=536870912", for example.
// The keys are memory (and swap, and whether the whole group ends), pids and cpu.
func (g *Group) Controls() map[string]string { return maps.Clone(g.controls) }
