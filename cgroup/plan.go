package cgroup

import (
	"path"
	"slices"
	"strings"
)

// plan says in which hierarchies groups are made and what each is good for.
type plan struct {
	mode    Mode
	uses    []use // the primary one first: cgroup2, else the freezer
	freezer *use  // of version 1, for a cgroup2 that can't freeze
	missing map[Controller]string
}

// use is one hierarchy of a plan.
type use struct {
	mount    mount
	provides []Controller // on cgroup2, if they can be enabled
	group    string       // our position in it, or the parent asked for
	dir      string       // the directory of group, empty where the mount doesn't reach it
}

// bounding are the controllers with a limit, and their names in the kernel.
var bounding = [...]struct {
	controller Controller
	word       string
}{{Memory, "memory"}, {PIDs, "pids"}, {CPU, "cpu"}}

// makePlan chooses the hierarchies. A controller is in one hierarchy only, so
// what is mounted as version 1 is used there and the rest is cgroup2's.
func makePlan(mounts []mount, self positions, cfg Config) plan {
	p := plan{missing: map[Controller]string{}}
	v2, hasV2 := find(mounts, self, "")
	hasV2 = hasV2 && !cfg.V1Only
	if hasV2 {
		p.add(v2, CPUTime, Kill, Freeze) // cpu.stat is there without the cpu controller too
	}
	v1 := func(word string, c ...Controller) bool {
		m, ok := find(mounts, self, word)
		if ok {
			p.add(m, c...)
		}
		return ok
	}
	if !hasV2 {
		if !v1("freezer", Freeze) {
			p.missing[Freeze] = "no hierarchy with the freezer is mounted"
		}
		if !v1("cpuacct", CPUTime) {
			p.missing[CPUTime] = "no hierarchy with cpuacct is mounted"
		}
	}
	onV1 := false
	for _, b := range bounding {
		switch {
		case v1(b.word, b.controller):
			onV1 = true
		case hasV2:
			p.add(v2, b.controller)
		default:
			p.missing[b.controller] = "no hierarchy with " + b.word + " is mounted"
		}
	}
	switch {
	case hasV2 && onV1:
		p.mode = ModeHybrid
	case hasV2:
		p.mode = ModeV2
	case len(p.uses) > 0:
		p.mode = ModeV1
		p.uses[0].provides = append(p.uses[0].provides, Kill)
	default:
		p.missing[Kill] = "no hierarchy is mounted"
	}
	if m, ok := find(mounts, self, "freezer"); ok && hasV2 {
		p.freezer = &use{mount: m, provides: []Controller{Freeze}}
	}
	p.locate(self, cfg.Parent)
	return p
}

// add notes that m provides c; m may be in the plan already.
func (p *plan) add(m mount, c ...Controller) {
	i := slices.IndexFunc(p.uses, func(u use) bool { return u.mount.point == m.point })
	if i < 0 {
		i = len(p.uses)
		p.uses = append(p.uses, use{mount: m})
	}
	p.uses[i].provides = append(p.uses[i].provides, c...)
}

// locate fills in where our groups go: below parent, or our own position.
func (p *plan) locate(self positions, parent string) {
	fill := func(u *use) {
		u.group = parent
		if parent == "" {
			own, _ := self.of(u.mount)
			u.group = withoutLeaf(own)
		}
		u.dir, _ = u.mount.locate(u.group)
	}
	for i := range p.uses {
		fill(&p.uses[i])
	}
	if p.freezer != nil {
		fill(p.freezer)
	}
}

const (
	topName     = "checkcell"   // holds all that is ours below one position
	ownerPrefix = "s-"          // one Host's directory in it
	leafPrefix  = "supervisor-" // on pure v2, where a supervisor itself went; see place
)

// withoutLeaf returns the position of a supervisor before it, or the
// supervisor that started it, moved into a leaf.
func withoutLeaf(group string) string {
	top, leaf := path.Split(group)
	top = strings.TrimSuffix(top, "/")
	if strings.HasPrefix(leaf, leafPrefix) && path.Base(top) == topName {
		return path.Dir(top)
	}
	return group
}

// hint says how to get what is missing.
func hint(mode Mode, uid int) string {
	switch mode {
	case ModeNone:
		return "Mount a cgroup hierarchy: mount -t cgroup2 none /sys/fs/cgroup"
	case ModeV2:
		user := ""
		if uid != 0 {
			user = "--user "
		}
		return "Run it in a group of its own: systemd-run " + user + "--scope -p Delegate=yes -- COMMAND; or name such a group with --cgroup-parent"
	case ModeV1, ModeHybrid:
		if uid != 0 {
			return "Run it as root, or name a group that you may write to with --cgroup-parent"
		}
		return "Mount the cgroup hierarchies writable (in a container: docker run --privileged), with the memory, pids, cpu and cpuacct controllers"
	}
	return ""
}
