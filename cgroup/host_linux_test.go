package cgroup

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/checkcell/checkcell/internal/host"
)

func TestOpen(t *testing.T) {
	each(t, func(t *testing.T, h *Host) {
		support := h.Controllers()
		for _, c := range []Controller{Memory, PIDs, CPU, CPUTime, Kill, Freeze} {
			if !support[c].Available || !strings.HasPrefix(support[c].Detail, "cgroup") {
				t.Errorf("Controllers()[%v] = %+v, want it available, with its hierarchy", c, support[c])
			}
		}
		if len(support) != 6 {
			t.Errorf("Controllers() = %v, want 6", support)
		}
		support[Memory] = Support{}
		if !h.Controllers()[Memory].Available {
			t.Error("a change to what Controllers returned changed the Host")
		}
		for _, one := range h.all {
			rival, err := one.top.sub(h.name)
			if err != nil {
				t.Fatal(err)
			}
			if ok, err := rival.lock(); ok || err != nil {
				t.Errorf("lock of %s by another = %v, %v, want it held", rival.path(), ok, err)
			}
			if err := rival.close(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestOpenMode(t *testing.T) {
	host.Need(t, host.Root, host.CgroupWritable, host.CgroupV1, host.CgroupV2)
	for _, tt := range []struct {
		cfg  Config
		want Mode
	}{{Config{}, ModeHybrid}, {Config{V1Only: true}, ModeV1}} {
		h := open(t, tt.cfg)
		if h.Mode() != tt.want {
			t.Errorf("Open(%+v).Mode() = %v, want %v", tt.cfg, h.Mode(), tt.want)
		}
		g := create(t, h, "run", nil)
		if _, ok := g.FD(); ok != (tt.want == ModeHybrid) {
			t.Errorf("FD() in mode %v = %v, want %v", tt.want, ok, !ok)
		}
	}
}

func TestOpenTwice(t *testing.T) {
	each(t, func(t *testing.T, h *Host) {
		other := open(t, sameAs(h))
		create(t, h, "run", nil)
		create(t, other, "run", nil) // no clash: each owns a directory
		if h.name == other.name {
			t.Errorf("two Hosts own %s", h.name)
		}
	})
}

func TestCloseOccupied(t *testing.T) {
	each(t, func(t *testing.T, h *Host) {
		other := open(t, sameAs(h))
		g := create(t, other, "run", nil)
		if err := other.Close(); err == nil {
			t.Error("Close() with a group left = nil, want an error")
		}
		if got := sweep(t, h); got != (Swept{}) {
			t.Errorf("Sweep() after a failed Close = %+v, want the lock still held", got)
		}
		if err := g.Remove(t.Context()); err != nil {
			t.Errorf("Remove() after a failed Close = %v, want nil", err)
		}
		for range 2 {
			if err := other.Close(); err != nil {
				t.Errorf("Close() = %v, want nil", err)
			}
		}
		if _, err := other.Create("run", nil); !errors.Is(err, os.ErrClosed) {
			t.Errorf("Create() after Close = %v, want ErrClosed", err)
		}
	})
}

func TestOpenParent(t *testing.T) {
	host.Need(t, host.Root, host.CgroupWritable)
	_, err := Open(Config{Parent: "/checkcell-absent"})
	var missing *MissingError
	if !errors.As(err, &missing) || !strings.Contains(missing.Missing[Kill], "checkcell-absent") {
		t.Errorf("Open with a parent that doesn't exist = %v, want a MissingError that names it", err)
	}
	parent := makeParent(t, "parent")
	h := open(t, Config{Parent: parent})
	cmd, out := start(t, create(t, h, "run", limit(64<<20, 50)), "sleep")
	line(t, out)
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", cmd.Process.Pid))
	if want := ":" + parent + "/checkcell/" + h.name + "/run"; err != nil || !strings.Contains(string(text), want) {
		t.Errorf("the process is in %s, %v, want %s", text, err, want)
	}
}

// TestOpenFailsClean has a required controller missing: nothing is left.
func TestOpenFailsClean(t *testing.T) {
	host.Need(t, host.Root, host.CgroupWritable, host.CgroupV1)
	name := "/checkcell-partial-" + strconv.Itoa(os.Getpid())
	mounts, self, err := look()
	if err != nil {
		t.Fatal(err)
	}
	makeParentIn(t, makePlan(mounts, self, Config{}).uses[0].mount, name) // its removal fails if anything is left in it
	_, err = Open(Config{Parent: name})                                   // the other hierarchies don't have it
	var missing *MissingError
	if !errors.As(err, &missing) || missing.Missing[Memory] == "" || missing.Missing[Kill] != "" || missing.Hint == "" {
		t.Errorf("Open = %v, want a MissingError for memory, not for kill, with a hint", err)
	}
	h := open(t, Config{Parent: name, AllowMissing: []Controller{Memory, PIDs, CPU}})
	if got := h.Controllers()[Memory]; got.Available || !strings.Contains(got.Detail, name) {
		t.Errorf("Controllers()[Memory] = %+v, want it missing, and why", got)
	}
	if _, err := h.Create("run", limit(64<<20, 0)); !errors.As(err, &missing) {
		t.Errorf("Create with a memory limit = %v, want a MissingError", err)
	}
	create(t, h, "run", nil)
}

func TestOpenRefuses(t *testing.T) {
	for _, cfg := range []Config{{Parent: "relative"}, {Parent: "/a/../b"}, {AllowMissing: []Controller{0}}, {AllowMissing: []Controller{99}}} {
		if h, err := Open(cfg); err == nil {
			t.Errorf("Open(%+v) = %v, nil, want an error", cfg, h)
		}
	}
}
