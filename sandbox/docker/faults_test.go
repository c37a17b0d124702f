//go:build linux

package docker_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/checkcell/checkcell/internal/host"
	"github.com/checkcell/checkcell/sandbox"
	"github.com/checkcell/checkcell/sandbox/docker"
	"github.com/checkcell/checkcell/sandbox/sandboxtest"
	"golang.org/x/sys/unix"
)

// daemon is a Docker Engine of a test's own.
// As on most hosts, its containerd is a service of its own, and outlives it.
type daemon struct {
	dir        string
	containerd *exec.Cmd
	cmd        *exec.Cmd
	log        *os.File
}

func newDaemon(t *testing.T) *daemon {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "dockerd-*") // a socket's path may not be long
	if err != nil {
		t.Fatal(err)
	}
	d := &daemon{dir: dir}
	if d.log, err = os.Create(filepath.Join(dir, "log")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		d.stop(t, syscall.SIGTERM)
		if err := d.containerd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Errorf("stop containerd: %v", err)
		}
		_ = d.containerd.Wait() // how it ends is not what is tested
		d.log.Close()           // it was for people
		group := d.group()
		for _, parent := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/*"} {
			found, err := filepath.Glob(parent + group)
			if err != nil {
				t.Error(err)
			}
			for _, dir := range found {
				_ = os.Remove(dir) // a group of another hierarchy may have gone with it
			}
		}
		for _, mount := range mountsBelow(t, dir) { // a daemon that was killed leaves its own
			if err := unix.Unmount(mount, unix.MNT_DETACH); err != nil {
				t.Errorf("unmount %s: %v", mount, err)
			}
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("remove what the daemon had: %v", err)
		}
	})
	d.containerd = exec.Command("containerd", "--config", "/dev/null", "--root", filepath.Join(dir, "containerd"), "--state", filepath.Join(dir, "run"),
		"--address", filepath.Join(dir, "containerd.sock"))
	d.containerd.Stdout, d.containerd.Stderr = d.log, d.log
	if err := d.containerd.Start(); err != nil {
		t.Fatal(err)
	}
	d.start(t)
	return d
}

// mountsBelow lists mount points, the last that was mounted first.
func mountsBelow(t *testing.T, dir string) []string {
	t.Helper()
	text, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 1 && strings.HasPrefix(f[1], dir+"/") {
			found = append(found, f[1])
		}
	}
	slices.Reverse(found)
	return found
}

func (d *daemon) group() string  { return "/" + filepath.Base(d.dir) }
func (d *daemon) socket() string { return filepath.Join(d.dir, "docker.sock") }

func (d *daemon) start(t *testing.T) {
	t.Helper()
	d.cmd = exec.Command("dockerd", "--config-file", filepath.Join(d.dir, "daemon.json"), "--host", "unix://"+d.socket(), "--data-root", filepath.Join(d.dir, "data"),
		"--exec-root", filepath.Join(d.dir, "exec"), "--containerd", filepath.Join(d.dir, "containerd.sock"), "--pidfile", filepath.Join(d.dir, "pid"), "--cgroup-parent", d.group(), "--bridge", "none", "--iptables=false")
	if err := os.WriteFile(filepath.Join(d.dir, "daemon.json"), []byte(`{"runtimes": {"runsc": {"path": "/usr/bin/runsc", "runtimeArgs": ["--ignore-cgroups", "--network=none"]}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	d.cmd.Stdout, d.cmd.Stderr = d.log, d.log
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for began := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		if exec.Command("docker", "--host", "unix://"+d.socket(), "version").Run() == nil {
			return
		}
		if time.Since(began) > time.Minute {
			text, _ := os.ReadFile(d.log.Name()) // the failure is told without it too
			t.Fatalf("dockerd does not come up:\n%s", text)
		}
	}
}

func (d *daemon) stop(t *testing.T, with syscall.Signal) {
	t.Helper()
	if d.cmd == nil {
		return
	}
	if err := d.cmd.Process.Signal(with); err != nil {
		t.Errorf("stop dockerd: %v", err)
	}
	_ = d.cmd.Wait() // how it ends is not what is tested
	d.cmd = nil
}

// A daemon that dies in mid-run takes the end of the check with it, so the run is
// unknown. Its processes are gone all the same, and the next start removes the
// container. How many there were is known only where this host sees them.
func TestDaemonDies(t *testing.T) {
	need(t)
	d := newDaemon(t)
	t.Setenv("DOCKER_HOST", "unix://"+d.socket())
	t.Run("runc", func(t *testing.T) { daemonDies(t, d, docker.Config{}, sandbox.Read(2)) })
	t.Run("runsc", func(t *testing.T) {
		host.Need(t, host.Runsc)
		daemonDies(t, d, docker.Config{Runtime: "runsc"}, sandbox.Reading{}, sandbox.ControlPIDs, sandbox.ControlDisk)
	})
}

func daemonDies(t *testing.T, d *daemon, cfg docker.Config, leftovers sandbox.Reading, lacks ...sandbox.Control) {
	b, err := docker.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	res := make(chan sandbox.Result)
	up := &started{up: make(chan struct{})}
	go func() {
		r := &sandbox.Runner{Backend: b, Live: sandbox.Live{Stdout: up}, TeardownBudget: 10 * time.Second}
		res <- r.Run(context.Background(), sandboxtest.Spec("sleep 600 & echo up; sleep 3; exit 0", func(s *sandbox.Spec) { s.AllowMissing = lacks })).Last()
	}()
	<-up.up
	d.stop(t, syscall.SIGKILL)
	got := <-res
	if got.Outcome.Kind() != sandbox.KindUnknown || got.Success() || string(got.Stdout.Kept) != "up\n" {
		t.Errorf("outcome = %v, stdout %q; want unknown and what came before", got.Outcome, got.Stdout.Kept)
	}
	if got.Cleanup.State != sandbox.CleanupFailed || !strings.Contains(got.Cleanup.Detail, "the next start tries it again") {
		t.Errorf("cleanup = %v, want failed, and who does it", got.Cleanup)
	}
	if got.Leftovers != leftovers {
		t.Errorf("leftovers = %v, want %v", got.Leftovers, leftovers)
	}
	if err := b.Close(); err == nil {
		t.Error("Close without a daemon = nil, want that a container could not be removed")
	}
	d.start(t)
	next := open(t, cfg)
	if _, err := next.Sweep(t.Context()); err != nil {
		t.Errorf("Sweep: %v", err)
	}
	runtime.KeepAlive(b) // it holds no lock any more, whatever is collected
	if list := containers(t); list != "" {
		t.Errorf("after the next start the daemon has %q, want none", list)
	}
	if res := (&sandbox.Runner{Backend: next}).Run(t.Context(), sandboxtest.Spec("echo ok", func(s *sandbox.Spec) { s.AllowMissing = lacks })).Last(); !res.Success() {
		t.Errorf("a run after that = %v, cleanup %v", res.Outcome, res.Cleanup)
	}
}

// started is told of the first output.
type started struct {
	once sync.Once
	up   chan struct{}
}

func (s *started) Write(p []byte) (int, error) {
	s.once.Do(func() { close(s.up) })
	return len(p), nil
}

// Whatever a daemon is late with or loses, a check that ends with 7 is never taken
// for one that ends with 0, nor for one that ended at all where that was not seen.
func TestSlowDaemon(t *testing.T) {
	need(t)
	const runs = 100
	p := newProxy(t, strings.TrimPrefix(os.Getenv("DOCKER_HOST"), "unix://"))
	direct := open(t, docker.Config{}) // removes what the other could not
	t.Setenv("DOCKER_HOST", "unix://"+p.path)
	b, err := docker.Open(t.Context(), docker.Config{})
	if err != nil {
		t.Fatal(err)
	}
	p.setFaulty(true)
	kinds := map[string]int{}
	limit := make(chan struct{}, 4)
	results := make(chan sandbox.Result)
	for range runs {
		go func() {
			limit <- struct{}{}
			defer func() { <-limit }()
			r := &sandbox.Runner{Backend: b, SetupBudget: 5 * time.Second, TeardownBudget: 5 * time.Second}
			results <- r.Run(t.Context(), sandboxtest.Spec("echo seen; exit 7", func(s *sandbox.Spec) { s.Limits.Wall = 10 * time.Second })).Last()
		}()
	}
	for range runs {
		res := <-results
		kinds[res.Outcome.Kind().String()]++
		switch res.Outcome.Kind() {
		case sandbox.KindExited:
			if res.Outcome != sandbox.Exited(7) || string(res.Stdout.Kept) != "seen\n" {
				t.Errorf("outcome = %v, stdout %q; want 7, or that it is not known", res.Outcome, res.Stdout.Kept)
			}
		case sandbox.KindUnknown, sandbox.KindStartFailed, sandbox.KindTimedOut:
		case sandbox.KindSignaled, sandbox.KindCanceled, sandbox.KindLimitExceeded:
			t.Errorf("outcome = %v, which nothing has brought about", res.Outcome)
		}
	}
	t.Logf("%d runs: %v", runs, kinds)
	if kinds["exited"] == 0 || kinds["exited"] == runs {
		t.Errorf("outcomes %v: the proxy cut none, or all", kinds)
	}
	p.setFaulty(false)
	if err := b.Close(); err != nil {
		t.Errorf("Close, with a daemon that answers again: %v", err)
	}
	if _, err := direct.Sweep(t.Context()); err != nil {
		t.Errorf("Sweep: %v", err)
	}
	if list := containers(t); list != "" {
		t.Errorf("afterwards the daemon has %q, want none", list)
	}
}

// proxy stands before a daemon's socket. While it is faulty it is late with what
// it passes on, each connection by itself, so that answers overtake one another,
// and cuts one connection in ten.
type proxy struct {
	path, to string
	mu       sync.Mutex
	faulty   bool
}

func newProxy(t *testing.T, to string) *proxy {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "proxy-*")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{path: filepath.Join(dir, "docker.sock"), to: to}
	l, err := net.Listen("unix", p.path)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go p.serve(c)
		}
	}()
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		<-done
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return p
}

func (p *proxy) setFaulty(faulty bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faulty = faulty
}

func (p *proxy) isFaulty() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.faulty
}

func (p *proxy) serve(c net.Conn) {
	defer c.Close()
	up, err := net.Dial("unix", p.to)
	if err != nil {
		return
	}
	defer up.Close()
	both := make(chan error, 2)
	go func() { both <- p.pass(up, c) }()
	go func() { both <- p.pass(c, up) }()
	if err := <-both; errors.Is(err, errCut) {
		return
	}
	<-both
}

var errCut = errors.New("cut")

// pass copies one direction to its end.
func (p *proxy) pass(to, from net.Conn) error {
	b := make([]byte, 32<<10)
	for {
		n, err := from.Read(b)
		if n > 0 {
			if p.isFaulty() {
				time.Sleep(time.Duration(rand.IntN(30)) * time.Millisecond)
				if rand.IntN(60) == 0 {
					return errCut
				}
			}
			if _, err := to.Write(b[:n]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			if half, ok := to.(*net.UnixConn); ok {
				return half.CloseWrite()
			}
			return nil
		}
		if err != nil {
			return fmt.Errorf("pass on: %w", err)
		}
	}
}
