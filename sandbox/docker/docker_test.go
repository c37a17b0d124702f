//go:build linux

package docker_test

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/checkcell/checkcell/internal/host"
	"github.com/checkcell/checkcell/sandbox"
	"github.com/checkcell/checkcell/sandbox/docker"
	"github.com/checkcell/checkcell/sandbox/sandboxtest"
)

func TestMain(m *testing.M) { os.Exit(host.Main(m)) }

func need(t testing.TB) {
	host.Need(t, host.Root, host.CgroupWritable, host.MemoryCgroup, host.PidsCgroup, host.Bash, host.Docker)
}

// open returns a backend that the test's end closes.
func open(t testing.TB, cfg docker.Config) *docker.Backend {
	t.Helper()
	b, err := docker.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return b
}

func TestContract(t *testing.T) {
	need(t)
	sandboxtest.Contract(t, open(t, docker.Config{}))
}

func TestContractRunsc(t *testing.T) {
	need(t)
	host.Need(t, host.Runsc)
	sandboxtest.Contract(t, open(t, docker.Config{Runtime: "runsc"}), sandbox.ControlPIDs, sandbox.ControlDisk)
}

// What can't work is refused before anything is run, and says what to do.
func TestRefused(t *testing.T) {
	need(t)
	if b, err := docker.Open(t.Context(), docker.Config{Runtime: "no-such"}); err == nil || !strings.Contains(err.Error(), "daemon.json") {
		t.Errorf("Open with a runtime that the daemon lacks = %v, %v, want an error that names daemon.json", b, err)
	}
	for _, tt := range []struct{ host, want string }{
		{"tcp://192.0.2.1:2375", "another host"},
		{"unix:///no/such/socket", "/no/such/socket"},
		{"nonsense", "nonsense may be on another host"},
	} {
		t.Setenv("DOCKER_HOST", tt.host)
		if b, err := docker.Open(t.Context(), docker.Config{}); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("Open with DOCKER_HOST=%s = %v, %v, want an error with %q", tt.host, b, err, tt.want)
		}
	}
}

// A container whose supervisor was killed ends, and the next start removes it.
func TestSweep(t *testing.T) {
	need(t)
	if os.Getenv(host.InnerVar) != "" {
		b, err := docker.Open(t.Context(), docker.Config{})
		if err != nil {
			t.Fatal(err)
		}
		box, err := b.Create(t.Context(), sandboxtest.Spec("sleep 600 & sleep 601"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := box.Start(t.Context(), sandbox.StepCheck); err != nil {
			t.Fatal(err)
		}
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestSweep$")
	cmd.Env = append(os.Environ(), host.InnerVar+"=1")
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(err.Error(), "signal: killed") {
		t.Fatalf("a supervisor that kills itself: %v: %s", err, out)
	}
	if list := containers(t); !strings.Contains(list, "checkcell-docker-") {
		t.Errorf("after the crash the daemon has %q, want its container", list)
	}
	b := open(t, docker.Config{})
	if _, err := b.Sweep(t.Context()); err != nil {
		t.Errorf("Sweep: %v", err)
	}
	if list := containers(t); list != "" {
		t.Errorf("after the sweep the daemon has %q, want none", list)
	}
}

// containers lists those of the daemon, by the command of its users.
func containers(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("docker", "ps", "--all", "--format", "{{.Names}}").CombinedOutput()
	if err != nil {
		t.Fatalf("docker ps: %v: %s", err, out)
	}
	return strings.TrimSpace(string(out))
}
