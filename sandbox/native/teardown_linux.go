package native

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

// CPUTime is what the cell has used. See sandbox.Box.
func (x *box) CPUTime() (time.Duration, error) {
	if x.group == nil {
		return 0, errors.New("the cell has no group")
	}
	return x.group.CPUTime()
}

// Kill ends the cell's processes. See sandbox.Box. The init's end is proof by
// itself, since its PID namespace is then empty; with a group there are two.
func (x *box) Kill(ctx context.Context) (sandbox.Reading, error) {
	leftovers := x.countLeftovers()
	var err error
	if x.group != nil {
		err = x.group.Kill(ctx)
	}
	if killErr := errors.Join(signalKill(x.pidfd), waitGone(ctx, x.pidfd)); killErr != nil {
		return leftovers, errors.Join(err, killErr)
	}
	return leftovers, err
}

// countLeftovers counts the group's members but the init and a first process
// that still runs.
func (x *box) countLeftovers() sandbox.Reading {
	x.mu.Lock()
	running := x.running
	x.mu.Unlock()
	if x.group == nil {
		x.lists = append(x.lists, "leftovers: the cell has no group to count")
		return sandbox.Reading{}
	}
	members, err := x.group.Members()
	if err != nil {
		x.lists = append(x.lists, fmt.Sprintf("leftovers: %v", err))
		return sandbox.Reading{}
	}
	if !running { // otherwise we end it, and all that are there end with it
		members = slices.DeleteFunc(members, doomed)
	}
	n := len(members)
	if slices.Contains(members, x.pid) {
		n--
	}
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

// Collect reads what was used. See sandbox.Box.
func (x *box) Collect() sandbox.Evidence {
	e := sandbox.Evidence{Receipt: x.receipt, SpecDigest: x.digest, ImageDigest: x.image.String(), Missing: slices.Clone(x.lists)}
	if x.group == nil {
		for _, name := range []string{"cpu_ns", "peak_memory_bytes", "peak_pids", "oom_kills", "pids_max_hits"} {
			e.Missing = append(e.Missing, "usage."+name+": the cell has no group")
		}
		return e
	}
	u := x.group.Usage()
	take := func(name string, r cgroup.Reading, ours int64) sandbox.Reading {
		n, ok := r.Value()
		if !ok {
			e.Missing = append(e.Missing, fmt.Sprintf("usage.%s: %v", name, r.Err()))
			return sandbox.Reading{}
		}
		return sandbox.Read(max(n-ours, 0))
	}
	e.Usage = sandbox.Usage{
		CPU:         take("cpu_ns", u.CPU, 0),
		PeakMemory:  take("peak_memory_bytes", u.PeakMemory, 0),
		PeakPIDs:    take("peak_pids", u.PeakPIDs, initProcesses),
		OOMKills:    take("oom_kills", u.OOMKills, 0),
		PIDsMaxHits: take("pids_max_hits", u.PIDsMaxHits, 0),
	}
	return e
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
			<-x.reports // the init's end closed the pipe
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
		x.backend.uids.give(x.uid)
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
