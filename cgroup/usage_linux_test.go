package cgroup

import (
	"errors"
	"io/fs"
	"os/exec"
	"testing"
	"time"

	"github.com/checkcell/checkcell/internal/host"
)

func TestUsageOfNothing(t *testing.T) {
	each(t, func(t *testing.T, h *Host) {
		u := create(t, h, "run", limit(64<<20, 10)).Usage()
		for name, r := range map[string]Reading{"CPU": u.CPU, "PeakMemory": u.PeakMemory, "OOMKills": u.OOMKills, "PIDsMaxHits": u.PIDsMaxHits} {
			if n, ok := r.Value(); n != 0 || !ok || r.Err() != nil {
				t.Errorf("%s of a new group = %d, %v, %v, want 0, true, nil", name, n, ok, r.Err())
			}
		}
	})
}

func TestCPUTime(t *testing.T) {
	each(t, func(t *testing.T, h *Host) {
		g := create(t, h, "run", nil)
		cmd, _ := start(t, g, "burn") // for 100 ms of wall time
		if err := cmd.Wait(); err != nil {
			t.Fatal(err)
		}
		spent := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
		got, err := g.CPUTime()
		if err != nil || got < spent/2 || got > spent+50*time.Millisecond {
			t.Errorf("CPUTime() = %v, %v, want about the %v of the one process", got, err, spent)
		}
		if n, ok := g.Usage().CPU.Value(); !ok || time.Duration(n) != got {
			t.Errorf("Usage().CPU = %d, %v, want the %d of CPUTime", n, ok, got)
		}
	})
}

func TestOOM(t *testing.T) {
	each(t, func(t *testing.T, h *Host) {
		const bound = 64 << 20
		g := create(t, h, "run", limit(bound, 0))
		if n, err := g.OOMKills(); n != 0 || err != nil {
			t.Errorf("OOMKills() before = %d, %v, want 0, nil", n, err)
		}
		cmd, _ := start(t, g, "eat")
		reap(t, cmd)
		if n, err := g.OOMKills(); n < 1 || n > 2 || err != nil { // a group kill may count the first one twice
			t.Errorf("OOMKills() = %d, %v, want 1 or 2, nil", n, err)
		}
		u := g.Usage()
		if n, ok := u.PeakMemory.Value(); !ok || n < bound/2 || n > bound+1<<20 { // the kernel may go some pages over
			t.Errorf("PeakMemory = %d, %v, want about %d", n, ok, bound)
		}
		if n, ok := u.OOMKills.Value(); n < 1 || n > 2 || !ok {
			t.Errorf("Usage().OOMKills = %d, %v, want 1 or 2, true", n, ok)
		}
	})
}

// TestOOMBelow has the kill in a group that a member made.
func TestOOMBelow(t *testing.T) {
	each(t, func(t *testing.T, h *Host) {
		g := create(t, h, "run", limit(64<<20, 0))
		cmd := programCommand("eat")
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		moveBelow(t, g, cmd.Process.Pid)
		in.Close()
		reap(t, cmd)
		if n, err := g.OOMKills(); n < 1 || n > 2 || err != nil { // a group kill may count the first one twice
			t.Errorf("OOMKills() = %d, %v, want 1 or 2, nil", n, err)
		}
	})
}

func TestPIDsMaxHits(t *testing.T) {
	host.Need(t, host.Bash)
	each(t, func(t *testing.T, h *Host) {
		g := create(t, h, "run", limit(0, 3))
		cmd := exec.Command("bash", "--norc", "--noprofile", "-c",
			`read -r _; sleep 1000 & sleep 1000 & sleep 1000 & wait`)
		startCommand(t, g, cmd)
		for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
			n, ok := g.Usage().PIDsMaxHits.Value()
			if ok && n > 0 {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("PIDsMaxHits = %d, %v, want hits", n, ok)
			}
		}
		if got, err := g.Members(); err != nil || len(got) != 3 {
			t.Errorf("Members() at the limit = %v, %v, want 3", got, err)
		}
		if r := g.Usage().PeakPIDs; r.Err() == nil {
			if n, _ := r.Value(); n != 3 {
				t.Errorf("PeakPIDs = %d, want 3", n)
			}
		} else if !errors.Is(r.Err(), fs.ErrNotExist) { // pids.peak is of Linux 6.10
			t.Errorf("PeakPIDs: %v, want it known, or the file missing", r.Err())
		}
		mustKill(t, g)
		reap(t, cmd)
	})
}

// TestUsageUnknown asks for what can't be read: each says so, none is 0.
func TestUsageUnknown(t *testing.T) {
	each(t, func(t *testing.T, h *Host) {
		g, err := h.Create("run", nil)
		if err != nil {
			t.Fatal(err)
		}
		lacking := &Group{tree: g.tree, host: &Host{support: map[Controller]Support{}}}
		wantUnknown(t, "without controllers", lacking)
		var missing *MissingError
		if _, err := lacking.OOMKills(); !errors.As(err, &missing) {
			t.Errorf("OOMKills() without a controller = %v, want a MissingError", err)
		}
		if err := g.Remove(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantUnknown(t, "after Remove", g)
	})
}

func wantUnknown(t *testing.T, when string, g *Group) {
	t.Helper()
	u := g.Usage()
	for name, r := range map[string]Reading{"CPU": u.CPU, "PeakMemory": u.PeakMemory, "PeakPIDs": u.PeakPIDs, "OOMKills": u.OOMKills, "PIDsMaxHits": u.PIDsMaxHits} {
		if n, ok := r.Value(); ok || r.Err() == nil {
			t.Errorf("%s: %s = %d, %v, %v, want not known, and why", when, name, n, ok, r.Err())
		}
	}
	if got, err := g.CPUTime(); err == nil {
		t.Errorf("%s: CPUTime() = %v, nil, want an error", when, got)
	}
}

func BenchmarkCPUTime(b *testing.B) {
	host.Need(b, host.Root, host.CgroupWritable)
	h, err := Open(Config{})
	if err != nil {
		b.Fatal(err)
	}
	defer h.Close()
	g, err := h.Create("run", nil)
	if err != nil {
		b.Fatal(err)
	}
	defer g.Remove(b.Context())
	for b.Loop() {
		if _, err := g.CPUTime(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCreateRemove(b *testing.B) {
	host.Need(b, host.Root, host.CgroupWritable)
	for name, cfg := range map[string]Config{"native": {}, "v1": {V1Only: true}} {
		b.Run(name, func(b *testing.B) {
			h, err := Open(cfg)
			if err != nil {
				b.Fatal(err)
			}
			defer h.Close()
			for b.Loop() {
				g, err := h.Create("run", limit(64<<20, 100))
				if err != nil {
					b.Fatal(err)
				}
				if err := g.Remove(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
