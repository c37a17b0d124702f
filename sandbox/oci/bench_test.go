//go:build linux

package oci_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/checkcell/checkcell/internal/host"
	"github.com/checkcell/checkcell/sandbox"
	"github.com/checkcell/checkcell/sandbox/sandboxtest"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// BenchmarkRunTrue runs `true` in a cell of runc and, in turn with it, by a bare
// `runc run` of the bundle that `runc spec` makes. Figures are ratios of one
// process's run; an absolute time is this machine's.
func BenchmarkRunTrue(b *testing.B) {
	host.Need(b, host.Root, host.CgroupWritable, host.MemoryCgroup, host.PidsCgroup, host.UserNS, host.Bash, host.Runc)
	backend := open(b, "runc")
	r := &sandbox.Runner{Backend: backend}
	spec := sandboxtest.Spec("", func(s *sandbox.Spec) { s.Check, s.Args = "", []string{"true"} })
	dir := bareBundle(b)
	sandboxtest.Beside(b, func() {
		if res := r.Run(b.Context(), spec).Last(); !res.Success() {
			b.Fatalf("outcome = %v, cleanup %v", res.Outcome, res.Cleanup)
		}
	}, func() {
		cmd := exec.Command("runc", "--root", filepath.Join(dir, "state"), "run", "--bundle", dir, "bench")
		if out, err := cmd.CombinedOutput(); err != nil {
			b.Fatalf("runc run: %v: %s", err, out)
		}
	})
}

// bareBundle is what `runc spec` makes, with the host's programs and `true`.
func bareBundle(b *testing.B) string {
	b.Helper()
	dir := b.TempDir()
	cmd := exec.Command("runc", "spec", "--bundle", dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("runc spec: %v: %s", err, out)
	}
	file := filepath.Join(dir, "config.json")
	text, err := os.ReadFile(file)
	if err != nil {
		b.Fatal(err)
	}
	var s specs.Spec
	if err := json.Unmarshal(text, &s); err != nil {
		b.Fatal(err)
	}
	s.Process.Terminal, s.Process.Args = false, []string{"/usr/bin/true"}
	for _, host := range []string{"/usr", "/lib", "/lib64"} {
		if real, err := filepath.EvalSymlinks(host); err == nil {
			s.Mounts = append(s.Mounts, specs.Mount{Destination: host, Type: "bind", Source: real, Options: []string{"rbind", "ro"}})
		}
	}
	if text, err = json.Marshal(s); err != nil {
		b.Fatal(err)
	}
	for _, err := range []error{os.WriteFile(file, text, 0o600), os.Mkdir(filepath.Join(dir, "rootfs"), 0o755)} {
		if err != nil {
			b.Fatal(err)
		}
	}
	return dir
}
