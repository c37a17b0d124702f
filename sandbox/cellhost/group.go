//go:build linux

package cellhost

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/checkcell/checkcell/cgroup"
	"github.com/checkcell/checkcell/sandbox"
	"golang.org/x/sys/unix"
)

// Group is the group of one cell.
type Group struct {
	*cgroup.Group // nil where groups can't be had and may be missing
	groups        *Groups
	own           int64    // processes in it that are not the check's
	lists         []string // evidence that can't be had, and why

	unknown []string // what of it is not to be read

	nested bool           // a runtime has a group of its own in it, with counters that go when that is removed
	hits   cgroup.Reading // of refused forks, before a kill had the runtime remove its group
}

var errNoGroup = errors.New("the cell has no group")

// Exists reports whether groups can be had here, and so this one.
func (g *Group) Exists() bool { return g.Group != nil }

// CPUTime is what the cell has used.
func (g *Group) CPUTime() (time.Duration, error) {
	if g.Group == nil {
		return 0, errNoGroup
	}
	return g.Group.CPUTime()
}

// Leftovers counts the group's members but the processes own, which are not the
// check's, and, where the first process still runs, that one. That they could not
// be counted is told by Collect too.
func (g *Group) Leftovers(running bool, own ...int) sandbox.Reading {
	var members []int
	err := fmt.Errorf("%w to count", errNoGroup)
	if g.Group != nil {
		members, err = g.Members()
	}
	if err != nil {
		g.lists = append(g.lists, fmt.Sprintf("leftovers: %v", err))
		return sandbox.Reading{}
	}
	members = slices.DeleteFunc(members, func(pid int) bool { return slices.Contains(own, pid) })
	if !running { // otherwise we end it, and all that are there end with it
		members = slices.DeleteFunc(members, doomed)
	}
	n := len(members)
	if running {
		n--
	}
	return sandbox.Read(int64(max(n, 0)))
}

// doomed reports whether a process has been sent SIGKILL, or has ended: it
// runs no more code of its own, and is on its way out of the group. A pending
// SIGKILL is bit 8 of the sets of proc_pid_status(5).
func doomed(pid int) bool {
	const sigkill = 1 << (unix.SIGKILL - 1)
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return true
	}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":\t")
		switch name {
		case "State":
			if strings.HasPrefix(value, "Z") || strings.HasPrefix(value, "X") {
				return true
			}
		case "SigPnd", "ShdPnd":
			if set, err := strconv.ParseUint(value, 16, 64); err == nil && set&sigkill != 0 {
				return true
			}
		}
	}
	return false
}

// NotCounted names what of the evidence the group can't tell, and why.
func (g *Group) NotCounted(why string, names ...string) {
	g.unknown = append(g.unknown, names...)
	for _, name := range names {
		g.lists = append(g.lists, name+": "+why)
	}
}

// Collect puts into e what the group has counted, and names in it what can't be read.
func (g *Group) Collect(e *sandbox.Evidence) {
	e.Missing = append(e.Missing, g.lists...)
	if g.Group == nil {
		for _, name := range []string{"cpu_ns", "peak_memory_bytes", "peak_pids", "oom_kills", "pids_max_hits"} {
			e.Missing = append(e.Missing, "usage."+name+": "+errNoGroup.Error())
		}
		return
	}
	u := g.Usage()
	if before, known := g.hits.Value(); known {
		if now, ok := u.PIDsMaxHits.Value(); ok && before > now {
			u.PIDsMaxHits = g.hits
		}
	}
	take := func(name string, r cgroup.Reading, ours int64) sandbox.Reading {
		n, ok := r.Value()
		if slices.Contains(g.unknown, "usage."+name) {
			return sandbox.Reading{}
		}
		if !ok {
			e.Missing = append(e.Missing, fmt.Sprintf("usage.%s: %v", name, r.Err()))
			return sandbox.Reading{}
		}
		return sandbox.Read(max(n-ours, 0))
	}
	e.Usage = sandbox.Usage{
		CPU:         take("cpu_ns", u.CPU, 0),
		PeakMemory:  take("peak_memory_bytes", u.PeakMemory, 0),
		PeakPIDs:    take("peak_pids", u.PeakPIDs, g.own),
		OOMKills:    take("oom_kills", u.OOMKills, 0),
		PIDsMaxHits: take("pids_max_hits", u.PIDsMaxHits, 0),
	}
}

// FD is a descriptor of the group, where it can be had. See cgroup.Group.
func (g *Group) FD() (fd int, ok bool) {
	if g.Group == nil {
		return 0, false
	}
	return g.Group.FD()
}

// Add moves process pid into the group, if there is one. See cgroup.Group.
func (g *Group) Add(pid int) error {
	if g.Group == nil {
		return nil
	}
	return g.Group.Add(pid)
}

// Enter moves the calling thread into the group, or beside it. See cgroup.Group and
// cgroup.Host.
func (g *Group) Enter(beside bool) error {
	switch {
	case g.Group == nil:
		return nil
	case beside:
		return g.groups.host.Enter()
	}
	return g.Group.Enter()
}

// RuntimePath is what to tell an OCI runtime as cgroupsPath. See cgroup.Group.
func (g *Group) RuntimePath(leaf string) string {
	if g.Group == nil {
		return leaf
	}
	g.nested = true
	return g.Group.RuntimePath(leaf)
}

// Adopt moves process pid into the group, if there is one. See cgroup.Group.
func (g *Group) Adopt(pid int) error {
	if g.Group == nil {
		return nil
	}
	return g.Group.Adopt(pid)
}

// Kill ends every process of the group, if there is one. See cgroup.Group.
func (g *Group) Kill(ctx context.Context) error {
	if g.Group == nil {
		return nil
	}
	if _, known := g.hits.Value(); g.nested && !known {
		g.hits = g.Usage().PIDsMaxHits
	}
	return g.Group.Kill(ctx)
}

// Remove removes the group, if there is one. See cgroup.Group.
func (g *Group) Remove(ctx context.Context) error {
	if g.Group == nil {
		return nil
	}
	return g.Group.Remove(ctx)
}

// Explain adds to the error of a set-up that the memory limit was too small for
// it, where the kernel killed for that.
func (g *Group) Explain(err error, l sandbox.Limits) error {
	if g.Group == nil {
		return err
	}
	if n, oomErr := g.OOMKills(); oomErr == nil && n > 0 {
		memory, _ := l.Memory.Value()
		return fmt.Errorf("the memory limit of %v is too small for the cell itself: %w", memory, err)
	}
	return err
}
