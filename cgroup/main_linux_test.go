package cgroup

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"go.uber.org/goleak"

	"github.com/checkcell/checkcell/internal/host"
)

// programVar makes the test binary one of the programs of the tests instead.
const programVar = "CHECKCELL_CGROUP_PROGRAM"

func TestMain(m *testing.M) {
	if name := os.Getenv(programVar); name != "" {
		os.Exit(runProgram(name))
	}
	code := host.Main(m)
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// program is one that the test binary can be. One that stays sleeps when it has
// done its work, until it is killed.
type program struct {
	run   func() error
	stays bool
}

func programs() map[string]program {
	return map[string]program{
		"exit":     {func() error { return nil }, false},
		"burn":     {burn, false},
		"churn":    {churn, false},
		"hidden":   {hidden, false},
		"settler":  {settler, false},
		"sweeper":  {sweeper, false},
		"chain":    {chain, true},
		"eat":      {eat, true},
		"headless": {headless, true},
		"owner":    {owner, true},
		"sleep":    {func() error { return announce("ready") }, true},
		"zombie":   {zombie, true},
	}
}

// runProgram runs the program called name and returns its exit status.
func runProgram(name string) int {
	p, ok := programs()[name]
	if !ok {
		fmt.Fprintf(os.Stderr, "unknown program %q\n", name)
		return 2
	}
	if err := p.run(); err != nil {
		fmt.Fprintf(os.Stderr, "program %s: %v\n", name, err)
		return 1
	}
	if p.stays {
		signal.Ignore(syscall.SIGHUP, syscall.SIGINT)
		time.Sleep(time.Hour)
	}
	return 0
}

func announce(words ...any) error {
	_, err := fmt.Println(words...)
	return err
}

// start starts the program called name in g and returns what it writes.
func start(t *testing.T, g *Group, name string, env ...string) (*exec.Cmd, *bufio.Reader) {
	t.Helper()
	cmd := programCommand(name, env...)
	return cmd, startCommand(t, g, cmd)
}

// startCommand starts cmd in g as an engine would, and ends its standard input
// once it is in the group in every hierarchy.
func startCommand(t *testing.T, g *Group, cmd *exec.Cmd) *bufio.Reader {
	t.Helper()
	goOn, tell, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdin = goOn
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if fd, ok := g.FD(); ok {
		cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: fd}
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("start %v: %v", cmd, err)
	}
	goOn.Close()
	if err := g.Add(cmd.Process.Pid); err != nil {
		t.Fatalf("Add(%d) = %v, want nil", cmd.Process.Pid, err)
	}
	tell.Close()
	if err := out.(*os.File).SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return bufio.NewReader(out)
}

func programCommand(name string, env ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), append(env, programVar+"="+name, "GOMAXPROCS=2")...)
	cmd.Stderr = os.Stderr
	return cmd
}

// awaitGo returns once the process has been put into its group.
func awaitGo() { io.Copy(io.Discard, os.Stdin) }

// line reads one line that a program announces.
func line(t *testing.T, r *bufio.Reader) string {
	t.Helper()
	text, err := r.ReadString('\n')
	if err != nil {
		t.Fatalf("read from a program: %v", err)
	}
	return strings.TrimSpace(text)
}

// variant is one way to use this machine.
type variant struct {
	name string
	cfg  Config
	need []host.Cap
}

// variants are those that the tests of groups run in: as it is, and as if there
// were no cgroup2, so that the paths of version 1 are run on a hybrid host.
var variants = [...]variant{
	{"native", Config{}, []host.Cap{host.Root, host.CgroupWritable}},
	{"v1", Config{V1Only: true}, []host.Cap{host.Root, host.CgroupWritable, host.CgroupV1}},
}

// each runs test once for each variant, with a Host of its own below a parent of
// its own, so that no checkcell beside it counts.
func each(t *testing.T, test func(t *testing.T, h *Host)) {
	t.Helper()
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			host.Need(t, v.need...)
			v.cfg.Parent = makeParent(t, "each")
			test(t, open(t, v.cfg))
		})
	}
}

// makeParent makes a group of the test's own at the root of every hierarchy.
func makeParent(t *testing.T, name string) (group string) {
	t.Helper()
	group = fmt.Sprintf("/checkcell-%s-%d", name, os.Getpid())
	mounts, _, err := look()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mounts {
		makeParentIn(t, m, group)
	}
	return group
}

func makeParentIn(t *testing.T, m mount, group string) {
	t.Helper()
	dir, ok := m.locate(group)
	if !ok {
		t.Fatalf("locate(%s) in %+v failed", group, m)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := removeSoon(dir); err != nil {
			t.Error(err)
		}
	})
	for _, b := range bounding { // a cgroup2 root that nobody has set up hands nothing down
		if all, err := os.ReadFile(filepath.Join(m.point, "cgroup.controllers")); err != nil || !isWord(all, b.word) {
			continue
		}
		if err := os.WriteFile(filepath.Join(m.point, "cgroup.subtree_control"), []byte("+"+b.word), 0); err != nil {
			t.Fatal(err)
		}
	}
}

// removeSoon removes a group that its last process is just leaving.
func removeSoon(path string) error {
	var err error
	for range 1000 {
		if err = os.Remove(path); err == nil {
			return nil
		}
		time.Sleep(time.Millisecond)
	}
	return err
}

// config is the Config that this process uses: for a program of the tests, that of
// the Host which it is told to be like.
func config() Config {
	cfg := Config{Parent: os.Getenv("PARENT"), V1Only: os.Getenv("V1ONLY") == "true"}
	if os.Getenv("ALLOWMISSING") != "" {
		cfg.AllowMissing = []Controller{Memory, PIDs, CPU, CPUTime}
	}
	return cfg
}

// sameAs is the Config of a second Host beside h, which is below a parent.
func sameAs(h *Host) Config {
	return Config{Parent: "/" + filepath.Base(h.all[0].parent.path()), V1Only: h.Mode() == ModeV1}
}

// like is the environment that gives a program that Config.
func like(h *Host) []string {
	cfg := sameAs(h)
	return []string{fmt.Sprintf("V1ONLY=%v", cfg.V1Only), "PARENT=" + cfg.Parent}
}

func open(t *testing.T, cfg Config) *Host {
	t.Helper()
	h, err := Open(cfg)
	if err != nil {
		t.Fatalf("Open(%+v) = %v, want nil", cfg, err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Errorf("Close() = %v, want nil", err)
		}
	})
	return h
}

// create makes a group that is killed and removed with the test.
func create(t *testing.T, h *Host, name string, res *specs.LinuxResources) *Group {
	t.Helper()
	g, err := h.Create(name, res)
	if err != nil {
		t.Fatalf("Create(%q) = %v, want nil", name, err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := g.Kill(ctx); err != nil && !g.removed.Load() {
			t.Errorf("Kill() = %v, want nil", err)
		}
		if err := g.Remove(ctx); err != nil {
			t.Errorf("Remove() = %v, want nil", err)
		}
	})
	return g
}

// mustKill kills g and proves by other means that it is empty.
func mustKill(t *testing.T, g *Group) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := g.Kill(ctx); err != nil {
		t.Fatalf("Kill() = %v, want nil", err)
	}
	for _, n := range g.nodes {
		left, err := members([]node{n})
		if err != nil || len(left) > 0 {
			t.Errorf("after Kill, members of %s = %v, %v, want none", n.dir.path(), left, err)
		}
	}
}

// reap waits for a process that was killed.
func reap(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	err := cmd.Wait()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("Wait() = %v, want a death by SIGKILL", err)
	}
}

func limit(memory, pids int64) *specs.LinuxResources {
	res := &specs.LinuxResources{}
	if memory != 0 {
		res.Memory = &specs.LinuxMemory{Limit: &memory}
	}
	if pids != 0 {
		res.Pids = &specs.LinuxPids{Limit: &pids}
	}
	return res
}
