package native_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/checkcell/checkcell/cgroup"
	"github.com/checkcell/checkcell/internal/host"
	"github.com/checkcell/checkcell/sandbox"
	"github.com/checkcell/checkcell/sandbox/native"
	"github.com/checkcell/checkcell/sandbox/sandboxtest"
)

// childrenOf returns the process ids of a process's children.
func childrenOf(t *testing.T, pid int) []int {
	t.Helper()
	names, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, field := range strings.Fields(string(text)) {
			n, err := strconv.Atoi(field)
			if err != nil {
				t.Fatal(err)
			}
			pids = append(pids, n)
		}
	}
	return pids
}

// A launcher that dies takes no running cell along, and the next cell gets a
// new one.
func TestLauncherDies(t *testing.T) {
	host.Need(t, host.Root, host.CgroupWritable, host.MemoryCgroup, host.PidsCgroup, host.UserNS, host.Bash)
	before := childrenOf(t, os.Getpid())
	b := open(t, native.Config{})
	box, err := b.Create(t.Context(), sandboxtest.Spec("read -r x < fifo; echo $x"))
	if err != nil {
		t.Fatal(err)
	}
	for _, launcher := range childrenOf(t, os.Getpid()) {
		if slices.Contains(before, launcher) {
			continue
		}
		for _, pid := range append(childrenOf(t, launcher), launcher) { // its cloner first
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Errorf("kill %d: %v", pid, err)
			}
		}
	}
	p, err := box.Start(t.Context(), sandbox.StepCheck)
	if err != nil {
		t.Fatalf("Start in a cell whose launcher died: %v", err)
	}
	if end := <-p.Ended; end != sandbox.EndExited(0) && end != sandbox.EndExited(1) {
		t.Errorf("end in a cell whose launcher died = %v", end)
	}
	if _, err := box.Kill(t.Context()); err != nil {
		t.Errorf("Kill: %v", err)
	}
	if err := box.Destroy(t.Context()); err != nil {
		t.Errorf("Destroy: %v", err)
	}
	for range 2 {
		if res := run(t, b, sandboxtest.Spec("echo ok")); !res.Success() {
			t.Errorf("a run after the launcher died = %v, cleanup %v", res.Outcome, res.Cleanup)
		}
	}
}

// Many runs leave nothing in our own process.
func TestRunsLeaveNothing(t *testing.T) {
	host.Need(t, host.Root, host.CgroupWritable, host.MemoryCgroup, host.PidsCgroup, host.UserNS, host.Bash)
	b := open(t, native.Config{})
	dir := plant(t)
	few := func(n int) {
		for i := range n {
			ctx, cancel := context.WithCancelCause(t.Context())
			spec := sandboxtest.Spec("echo ok; sleep 600 &", func(s *sandbox.Spec) { s.SyntaxPass = true })
			switch i % 4 {
			case 1:
				spec.Workspace = dir
			case 2:
				spec.Files = []sandbox.File{{Path: "a/b", Content: []byte("x")}}
			case 3:
				time.AfterFunc(time.Duration(i)*time.Millisecond, func() { cancel(errors.New("enough")) })
			}
			res := (&sandbox.Runner{Backend: b}).Run(ctx, spec).Last()
			cancel(nil)
			if res.Cleanup.State != sandbox.CleanupDone {
				t.Errorf("run %d: %v, cleanup %v", i, res.Outcome, res.Cleanup)
			}
		}
	}
	few(8)
	fds, routines := openFiles(t), runtime.NumGoroutine()
	few(40)
	for range 100 {
		if runtime.NumGoroutine() <= routines {
			break
		}
		runtime.Gosched()
		time.Sleep(time.Millisecond)
	}
	if got := openFiles(t); got > fds {
		t.Errorf("%d open files after 40 runs, %d before", got, fds)
	}
	if got := runtime.NumGoroutine(); got > routines {
		t.Errorf("%d goroutines after 40 runs, %d before", got, routines)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// Our environment, memory and descriptors are out of a cell's reach.
func TestNothingOfOursIsInTheCell(t *testing.T) {
	host.Need(t, host.Root, host.CgroupWritable, host.MemoryCgroup, host.PidsCgroup, host.UserNS, host.Bash)
	t.Setenv("CHECKCELL_CANARY", "canary-5d1f90c2")
	b := open(t, native.Config{})
	res := run(t, b, sandboxtest.Spec(`env; cat /proc/*/environ /proc/1/cmdline 2>/dev/null; (: < /proc/1/exe) 2>/dev/null && echo exe
for n in {3..40}; do [ -e /proc/self/fd/$n ] && readlink /proc/self/fd/$n; done
ls /proc/1/fd /proc/1/root /proc/1/cwd 2>/dev/null; cut -d' ' -f3 /proc/self/mountinfo >/dev/null; grep -v -E '^[0-9]+ [0-9]+ [0-9]+:[0-9]+ (/usr|/null|/zero|/full|/random|/urandom|/tty|/etc|/bin|/sbin|/lib|/tmp|/work|/dev-shm|/var-tmp|/sys|/irq|/bus|/fs|/sysrq-trigger|/)' /proc/self/mountinfo
exit 0`))
	out := string(res.Stdout.Kept)
	for _, never := range []string{"canary-", "exe\n", "pipe:", "socket:", "memfd", " /root", " /home"} {
		if strings.Contains(out, never) {
			t.Errorf("inside the cell %q is seen:\n%s", never, out)
		}
	}
	if res.Outcome != sandbox.Exited(0) {
		t.Errorf("outcome = %v, stderr %q", res.Outcome, res.Stderr.Kept)
	}
}

func TestRefusesWhatCantBeEnforced(t *testing.T) {
	host.Need(t, host.Root, host.UserNS, host.Bash)
	b, err := native.Open(native.Config{CgroupParent: "/no/such/group"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	res := run(t, b, sandboxtest.Spec("echo ran"))
	for _, part := range []string{"cgroup, memory, pids, cpu", "--allow-missing=cgroup,memory,pids,cpu"} {
		if res.Outcome.Kind() != sandbox.KindStartFailed || !strings.Contains(res.Outcome.Detail(), part) {
			t.Errorf("outcome = %v, want start_failed with %q", res.Outcome, part)
		}
	}
	spec := sandboxtest.Spec("sleep 600 & echo ran", func(s *sandbox.Spec) {
		s.AllowMissing = []sandbox.Control{sandbox.ControlCgroup, sandbox.ControlMemory, sandbox.ControlPIDs, sandbox.ControlCPU}
	})
	res = run(t, b, spec)
	if !res.Success() || len(res.Evidence.Receipt.Missing) != 4 || res.Evidence.Receipt.Cgroup != "none" {
		t.Errorf("allowed: %v, cleanup %v, receipt %+v; want exited 0, four missing", res.Outcome, res.Cleanup, res.Evidence.Receipt)
	}
	if _, known := res.Leftovers.Value(); known || res.Evidence.Usage.CPU.Positive() {
		t.Errorf("allowed: leftovers %v, usage %+v; want both unknown", res.Leftovers, res.Evidence.Usage)
	}
}

// Who knows better what to do about missing groups is quoted; what is missing
// can be asked for.
func TestGroupsThatAreMissing(t *testing.T) {
	host.Need(t, host.UserNS, host.CgroupV2)
	const fix = "ask Ada for a group"
	b := open(t, native.Config{CgroupParent: "/no/such/group", CgroupFix: fix})
	mode, missing := b.Groups()
	for _, control := range []sandbox.Control{sandbox.ControlCgroup, sandbox.ControlMemory, sandbox.ControlPIDs, sandbox.ControlCPU} {
		if !slices.Contains(missing, control) {
			t.Errorf("Groups() below no group = %v, %v, want %s missing", mode, missing, control)
		}
	}
	if mode != cgroup.ModeHybrid && mode != cgroup.ModeV2 {
		t.Errorf("Groups() = %v, want hybrid or v2, which this host has", mode)
	}
	res := run(t, b, sandboxtest.Spec("echo ran"))
	if detail := res.Outcome.Detail(); res.Outcome.Kind() != sandbox.KindStartFailed || !strings.Contains(detail, "; to fix it: "+fix) {
		t.Errorf("outcome = %v, want start_failed with %q", res.Outcome, fix)
	}
	for _, c := range b.Probe(t.Context()) {
		if want := slices.Contains(missing, c.Control); (c.Fix == fix) != want {
			t.Errorf("Probe() says of %s: %+v, want %q to be said: %v", c.Control, c, fix, want)
		}
	}
}
