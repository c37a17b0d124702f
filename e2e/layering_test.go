package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const modulePath = "github.com/checkcell/checkcell"

// never is an import that is refused whatever else is allowed, and the reason.
// A path that ends in /... stands for itself and everything below it.
type never struct{ path, reason string }

// layer is what one package may import: of the module, and of others. The
// standard library is open to all but for what not lists.
type layer struct {
	pkg     string
	module  []string
	others  []string
	because string // why it may import no more
	not     []never
}

const (
	xsys        = "golang.org/x/sys/..."
	runtimeSpec = "github.com/opencontainers/runtime-spec/..."

	// Of those that speak to registries it has the fewest imports, and is
	// what crane, ko and cosign are built on.
	registryLibrary = "github.com/google/go-containerregistry/pkg/..."
)

// layers is the table of design.md section 2, imports that run one way.
func layers() []layer {
	run := []string{"images", "images/store", "sandbox", "sandbox/cellspec", "sandbox/cellinit", "sandbox/cellhost", "sandbox/container",
		"sandbox/native", "sandbox/oci", "sandbox/docker", "cgroup"}
	public := slices.Concat(run, []string{"grade"})
	return []layer{
		{pkg: "images", because: "a reference by digest is a value that every layer reads; the standard library is enough"},
		{pkg: "images/store", module: []string{"images"},
			others:  []string{registryLibrary, "github.com/klauspost/compress/zstd", "golang.org/x/sync/errgroup", xsys},
			because: "images are fetched and kept without knowing what runs in them; the registry's protocol and zstd are libraries",
			not: []never{
				{"sandbox/...", "backends use the store, never the other way round"},
				{"cgroup", "a store starts nothing in a group"},
			}},
		{pkg: "cgroup", others: []string{xsys, runtimeSpec, "github.com/containerd/cgroups/v3/..."},
			because: "a group is filled and killed without knowing what runs in it"},
		{pkg: "sandbox", module: []string{"images"}, because: "the contract is what every backend and caller builds on, so it stands on nothing",
			not: []never{
				{"grade", "sandbox never sees a claim"},
				{"cgroup", "the contract does not know how a backend holds its cells"},
				{"sandbox/...", "backends import the contract, never the other way round"},
			}},
		{pkg: "sandbox/cellspec", module: []string{"sandbox", "images"}, others: []string{runtimeSpec},
			because: "one description of a cell serves every backend, so it knows none",
			not:     []never{{"cgroup", "the description says what is limited; a backend says how"}}},
		{pkg: "sandbox/cellinit", module: []string{"sandbox", "sandbox/cellspec"}, others: []string{xsys, runtimeSpec},
			because: "process 1 of every backend's cells knows what it runs, not what is around it",
			not:     []never{{"cgroup", "an init does not know its group"}}},
		{pkg: "sandbox/cellhost", module: []string{"sandbox", "sandbox/cellspec", "sandbox/cellinit", "cgroup", "images", "images/store"},
			others:  []string{xsys, runtimeSpec},
			because: "what holds for every backend's cells is here, so it knows none"},
		{pkg: "sandbox/container", module: []string{"sandbox", "sandbox/cellspec", "sandbox/cellinit", "sandbox/cellhost", "images", "images/store"},
			others:  []string{runtimeSpec, xsys},
			because: "a cell in a container knows neither the runtime nor the engine that made it"},
		{pkg: "sandbox/oci", module: []string{"sandbox", "sandbox/cellspec", "sandbox/cellinit", "sandbox/cellhost", "sandbox/container", "cgroup", "images/store"},
			others:  []string{xsys, runtimeSpec},
			because: "a runtime is a program that is run; nothing of it is linked",
			not: []never{
				{"grade", "a backend never sees a claim"},
				{"sandbox/native", "backends do not know each other"},
				{"sandbox/docker", "backends do not know each other"},
			}},
		{pkg: "sandbox/docker", module: []string{"sandbox", "sandbox/cellspec", "sandbox/cellhost", "sandbox/container", "images/store"},
			others: []string{xsys, runtimeSpec, "github.com/docker/docker/...", "github.com/docker/cli/cli/config/...", "github.com/docker/cli/cli/context/store/...",
				"github.com/docker/go-units/...", "github.com/containerd/errdefs/..."},
			because: "the only importer of the Docker client; contexts, units and the client's errors are read by the libraries that the docker command uses",
			not: []never{
				{"grade", "a backend never sees a claim"},
				{"sandbox/native", "backends do not know each other"},
				{"sandbox/oci", "backends do not know each other"},
			}},
		{pkg: "sandbox/native", module: []string{"sandbox", "sandbox/cellspec", "sandbox/cellinit", "sandbox/cellhost", "cgroup", "images", "images/store"},
			others:  []string{xsys, runtimeSpec, "golang.org/x/net/bpf", "github.com/elastic/go-seccomp-bpf/arch"},
			because: "a backend runs what the one description says; names of system calls and the assembler of filters are libraries",
			not: []never{
				{"grade", "a backend never sees a claim"},
				{"sandbox/docker", "backends do not know each other"},
				{"sandbox/oci", "backends do not know each other"},
			}},
		{pkg: "sandbox/sandboxtest", module: []string{"sandbox", "sandbox/cellspec", "images"}, others: testLibraries(),
			because: "the suite knows the contract and no backend, or it would test that one only"},
		{pkg: "grade", module: []string{"sandbox"}, because: "grading is pure: the same values give the same verdict, whoever asks and when",
			not: slices.Concat(pure(), []never{
				{"sandbox/...", "grade never sees a backend"},
				{"images/...", "a verdict does not depend on where the check ran"},
				{"cgroup", "grade reads the counters of a result, never a group"},
			})},
		{pkg: "internal/claims", module: []string{"grade", "sandbox"}, others: []string{"go.yaml.in/yaml/v3"},
			because: "reading claims runs nothing",
			not:     []never{{"os/exec", "reading claims runs nothing"}, {"net/...", "claims are files"}}},
		{pkg: "internal/intake", module: slices.Concat(public, []string{"internal/claims"}),
			because: "the one path from claim to grade is the same for every caller",
			not:     []never{{"internal/report", "values go forward only: what is graded is reported by the caller"}}},
		{pkg: "internal/report", module: []string{"grade", "sandbox", "images/store", "internal/claims", "internal/intake"},
			others:  []string{"github.com/vbauerster/mpb/v8/...", "golang.org/x/term"},
			because: "a report shows grades; it neither runs nor grades",
			not:     []never{{"os/exec", "a report runs nothing"}}},
		{pkg: "internal/recorded", module: []string{"grade", "sandbox"},
			because: "recorded executions are read and graded without running anything",
			not:     []never{{"os/exec", "nothing recorded is run again"}, {"net/...", "records are files"}}},
		{pkg: "internal/attack", module: []string{"sandbox"}, because: "attacks know the contract and no backend, so that every one is attacked alike",
			not: []never{
				{"os/exec", "only a backend starts processes"},
				{"grade", "what an attack came to is no verdict on a claim"},
				{"internal/claims", "an attack is no claim"},
			}},
		{pkg: "internal/scope", others: []string{"github.com/coreos/go-systemd/v22/dbus", "github.com/godbus/dbus/v5"},
			because: "a scope is asked for without knowing what will be done in it",
			not: []never{
				{"os/exec", "systemd is asked over its bus; no program of its is run"},
				{"cgroup", "what is made in the scope's group is not the scope's"},
			}},
		{pkg: "internal/host", because: "what the machine offers is found without the code under test"},
		{pkg: "internal/host/testrun", module: []string{"internal/host"}, because: "it starts tests, and needs only to see their traces"},
		{pkg: "cmd/checkcell", module: slices.Concat(public, []string{"internal/attack", "internal/claims", "internal/intake", "internal/recorded", "internal/report", "internal/scope"}),
			others:  []string{"github.com/spf13/cobra", "github.com/spf13/pflag", "golang.org/x/term"},
			because: "a command reads flags, calls the packages in order and picks the exit code",
			not:     []never{{"os/exec", "only a backend starts processes"}, {"internal/host", "it serves tests only"}}},
		{pkg: "e2e", others: []string{registryLibrary}, because: "it runs the binary, as a user does, and serves it a registry"},
		{pkg: "e2e/backends", because: "it runs the binary, as a user does"},
		{pkg: "e2e/demo", because: "it runs the binary, as a user does"},
	}
}

// pure lists what a pure package may not import. It holds for direct imports:
// fmt reaches os, and sandbox, whose types grade needs, reaches context, so the
// transitive closure says nothing. That grade's own files do not read the
// clock is TestGradeReadsNoClock.
func pure() []never {
	return []never{
		{"os/...", "a pure function reads no file and no environment, and starts nothing"},
		{"syscall", "a pure function asks the kernel nothing"},
		{"io/ioutil", "a pure function reads no file"},
		{"net/...", "a pure function talks to nobody"},
		{"math/rand/...", "a pure function repeats itself"},
		{"crypto/rand", "a pure function repeats itself"},
		{"context", "a pure function has nothing to wait for"},
		{"log/...", "the libraries do not log"},
		{"unsafe", "values in, verdict out"},
	}
}

// testLibraries are open to every test file.
func testLibraries() []string {
	return []string{
		"github.com/google/go-cmp/...", "pgregory.net/rapid", "go.uber.org/goleak",
		"github.com/rogpeppe/go-internal/...",
	}
}

// testPackages of the module are open to every test file, but not to those of
// e2e's rule to run the binary: internal/host only looks at the machine.
func testPackages() []string { return []string{"internal/host", "sandbox/sandboxtest"} }

// covers reports whether pattern stands for the import path.
func covers(pattern, path string) bool {
	below, ok := strings.CutSuffix(pattern, "/...")
	return pattern == path || ok && (path == below || strings.HasPrefix(path, below+"/"))
}

// refuse returns why the package of l may not import path, or "". A test file,
// one of the external test package included, may also import the package it
// tests and what is open to tests.
func (l layer) refuse(path string, inTest bool) string {
	inside, isModule := strings.CutPrefix(path, modulePath+"/")
	standard := !isModule && !strings.Contains(strings.Split(path, "/")[0], ".")
	local := path
	if isModule {
		local = inside
	}
	in := func(patterns []string) bool {
		return slices.ContainsFunc(patterns, func(p string) bool { return covers(p, local) })
	}
	if inTest && (local == l.pkg || isModule && in(testPackages()) || !isModule && in(testLibraries())) {
		return ""
	}
	if inTest && standard {
		return ""
	}
	if isModule && in(l.module) || !isModule && in(l.others) {
		return ""
	}
	for _, n := range l.not {
		if covers(n.path, local) {
			return n.reason
		}
	}
	if standard {
		return ""
	}
	return "its row allows no such import: " + l.because
}

// listed is what go list says of one package.
type listed struct {
	ImportPath                         string
	Imports, TestImports, XTestImports []string
	Error                              *struct{ Err string }
}

// listPackages asks the go command for every package of the module. A package
// whose imports can't be resolved is listed all the same: its row still holds.
func listPackages(t *testing.T) []listed {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-e", "-json", "./...")
	cmd.Dir = ".."
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v: %s", err, stderr.String())
	}
	var all []listed
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatalf("decode the list of packages: %v", err)
		}
		all = append(all, p)
	}
}

// faults checks packages against rows.
func faults(rows []layer, packages []listed) []string {
	var found []string
	for _, p := range packages {
		name := strings.TrimPrefix(p.ImportPath, modulePath+"/")
		if p.Error != nil {
			found = append(found, fmt.Sprintf("%s: %s", name, p.Error.Err))
			continue
		}
		i := slices.IndexFunc(rows, func(l layer) bool { return l.pkg == name })
		if i < 0 {
			found = append(found, fmt.Sprintf("%s has no row: say in layers what it may import, and why no more", name))
			continue
		}
		for _, path := range p.Imports {
			if why := rows[i].refuse(path, false); why != "" {
				found = append(found, fmt.Sprintf("%s imports %s: %s", name, path, why))
			}
		}
		for _, path := range slices.Concat(p.TestImports, p.XTestImports) {
			if why := rows[i].refuse(path, true); why != "" {
				found = append(found, fmt.Sprintf("a test of %s imports %s: %s", name, path, why))
			}
		}
	}
	return found
}

func TestLayering(t *testing.T) {
	packages := listPackages(t)
	if len(packages) == 0 {
		t.Fatal("go list ./... lists no package")
	}
	for _, fault := range faults(layers(), packages) {
		t.Error(fault)
	}
}

// The rows say what they mean: each has a reason, none twice, and nothing that
// a row allows is also refused by it.
func TestLayersAreConsistent(t *testing.T) {
	seen := map[string]bool{}
	for _, l := range layers() {
		if seen[l.pkg] {
			t.Errorf("layers has two rows for %s", l.pkg)
		}
		seen[l.pkg] = true
		if l.because == "" {
			t.Errorf("row %s has no reason", l.pkg)
		}
		for _, n := range l.not {
			if n.reason == "" {
				t.Errorf("row %s refuses %s without a reason", l.pkg, n.path)
			}
			if slices.Contains(l.module, n.path) || slices.Contains(l.others, n.path) {
				t.Errorf("row %s both allows and refuses %s", l.pkg, n.path)
			}
		}
	}
	for _, l := range layers() {
		for _, to := range l.module {
			for _, back := range layers() {
				if back.pkg == to && slices.Contains(back.module, l.pkg) {
					t.Errorf("rows %s and %s allow each other", l.pkg, to)
				}
			}
		}
	}
}

func TestFaults(t *testing.T) {
	m := modulePath + "/"
	tests := []struct {
		name string
		have listed
		want string // a part of the only fault, or ""
	}{
		{"standard library", listed{ImportPath: m + "sandbox", Imports: []string{"os", "os/exec", "context"}}, ""},
		{"allowed in the module", listed{ImportPath: m + "grade", Imports: []string{"strings", m + "sandbox"}}, ""},
		{"allowed of others", listed{ImportPath: m + "sandbox/native", Imports: []string{"golang.org/x/sys/unix"}}, ""},
		{"no row", listed{ImportPath: m + "sandbox/fresh"}, "sandbox/fresh has no row"},
		{"broken", listed{ImportPath: m + "grade", Error: &struct{ Err string }{"expected package"}}, "grade: expected package"},
		{"backwards", listed{ImportPath: m + "sandbox", Imports: []string{m + "sandbox/native"}}, "never the other way round"},
		{"a claim in the contract", listed{ImportPath: m + "sandbox", Imports: []string{m + "grade"}}, "sandbox never sees a claim"},
		{"a backend in grade", listed{ImportPath: m + "grade", Imports: []string{m + "sandbox/native"}}, "grade never sees a backend"},
		{"third party in the contract", listed{ImportPath: m + "sandbox", Imports: []string{"golang.org/x/sys/unix"}}, "stands on nothing"},
		{"a prefix is no parent", listed{ImportPath: m + "cgroup", Imports: []string{"golang.org/x/sysfoo"}}, "its row allows no such import"},
		{"os in grade", listed{ImportPath: m + "grade", Imports: []string{"os"}}, "reads no file"},
		{"os/exec in grade", listed{ImportPath: m + "grade", Imports: []string{"os/exec"}}, "starts nothing"},
		{"net in grade", listed{ImportPath: m + "grade", Imports: []string{"net"}}, "talks to nobody"},
		{"math/rand/v2 in grade", listed{ImportPath: m + "grade", Imports: []string{"math/rand/v2"}}, "repeats itself"},
		{"context in grade", listed{ImportPath: m + "grade", Imports: []string{"context"}}, "nothing to wait for"},
		{"os in a test of grade", listed{ImportPath: m + "grade", TestImports: []string{"os", "testing"}}, ""},
		{"test library in a test", listed{ImportPath: m + "grade", XTestImports: []string{"pgregory.net/rapid", m + "grade", m + "internal/host"}}, ""},
		{"test library in code", listed{ImportPath: m + "grade", Imports: []string{"pgregory.net/rapid"}}, "its row allows no such import"},
		{"host in code", listed{ImportPath: m + "cmd/checkcell", Imports: []string{m + "internal/host"}}, "it serves tests only"},
		{"own package in code", listed{ImportPath: m + "grade", Imports: []string{m + "grade"}}, "its row allows no such import"},
		{"a backend in a test of grade", listed{ImportPath: m + "grade", TestImports: []string{m + "sandbox/native"}}, "a test of grade imports"},
		{"the module in e2e", listed{ImportPath: m + "e2e", XTestImports: []string{m + "grade"}}, "it runs the binary"},
	}
	for _, tt := range tests {
		got := faults(layers(), []listed{tt.have})
		if tt.want == "" && len(got) > 0 || tt.want != "" && (len(got) != 1 || !strings.Contains(got[0], tt.want)) {
			t.Errorf("%s: faults(%+v) = %q, want %q", tt.name, tt.have, got, tt.want)
		}
	}
}
