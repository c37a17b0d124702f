package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/checkcell/checkcell/internal/host"
)

// stressVar names how many seconds each stressor has. Where it is not set, only
// every tenth is run.
const stressVar = "CHECKCELL_STRESS_SECONDS"

// stressor is one of stress-ng, and what becomes of it in a cell: it works
// until the deadline, or can't work and says why.
type stressor struct {
	name string
	flag string // "" or one more, with its value behind =
	code int    // with which it ends by itself, where it says so
	says string // why, or that it had its time; "" where it works until the deadline
	oom  bool   // where the kernel kills the whole group, it ends of its memory
}

func stressors() []stressor {
	const unsupported = "No stress workers invoked"
	const whole = "successful run completed" // it ends when it would for ever, so it gets a time
	return []stressor{
		{name: "fork"}, {name: "vforkmany", says: whole}, {name: "clone", oom: true}, {name: "daemon"}, {name: "zombie"}, {name: "exec"},
		{name: "vm", flag: "--vm-bytes=256M", oom: true}, {name: "mmap", oom: true}, {name: "bigheap", oom: true}, {name: "memfd", oom: true},
		{name: "dup"}, {name: "eventfd"}, {name: "open"}, {name: "pidfd"}, {name: "rlimit", says: whole},
		{name: "io"}, {name: "hdd", flag: "--hdd-bytes=32M"}, {name: "dentry"}, {name: "dev-shm", oom: true}, {name: "mknod"},
		{name: "sock"}, {name: "netdev"}, {name: "shm-sysv"}, {name: "msg"}, {name: "sem"},
		{name: "procfs"}, {name: "seccomp"}, {name: "cap"}, {name: "ptrace"}, {name: "priv-instr"}, {name: "sysbadaddr"}, {name: "enosys"},
		{name: "unshare"}, // each of its calls is refused, which it does not mind
		{name: "sysfs", code: 3, says: "(sysfs) aborted early"},
		{name: "dev", code: 3, says: "cannot allocate device information"},
		{name: "io-uring", code: 2, says: "io-uring setup failed, errno=1"},
		{name: "key", code: 2, says: "add_key failed, errno=1"},
		{name: "chown", code: 2, says: "errno=22"}, // no other user is mapped
		{name: "pty", code: 2, says: "open /dev/ptmx failed, errno=2"},
		{name: "kvm", says: "/dev/kvm not available"},
		{name: "ramfs", says: unsupported}, {name: "umount", says: unsupported}, {name: "chroot", says: unsupported},
		{name: "loop", says: unsupported}, {name: "swap", says: unsupported}, {name: "klog", says: unsupported},
		{name: "userfaultfd", says: unsupported}, {name: "rawsock", says: unsupported}, {name: "tun", says: unsupported}, {name: "netlink-proc", says: unsupported},
	}
}

// want returns nil if that is what a cell makes of the stressor.
func (s stressor) want(r result, o outcome) error {
	switch {
	case s.oom && o.Kind == "limit_exceeded" && o.Resource == "memory":
	case s.says == "" && o.Kind != "timed_out":
		return fmt.Errorf("outcome is %s, want timed_out", r.Outcome)
	case s.says != "" && (o.ExitCode == nil || *o.ExitCode != s.code || !strings.Contains(r.Stderr.Text, s.says)):
		return fmt.Errorf("outcome is %s, want exit code %d and %q on stderr", r.Outcome, s.code, s.says)
	}
	return nil
}

// TestStress has stress-ng strain a cell, two workers a stressor, until the
// deadline ends them, and says how the host answered meanwhile.
func TestStress(t *testing.T) {
	needCells(t)
	host.Need(t, host.StressNG)
	leavesNothing(t)
	each := time.Duration(soakNumber(t, stressVar, 2, 1)) * time.Second
	var report strings.Builder
	w := tabwriter.NewWriter(&report, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "stressor\tended\tlate median\tp99\tmax\texec median\tp99\tmax\tOOM kills\tforks refused")
	none := startSampler(t)
	time.Sleep(each) // the host at rest, as long as under each load
	fmt.Fprintf(w, "(none)\t-\t%s\t-\t-\n", none.stop(t))
	for i, s := range stressors() {
		if os.Getenv(stressVar) == "" && i%10 != 0 {
			continue
		}
		t.Run(s.name, func(t *testing.T) { fmt.Fprintln(w, s.run(t, each)) })
	}
	w.Flush() // a Builder takes it all
	t.Logf("how late a timer of 10ms was, and how long a fork and exec took, outside:\n%s", &report)
}

// run strains one cell, and returns its row of the report.
func (s stressor) run(t *testing.T, each time.Duration) (row string) {
	tmp := t.TempDir()
	deadline, given := each, "0" // for ever
	if s.says != "" {
		deadline, given = each+patience, each.String()
	}
	args := []string{"run", "--json", "--timeout", deadline.String(), "--memory", "128MiB", "--pids", "64", "--disk", "64MiB", "--",
		"stress-ng", "--" + s.name, "2", "--timeout", given, "--temp-path", "/tmp"}
	if s.flag != "" {
		args = append(args, s.flag)
	}
	sampled := startSampler(t)
	p := command{args: args, env: []string{"TMPDIR=" + tmp}, dir: tmp}.start(t)
	got := p.wait(t)
	figures := sampled.stop(t)
	r := decode[result](t, got.stdout)
	var o outcome
	if err := json.Unmarshal(r.Outcome, &o); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.want(r, o), consistent(got.code, measured{result: r}, o)); err != nil {
		t.Errorf("%v\n%.3000s", err, r.Stderr.Text)
	}
	pids := []int{p.cmd.Process.Pid}
	if err := errors.Join(inGroups(pids), byUsers(userOf(got.stdout)), groupsOf(pids), mountsOf(tmp), emptyDir(tmp)); err != nil {
		t.Error(err)
	}
	return fmt.Sprintf("%s\t%s\t%s\t%d\t%d", s.name, o.Kind, figures, r.Usage["oom_kills"], r.Usage["pids_max_hits"])
}

// sampler asks again and again how soon the host answers.
type sampler struct {
	done        chan struct{} // closed to end it
	wait        sync.WaitGroup
	late, execs []time.Duration // each of one goroutine until it has ended
	err         error           // of the second
}

// startSampler starts to sample. The caller must stop it.
func startSampler(t testing.TB) *sampler {
	t.Helper()
	s := &sampler{done: make(chan struct{})}
	s.wait.Go(func() { // ends when done is closed
		const period = 10 * time.Millisecond
		for {
			due := time.Now().Add(period)
			select {
			case <-s.done:
				return
			case <-time.After(period):
				s.late = append(s.late, time.Since(due))
			}
		}
	})
	s.wait.Go(func() { // ends when done is closed, or with an error
		pause := time.NewTicker(25 * time.Millisecond)
		defer pause.Stop()
		for {
			began := time.Now()
			if s.err = exec.Command("/bin/true").Run(); s.err != nil {
				return
			}
			s.execs = append(s.execs, time.Since(began))
			select {
			case <-s.done:
				return
			case <-pause.C:
			}
		}
	})
	return s
}

// stop ends the sampling and returns its figures as six columns.
func (s *sampler) stop(t testing.TB) string {
	t.Helper()
	close(s.done)
	s.wait.Wait()
	if s.err != nil {
		t.Fatalf("the host answered no more: %v", s.err)
	}
	return spread(s.late) + "\t" + spread(s.execs)
}

// spread is the median, the 99th percentile and the largest of all as columns.
func spread(all []time.Duration) string {
	if len(all) == 0 {
		return "-\t-\t-"
	}
	var b []string
	for _, at := range []float64{0.5, 0.99, 1} {
		b = append(b, quantile(all, at).Round(10*time.Microsecond).String())
	}
	return strings.Join(b, "\t")
}

// quantile returns the value below which the share at of all lies.
func quantile(all []time.Duration, at float64) time.Duration {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[min(int(float64(len(sorted))*at), len(sorted)-1)]
}

// What a stressor must come to is told from what it must not.
func TestStressorWant(t *testing.T) {
	three := 3
	for _, tt := range []struct {
		s      stressor
		o      outcome
		stderr string
		ok     bool
	}{
		{stressor{name: "works"}, outcome{Kind: "timed_out"}, "", true},
		{stressor{name: "works"}, outcome{Kind: "exited", ExitCode: &three}, "", false},
		{stressor{name: "works"}, outcome{Kind: "limit_exceeded", Resource: "memory"}, "", false},
		{stressor{name: "eats", oom: true}, outcome{Kind: "limit_exceeded", Resource: "memory"}, "", true},
		{stressor{name: "eats", oom: true}, outcome{Kind: "limit_exceeded", Resource: "cpu"}, "", false},
		{stressor{name: "can't", code: 3, says: "no"}, outcome{Kind: "exited", ExitCode: &three}, "no", true},
		{stressor{name: "can't", code: 3, says: "no"}, outcome{Kind: "exited", ExitCode: &three}, "", false},
		{stressor{name: "can't", code: 2, says: "no"}, outcome{Kind: "exited", ExitCode: &three}, "no", false},
		{stressor{name: "can't", code: 3, says: "no"}, outcome{Kind: "timed_out"}, "no", false},
	} {
		if err := tt.s.want(result{Stderr: capture{Text: tt.stderr}}, tt.o); (err == nil) != tt.ok {
			t.Errorf("%+v.want(%+v, %q) = %v, want nil to be %v", tt.s, tt.o, tt.stderr, err, tt.ok)
		}
	}
}
