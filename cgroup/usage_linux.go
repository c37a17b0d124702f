package cgroup

import (
	"fmt"
	"slices"
	"time"
)

// Usage reads all counters. Read them before Remove. What can't be read says why.
func (g *Group) Usage() Usage {
	return Usage{
		CPU:         reading(g.cpu()),
		PeakMemory:  reading(g.number("peak memory", Memory, "memory.peak", "memory.max_usage_in_bytes")),
		PeakPIDs:    reading(g.number("peak processes", PIDs, "pids.peak", "pids.peak")),
		OOMKills:    reading(g.OOMKills()),
		PIDsMaxHits: reading(g.events("refused forks", PIDs, "pids.events", "pids.events", "max")),
	}
}

// CPUTime returns the CPU time used by the group so far. It reads one file, so
// it can be polled.
func (g *Group) CPUTime() (time.Duration, error) {
	n, err := g.cpu()
	return time.Duration(n), err
}

// OOMKills returns how often the kernel has killed a process of the group for
// want of memory. Where it ends the whole group it may count a process twice. It
// reads one file, so it can be polled. On version 1 a kill in a group below is
// forgotten when that is removed.
func (g *Group) OOMKills() (int64, error) {
	return g.events("OOM kills", Memory, "memory.events", "memory.oom_control", "oom_kill")
}

// cpu returns nanoseconds.
func (g *Group) cpu() (int64, error) {
	n, err := g.home(CPUTime)
	if err != nil {
		return 0, g.unread("CPU time", err)
	}
	if !n.v2 {
		ns, err := n.number("cpuacct.usage")
		return ns, g.unread("CPU time", err)
	}
	us, err := n.key("cpu.stat", "usage_usec")
	return us * int64(time.Microsecond), g.unread("CPU time", err)
}

// number reads a file with one number, v1 or v2 as c's hierarchy is.
func (g *Group) number(what string, c Controller, v2, v1 string) (int64, error) {
	n, err := g.home(c)
	if err != nil {
		return 0, g.unread(what, err)
	}
	file := v1
	if n.v2 {
		file = v2
	}
	count, err := n.number(file)
	return count, g.unread(what, err)
}

// events reads one key of a file of events, and adds up those of the groups
// below where the kernel doesn't.
func (g *Group) events(what string, c Controller, v2, v1, key string) (int64, error) {
	n, err := g.home(c)
	if err != nil {
		return 0, g.unread(what, err)
	}
	if !n.v2 {
		count, err := n.sum(v1, key)
		return count, g.unread(what, err)
	}
	local, err := n.countsLocally(c)
	if err != nil {
		return 0, g.unread(what, err)
	}
	read := n.key
	if local {
		read = n.sum
	}
	count, err := read(v2, key)
	return count, g.unread(what, err)
}

func (g *Group) unread(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("read %s of group %s: %w", what, g.name, err)
}

// countsLocally reports whether the events of c are those of a group alone,
// not of the groups below it. Version 1 and, for pids, Linux before 6.11 know
// no other way; cgroup2 can be mounted so (cgroup-v2.rst, "Mounting").
func (n node) countsLocally(c Controller) (bool, error) {
	if c == Memory {
		return slices.Contains(n.options, "memory_localevents"), nil
	}
	if slices.Contains(n.options, "pids_localevents") {
		return true, nil
	}
	has, err := n.dir.has("pids.events.local")
	return !has, err
}

// number reads a file that holds one number.
func (n node) number(file string) (int64, error) {
	text, err := n.dir.read(file)
	if err != nil {
		return 0, err
	}
	count, err := parseNumber(text)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", file, err)
	}
	return count, nil
}

// key reads one number of a flat keyed file.
func (n node) key(file, key string) (int64, error) {
	text, err := n.dir.read(file)
	if err != nil {
		return 0, err
	}
	count, err := parseKey(text, key)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", file, err)
	}
	return count, nil
}

// sum adds up one number of the flat keyed files of a group and of all below it.
func (n node) sum(file, key string) (int64, error) {
	var total int64
	err := n.dir.walk(func(each dir) error {
		count, err := node{dir: each}.key(file, key)
		total += count
		return err
	})
	return total, err
}
