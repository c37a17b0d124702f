package host

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestProbeRootIsTheUser(t *testing.T) {
	if got, want := Root.probe() == nil, os.Geteuid() == 0; got != want {
		t.Errorf("Root.probe() = %v, want nil to be %v for user %d", Root.probe(), want, os.Geteuid())
	}
}

func TestTry(t *testing.T) {
	if err := try(nil, "/bin/true"); err != nil {
		t.Errorf("try(/bin/true) = %v, want nil", err)
	}
	err := try(nil, "/bin/sh", "-c", "echo words >&2; exit 3")
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 3 || !strings.Contains(err.Error(), "words") {
		t.Errorf("try(exit 3) = %v, want exit status 3 and what it wrote", err)
	}
	if err := try(nil, "/nonexistent/program"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("try(/nonexistent/program) = %v, want %v", err, fs.ErrNotExist)
	}
	if err := try(&syscall.SysProcAttr{Chroot: "/proc/self/nowhere"}, "/bin/true"); err == nil {
		t.Error("try(/bin/true) with an attribute that can't hold = nil, want an error")
	}
}

// A program of the caller's PATH is not one of the cell's.
func TestTryInCellPathIgnoresCallersPath(t *testing.T) {
	dir := t.TempDir()
	name := "checkcell-only-here"
	if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	if err := try(nil, name); err != nil {
		t.Errorf("try(%s) = %v, want nil", name, err)
	}
	if err := tryInCellPath(name); err == nil || !strings.Contains(err.Error(), cellPath) {
		t.Errorf("tryInCellPath(%s) = %v, want an error that names %s", name, err, cellPath)
	}
	if err := tryInCellPath("true"); err != nil {
		t.Errorf("tryInCellPath(true) = %v, want nil", err)
	}
}

func TestProbeDocker(t *testing.T) {
	for _, tt := range []struct {
		name   string
		status int
		ok     bool
	}{{"answers", http.StatusOK, true}, {"is broken", http.StatusInternalServerError, false}} {
		t.Run(tt.name, func(t *testing.T) {
			socket := filepath.Join(t.TempDir(), "d.sock")
			serveDocker(t, socket, tt.status)
			t.Setenv("DOCKER_HOST", "unix://"+socket)
			if err := Docker.probe(); (err == nil) != tt.ok {
				t.Errorf("Docker.probe() with status %d = %v, want nil to be %v", tt.status, err, tt.ok)
			}
		})
	}
	for _, address := range []string{"unix:///nonexistent/d.sock", "tcp://127.0.0.1:1"} {
		t.Setenv("DOCKER_HOST", address)
		if err := Docker.probe(); err == nil {
			t.Errorf("Docker.probe() with DOCKER_HOST=%s = nil, want an error", address)
		}
	}
}

// serveDocker answers pings with status until the test ends.
func serveDocker(t *testing.T, socket string, status int) {
	t.Helper()
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/_ping" {
			status = http.StatusNotFound
		}
		w.WriteHeader(status)
	})}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }() // ends at Shutdown
	t.Cleanup(func() {
		if err := server.Shutdown(context.Background()); err != nil {
			t.Errorf("shut the server down: %v", err)
		}
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("serve: %v", err)
		}
	})
}

// What the probes say of cgroups agrees with itself and with the file system.
func TestProbeCgroupsAgree(t *testing.T) {
	Need(t, Root, CgroupWritable)
	if v1, v2 := CgroupV1.probe(), CgroupV2.probe(); v1 != nil && v2 != nil {
		t.Errorf("groups can be made, but CgroupV1.probe() = %v and CgroupV2.probe() = %v", v1, v2)
	}
	if CgroupPureV2.probe() == nil && CgroupV1.probe() == nil {
		t.Error("CgroupPureV2.probe() and CgroupV1.probe() are both nil")
	}
	if CgroupKill.probe() == nil && CgroupV2.probe() != nil {
		t.Error("CgroupKill.probe() = nil without CgroupV2")
	}
	if err := probeController("no-such-controller", "x"); err == nil {
		t.Error("probeController(no-such-controller) = nil, want an error")
	}
	if err := probeV1("no-such-controller"); err == nil {
		t.Error("probeV1(no-such-controller) = nil, want an error")
	}
}

func TestProbeControllerLooksForTheFile(t *testing.T) {
	Need(t, Root, CgroupWritable, CgroupV1, MemoryCgroup)
	if err := probeController("memory", "memory.no_such_file"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("probeController(memory, memory.no_such_file) = %v, want %v", err, fs.ErrNotExist)
	}
}

func TestWithGroupRemovesTheGroup(t *testing.T) {
	Need(t, Root, CgroupWritable)
	all, err := hierarchies()
	if err != nil {
		t.Fatalf("hierarchies() = %v", err)
	}
	failure := errors.New("failure")
	for _, h := range all {
		var made string
		err := h.withGroup(func(group string) error {
			made = group
			if _, err := os.Stat(filepath.Join(group, "cgroup.procs")); err != nil {
				t.Errorf("withGroup made %s, which is no group: %v", group, err)
			}
			return failure
		})
		if !errors.Is(err, failure) {
			t.Errorf("withGroup in %s = %v, want %v", h.dir, err, failure)
		}
		if _, err := os.Stat(made); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("withGroup left %s: %v", made, err)
		}
	}
}
