//go:build linux

package cellhost

import (
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/checkcell/checkcell/sandbox"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// This file is about what we ourselves run short of: what our caller or the
// machine leaves us. A check must not come to feel it and be graded for it.

// inherited are the limits of a process (getrlimit(2)) that a cell would have
// of our caller and that would make a check fail: how the shell names each, and
// what a cell needs of it at least. A cell's own limits come from elsewhere.
var inherited = [...]struct {
	number     int
	name, flag string // of ulimit, and of the limit that it gets in the way of
	need       func(sandbox.Limits) uint64
}{
	{unix.RLIMIT_NOFILE, "open files (ulimit -Hn)", "nofile", func(l sandbox.Limits) uint64 { return uint64(l.OpenFiles) }},
	{unix.RLIMIT_NPROC, "processes of this user (ulimit -Hu)", "pids", processes},
	{unix.RLIMIT_FSIZE, "bytes of one file (ulimit -Hf)", "disk", func(l sandbox.Limits) uint64 { return uint64(l.Disk) }},
	{unix.RLIMIT_AS, "bytes of virtual memory (ulimit -Hv)", "memory", func(l sandbox.Limits) uint64 { return needOf(l.Memory) }},
	{unix.RLIMIT_DATA, "bytes of data (ulimit -Hd)", "memory", func(l sandbox.Limits) uint64 { return needOf(l.Memory) }},
	{unix.RLIMIT_CPU, "seconds of processor time (ulimit -Ht)", "timeout", cpuSeconds},
}

// ownProcesses is room for what the user has beside the check: our threads, the
// launcher's, the inits. Whatever else runs for that user counts too, but is not
// ours to foresee.
const ownProcesses = 64

// needOf is how much a limit lets a cell have: RLIM_INFINITY for "unlimited".
func needOf[T ~int64](l sandbox.Limit[T]) uint64 {
	n, bounded := l.Value()
	if !bounded {
		return math.MaxUint64
	}
	return uint64(n)
}

// processes leaves "unlimited" to what the user has, which the kernel never
// makes infinite: half of what fits into memory (fork_init in kernel/fork.c).
func processes(l sandbox.Limits) uint64 {
	n, _ := l.Processes.Value()
	return uint64(n) + ownProcesses
}

// cpuSeconds is the most that one process can use up before its deadline.
func cpuSeconds(l sandbox.Limits) uint64 {
	cpus, bounded := l.CPUs.Value()
	if !bounded {
		return math.MaxUint64
	}
	return uint64(math.Ceil(l.Wall.Seconds() * max(1, cpus)))
}

// RaiseInherited raises our own hard limits as far as we may, which is all the
// way for root, and for others not at all. What we may do with it, our soft
// limits, stays as it was.
func RaiseInherited() {
	for _, l := range inherited {
		var ours unix.Rlimit
		if unix.Getrlimit(l.number, &ours) != nil {
			continue // Fits says so
		}
		most := uint64(unix.RLIM_INFINITY)
		if l.number == unix.RLIMIT_NOFILE {
			most = 1 << 20 // fs.nr_open may be no higher, and refuses more; proc_sys_fs(5)
		}
		if ours.Max < most {
			_ = unix.Setrlimit(l.number, &unix.Rlimit{Cur: ours.Cur, Max: most})
		}
	}
}

// RaiseSoft raises our soft limits to the hard ones, for what we start.
func RaiseSoft() {
	for _, l := range inherited {
		// The soft limit on processes bounds a user namespace made under it, whatever
		// is set inside (inc_rlimit_get_ucounts in kernel/ucount.c).
		var ours unix.Rlimit
		if unix.Getrlimit(l.number, &ours) == nil {
			_ = unix.Setrlimit(l.number, &unix.Rlimit{Cur: ours.Max, Max: ours.Max}) // up to the hard limit everyone may
		}
	}
}

// Rlimits cuts the limits per process of a description to those of ours that a
// cell's user can't raise. The number of open files is not cut: see Fits.
func Rlimits(wanted []specs.POSIXRlimit) ([]specs.POSIXRlimit, error) {
	var list []specs.POSIXRlimit
	for _, r := range wanted {
		number, ok := rlimitNumbers[r.Type]
		if !ok {
			return nil, fmt.Errorf("rlimit %s is not one that this backend knows", r.Type)
		}
		var ours unix.Rlimit
		if err := unix.Getrlimit(number, &ours); err != nil {
			return nil, fmt.Errorf("rlimit %s: %w", r.Type, err)
		}
		if number != unix.RLIMIT_NOFILE {
			r.Hard = min(r.Hard, ours.Max)
			r.Soft = min(r.Soft, r.Hard)
		}
		list = append(list, r)
	}
	return list, nil
}

var rlimitNumbers = map[string]int{
	"RLIMIT_CORE": unix.RLIMIT_CORE, "RLIMIT_NOFILE": unix.RLIMIT_NOFILE, "RLIMIT_STACK": unix.RLIMIT_STACK,
	"RLIMIT_FSIZE": unix.RLIMIT_FSIZE, "RLIMIT_CPU": unix.RLIMIT_CPU, "RLIMIT_DATA": unix.RLIMIT_DATA, "RLIMIT_AS": unix.RLIMIT_AS,
	"RLIMIT_NPROC": unix.RLIMIT_NPROC, "RLIMIT_MEMLOCK": unix.RLIMIT_MEMLOCK, "RLIMIT_NICE": unix.RLIMIT_NICE, "RLIMIT_RTPRIO": unix.RLIMIT_RTPRIO,
}

// RlimitNumber is the number that getrlimit(2) has for a limit that Rlimits let pass.
func RlimitNumber(r specs.POSIXRlimit) int { return rlimitNumbers[r.Type] }

// Fits returns an error that names every limit of l which this process's own
// limits (ulimit) leave no room for and only root could raise. Create refuses
// such a spec: its check would meet a limit that nobody counts, and be graded for
// an error of ours.
func Fits(l sandbox.Limits) error {
	var errs []error
	for _, in := range inherited {
		var ours unix.Rlimit
		if err := unix.Getrlimit(in.number, &ours); err != nil {
			errs = append(errs, fmt.Errorf("read the limit of %s: %w", in.name, err))
			continue
		}
		if need := in.need(l); ours.Max < need {
			errs = append(errs, fmt.Errorf("limit %s can't be enforced: a cell needs %s, and checkcell was started with a limit of %d %s; raise that, or lower --%s",
				in.flag, amount(need), ours.Max, in.name, in.flag))
		}
	}
	return errors.Join(errs...)
}

func amount(n uint64) string {
	if n == math.MaxUint64 {
		return "no limit"
	}
	return strconv.FormatUint(n, 10)
}
