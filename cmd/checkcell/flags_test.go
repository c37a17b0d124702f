package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/checkcell/checkcell/images"
	"github.com/checkcell/checkcell/sandbox"
	"github.com/checkcell/checkcell/sandbox/sandboxtest"
	"github.com/spf13/cobra"
)

// parsed are the cell's flags after args.
func parsed(t *testing.T, args ...string) (*cellFlags, error) {
	t.Helper()
	var f cellFlags
	cmd := &cobra.Command{Use: "test"}
	f.add(cmd)
	return &f, cmd.ParseFlags(args)
}

// codeOf is the exit code that err has chosen; ok is false if it has none.
func codeOf(err error) (code int, ok bool) {
	var chosen *exitError
	if !errors.As(err, &chosen) {
		return 0, false
	}
	return chosen.code, true
}

func TestFlagsRefuse(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		flag, value string
		want        string // besides the flag's name
	}{
		{"timeout", "0", "not positive"}, {"timeout", "-1s", "not positive"}, {"timeout", "30", "missing unit"},
		{"timeout", "unlimited", "invalid"}, {"timeout", "9000h", "outside"}, {"timeout", "", "invalid"},
		{"parse-timeout", "0s", "not positive"}, {"parse-timeout", "unlimited", "invalid"},
		{"cpu-time", "0s", "not positive"}, {"cpu-time", "x", "invalid"}, {"cpu-time", "Unlimited", "invalid"},
		{"cpus", "0", "not positive"}, {"cpus", "-1", "not positive"}, {"cpus", "NaN", "outside"}, {"cpus", "Inf", "outside"}, {"cpus", "two", "number of processors"},
		{"memory", "0", "not positive"}, {"memory", "-5MiB", "not positive"}, {"memory", "lots", "not a number"}, {"memory", "9999999TiB", "64 bits"}, {"memory", "", "not a number"},
		{"pids", "0", "not positive"}, {"pids", "1.5", "whole number"}, {"pids", "99999999999999999999", "whole number"},
		{"stdout-cap", "0", "not positive"}, {"stdout-cap", "unlimited", "not a number"}, {"stdout-cap", "2GiB", "outside"},
		{"stderr-cap", "-1", "not positive"}, {"stderr-cap", "unlimited", "not a number"},
		{"disk", "0", "not positive"}, {"disk", "unlimited", "not a number"},
		{"inodes", "0", "not positive"}, {"inodes", "many", "invalid"}, {"inodes", "1", "outside"},
		{"nofile", "0", "not positive"}, {"nofile", "unlimited", "invalid"},
		{"network", "host", "none"}, {"network", "", "none"},
		{"image", "Root", "lower case"}, {"image", "../root", "absolute path"}, {"image", "std:no", "there are shell, python"}, {"image", "/no/such/dir", "no such file"}, {"image", file, "not a directory"}, {"image", pipe, "not a directory"},
		{"workspace", "/no/such/dir", "no such file"}, {"workspace", file, "not a directory"}, {"workspace", pipe, "not a directory"},
		{"env", "A", "NAME=VALUE"}, {"env", "=b", "NAME=VALUE"}, {"env", "", "NAME=VALUE"},
		{"allow-missing", "gravity", "gravity"}, {"allow-missing", "cpu,gravity", "gravity"},
		{"backend", "podman", "native"}, {"backend", "", "native"}, {"runtime", "runc", "--backend oci"},
	}
	for _, tt := range tests {
		f, err := parsed(t, "--"+tt.flag+"="+tt.value)
		if err == nil {
			_, err = f.read()
			if code, ok := codeOf(err); code != exitUsage || !ok {
				t.Errorf("--%s=%s: read() = %v with exit code %d, want %d", tt.flag, tt.value, err, code, exitUsage)
			}
		}
		if err == nil || !strings.Contains(err.Error(), "--"+tt.flag) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("--%s=%s: %v, want an error with the flag and %q", tt.flag, tt.value, err, tt.want)
		}
	}
}

func TestFlagsNameEveryFault(t *testing.T) {
	f, err := parsed(t, "--timeout=0", "--memory=1", "--network=host", "--env=x", "--backend=y")
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.read()
	for _, want := range []string{"--timeout", "--memory", "--network", "--env", "--backend"} {
		if err == nil || !strings.Contains(err.Error(), want+":") && !strings.Contains(err.Error(), want+" ") {
			t.Errorf("read() = %v, want %s in it", err, want)
		}
	}
}

func TestFlagsAreRead(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	f, err := parsed(t, "--timeout=2s", "--parse-timeout=1s", "--cpu-time=3s", "--cpus=0.5", "--memory=64MiB", "--pids=7", "--stdout-cap=1k",
		"--stderr-cap=2k", "--disk=1MiB", "--inodes=99", "--nofile=50", "--image="+dir, "--workspace=.", "--env=A=b=c", "--env=A=2",
		"--env=B=", "--allow-missing=cpu,memory", "--allow-missing=pids")
	if err != nil {
		t.Fatal(err)
	}
	got, err := f.read()
	if err != nil {
		t.Fatal(err)
	}
	want := sandbox.Limits{
		Wall: 2 * time.Second, Parse: time.Second, CPUTime: sandbox.At(3 * time.Second), CPUs: sandbox.At(0.5), Memory: sandbox.At(64 * sandbox.MiB),
		Processes: sandbox.At[int64](7), Stdout: 1024, Stderr: 2048, Disk: sandbox.MiB, Inodes: 99, OpenFiles: 50,
	}
	if got.limits != want {
		t.Errorf("read().limits = %+v, want %+v", got.limits, want)
	}
	if got.image != images.Dir(dir) || got.workspace != dir {
		t.Errorf("read() has image %v, workspace %q, want both %q", got.image, got.workspace, dir)
	}
	if len(got.env) != 2 || got.env["A"] != "2" || got.env["B"] != "" {
		t.Errorf("read().env = %q, want A=2 and an empty B", got.env)
	}
	if allowed := []sandbox.Control{"cpu", "memory", "pids"}; !slices.Equal(got.allowMissing, allowed) {
		t.Errorf("read().allowMissing = %q, want %q", got.allowMissing, allowed)
	}
}

func TestFlagsByDefault(t *testing.T) {
	f, err := parsed(t)
	if err != nil {
		t.Fatal(err)
	}
	got, err := f.read()
	if err != nil || got.limits != sandbox.DefaultLimits() || !got.image.IsHost() || got.workspace != "" || len(got.env) != 0 || got.allowMissing != nil {
		t.Errorf("read() without flags = %+v, %v, want the limits of DefaultLimits in the host view", got, err)
	}
	f, err = parsed(t, "--cpu-time=unlimited", "--cpus=unlimited", "--memory=unlimited", "--pids=unlimited")
	if err != nil {
		t.Fatal(err)
	}
	got, err = f.read()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []sandbox.Control{sandbox.ControlCPUTime, sandbox.ControlCPU, sandbox.ControlMemory, sandbox.ControlPIDs} {
		if got.limits.Need(c) {
			t.Errorf("with its limit unlimited, %s is still needed", c)
		}
	}
}

// probed is a backend with capabilities.
type probed struct {
	sandboxtest.Fake
	caps []sandbox.Capability
}

func (p *probed) Probe(context.Context) []sandbox.Capability { return p.caps }

func TestEnforced(t *testing.T) {
	missing := func(c sandbox.Control) sandbox.Capability {
		return sandbox.Capability{Control: c, How: "no " + string(c), Fix: "get " + string(c)}
	}
	limited := cell{limits: sandbox.DefaultLimits()}
	open := limited
	open.limits.Memory = sandbox.Unlimited[sandbox.Bytes]()
	allowing := limited
	allowing.allowMissing = []sandbox.Control{sandbox.ControlMemory}
	tests := []struct {
		name string
		caps []sandbox.Capability
		cell cell
		want []string
	}{
		{"all there", []sandbox.Capability{{Control: sandbox.ControlMemory, State: sandbox.CapabilityInForce}}, limited, nil},
		{"memory missing", []sandbox.Capability{missing(sandbox.ControlMemory)}, limited, []string{"can't enforce memory: no memory", "get memory", "nothing was run"}},
		{"memory missing but unlimited", []sandbox.Capability{missing(sandbox.ControlMemory)}, open, nil},
		{"memory missing but allowed", []sandbox.Capability{missing(sandbox.ControlMemory)}, allowing, nil},
		{"a namespace is always needed", []sandbox.Capability{missing(sandbox.ControlPIDNS)}, open, []string{"can't enforce pid-ns"}},
		{"all that is missing", []sandbox.Capability{missing(sandbox.ControlDisk), missing(sandbox.ControlPIDs)}, limited, []string{"enforce disk", "enforce pids"}},
	}
	for _, tt := range tests {
		err := enforced(t.Context(), &probed{caps: tt.caps}, tt.cell)
		if code, _ := codeOf(err); (err != nil) != (tt.want != nil) || err != nil && code != exitCannot {
			t.Errorf("%s: enforced = %v with exit code %d, want an error with code %d: %v", tt.name, err, code, exitCannot, tt.want != nil)
		}
		for _, want := range tt.want {
			if err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s: enforced = %v, want %q in it", tt.name, err, want)
			}
		}
	}
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(errInterrupted)
	err := enforced(ended, &probed{caps: []sandbox.Capability{missing(sandbox.ControlMemory)}}, limited)
	if code, _ := codeOf(err); code != exitInterrupted || !errors.Is(err, errInterrupted) {
		t.Errorf("enforced(interrupted) = %v with exit code %d, want %v, %d", err, code, errInterrupted, exitInterrupted)
	}
}
