package cgroup

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/checkcell/checkcell/internal/host"
)

func TestCreateIsExclusive(t *testing.T) {
	each(t, func(t *testing.T, h *Host) {
		g := create(t, h, "run-1", limit(64<<20, 50))
		if _, err := h.Create("run-1", nil); !errors.Is(err, fs.ErrExist) {
			t.Errorf("second Create(run-1) = %v, want fs.ErrExist", err)
		}
		if got := readFile(t, g, PIDs, "pids.max"); got != "50" {
			t.Errorf("pids.max of the first group = %q after a second Create, want 50", got)
		}
	})
}

// TestCreateUndoes has the name taken in the last hierarchy only.
func TestCreateUndoes(t *testing.T) {
	each(t, func(t *testing.T, h *Host) {
		last := h.all[len(h.all)-1].owner
		if err := last.mkdir("run"); err != nil {
			t.Fatal(err)
		}
		_, err := h.Create("run", nil)
		if !errors.Is(err, fs.ErrExist) {
			t.Errorf("Create(run) = %v, want fs.ErrExist", err)
		}
		if ok, err := last.has("run"); !ok || err != nil {
			t.Errorf("the directory that was there before = %v, %v, want it left alone", ok, err)
		}
		if err := last.rmdir("run"); err != nil {
			t.Fatal(err)
		}
		wantNoGroups(t, h)
	})
}

func TestCreateRefuses(t *testing.T) {
	each(t, func(t *testing.T, h *Host) {
		tiny, huge, one := int64(1), int64(1)<<60, uint64(1)
		for _, tt := range []struct {
			name string
			res  *specs.LinuxResources
			want string
		}{
			{"", nil, "not a name"},
			{"..", nil, "not a name"},
			{"a/b", nil, "not a name"},
			{"-a", nil, "not a name"},
			{"a\n", nil, "not a name"},
			{strings.Repeat("a", 129), nil, "not a name"},
			{"quota", &specs.LinuxResources{CPU: &specs.LinuxCPU{Quota: &tiny}}, "invalid argument"}, // below 1 ms
			{"period", &specs.LinuxResources{CPU: &specs.LinuxCPU{Quota: &huge, Period: &one}}, "invalid argument"},
			{"pids", &specs.LinuxResources{Pids: &specs.LinuxPids{Limit: &huge}}, "invalid argument"}, // above PID_MAX_LIMIT
			{"late", &specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: &huge}, Pids: &specs.LinuxPids{Limit: &huge}}, "invalid argument"},
		} {
			g, err := h.Create(tt.name, tt.res)
			if err == nil || !strings.Contains(err.Error(), tt.want) || g != nil {
				t.Errorf("Create(%q) = %v, %v, want nil and an error with %q", tt.name, g, err, tt.want)
			}
		}
		wantNoGroups(t, h)
	})
}

// TestApplyReadsBack writes a value that the kernel takes for another.
func TestApplyReadsBack(t *testing.T) {
	each(t, func(t *testing.T, h *Host) {
		g := create(t, h, "run", nil)
		err := g.apply(setting{controller: PIDs, key: "pids", file: "pids.max", value: "0x10"})
		if err == nil || !strings.Contains(err.Error(), `reads "16" after "0x10"`) || len(g.Controls()) != 0 {
			t.Errorf("apply of a value that reads back otherwise = %v, Controls() = %v, want an error and none", err, g.Controls())
		}
	})
}

// TestCreateWithoutController names every limit that can't be enforced.
func TestCreateWithoutController(t *testing.T) {
	each(t, func(t *testing.T, h *Host) {
		broken := *h
		broken.homes = map[Controller]*hierarchy{CPU: h.homes[CPU]}
		broken.support = map[Controller]Support{Memory: {Detail: "taken"}, PIDs: {Detail: "away"}}
		_, err := broken.Create("run", limit(64<<20, 10))
		var missing *MissingError
		if !errors.As(err, &missing) || missing.Missing[Memory] != "taken" || missing.Missing[PIDs] != "away" || len(missing.Missing) != 2 || missing.Hint == "" {
			t.Errorf("Create with limits on memory and pids = %v, want a MissingError for both, with a hint", err)
		}
		wantNoGroups(t, h)
	})
}

func TestLimitsAreInForce(t *testing.T) {
	each(t, func(t *testing.T, h *Host) {
		memory, pids, quota, period := int64(100<<20+1), int64(77), int64(150_000), uint64(50_000)
		g := create(t, h, "run", &specs.LinuxResources{
			Memory: &specs.LinuxMemory{Limit: &memory},
			Pids:   &specs.LinuxPids{Limit: &pids},
			CPU:    &specs.LinuxCPU{Quota: &quota, Period: &period},
		})
		want := map[string]string{ // the kernel rounds memory down to pages
			"memory": "cgroup1 memory.limit_in_bytes=104857600 memory.memsw.limit_in_bytes=104857600",
			"pids":   "cgroup1 pids.max=77",
			"cpu":    "cgroup1 cpu.cfs_period_us=50000 cpu.cfs_quota_us=150000",
		}
		if h.Mode() == ModeV2 {
			want = map[string]string{
				"memory": "cgroup2 memory.max=104857600 memory.swap.max=0 memory.oom.group=1",
				"pids":   "cgroup2 pids.max=77",
				"cpu":    "cgroup2 cpu.max=150000 50000",
			}
		}
		got := g.Controls()
		if swaps, err := hasSwap(); err != nil {
			t.Fatal(err)
		} else if !swaps && strings.Contains(got["memory"], noSwap) { // a kernel without swap accounting
			for _, fact := range []string{"memory.memsw.limit_in_bytes=104857600", "memory.swap.max=0"} {
				want["memory"] = strings.Replace(want["memory"], fact, noSwap, 1)
			}
		}
		if diff := cmp.Diff(got, want); diff != "" {
			t.Errorf("Controls() (-got +want):\n%s", diff)
		}
		controllers := map[string]Controller{"memory": Memory, "pids": PIDs, "cpu": CPU}
		for key, how := range want { // what Controls says is what the files say
			for _, m := range regexp.MustCompile(`(\S+)=(\d+(?: \d+)?)`).FindAllStringSubmatch(how, -1) {
				if got := readFile(t, g, controllers[key], m[1]); got != m[2] {
					t.Errorf("%s = %q, want %q", m[1], got, m[2])
				}
			}
		}
	})
}

func TestNoLimits(t *testing.T) {
	each(t, func(t *testing.T, h *Host) {
		if got := create(t, h, "run", nil).Controls(); len(got) != 0 {
			t.Errorf("Controls() without limits = %v, want none", got)
		}
	})
}

func TestMembers(t *testing.T) {
	each(t, func(t *testing.T, h *Host) {
		g := create(t, h, "run", nil)
		if got, err := g.Members(); err != nil || len(got) != 0 {
			t.Errorf("Members() of a new group = %v, %v, want none", got, err)
		}
		one, out := start(t, g, "sleep")
		line(t, out)
		two, out := start(t, g, "sleep")
		line(t, out)
		moveBelow(t, g, two.Process.Pid)
		want := []int{one.Process.Pid, two.Process.Pid}
		slices.Sort(want)
		if got, err := g.Members(); err != nil || !slices.Equal(got, want) {
			t.Errorf("Members() = %v, %v, want %v", got, err, want)
		}
		mustKill(t, g)
		reap(t, one)
		reap(t, two)
		if err := g.Remove(t.Context()); err != nil { // sub-groups too
			t.Errorf("Remove() = %v, want nil", err)
		}
		if got, err := g.Members(); err == nil {
			t.Errorf("Members() of a removed group = %v, nil, want an error", got)
		}
		if fd, ok := g.FD(); ok {
			t.Errorf("FD() of a removed group = %d, true, want false", fd)
		}
		wantNoGroups(t, h)
	})
}

func TestAddRefuses(t *testing.T) {
	host.Need(t, host.Root, host.CgroupWritable, host.CgroupV1)
	g := create(t, open(t, Config{}), "run", nil)
	for _, pid := range []int{0, -1, 1 << 30} {
		if err := g.Add(pid); err == nil {
			t.Errorf("Add(%d) = nil, want an error", pid)
		}
	}
	if got, err := g.Members(); err != nil || len(got) != 0 {
		t.Errorf("Members() = %v, %v, want none", got, err)
	}
}

func TestRemoveOccupied(t *testing.T) {
	each(t, func(t *testing.T, h *Host) {
		g := create(t, h, "run", nil)
		cmd, out := start(t, g, "sleep")
		line(t, out)
		ctx, cancel := context.WithTimeoutCause(t.Context(), 30*time.Millisecond, errors.New("enough"))
		defer cancel()
		err := g.Remove(ctx)
		var left *RemainingError
		if !errors.As(err, &left) || len(left.Processes) != 1 || left.Processes[0].PID != cmd.Process.Pid {
			t.Fatalf("Remove() of an occupied group = %v, want a RemainingError that names %d", err, cmd.Process.Pid)
		}
		if !errors.Is(err, syscall.EBUSY) || left.Err.Error() != "enough" || left.Processes[0].Comm != "exe" {
			t.Errorf("Remove() = %v, want EBUSY, the cause and the name of the process", err)
		}
		if got, err := g.Members(); err != nil || len(got) != 1 {
			t.Errorf("Members() after Remove failed = %v, %v, want one", got, err)
		}
		mustKill(t, g)
		reap(t, cmd)
		for range 2 {
			if err := g.Remove(t.Context()); err != nil {
				t.Errorf("Remove() = %v, want nil", err)
			}
		}
		wantNoGroups(t, h)
	})
}

// TestRemoveWaits has the process end while Remove tries.
func TestRemoveWaits(t *testing.T) {
	each(t, func(t *testing.T, h *Host) {
		g := create(t, h, "run", nil)
		cmd, _ := start(t, g, "burn") // ends by itself after 100 ms
		if err := g.Remove(t.Context()); err != nil {
			t.Errorf("Remove() while a member ends = %v, want nil", err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("Wait() = %v, want nil: Remove must not kill", err)
		}
	})
}

// readFile returns the text of one file of g in the hierarchy that provides c.
func readFile(t *testing.T, g *Group, c Controller, file string) string {
	t.Helper()
	n, err := g.home(c)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(n.dir.path(), file))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

// moveBelow makes groups below g, as a member with the right to it would, and
// moves pid into the deepest.
func moveBelow(t *testing.T, g *Group, pid int) {
	t.Helper()
	for _, n := range g.nodes {
		deep := filepath.Join(n.dir.path(), "a", "b")
		if err := os.MkdirAll(deep, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(deep, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0); err != nil {
			t.Fatal(err)
		}
	}
}

// wantNoGroups checks that nothing is left in the directories of h.
func wantNoGroups(t *testing.T, h *Host) {
	t.Helper()
	for _, one := range h.all {
		if names, err := one.owner.subs(); err != nil || len(names) > 0 {
			t.Errorf("left in %s: %v, %v, want nothing", one.owner.path(), names, err)
		}
	}
}
