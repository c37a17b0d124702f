package cgroup

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/checkcell/checkcell/internal/host"
)

// startOwner starts a process that owns a Host with one sleeping run, and
// returns the name of its directory and the id of the sleeping process.
func startOwner(t *testing.T, h *Host) (owner *exec.Cmd, name string, sleeper int) {
	t.Helper()
	cmd := programCommand("owner", like(h)...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := out.(*os.File).SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	name, pid, _ := strings.Cut(line(t, bufio.NewReader(out)), " ")
	sleeper, err = strconv.Atoi(pid)
	if err != nil {
		t.Fatalf("owner said %q, want the id of its sleeping process", pid)
	}
	return cmd, name, sleeper
}

// crash kills an owner, so that the lock goes and the group stays.
func crash(t *testing.T, owner *exec.Cmd) {
	t.Helper()
	if err := owner.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	reap(t, owner)
}

// reapOrphan waits for a process that its parent left to this one.
func reapOrphan(t *testing.T, pid int) {
	t.Helper()
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(pid, &status, 0, nil); err != nil || status.Signal() != syscall.SIGKILL {
		t.Errorf("Wait4(%d) = %v, %v, want a death by SIGKILL", pid, status, err)
	}
}

func hasOwner(t *testing.T, h *Host, name string) bool {
	t.Helper()
	found := 0
	for _, one := range h.all {
		ok, err := one.top.has(name)
		if err != nil {
			t.Fatal(err)
		}
		if ok {
			found++
		}
	}
	if found != 0 && found != len(h.all) {
		t.Errorf("directory %s is in %d of %d hierarchies", name, found, len(h.all))
	}
	return found > 0
}

func TestSweep(t *testing.T) {
	each(t, func(t *testing.T, h *Host) {
		dying, dead, orphan := startOwner(t, h)
		living, alive, sleeping := startOwner(t, h)
		if got, err := h.Sweep(t.Context()); err != nil || got != (Swept{}) {
			t.Errorf("Sweep() among the living = %+v, %v, want nothing", got, err)
		}
		crash(t, dying)
		if got, want := sweep(t, h), (Swept{Runs: 1, Processes: 1}); got != want {
			t.Errorf("Sweep() = %+v, want %+v", got, want)
		}
		reapOrphan(t, orphan)
		if hasOwner(t, h, dead) {
			t.Errorf("directory %s of the crashed owner is left", dead)
		}
		if p, ok, err := readProcess(sleeping); !hasOwner(t, h, alive) || !ok || p.dead() || err != nil {
			t.Errorf("run of the living owner: %v, %v, want it alive", p, err)
		}
		crash(t, living)
		if got, want := sweep(t, h), (Swept{Runs: 1, Processes: 1}); got != want {
			t.Errorf("Sweep() = %+v, want %+v", got, want)
		}
		reapOrphan(t, sleeping)
	})
}

func sweep(t *testing.T, h *Host) Swept {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	got, err := h.Sweep(ctx)
	if err != nil {
		t.Errorf("Sweep() = %v, want nil", err)
	}
	return got
}

// TestSweepFromAfar sweeps from a PID namespace in which no member is seen: the
// lock tells the dead from the living there too, and cgroup.kill needs no numbers.
func TestSweepFromAfar(t *testing.T) {
	host.Need(t, host.Root, host.CgroupWritable, host.CgroupKill)
	h := open(t, Config{Parent: makeParent(t, "afar")})
	dying, dead, orphan := startOwner(t, h)
	living, alive, sleeping := startOwner(t, h)
	crash(t, dying)
	for _, want := range []string{"swept 1 0 <nil>\n", "swept 0 0 <nil>\n"} {
		if got := sweepFromAfar(t, h, 20*time.Second); got != want {
			t.Errorf("sweeper in another PID namespace said %q, want %q", got, want)
		}
	}
	reapOrphan(t, orphan)
	if hasOwner(t, h, dead) || !hasOwner(t, h, alive) {
		t.Errorf("%s is left, or %s is gone", dead, alive)
	}
	crash(t, living)
	sweep(t, h)
	reapOrphan(t, sleeping)
}

func sweepFromAfar(t *testing.T, h *Host, patience time.Duration) string {
	t.Helper()
	cmd := programCommand("sweeper", append(like(h), "PATIENCE="+patience.String())...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS}
	got, err := cmd.Output()
	if err != nil {
		t.Errorf("sweeper: %v, said %q", err, got)
	}
	return string(got)
}

// TestSweepUnseen has only version 1, where who isn't seen isn't even listed and
// can't be killed: that is an error, and the group stays.
func TestSweepUnseen(t *testing.T) {
	host.Need(t, host.Root, host.CgroupWritable, host.CgroupV1)
	h := open(t, Config{V1Only: true, Parent: makeParent(t, "unseen")})
	dying, dead, orphan := startOwner(t, h)
	crash(t, dying)
	got := sweepFromAfar(t, h, 200*time.Millisecond)
	if !strings.HasPrefix(got, "swept 0 0 sweep: ") || !strings.Contains(got, "that can't be seen from here") {
		t.Errorf("sweeper in another PID namespace said %q, want nothing swept and an error that says why", got)
	}
	if p, ok, err := readProcess(orphan); !hasOwner(t, h, dead) || !ok || p.dead() || err != nil {
		t.Errorf("run that couldn't be swept: %v, %v, want it alive", p, err)
	}
	if got, want := sweep(t, h), (Swept{Runs: 1, Processes: 1}); got != want {
		t.Errorf("Sweep() = %+v, want %+v", got, want)
	}
	reapOrphan(t, orphan)
}

// TestSweepOrphan has directories in the last hierarchy, whose primary ones are
// gone. The owner of one holds the lock there, and in no other hierarchy.
func TestSweepOrphan(t *testing.T) {
	each(t, func(t *testing.T, h *Host) {
		last := h.all[len(h.all)-1]
		for _, path := range []string{"s-1-dead", "s-1-dead/run", "s-1-alive", "s-1-alive/run", "other"} {
			if err := last.top.mkdir(path); err != nil {
				t.Fatal(err)
			}
		}
		if len(h.all) > 1 {
			if err := h.all[0].top.mkdir("s-1-alive"); err != nil {
				t.Fatal(err)
			}
		}
		alive, err := last.top.sub("s-1-alive")
		if err != nil {
			t.Fatal(err)
		}
		if ok, err := alive.lock(); !ok || err != nil {
			t.Fatalf("lock() = %v, %v, want true", ok, err)
		}
		if got, want := sweep(t, h), (Swept{Runs: 1}); got != want {
			t.Errorf("Sweep() = %+v, want %+v", got, want)
		}
		for name, want := range map[string]bool{"s-1-dead": false, "s-1-alive": true, "s-1-alive/run": true, "other": true} {
			if ok, err := last.top.has(name); ok != want || err != nil {
				t.Errorf("after Sweep, %s is there = %v, %v, want %v", name, ok, err, want)
			}
		}
		if ok, err := h.all[0].top.has("s-1-alive"); !ok || err != nil {
			t.Errorf("after Sweep, s-1-alive is in the first hierarchy = %v, %v, want it", ok, err)
		}
		if err := alive.close(); err != nil {
			t.Fatal(err)
		}
		if got, want := sweep(t, h), (Swept{Runs: 1}); got != want {
			t.Errorf("Sweep() of the unlocked one = %+v, want %+v", got, want)
		}
		if err := last.top.rmdir("other"); err != nil {
			t.Fatal(err)
		}
	})
}

// TestSweepLeaf has the leaf of a supervisor that ended, and of one that lives.
func TestSweepLeaf(t *testing.T) {
	host.Need(t, host.Root, host.CgroupWritable, host.CgroupV2)
	h := open(t, Config{Parent: makeParent(t, "leaf")})
	top := h.all[0].top
	for _, name := range []string{"supervisor-1-dead", "supervisor-1-alive"} {
		if err := top.mkdir(name); err != nil {
			t.Fatal(err)
		}
	}
	cmd := programCommand("sleep")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	leaf, err := top.sub("supervisor-1-alive")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(leaf.write("cgroup.procs", strconv.Itoa(cmd.Process.Pid)), leaf.close()); err != nil {
		t.Fatal(err)
	}
	if got := sweep(t, h); got != (Swept{}) {
		t.Errorf("Sweep() = %+v, want no run", got)
	}
	if ok, err := top.has("supervisor-1-dead"); ok || err != nil {
		t.Errorf("the empty leaf is there = %v, %v, want it gone", ok, err)
	}
	if p, ok, err := readProcess(cmd.Process.Pid); !ok || p.dead() || err != nil {
		t.Errorf("the supervisor = %v, %v, %v, want it alive", p, ok, err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	reap(t, cmd)
	sweep(t, h)
}

// TestSweepCanceled leaves what it had no time for to the next one.
func TestSweepCanceled(t *testing.T) {
	host.Need(t, host.Root, host.CgroupWritable, host.CgroupV1)
	h := open(t, Config{Parent: makeParent(t, "canceled")})
	dying, name, orphan := startOwner(t, h)
	crash(t, dying)
	thaw := freeze(t, orphan)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	got, err := h.Sweep(ctx)
	if !errors.Is(err, context.DeadlineExceeded) || got != (Swept{}) || !hasOwner(t, h, name) {
		t.Errorf("Sweep() out of time = %+v, %v, want nothing swept and DeadlineExceeded", got, err)
	}
	thaw()
	if got, want := sweep(t, h).Runs, 1; got != want {
		t.Errorf("Sweep() after it = %d runs, want %d", got, want)
	}
	reapOrphan(t, orphan)
}

// TestOwnersAndSweepers has 8 processes own, run and sweep at the same time.
// Each fails if another disturbs its run.
func TestOwnersAndSweepers(t *testing.T) {
	each(t, func(t *testing.T, h *Host) {
		var group sync.WaitGroup
		for range 8 {
			cmd := programCommand("churn", like(h)...)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			group.Go(func() {
				if err := cmd.Wait(); err != nil {
					t.Errorf("owner and sweeper: %v, want success", err)
				}
			})
		}
		group.Wait()
		if got := sweep(t, h); got != (Swept{}) {
			t.Errorf("Sweep() after all of them = %+v, want nothing left", got)
		}
	})
}

// TestClaimLosesRace has a sweeper hold the directory that was just made.
func TestClaimLosesRace(t *testing.T) {
	each(t, func(t *testing.T, h *Host) {
		one := *h.all[0]
		var err error
		if one.owner, err = one.top.sub(h.name); err != nil { // locked by h, as by a sweeper
			t.Fatal(err)
		}
		if err := one.hold(h.name); !errors.Is(err, errLost) {
			t.Errorf("hold() of a locked directory = %v, want errLost", err)
		}
		if err := one.owner.close(); err != nil {
			t.Fatal(err)
		}

		if err := one.top.mkdir("s-1-gone"); err != nil {
			t.Fatal(err)
		}
		if one.owner, err = one.top.sub("s-1-gone"); err != nil {
			t.Fatal(err)
		}
		if err := one.top.rmdir("s-1-gone"); err != nil {
			t.Fatal(err)
		}
		if err := one.hold("s-1-gone"); !errors.Is(err, errLost) && !isGone(err) {
			t.Errorf("hold() of a removed directory = %v, want errLost", err)
		}
		if err := one.owner.close(); err != nil {
			t.Fatal(err)
		}
	})
}
