package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/checkcell/checkcell/internal/host"
	"github.com/opencontainers/runtime-spec/specs-go"
)

func TestKillEmpty(t *testing.T) {
	each(t, func(t *testing.T, h *Host) {
		g := create(t, h, "run", nil)
		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		for range 2 {
			if err := g.Kill(canceled); err != nil {
				t.Errorf("Kill() of an empty group = %v, want nil, whatever its context", err)
			}
		}
	})
}

// TestKillCanceled has the context ended before it starts: it kills all the same,
// and either proves that or names who is left.
func TestKillCanceled(t *testing.T) {
	each(t, func(t *testing.T, h *Host) {
		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		for i := range 10 {
			g := create(t, h, fmt.Sprintf("run-%d", i), nil)
			cmd, out := start(t, g, "sleep")
			line(t, out)
			err := g.Kill(canceled)
			var left *RemainingError
			if err != nil && (!errors.As(err, &left) || len(left.Processes) > 1 || !errors.Is(err, context.Canceled)) { // it may die as it is named
				t.Errorf("Kill() = %v, want nil or a RemainingError that names the process", err)
			}
			reap(t, cmd)
		}
	})
}

// TestKillTree kills a tree in which every process has a session of its own.
func TestKillTree(t *testing.T) {
	each(t, func(t *testing.T, h *Host) {
		g := create(t, h, "run", limit(256<<20, 200))
		cmd, out := start(t, g, "chain", "DEPTH=5")
		line(t, out)
		if got, err := g.Members(); err != nil || len(got) != 5 {
			t.Errorf("Members() = %v, %v, want 5", got, err)
		}
		mustKill(t, g)
		mustKill(t, g) // again
		reap(t, cmd)
	})
}

// TestKillSubGroups has the members in groups that they made themselves.
func TestKillSubGroups(t *testing.T) {
	each(t, func(t *testing.T, h *Host) {
		g := create(t, h, "run", nil)
		one, out := start(t, g, "sleep")
		line(t, out)
		moveBelow(t, g, one.Process.Pid)
		mustKill(t, g)
		reap(t, one)
	})
}

// TestKillZombie has a dead child that its parent doesn't reap: no member, and no
// obstacle.
func TestKillZombie(t *testing.T) {
	each(t, func(t *testing.T, h *Host) {
		g := create(t, h, "run", nil)
		cmd, out := start(t, g, "zombie")
		dead := line(t, out)
		got, err := g.Members()
		if err != nil || len(got) != 1 || strconv.Itoa(got[0]) == dead {
			t.Errorf("Members() = %v, %v, want the parent of zombie %s alone", got, err, dead)
		}
		mustKill(t, g)
		reap(t, cmd)
	})
}

// TestKillUnreaped proves the group empty, and removes it, while the process
// that was killed still waits to be reaped.
func TestKillUnreaped(t *testing.T) {
	each(t, func(t *testing.T, h *Host) {
		g := create(t, h, "run", nil)
		cmd, out := start(t, g, "sleep")
		line(t, out)
		mustKill(t, g)
		if err := g.Remove(t.Context()); err != nil {
			t.Errorf("Remove() before the process is reaped = %v, want nil", err)
		}
		reap(t, cmd)
	})
}

// TestKillHeadless has a process whose first thread is a zombie while others run.
func TestKillHeadless(t *testing.T) {
	each(t, func(t *testing.T, h *Host) {
		g := create(t, h, "run", nil)
		cmd, out := start(t, g, "headless")
		line(t, out)
		if got, err := g.Members(); err != nil || len(got) != 1 || got[0] != cmd.Process.Pid {
			t.Errorf("Members() = %v, %v, want [%d]", got, err, cmd.Process.Pid)
		}
		mustKill(t, g)
		reap(t, cmd)
	})
}

// bomb forks without end; what can't be forked is tried again. It goes off only in
// a group that holds it: the one called bomb.
const bomb = `read -r _
while read -r line; do
	case $line in
	*:pids:*) where=$line ;;
	0::*) : "${where:=$line}" ;;
	esac
done </proc/self/cgroup
[[ $where == */bomb ]] || exit 3
bomb() { while :; do sleep 1000 & bomb & done; }
bomb 2>/dev/null`

func startBomb(t *testing.T, h *Host) (*Group, *exec.Cmd) {
	t.Helper()
	g := create(t, h, "bomb", limit(256<<20, 100))
	if got := readFile(t, g, PIDs, "pids.max"); got != "100" {
		t.Fatalf("pids.max = %s, want 100 before anything is started", got)
	}
	cmd := exec.Command("bash", "--norc", "--noprofile", "-c", bomb)
	startCommand(t, g, cmd)
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		hits, ok := g.Usage().PIDsMaxHits.Value()
		if ok && hits > 0 {
			return g, cmd
		}
		if time.Now().After(deadline) {
			t.Fatalf("PIDsMaxHits = %d, %v after 20 s of a fork bomb, want hits", hits, ok)
		}
	}
}

func TestKillForkBomb(t *testing.T) {
	host.Need(t, host.Bash)
	each(t, func(t *testing.T, h *Host) {
		g, cmd := startBomb(t, h)
		mustKill(t, g)
		if n, ok := g.Usage().PeakPIDs.Value(); ok && n != 100 {
			t.Errorf("PeakPIDs = %d, want the limit of 100", n)
		}
		reap(t, cmd)
	})
}

// TestFrozen has a group frozen for as long as something is done to it, also if
// that fails.
func TestFrozen(t *testing.T) {
	each(t, func(t *testing.T, h *Host) {
		g := create(t, h, "run", nil)
		cmd, out := start(t, g, "sleep")
		line(t, out)
		k := killer{tree: &g.tree}
		n, _, _, _ := k.freezer()
		broken := errors.New("broken")
		for _, want := range []error{nil, broken} {
			err := k.frozen(func() error {
				if frozen, err := isFrozen(n); !frozen || err != nil {
					t.Errorf("isFrozen() meanwhile = %v, %v, want true", frozen, err)
				}
				return want
			})
			if !errors.Is(err, want) {
				t.Errorf("frozen() = %v, want %v", err, want)
			}
			if frozen, err := isFrozen(n); frozen || err != nil {
				t.Errorf("isFrozen() afterwards = %v, %v, want false", frozen, err)
			}
		}
		mustKill(t, g)
		reap(t, cmd)
	})
}

// TestKillOtherWays runs the ways of older kernels on the fork bomb.
func TestKillOtherWays(t *testing.T) {
	host.Need(t, host.Root, host.CgroupWritable, host.Bash)
	t.Run("cgroup.freeze", func(t *testing.T) {
		host.Need(t, host.CgroupKill)
		g, cmd := startBomb(t, open(t, Config{}))
		k := killer{tree: &g.tree}
		if err := k.open(); err != nil {
			t.Fatal(err)
		}
		if !k.atOnce {
			t.Error("open found no cgroup.kill, want it found here")
		}
		k.atOnce = false
		k.wait.last = patience // freeze at once
		if err := errors.Join(k.run(t.Context()), k.close()); err != nil {
			t.Errorf("run() without cgroup.kill = %v, want nil", err)
		}
		wantEmpty(t, g, cmd)
	})
	t.Run("no freezer", func(t *testing.T) {
		host.Need(t, host.CgroupV1)
		g, cmd := startBomb(t, open(t, Config{V1Only: true}))
		k := killer{tree: &tree{name: "bomb"}}
		for _, n := range g.nodes {
			if n.words[0] != "freezer" {
				k.nodes = append(k.nodes, n)
			}
		}
		if _, file, _, _ := k.freezer(); file != "" {
			t.Errorf("freezer() = %q, want none", file)
		}
		if err := k.run(t.Context()); err != nil {
			t.Errorf("run() without a freezer = %v, want nil", err)
		}
		wantEmpty(t, g, cmd)
	})
}

func wantEmpty(t *testing.T, g *Group, cmd *exec.Cmd) {
	t.Helper()
	left, err := members(g.nodes)
	if err != nil || len(left) > 0 {
		t.Errorf("members = %v, %v, want none", left, err)
	}
	reap(t, cmd)
}

// TestKillFindsWhoIsInOneHierarchyOnly has a process that is in the last
// hierarchy of version 1 and nowhere else.
func TestKillFindsWhoIsInOneHierarchyOnly(t *testing.T) {
	host.Need(t, host.Root, host.CgroupWritable, host.CgroupV1)
	for _, cfg := range []Config{{}, {V1Only: true}} {
		g := create(t, open(t, cfg), "run", nil)
		cmd := programCommand("sleep")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		last := g.nodes[len(g.nodes)-1]
		if err := last.dir.write("cgroup.procs", strconv.Itoa(cmd.Process.Pid)); err != nil {
			t.Fatal(err)
		}
		mustKill(t, g)
		reap(t, cmd)
	}
}

// TestKillRunsOutOfTime has a process that can't die: version 1 keeps what is
// frozen, and this one is frozen by a group that isn't ours to thaw.
func TestKillRunsOutOfTime(t *testing.T) {
	host.Need(t, host.Root, host.CgroupWritable, host.CgroupV1)
	for _, cfg := range []Config{{}, {V1Only: true}} {
		t.Run(fmt.Sprintf("%+v", cfg), func(t *testing.T) {
			g := create(t, open(t, cfg), "run", nil)
			cmd, out := start(t, g, "sleep")
			line(t, out)
			thaw := freeze(t, cmd.Process.Pid)
			ctx, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, errors.New("enough"))
			defer cancel()
			err := g.Kill(ctx)
			var left *RemainingError
			if !errors.As(err, &left) || left.Err.Error() != "enough" || left.Group != "run" {
				t.Fatalf("Kill() of a frozen process = %v, want a RemainingError with the cause", err)
			}
			if len(left.Processes) != 1 || left.Processes[0].PID != cmd.Process.Pid || left.Processes[0].State == 0 {
				t.Errorf("Kill() left %v, want process %d with its state", left.Processes, cmd.Process.Pid)
			}
			if want := fmt.Sprintf(`%d ("exe") `, cmd.Process.Pid); !strings.Contains(err.Error(), want) {
				t.Errorf("Kill() = %v, want %s in it", err, want)
			}
			thaw()
			mustKill(t, g)
			reap(t, cmd)
		})
	}
}

// freeze freezes pid in a group of the test's own and returns the way to thaw it.
func freeze(t *testing.T, pid int) (thaw func()) {
	t.Helper()
	mounts, self, err := look()
	if err != nil {
		t.Fatal(err)
	}
	m, ok := find(mounts, self, "freezer")
	own, known := self.of(m)
	at, reached := m.locate(own)
	if !ok || !known || !reached {
		t.Fatalf("find(freezer) = %+v, %v, want a mount that reaches %s", m, ok, own)
	}
	path := filepath.Join(at, "checkcell-frozen-"+strconv.Itoa(os.Getpid()))
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
	d, err := openDir(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(d.close(), removeSoon(path)); err != nil {
			t.Error(err)
		}
	})
	if err := errors.Join(d.write("cgroup.procs", strconv.Itoa(pid)), d.write("freezer.state", "FROZEN")); err != nil {
		t.Fatal(err)
	}
	for {
		frozen, err := isFrozen(node{hierarchy: &hierarchy{}, dir: d})
		if err != nil {
			t.Fatal(err)
		}
		if frozen {
			break
		}
	}
	return func() {
		if err := d.write("freezer.state", "THAWED"); err != nil {
			t.Error(err)
		}
	}
}

// TestKillDoesNotGuess makes the proof unreadable: that is an error, not empty.
func TestKillDoesNotGuess(t *testing.T) {
	each(t, func(t *testing.T, h *Host) {
		g, err := h.Create("run", nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := g.Remove(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := g.Kill(t.Context()); err == nil {
			t.Error("Kill() of a group that can't be read = nil, want an error")
		}

		g = create(t, h, "run", nil)
		k := killer{tree: &g.tree}
		if err := k.open(); err != nil {
			t.Fatal(err)
		}
		if err := g.remove(t.Context()); err != nil { // while the proof is open
			t.Fatal(err)
		}
		if populated, others, err := k.look(); err == nil {
			t.Errorf("look() at a removed group = %v, %v, nil, want an error", populated, others)
		}
		if err := errors.Join(k.close(), g.Remove(t.Context())); err != nil {
			t.Error(err)
		}
	})
}

// A kill lifts the limit of processors: a throttled process dies only when its
// group may run again.
func TestKillLiftsTheLimitOfProcessors(t *testing.T) {
	each(t, func(t *testing.T, h *Host) {
		quota, period := int64(1000), uint64(100_000)
		g := create(t, h, "run", &specs.LinuxResources{CPU: &specs.LinuxCPU{Quota: &quota, Period: &period}})
		mustKill(t, g)
		file, want := "cpu.cfs_quota_us", "-1"
		if h.Mode() == ModeV2 {
			file, want = "cpu.max", "max 100000"
		}
		if got := readFile(t, g, CPU, file); got != want {
			t.Errorf("%s after Kill = %q, want %q", file, got, want)
		}
	})
}
