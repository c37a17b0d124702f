package native

import (
	"fmt"
	"math"
	"strings"
	"syscall"
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

func TestRemedy(t *testing.T) {
	tests := []struct {
		err  error
		want string // a part
	}{
		{fmt.Errorf("make a pipe: %w", syscall.EMFILE), "ulimit -n"},
		{fmt.Errorf("fork: %w", syscall.EAGAIN), "pids.max"},
		{fmt.Errorf("map: %w", syscall.ENOMEM), "memory.max"},
		{fmt.Errorf("open: %w", syscall.ENFILE), "fs.file-max"},
		{fmt.Errorf("mount: %w", syscall.EPERM), ""},
		{nil, ""},
	}
	for _, tt := range tests {
		if got := remedy(tt.err); !strings.Contains(got, tt.want) || (got == "") != (tt.want == "") {
			t.Errorf("remedy(%v) = %q, want %q in it", tt.err, got, tt.want)
		}
	}
}

// Of what a launcher says as Go's runtime ends it the reason is kept, not the trace.
func TestLauncherWords(t *testing.T) {
	const reason = "runtime: failed to create new OS thread\nfatal error: newosproc"
	w := &words{}
	for _, part := range []string{reason[:10], reason[10:] + "\n\n", "goroutine 1:\n", strings.Repeat("x", 9000)} {
		if n, err := w.Write([]byte(part)); n != len(part) || err != nil {
			t.Fatalf("Write = %d, %v, want %d", n, err, len(part))
		}
	}
	if got := w.String(); got != reason {
		t.Errorf("words = %q, want %q", got, reason)
	}
	if got := (&words{}).String(); !strings.Contains(got, "RunLauncher") {
		t.Errorf("no words = %q, want what to look at", got)
	}
}
