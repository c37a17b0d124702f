package cgroup

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/checkcell/checkcell/internal/host"
)

// settlement is a group of the test's own on pure v2, in which a settler runs.
type settlement struct {
	group string
	dir   dir
	root  string // the mount
}

func settle(t *testing.T, name string) settlement {
	t.Helper()
	group := makeParent(t, name)
	mounts, _, err := look()
	if err != nil {
		t.Fatal(err)
	}
	path, _ := mounts[0].locate(group)
	d, err := openDir(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.close(); err != nil {
			t.Error(err)
		}
	})
	return settlement{group: group, dir: d, root: mounts[0].point}
}

// run runs a settler in s and returns the lines that it says.
func (s settlement) run(t *testing.T, attr syscall.SysProcAttr, env ...string) []string {
	t.Helper()
	cmd := programCommand("settler", env...)
	attr.UseCgroupFD, attr.CgroupFD = true, int(s.dir.f.Fd())
	cmd.SysProcAttr = &attr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("settler in %s: %v, said %q", s.group, err, out)
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}

// TestSettleAlone has nobody else in our group: we move into a leaf and back.
func TestSettleAlone(t *testing.T) {
	host.Need(t, host.Root, host.CgroupPureV2)
	s := settle(t, "alone")
	for range 2 {
		said := s.run(t, syscall.SysProcAttr{})
		if len(said) != 2 {
			t.Fatalf("settler said %q, want two lines", said)
		}
		words := strings.Fields(said[0])
		if want := s.group + "/checkcell/supervisor-"; words[0] != "open" || !strings.HasPrefix(words[1], want) || words[2] != s.dir.path() {
			t.Errorf("settler said %q, want it open, itself in %s…, its groups below %s", said[0], want, s.dir.path())
		}
		if want := "closed " + s.group; said[1] != want {
			t.Errorf("settler said %q, want %q", said[1], want)
		}
		if names, err := s.dir.subs(); err != nil || len(names) > 0 {
			t.Errorf("left in %s: %v, %v, want nothing", s.group, names, err)
		}
	}
}

// occupy puts a sleeping process into s.
func (s settlement) occupy(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := programCommand("sleep")
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(s.dir.f.Fd())}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cmd.Process.Kill(); err != nil {
			t.Error(err)
		}
		reap(t, cmd)
	})
	return cmd
}

// TestSettleCrowded has another process in our group. It isn't moved; groups go
// below the real root, also where controllers may be missing.
func TestSettleCrowded(t *testing.T) {
	host.Need(t, host.Root, host.CgroupPureV2)
	s := settle(t, "crowded")
	other := s.occupy(t)
	for _, env := range []string{"ALLOWMISSING=", "ALLOWMISSING=all"} {
		said := s.run(t, syscall.SysProcAttr{}, env)
		if words := strings.Fields(said[0]); words[0] != "open" || words[1] != s.group || words[2] != s.root {
			t.Errorf("%s: settler said %q, want it open, itself in %s, its groups below %s", env, said[0], s.group, s.root)
		}
	}
	if pids, err := s.dir.members(); err != nil || len(pids) != 1 || pids[0] != other.Process.Pid {
		t.Errorf("members of %s = %v, %v, want the other process alone, where it was", s.group, pids, err)
	}
	if names, err := s.dir.subs(); err != nil || len(names) > 0 {
		t.Errorf("left in %s: %v, %v, want nothing", s.group, names, err)
	}
}

// TestSettleInContainer has the same where the root that we see is not the real
// one: nothing can be had, and the error says what to do.
func TestSettleInContainer(t *testing.T) {
	host.Need(t, host.Root, host.CgroupPureV2)
	s := settle(t, "container")
	apart := syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWCGROUP}
	alone := s.run(t, apart, "REMOUNT="+s.root)
	if words := strings.Fields(alone[0]); words[0] != "open" || !strings.HasPrefix(words[1], "/checkcell/supervisor-") {
		t.Errorf("settler alone in a container said %q, want it open and moved", alone[0])
	}
	s.occupy(t)
	said := strings.Join(s.run(t, apart, "REMOUNT="+s.root), "\n")
	for _, want := range []string{"failed true", "can't enforce memory, pids, cpu: group", "holds other processes", "systemd-run --scope -p Delegate=yes", "--cgroup-parent"} {
		if !strings.Contains(said, want) {
			t.Errorf("settler in a crowded container said %q, want %q in it", said, want)
		}
	}
}

// TestSettleWithoutController has a parent to which one controller isn't handed.
func TestSettleWithoutController(t *testing.T) {
	host.Need(t, host.Root, host.CgroupPureV2)
	s := settle(t, "lacking")
	for _, word := range []string{"+memory", "+pids"} { // not cpu
		if err := s.dir.write("cgroup.subtree_control", word); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.dir.mkdir("inner"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.dir.rmdir("inner"); err != nil {
			t.Error(err)
		}
	})
	_, err := Open(Config{Parent: s.group + "/inner"})
	var missing *MissingError
	if !errors.As(err, &missing) || len(missing.Missing) != 1 || !strings.Contains(missing.Missing[CPU], s.group) {
		t.Errorf("Open below %s/inner = %v, want a MissingError for cpu alone that names the group", s.group, err)
	}
	h := open(t, Config{Parent: s.group + "/inner", AllowMissing: []Controller{CPU}})
	support := h.Controllers()
	if support[CPU].Available || !support[Memory].Available || !support[Kill].Available {
		t.Errorf("Controllers() = %v, want all but cpu", support)
	}
	create(t, h, "run", limit(64<<20, 10))
}

// TestSettleCrowdedParent has a parent that holds a process. Groups without
// controllers can be made there, and with them none.
func TestSettleCrowdedParent(t *testing.T) {
	host.Need(t, host.Root, host.CgroupPureV2)
	s := settle(t, "crowded-parent")
	s.occupy(t)
	_, err := Open(Config{Parent: s.group})
	var missing *MissingError
	if !errors.As(err, &missing) || len(missing.Missing) != 3 || !strings.Contains(missing.Missing[PIDs], "holds other processes") {
		t.Errorf("Open below a crowded parent = %v, want a MissingError for memory, pids and cpu", err)
	}
	h := open(t, Config{Parent: s.group, AllowMissing: []Controller{Memory, PIDs, CPU}})
	g := create(t, h, "run", nil)
	cmd, out := start(t, g, "sleep")
	line(t, out)
	mustKill(t, g)
	reap(t, cmd)

	// The kernel does hand down pids from a group with processes, as a threaded
	// domain; no process can be put into the groups below.
	threaded := settle(t, "threaded")
	threaded.occupy(t)
	if err := threaded.dir.write("cgroup.subtree_control", "+pids"); err != nil {
		t.Fatal(err)
	}
	_, err = Open(Config{Parent: threaded.group, AllowMissing: []Controller{Memory, CPU}})
	if !errors.As(err, &missing) || !strings.Contains(missing.Missing[Kill], "domain invalid") {
		t.Errorf("Open below a threaded domain = %v, want a MissingError that names the type", err)
	}
}

// TestSettleReadOnly has cgroup2 mounted as Docker does it: nothing can be made.
func TestSettleReadOnly(t *testing.T) {
	host.Need(t, host.Root, host.CgroupV2)
	mounts, self, err := look()
	if err != nil {
		t.Fatal(err)
	}
	m, _ := find(mounts, self, "")
	cmd := programCommand("settler", "READONLY="+m.point)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("settler: %v, said %q", err, out)
	}
	for _, want := range []string{"failed true", "kill", "read-only file system"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("settler with a read-only cgroup2 said %q, want %q in it", out, want)
		}
	}
}

func TestOpenDirRefuses(t *testing.T) {
	for _, path := range []string{t.TempDir(), "/proc/self/stat", "/nowhere"} {
		if d, err := openDir(path); err == nil {
			t.Errorf("openDir(%s) = %v, nil, want an error", path, d)
		}
	}
	if _, err := openDir("/nowhere"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("openDir(/nowhere) = %v, want ErrNotExist", err)
	}
}
