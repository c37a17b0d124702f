//go:build linux

package cellhost

import (
	"math"
	"testing"
	"time"

	"github.com/checkcell/checkcell/sandbox"
	"golang.org/x/sys/unix"
)

func TestInheritedNeeds(t *testing.T) {
	l := sandbox.DefaultLimits()
	l.Processes, l.CPUs, l.Wall = sandbox.At[int64](100), sandbox.At(2.5), 10*time.Second
	want := map[int]uint64{
		unix.RLIMIT_NOFILE: 1024, unix.RLIMIT_NPROC: 100 + ownProcesses, unix.RLIMIT_FSIZE: 256 << 20,
		unix.RLIMIT_AS: 512 << 20, unix.RLIMIT_DATA: 512 << 20, unix.RLIMIT_CPU: 25,
	}
	var none sandbox.Limits // and so no value either
	none.Processes, none.CPUs, none.Memory = sandbox.Unlimited[int64](), sandbox.Unlimited[float64](), sandbox.Unlimited[sandbox.Bytes]()
	for _, in := range inherited {
		if got := in.need(l); got != want[in.number] {
			t.Errorf("need of %s = %d, want %d", in.name, got, want[in.number])
		}
		unbounded := in.flag == "memory" || in.flag == "timeout"
		if got := in.need(none); unbounded != (got == math.MaxUint64) {
			t.Errorf("need of %s without limits = %d, want no bound: %v", in.name, got, unbounded)
		}
	}
}
