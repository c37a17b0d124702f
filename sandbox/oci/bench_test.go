//go:build linux

package oci_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/checkcell/checkcell/internal/host"
	"github.com/checkcell/checkcell/sandbox"
	"github.com/checkcell/checkcell/sandbox/sandboxtest"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// BenchmarkRunTrue runs `true` in a cell of runc and, in turn with it, by a bare
// `runc run` of the same bundle: the same namespaces, users, mounts and filter, and
// none of our init, group and evidence. Figures are ratios of one process's run; an
// absolute time is this machine's.
func BenchmarkRunTrue(b *testing.B) {
	host.Need(b, host.Root, host.CgroupWritable, host.MemoryCgroup, host.PidsCgroup, host.UserNS, host.Bash, host.Runc)
	backend := open(b, "runc")
	r := &sandbox.Runner{Backend: backend}
	spec := sandboxtest.Spec("", func(s *sandbox.Spec) { s.Check, s.Args = "", []string{"true"} })
	dir := bareBundle(b, backend, spec)
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

// bareBundle copies the bundle of a cell, with `true` as the container's first process.
func bareBundle(b *testing.B, backend sandbox.Backend, spec sandbox.Spec) string {
	b.Helper()
	box, err := backend.Create(b.Context(), spec)
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := box.Destroy(b.Context()); err != nil {
			b.Errorf("Destroy: %v", err)
		}
	}()
	from := bundleOf(b)
	dir := b.TempDir()
	if out, err := exec.Command("cp", "--archive", from.seen+"/.", dir).CombinedOutput(); err != nil {
		b.Fatalf("copy the bundle: %v: %s", err, out)
	}
	file := filepath.Join(dir, "config.json")
	text, err := os.ReadFile(file)
	if err != nil {
		b.Fatal(err)
	}
	var s specs.Spec
	if err := json.Unmarshal(bytes.ReplaceAll(text, []byte(from.dir), []byte(dir)), &s); err != nil {
		b.Fatal(err)
	}
	s.Process.Args, s.Linux.CgroupsPath = []string{"/usr/bin/true"}, "checkcell-bench"
	for _, m := range s.Mounts { // the cell has these in a tmpfs that we don't see
		if strings.HasPrefix(m.Source, filepath.Join(dir, "scratch")) {
			if err := os.MkdirAll(m.Source, 0o755); err != nil {
				b.Fatal(err)
			}
		}
	}
	if text, err = json.Marshal(s); err != nil {
		b.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(file, text, 0o600), os.Chmod(filepath.Dir(dir), 0o755)); err != nil { // its users are mapped
		b.Fatal(err)
	}
	return dir
}

// seenBundle is the directory of a cell's bundle, and where it is seen from here.
type seenBundle struct{ dir, seen string }

// bundleOf finds the bundle of the one cell that there is, in the mount namespace of
// its runtime.
func bundleOf(b *testing.B) seenBundle {
	b.Helper()
	cells, err := filepath.Glob("/run/checkcell/oci-*/cells/*")
	if err != nil || len(cells) != 1 {
		b.Fatalf("the cells are %q, %v, want one", cells, err)
	}
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		b.Fatal(err)
	}
	for _, line := range lines {
		args, err := os.ReadFile(line)
		if err == nil && bytes.Contains(args, []byte("\x00--bundle\x00"+cells[0]+"\x00")) {
			return seenBundle{cells[0], filepath.Join(filepath.Dir(line), "root", cells[0])}
		}
	}
	b.Fatalf("no process runs the bundle %s", cells[0])
	return seenBundle{}
}
