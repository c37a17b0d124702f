package cellspec

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/checkcell/checkcell/images"
	"github.com/checkcell/checkcell/sandbox"
	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"
)

var update = flag.Bool("update", false, "write the golden files")

// typical is a spec that sets every field.
func typical() sandbox.Spec {
	limits := sandbox.DefaultLimits()
	limits.CPUTime = sandbox.At(7 * time.Second)
	return sandbox.Spec{
		ID: "typical", Check: "test -s in.csv && echo rows=17", SyntaxPass: true, Workspace: "/srv/work",
		Files: []sandbox.File{{Path: "in.csv", Content: []byte("1,2\n")}, {Path: "b/c", Content: []byte{0, 255}}},
		Env:   map[string]string{"A": "1"}, Limits: limits, AllowMissing: []sandbox.Control{sandbox.ControlCPU},
	}
}

func build(t *testing.T, spec sandbox.Spec) *specs.Spec {
	t.Helper()
	s, err := Build(spec)
	if err != nil {
		t.Fatalf("Build(%+v) = %v", spec, err)
	}
	return s
}

func digest(t *testing.T, spec sandbox.Spec) string {
	t.Helper()
	d, err := Digest(build(t, spec))
	if err != nil {
		t.Fatalf("Digest = %v", err)
	}
	return d
}

func TestGolden(t *testing.T) {
	command := typical()
	command.Check, command.SyntaxPass, command.Args = "", false, []string{"ls", "-l", "/work"}
	command.Root, command.Workspace, command.Files, command.Env = images.Dir("/srv/root"), "", nil, nil
	command.Limits.CPUTime, command.Limits.CPUs = sandbox.Unlimited[time.Duration](), sandbox.Unlimited[float64]()
	command.Limits.Memory, command.Limits.Processes = sandbox.Unlimited[sandbox.Bytes](), sandbox.Unlimited[int64]()
	for name, spec := range map[string]sandbox.Spec{"check.json": typical(), "command.json": command} {
		s := build(t, spec)
		s.Linux.Seccomp = nil // it is long, and another on every architecture
		got, err := json.MarshalIndent(s, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, '\n')
		file := filepath.Join("testdata", name)
		if *update {
			if err := os.WriteFile(file, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Errorf("Build(%s), want - got + (rewrite with -update):\n%s", name, diff)
		}
	}
}

func TestBuildRefuses(t *testing.T) {
	tag, err := images.Parse("debian:12")
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		set  func(*sandbox.Spec)
		want string
	}{
		{"limits", func(s *sandbox.Spec) { s.Limits.Wall = 0 }, "limit wall"},
		{"a NUL byte", func(s *sandbox.Spec) { s.Check = "a\x00" }, "NUL byte"},
		{"a relative workspace", func(s *sandbox.Spec) { s.Workspace = "work" }, `workspace "work"`},
		{"a relative root", func(s *sandbox.Spec) { s.Root = images.Dir("root") }, `root "root"`},
		{"an image by tag", func(s *sandbox.Spec) { s.Root = tag }, "of the local store by digest"},
		{"no root directory", func(s *sandbox.Spec) { s.Root = images.Dir("") }, `root "."`},
	}
	for _, tt := range tests {
		spec := typical()
		tt.set(&spec)
		if s, err := Build(spec); s != nil || err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: Build = %v, %v, want an error with %q", tt.name, s != nil, err, tt.want)
		}
	}
}

// The same cell has the same digest, and another one another.
// What is on the disk is memory: it may take half of it at most.
func TestDisk(t *testing.T) {
	tests := []struct {
		disk   sandbox.Bytes
		memory sandbox.Limit[sandbox.Bytes]
		want   sandbox.Bytes
	}{
		{256 * sandbox.MiB, sandbox.At(512 * sandbox.MiB), 256 * sandbox.MiB},
		{256 * sandbox.MiB, sandbox.At(64 * sandbox.MiB), 32 * sandbox.MiB},
		{sandbox.MiB, sandbox.At(64 * sandbox.MiB), sandbox.MiB},
		{sandbox.GiB, sandbox.Unlimited[sandbox.Bytes](), sandbox.GiB},
	}
	for _, tt := range tests {
		l := sandbox.Limits{Disk: tt.disk, Memory: tt.memory}
		if got := Disk(l); got != tt.want {
			t.Errorf("Disk(disk %v, memory %v) = %v, want %v", tt.disk, tt.memory, got, tt.want)
		}
	}
}

func TestDigest(t *testing.T) {
	same := map[string]func(*sandbox.Spec){
		"nothing":                     func(*sandbox.Spec) {},
		"the run's name":              func(s *sandbox.Spec) { s.ID = "another" },
		"what may be missing":         func(s *sandbox.Spec) { s.AllowMissing = nil },
		"the order of files":          func(s *sandbox.Spec) { slices.Reverse(s.Files) },
		"what the cell has by itself": func(s *sandbox.Spec) { s.Env = map[string]string{"A": "1", "TZ": "UTC"} },
	}
	l := func(set func(*sandbox.Limits)) func(*sandbox.Spec) { return func(s *sandbox.Spec) { set(&s.Limits) } }
	other := map[string]func(*sandbox.Spec){
		"check":            func(s *sandbox.Spec) { s.Check += " " },
		"syntax pass":      func(s *sandbox.Spec) { s.SyntaxPass = false },
		"command":          func(s *sandbox.Spec) { s.Check, s.SyntaxPass, s.Args = "", false, []string{"ls"} },
		"command argument": func(s *sandbox.Spec) { s.Check, s.SyntaxPass, s.Args = "", false, []string{"ls", ""} },
		"root":             func(s *sandbox.Spec) { s.Root = images.Dir("/srv/root") },
		"image":            func(s *sandbox.Spec) { s.Root = images.Stored(images.NewDigest([32]byte{1})) },
		"image byte":       func(s *sandbox.Spec) { s.Root = images.Stored(images.NewDigest([32]byte{2})) },
		"workspace":        func(s *sandbox.Spec) { s.Workspace = "/srv/other" },
		"no workspace":     func(s *sandbox.Spec) { s.Workspace = "" },
		"file content":     func(s *sandbox.Spec) { s.Files[0].Content = []byte("1,3\n") },
		"file name":        func(s *sandbox.Spec) { s.Files[0].Path = "in2.csv" },
		"file less":        func(s *sandbox.Spec) { s.Files = s.Files[:1] },
		"no files":         func(s *sandbox.Spec) { s.Files = nil },
		"bytes moved":      func(s *sandbox.Spec) { s.Files[1].Path, s.Files[1].Content = "b/c ", []byte{255} },
		"env value":        func(s *sandbox.Spec) { s.Env = map[string]string{"A": "2"} },
		"env name":         func(s *sandbox.Spec) { s.Env = map[string]string{"B": "1"} },
		"env less":         func(s *sandbox.Spec) { s.Env = nil },
		"env over ours":    func(s *sandbox.Spec) { s.Env["PATH"] = "/bin" },
		"a byte":           func(s *sandbox.Spec) { s.Check = "echo \xff" },
		"another byte":     func(s *sandbox.Spec) { s.Check = "echo \xfe" },
		"its replacement":  func(s *sandbox.Spec) { s.Check = "echo \uFFFD" },
		"env byte":         func(s *sandbox.Spec) { s.Env = map[string]string{"A": "\xff"} },
		"workspace byte":   func(s *sandbox.Spec) { s.Workspace = "/srv/\xff" },
		"root byte":        func(s *sandbox.Spec) { s.Root = images.Dir("/srv/\xff") },
		"long check":       func(s *sandbox.Spec) { s.Check = strings.Repeat("x", 200_000) },
		"long byte":        func(s *sandbox.Spec) { s.Check = "\xff" + strings.Repeat("x", 200_000) },
		"long other byte":  func(s *sandbox.Spec) { s.Check = "\xfe" + strings.Repeat("x", 200_000) },
		"wall":             l(func(l *sandbox.Limits) { l.Wall++ }),
		"parse":            l(func(l *sandbox.Limits) { l.Parse++ }),
		"cpu-time":         l(func(l *sandbox.Limits) { l.CPUTime = sandbox.At(8 * time.Second) }),
		"cpu-time none":    l(func(l *sandbox.Limits) { l.CPUTime = sandbox.Unlimited[time.Duration]() }),
		"cpus":             l(func(l *sandbox.Limits) { l.CPUs = sandbox.At(1.5) }),
		"cpus none":        l(func(l *sandbox.Limits) { l.CPUs = sandbox.Unlimited[float64]() }),
		"memory":           l(func(l *sandbox.Limits) { l.Memory = sandbox.At(64 * sandbox.MiB) }),
		"memory none":      l(func(l *sandbox.Limits) { l.Memory = sandbox.Unlimited[sandbox.Bytes]() }),
		"pids":             l(func(l *sandbox.Limits) { l.Processes = sandbox.At[int64](129) }),
		"pids none":        l(func(l *sandbox.Limits) { l.Processes = sandbox.Unlimited[int64]() }),
		"stdout-cap":       l(func(l *sandbox.Limits) { l.Stdout++ }),
		"stderr-cap":       l(func(l *sandbox.Limits) { l.Stderr++ }),
		"disk":             l(func(l *sandbox.Limits) { l.Disk-- }),
		"inodes":           l(func(l *sandbox.Limits) { l.Inodes++ }),
		"nofile":           l(func(l *sandbox.Limits) { l.OpenFiles++ }),
	}
	want := digest(t, typical())
	if hex, ok := strings.CutPrefix(want, "sha256:"); !ok || len(hex) != 64 {
		t.Errorf("Digest = %q, want sha256: and 64 hexadecimal digits", want)
	}
	for name, set := range same {
		spec := typical()
		set(&spec)
		if got := digest(t, spec); got != want {
			t.Errorf("Digest(%s changed) = %s, want %s as before", name, got, want)
		}
	}
	seen := map[string]string{want: "typical"}
	for name, set := range other {
		spec := typical()
		set(&spec)
		got := digest(t, spec)
		if first, twice := seen[got]; twice {
			t.Errorf("Digest(%s changed) = Digest(%s), want digests of their own", name, first)
		}
		seen[got] = name
	}
}

// A description that went through JSON, as to another process, has the same
// digest.
func TestDigestThroughJSON(t *testing.T) {
	first := build(t, typical())
	b, err := json.Marshal(first)
	if err != nil {
		t.Fatal(err)
	}
	var second specs.Spec
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&second); err != nil {
		t.Fatal(err)
	}
	if got, err := Digest(&second); got != digest(t, typical()) || err != nil {
		t.Errorf("Digest(through JSON) = %s, %v, want %s", got, err, digest(t, typical()))
	}
	if got, err := Digest(&specs.Spec{}); err != nil || got == digest(t, typical()) {
		t.Errorf("Digest(empty) = %s, %v, want a digest of its own", got, err)
	}
}

func TestCheckBecomesAFile(t *testing.T) {
	const maxArgStrlen = 131072 // of execve(2), with the closing NUL
	const name = FileAnnotation + "/.checkcell/check"
	tests := []struct {
		length int
		file   bool
	}{{1, false}, {maxArgStrlen - 1, false}, {maxArgStrlen, true}, {maxArgStrlen * 3, true}}
	for _, tt := range tests {
		spec := typical()
		spec.Check = strings.Repeat("x", tt.length)
		s := build(t, spec)
		args, syntax := []string{"bash", "--norc", "--noprofile", "-c", "--", spec.Check}, []string{"bash", "--norc", "--noprofile", "-n", "-c", "--", spec.Check}
		if tt.file {
			args, syntax = []string{"bash", "--norc", "--noprofile", "--", "/.checkcell/check"}, []string{"bash", "--norc", "--noprofile", "-n", "--", "/.checkcell/check"}
		}
		if !slices.Equal(s.Process.Args, args) {
			t.Errorf("Build(a check of %d bytes) has %d arguments, want %d: %.40q", tt.length, len(s.Process.Args), len(args), args)
		}
		if got := SyntaxArgs(s.Process.Args); !slices.Equal(got, syntax) || !slices.Equal(s.Process.Args, args) {
			t.Errorf("SyntaxArgs(a check of %d bytes) = %.40q, want %.40q and its argument as it was", tt.length, got, syntax)
		}
		if text, ok := s.Annotations[name]; ok != tt.file || ok && text != spec.Check {
			t.Errorf("Build(a check of %d bytes) has a file: %v with %d bytes, want %v", tt.length, ok, len(text), tt.file)
		}
	}
}

// What the check is never comes near a shell of ours.
func TestProcessArgs(t *testing.T) {
	for _, check := range []string{"-c evil", "--version", "'; rm -rf / #", "a\nb", "$(x)"} {
		spec := typical()
		spec.Check = check
		if got, want := build(t, spec).Process.Args, []string{"bash", "--norc", "--noprofile", "-c", "--", check}; !slices.Equal(got, want) {
			t.Errorf("Build(check %q).Process.Args = %q, want %q", check, got, want)
		}
	}
	spec := typical()
	spec.Check, spec.SyntaxPass, spec.Args = "", false, []string{"prog", "", "-x"}
	s := build(t, spec)
	if !slices.Equal(s.Process.Args, spec.Args) {
		t.Errorf("Build(args %q).Process.Args = %q, want the same", spec.Args, s.Process.Args)
	}
	if _, ok := s.Annotations[SyntaxPassAnnotation]; ok {
		t.Error("Build(a command) asks for a syntax pass")
	}
	s.Process.Args[0] = "changed"
	if spec.Args[0] != "prog" {
		t.Error("Build shares the arguments of its spec")
	}
}

func TestEnvironment(t *testing.T) {
	own := []string{"HOME=/work", "LANG=C.UTF-8", "LC_ALL=C.UTF-8", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "TMPDIR=/tmp", "TZ=UTC"}
	t.Setenv("SECRET_OF_THE_CALLER", "x")
	tests := []struct {
		name string
		add  map[string]string
		want []string
	}{
		{"nothing added", nil, own},
		{"added", map[string]string{"ZED": "a=b", "A": ""}, append(append([]string{"A="}, own...), "ZED=a=b")},
		{"over ours", map[string]string{"TZ": "Europe/Berlin"}, append(slices.Clone(own[:5]), "TZ=Europe/Berlin")},
	}
	for _, tt := range tests {
		if got := environment(tt.add); !slices.Equal(got, tt.want) {
			t.Errorf("%s: environment(%v) = %q, want %q", tt.name, tt.add, got, tt.want)
		}
	}
}

func TestResources(t *testing.T) {
	l := sandbox.DefaultLimits()
	l.Memory, l.Processes, l.CPUs = sandbox.At(64*sandbox.MiB), sandbox.At[int64](17), sandbox.At(0.25)
	got := resources(l)
	want := &specs.LinuxResources{
		Memory: &specs.LinuxMemory{Limit: ptr[int64](64 << 20), Swap: ptr[int64](64 << 20)},
		Pids:   &specs.LinuxPids{Limit: ptr[int64](17)},
		CPU:    &specs.LinuxCPU{Quota: ptr[int64](25_000), Period: ptr[uint64](100_000)},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("resources, want - got +:\n%s", diff)
	}
	for cpus, quota := range map[float64]int64{0.01: 1000, 1: 100_000, 1.0 / 3: 33_333, 65536: 6_553_600_000} {
		l.CPUs = sandbox.At(cpus)
		if got := *resources(l).CPU.Quota; got != quota {
			t.Errorf("resources(%v cpus) has quota %d, want %d", cpus, got, quota)
		}
	}
	l.Memory, l.Processes, l.CPUs = sandbox.Unlimited[sandbox.Bytes](), sandbox.Unlimited[int64](), sandbox.Unlimited[float64]()
	if diff := cmp.Diff(&specs.LinuxResources{}, resources(l)); diff != "" {
		t.Errorf("resources(unlimited), want - got +:\n%s", diff)
	}
}

// One tmpfs, one limit: every writable place carries the same size.
func TestScratch(t *testing.T) {
	spec := typical()
	spec.Limits.Disk, spec.Limits.Inodes = 12345678, 321
	var places []string
	for _, m := range build(t, spec).Mounts {
		switch {
		case m.Source == Scratch:
			places = append(places, m.Destination)
			if !slices.Contains(m.Options, "size=12345678") || !slices.Contains(m.Options, "nr_inodes=321") {
				t.Errorf("mount %s has options %q, want size and nr_inodes", m.Destination, m.Options)
			}
			if !slices.Contains(m.Options, "nosuid") || !slices.Contains(m.Options, "nodev") {
				t.Errorf("mount %s has options %q, want nosuid and nodev", m.Destination, m.Options)
			}
		case m.Type != "proc" && !slices.Contains(m.Options, "ro"):
			t.Errorf("mount %s can be written to: %q, want ro", m.Destination, m.Options)
		}
	}
	if want := []string{"/dev/shm", "/tmp", "/var/tmp", WorkDir}; !slices.Equal(places, want) {
		t.Errorf("the writable places are %q, want %q", places, want)
	}
}

func TestWorkspace(t *testing.T) {
	for _, dir := range []string{"", "/srv/work", "/srv/a:b,c=d"} {
		spec := typical()
		spec.Workspace = dir
		mounts := build(t, spec).Mounts
		got, ok := Workspace(mounts[len(mounts)-1])
		if got != dir || ok != (dir != "") {
			t.Errorf("Workspace of a cell with %q = %q, %v", dir, got, ok)
		}
		for _, m := range mounts[:len(mounts)-1] {
			if dir, ok := Workspace(m); ok {
				t.Errorf("Workspace(%s) = %q, want none", m.Destination, dir)
			}
		}
	}
	if dir, ok := Workspace(specs.Mount{Type: "tmpfs", Options: []string{"lowerdir=/x"}}); ok {
		t.Errorf("Workspace(a tmpfs) = %q, want none", dir)
	}
}

// The host view shows programs, and nothing that is private.
func TestHostView(t *testing.T) {
	private := []string{"/root", "/home", "/run", "/etc/shadow", "/etc/ssh", "/etc/ssl/private", "/etc/sudoers", "/etc/docker", "/boot", "/srv", "/opt", "/sys"}
	var shown []string
	for _, m := range hostView() {
		shown = append(shown, m.Destination)
		if m.Destination != m.Source || m.Type != "bind" || !slices.Contains(m.Options, "ro") || !slices.Contains(m.Options, OptionalOption) {
			t.Errorf("mount %+v, want an optional read-only bind of the same path", m)
		}
		for _, p := range append(private, "/var", "/etc") {
			if m.Source == p || m.Source == "/" || strings.HasPrefix(p, m.Source+"/") {
				t.Errorf("mount %s shows %s", m.Source, p)
			}
		}
		for _, p := range private {
			if strings.HasPrefix(m.Source, p+"/") {
				t.Errorf("mount %s is inside %s", m.Source, p)
			}
		}
	}
	for _, dir := range []string{"/usr", "/bin", "/sbin", "/lib", "/lib64"} {
		if !slices.Contains(shown, dir) {
			t.Errorf("the host view is %q, want %s in it", shown, dir)
		}
	}
	for name := range rootFiles() {
		if !path.IsAbs(name) || slices.Contains(shown, name) {
			t.Errorf("file %s is relative or also shown from the host", name)
		}
	}
}
