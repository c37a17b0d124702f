package cellspec

import (
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/checkcell/checkcell/images"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// What the runtime specification asks of every config.json, where its types
// alone do not say it (config.md and config-linux.md, version 1.3).
func TestRuntimesTakeIt(t *testing.T) {
	inImage := typical()
	inImage.Root = images.Dir("/srv/root")
	for _, s := range []*specs.Spec{build(t, typical()), build(t, inImage)} {
		if s.Version != specs.Version || s.Root == nil || s.Root.Path == "" || !s.Root.Readonly {
			t.Errorf("version %q, root %+v, want %q and a read-only root", s.Version, s.Root, specs.Version)
		}
		p := s.Process
		if !path.IsAbs(p.Cwd) || len(p.Args) == 0 || p.Terminal || p.ConsoleSize != nil {
			t.Errorf("cwd %q, args %q, terminal %v, want an absolute cwd, arguments, no terminal", p.Cwd, p.Args, p.Terminal)
		}
		names := map[string]bool{}
		for _, kv := range p.Env {
			name, _, ok := strings.Cut(kv, "=")
			if !ok || name == "" || names[name] {
				t.Errorf("environment entry %q, want NAME=VALUE, each name once", kv)
			}
			names[name] = true
		}
		limits := map[string]bool{}
		for _, r := range p.Rlimits {
			if !strings.HasPrefix(r.Type, "RLIMIT_") || limits[r.Type] || r.Soft > r.Hard {
				t.Errorf("rlimit %+v, want each type once and soft at most hard", r)
			}
			limits[r.Type] = true
		}
		checkMounts(t, s)
		for key := range s.Annotations {
			if key == "" || !strings.HasPrefix(key, "io.checkcell.") {
				t.Errorf("annotation %q, want one of ours", key)
			}
		}
		for _, dir := range slices.Concat(s.Linux.MaskedPaths, s.Linux.ReadonlyPaths) {
			if !path.IsAbs(dir) {
				t.Errorf("path %q in the container, want an absolute one", dir)
			}
		}
	}
}

func checkMounts(t *testing.T, s *specs.Spec) {
	t.Helper()
	seen := map[string]int{}
	for i, m := range s.Mounts {
		if !path.IsAbs(m.Destination) || path.Clean(m.Destination) != m.Destination || m.Type == "" || m.Source == "" {
			t.Errorf("mount %+v, want a clean absolute destination, a type and a source", m)
		}
		if _, twice := seen[m.Destination]; twice {
			t.Errorf("mount %s is there twice", m.Destination)
		}
		for dir, at := range seen {
			if strings.HasPrefix(dir, m.Destination+"/") {
				t.Errorf("mount %d at %s hides mount %d at %s, which was before it", i, m.Destination, at, dir)
			}
		}
		seen[m.Destination] = i
	}
	for _, dir := range []string{"/proc", "/dev", "/dev/shm", "/tmp", WorkDir} {
		if _, ok := seen[dir]; !ok {
			t.Errorf("no mount at %s", dir)
		}
	}
}

// The rules of design.md, "Inside a cell", that stand in the description.
func TestInsideACell(t *testing.T) {
	s := build(t, typical())
	want := specs.User{UID: 1000, GID: 1000, Umask: ptr[uint32](0o022)}
	if u := s.Process.User; u.UID != want.UID || u.GID != want.GID || u.Umask == nil || *u.Umask != *want.Umask || len(u.AdditionalGids) != 0 {
		t.Errorf("user %+v, want %+v", u, want)
	}
	if s.Hostname != "cell" || s.Process.Cwd != "/work" || !s.Process.NoNewPrivileges {
		t.Errorf("hostname %q, cwd %q, no_new_privs %v, want cell, /work, true", s.Hostname, s.Process.Cwd, s.Process.NoNewPrivileges)
	}
	c := s.Process.Capabilities
	if c == nil || len(slices.Concat(c.Bounding, c.Effective, c.Inheritable, c.Permitted, c.Ambient)) != 0 {
		t.Errorf("capabilities %+v, want five empty sets; left out, a runtime gives its own", c)
	}
	if f := s.Linux.Seccomp; f == nil || f.DefaultAction != specs.ActErrno || len(f.Syscalls) == 0 {
		t.Errorf("seccomp %+v, want a filter that denies by default", f)
	}
	var kinds []specs.LinuxNamespaceType
	for _, ns := range s.Linux.Namespaces {
		if ns.Path != "" {
			t.Errorf("namespace %+v, want a new one", ns)
		}
		kinds = append(kinds, ns.Type)
	}
	slices.Sort(kinds)
	all := []specs.LinuxNamespaceType{"cgroup", "ipc", "mount", "network", "pid", "user", "uts"}
	if !slices.Equal(kinds, all) {
		t.Errorf("namespaces %q, want %q", kinds, all)
	}
	for _, want := range []specs.POSIXRlimit{{Type: "RLIMIT_CORE"}, {Type: "RLIMIT_NOFILE", Hard: 1024, Soft: 1024}} {
		if !slices.Contains(s.Process.Rlimits, want) {
			t.Errorf("rlimits %+v, want %+v in it", s.Process.Rlimits, want)
		}
	}
	if text := s.Annotations[FileAnnotation+"/etc/passwd"]; !strings.Contains(text, "cell:x:1000:1000:cell:/work:/bin/bash\n") {
		t.Errorf("/etc/passwd is %q, want the check's user in it", text)
	}
}
