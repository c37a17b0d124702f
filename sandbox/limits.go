package sandbox

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Bytes is a size in bytes.
type Bytes int64

// Binary multiples of a byte.
const (
	KiB Bytes = 1 << 10
	MiB Bytes = 1 << 20
	GiB Bytes = 1 << 30
	TiB Bytes = 1 << 40
)

var byteUnits = []struct {
	suffix string
	size   Bytes
}{
	{"TiB", TiB}, {"GiB", GiB}, {"MiB", MiB}, {"KiB", KiB},
	{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"kB", 1e3}, {"KB", 1e3},
	{"T", TiB}, {"G", GiB}, {"M", MiB}, {"K", KiB}, {"k", KiB}, {"B", 1},
}

// String writes the size with the largest binary unit that divides it.
func (b Bytes) String() string {
	for _, u := range byteUnits[:4] {
		if b != 0 && b%u.size == 0 {
			return fmt.Sprintf("%d%s", b/u.size, u.suffix)
		}
	}
	return fmt.Sprintf("%dB", int64(b))
}

// ParseBytes reads a size: a decimal number, then nothing or B (bytes), K, KiB,
// M, MiB, G, GiB, T, TiB (powers of 1024), kB, MB, GB or TB (powers of 1000).
func ParseBytes(s string) (Bytes, error) {
	num, size := s, Bytes(1)
	for _, u := range byteUnits {
		if rest, ok := strings.CutSuffix(s, u.suffix); ok {
			num, size = strings.TrimSpace(rest), u.size
			break
		}
	}
	if n, err := strconv.ParseInt(num, 10, 64); err == nil {
		if n > math.MaxInt64/int64(size) || n < math.MinInt64/int64(size) {
			return 0, fmt.Errorf("size %q does not fit in 64 bits", s)
		}
		return Bytes(n) * size, nil
	}
	f, err := strconv.ParseFloat(num, 64)
	if err != nil || math.IsNaN(f) || math.Abs(f*float64(size)) >= math.MaxInt64 {
		return 0, fmt.Errorf("size %q is not a number with a unit such as 512MiB", s)
	}
	return Bytes(f * float64(size)), nil
}

// Limit is a bound, or said out loud, none. Its zero value is neither and is
// refused by Limits.Validate, so a forgotten limit can't mean "no limit".
type Limit[T ~int64 | ~float64] struct {
	value     T
	unlimited bool
}

// At is the limit of value.
func At[T ~int64 | ~float64](value T) Limit[T] { return Limit[T]{value: value} }

// Unlimited is the limit that bounds nothing.
func Unlimited[T ~int64 | ~float64]() Limit[T] { return Limit[T]{unlimited: true} }

// Value returns the bound; ok is false where there is none.
func (l Limit[T]) Value() (value T, ok bool) { return l.value, !l.unlimited }

// String writes the bound, or "unlimited".
func (l Limit[T]) String() string {
	if l.unlimited {
		return "unlimited"
	}
	return fmt.Sprint(l.value)
}

// Limits bound one run. Every field must be set: zero and negative values are
// refused. The unit is the type's, or is named.
type Limits struct {
	Wall      time.Duration        // from the check's start to its deadline, on the monotonic clock
	Parse     time.Duration        // the syntax pass's own budget
	CPUTime   Limit[time.Duration] // of the whole tree
	CPUs      Limit[float64]       // bandwidth, in processors
	Memory    Limit[Bytes]         // of the whole tree, without swap
	Processes Limit[int64]         // threads and processes of the check at one time
	Stdout    Bytes                // kept; one byte more ends the run
	Stderr    Bytes                // kept; one byte more ends the run
	Disk      Bytes                // all writable places together
	Inodes    int64                // all writable places together
	OpenFiles int64                // descriptors of one process
}

// DefaultLimits returns the limits of design.md, section 3.
func DefaultLimits() Limits {
	return Limits{
		Wall:      30 * time.Second,
		Parse:     5 * time.Second,
		CPUTime:   Unlimited[time.Duration](),
		CPUs:      At(1.0),
		Memory:    At(512 * MiB),
		Processes: At[int64](128),
		Stdout:    MiB,
		Stderr:    MiB,
		Disk:      256 * MiB,
		Inodes:    16384,
		OpenFiles: 1024,
	}
}

// Validate names every limit that is missing, negative or absurd, joined.
func (l Limits) Validate() error {
	const month = 31 * 24 * time.Hour
	return errors.Join(
		within("wall", l.Wall, time.Millisecond, month),
		within("parse", l.Parse, time.Millisecond, month),
		bound("cpu-time", l.CPUTime, time.Millisecond, month*1024),
		bound("cpus", l.CPUs, 0.01, 65536),
		bound("memory", l.Memory, MiB, 1024*TiB),
		bound("pids", l.Processes, 1, 4<<20),
		within("stdout-cap", l.Stdout, 1, GiB),
		within("stderr-cap", l.Stderr, 1, GiB),
		within("disk", l.Disk, 64*KiB, 1024*TiB),
		within("inodes", l.Inodes, 32, 1<<31),
		within("nofile", l.OpenFiles, 16, 1<<20),
	)
}

func bound[T ~int64 | ~float64](name string, l Limit[T], low, high T) error {
	if l.unlimited {
		return nil
	}
	return within(name, l.value, low, high)
}

func within[T ~int64 | ~float64](name string, v, low, high T) error {
	if v >= low && v <= high {
		return nil
	}
	if v <= 0 {
		return fmt.Errorf("limit %s: %v is not positive; say how much, from %v to %v", name, v, low, high)
	}
	return fmt.Errorf("limit %s: %v is outside %v to %v", name, v, low, high)
}

// Need reports whether these limits can't be kept without control c. What is
// not a matter of limits, such as a namespace, is always needed.
func (l Limits) Need(c Control) bool {
	limited := true
	switch c {
	case ControlMemory:
		_, limited = l.Memory.Value()
	case ControlPIDs:
		_, limited = l.Processes.Value()
	case ControlCPU:
		_, limited = l.CPUs.Value()
	case ControlCPUTime:
		_, limited = l.CPUTime.Value()
	case ControlCgroup, ControlDisk, ControlNoFile, ControlNetwork, ControlRoot, ControlPIDNS, ControlIPCNS,
		ControlUTSNS, ControlCgroupNS, ControlUser, ControlCaps, ControlNoPrivs, ControlSeccomp, ControlLandlock:
	}
	return limited
}
