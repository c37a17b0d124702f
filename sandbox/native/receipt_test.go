package native

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/checkcell/checkcell/internal/host"
	"github.com/checkcell/checkcell/sandbox"
)

// What was asked for and is not there is found, and named.
func TestReceiptReadsBack(t *testing.T) {
	host.Need(t, host.Root, host.CgroupWritable, host.MemoryCgroup, host.PidsCgroup, host.UserNS, host.Bash)
	b, err := Open(Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	made, err := b.Create(t.Context(), sandbox.Spec{ID: "t", Args: []string{"true"}, Limits: sandbox.DefaultLimits()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := made.Destroy(context.Background()); err != nil {
			t.Errorf("Destroy: %v", err)
		}
	})
	x := made.(*box)
	if r, err := x.inForce(); err != nil || len(r.Controls) < 15 {
		t.Fatalf("inForce() = %+v, %v, want every control", r, err)
	}
	for _, tt := range []struct {
		name   string
		change func(*box)
		want   []sandbox.Control
	}{
		{"more files", func(x *box) { x.limits.OpenFiles++ }, []sandbox.Control{sandbox.ControlNoFile}},
		{"more disk", func(x *box) { x.limits.Disk += sandbox.MiB; x.limits.Memory = sandbox.At(sandbox.GiB) }, []sandbox.Control{sandbox.ControlDisk}},
		{"more inodes", func(x *box) { x.limits.Inodes++ }, []sandbox.Control{sandbox.ControlDisk}},
		{"another user", func(x *box) { x.req.HostUID++ }, []sandbox.Control{sandbox.ControlUser}},
		{"a process outside", func(x *box) { x.pid = os.Getpid() }, []sandbox.Control{
			sandbox.ControlCaps, sandbox.ControlNoPrivs, sandbox.ControlSeccomp, sandbox.ControlUser, sandbox.ControlNetwork, sandbox.ControlPIDNS,
			sandbox.ControlIPCNS, sandbox.ControlUTSNS, sandbox.ControlCgroupNS, sandbox.ControlNoFile, sandbox.ControlRoot,
		}},
	} {
		limits, req, pid := x.limits, x.req, x.pid
		tt.change(x)
		_, err := x.inForce()
		x.limits, x.req, x.pid = limits, req, pid
		for _, c := range tt.want {
			if err == nil || !strings.Contains(err.Error(), "control "+string(c)+" is not in force") {
				t.Errorf("%s: inForce() = %v, want that %s is not in force", tt.name, err, c)
			}
		}
	}
}
