package native_test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/checkcell/checkcell/images"
	"github.com/checkcell/checkcell/internal/host"
	"github.com/checkcell/checkcell/sandbox"
	"github.com/checkcell/checkcell/sandbox/native"
	"github.com/checkcell/checkcell/sandbox/sandboxtest"
)

// rewrite reads and changes everything in the workspace of plant.
const rewrite = `set -e
cat a d/secret l; [ "$(stat -c %u a d d/secret . | sort -u)" = 1000 ]
echo x >> d/secret; echo y > a; rm l; rm -r d; mkdir d; [ -z "$(ls d)" ]; mv a b; cat b; : > new; : > d/new`

func plant(t *testing.T) string {
	dir := t.TempDir()
	for _, err := range []error{
		os.WriteFile(filepath.Join(dir, "a"), []byte("a\n"), 0o644),
		os.Mkdir(filepath.Join(dir, "d"), 0o755),
		os.WriteFile(filepath.Join(dir, "d/secret"), []byte("s\n"), 0),
		os.Symlink("a", filepath.Join(dir, "l")),
		os.Chmod(filepath.Join(dir, "d"), 0o500),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// listing is all that can be seen of a directory from outside.
func listing(t *testing.T, dir string) string {
	var b strings.Builder
	err := filepath.WalkDir(dir, func(name string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		content := ""
		if d.Type().IsRegular() {
			text, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			content = string(text)
		}
		stat := info.Sys().(*syscall.Stat_t)
		b.WriteString(strings.Join([]string{name[len(dir):], info.Mode().String(), info.ModTime().String(), content, string(rune(stat.Uid))}, " ") + "\n")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestWorkspace(t *testing.T) {
	host.Need(t, host.Root, host.CgroupWritable, host.MemoryCgroup, host.PidsCgroup, host.UserNS, host.Bash)
	b := open(t, native.Config{})
	tests := []struct {
		name  string
		shape func(dir string) error
	}{
		{"owned by root", func(string) error { return nil }},
		{"owned by somebody", func(dir string) error { return chownAll(dir, 12345, 23456) }},
		{"owned by two", func(dir string) error { return os.Lchown(filepath.Join(dir, "a"), 12345, 0) }},
		{"out of the reach of others", func(dir string) error { return os.Chmod(dir, 0o700) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := plant(t)
			if err := tt.shape(dir); err != nil {
				t.Fatal(err)
			}
			rewritten(t, b, dir)
		})
	}
}

// rewritten has two runs rewrite a workspace of plant: the second sees nothing of
// the first, and the directory stays as it is.
func rewritten(t *testing.T, b *native.Backend, dir string) {
	t.Helper()
	before := listing(t, dir)
	for range 2 {
		res := run(t, b, sandboxtest.Spec(rewrite, func(s *sandbox.Spec) { s.Workspace = dir }))
		if want := "a\ns\na\ny\n"; res.Outcome != sandbox.Exited(0) || string(res.Stdout.Kept) != want {
			t.Errorf("%v, stdout %q, stderr %q; want exited 0, %q", res.Outcome, res.Stdout.Kept, res.Stderr.Kept, want)
		}
	}
	if after := listing(t, dir); after != before {
		t.Errorf("the workspace changed:\n%s\nwas:\n%s", after, before)
	}
}

// Whoever runs the test owns the workspace, and need not be root: no mapping
// stands in the way of an overlay then, whatever else of it the kernel lacks.
func TestWorkspaceOfOurs(t *testing.T) {
	host.Need(t, host.CgroupWritable, host.MemoryCgroup, host.PidsCgroup, host.UserNS, host.Bash)
	b := open(t, native.Config{})
	dir := plant(t)
	if err := os.Chmod(filepath.Join(dir, "d/secret"), 0o400); err != nil { // what we can't read we can't copy
		t.Fatal(err)
	}
	t.Cleanup(func() { // so that it can be removed
		if err := os.Chmod(filepath.Join(dir, "d"), 0o700); err != nil {
			t.Error(err)
		}
	})
	rewritten(t, b, dir)
}

func chownAll(dir string, uid, gid int) error {
	return filepath.WalkDir(dir, func(name string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(name, uid, gid)
	})
}

func TestWorkspaceRefused(t *testing.T) {
	host.Need(t, host.Root, host.CgroupWritable, host.MemoryCgroup, host.PidsCgroup, host.UserNS, host.Bash)
	b := open(t, native.Config{})
	tests := []struct {
		name  string
		shape func(dir string) error
		set   func(*sandbox.Spec)
		want  string // in the detail
	}{
		{"missing", os.RemoveAll, nil, "no such file"},
		{"a socket in it", func(dir string) error {
			l, err := net.Listen("unix", filepath.Join(dir, "s"))
			if err == nil {
				t.Cleanup(func() { l.Close() })
			}
			return err
		}, nil, "/s is a S---------, which a cell can't be given"},
		{"a pipe in it", func(dir string) error { return syscall.Mkfifo(filepath.Join(dir, "p"), 0o644) }, nil, "/p is a p---------"},
		{"too large to copy", func(dir string) error {
			if err := os.Lchown(filepath.Join(dir, "a"), 1, 1); err != nil {
				return err
			}
			return os.Truncate(filepath.Join(dir, "a"), 1<<20)
		}, func(s *sandbox.Spec) { s.Limits.Disk = 512 * sandbox.KiB }, "raise --disk"},
		{"a link where a file goes", func(string) error { return nil },
			func(s *sandbox.Spec) { s.Files = []sandbox.File{{Path: "l/x"}} }, "make file l/x: a symbolic link of the workspace is in the way"},
		{"a link that is a file", func(string) error { return nil },
			func(s *sandbox.Spec) { s.Files = []sandbox.File{{Path: "l"}} }, "make file l: a symbolic link of the workspace is in the way"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := plant(t)
			if err := tt.shape(dir); err != nil {
				t.Fatal(err)
			}
			res := run(t, b, sandboxtest.Spec("echo ran", func(s *sandbox.Spec) {
				s.Workspace = dir
				if tt.set != nil {
					tt.set(s)
				}
			}))
			if res.Outcome.Kind() != sandbox.KindStartFailed || !strings.Contains(res.Outcome.Detail(), tt.want) {
				t.Errorf("outcome = %v, want start_failed with %q", res.Outcome, tt.want)
			}
		})
	}
}

func TestFilesLieOverTheWorkspace(t *testing.T) {
	host.Need(t, host.Root, host.CgroupWritable, host.MemoryCgroup, host.PidsCgroup, host.UserNS, host.Bash)
	b := open(t, native.Config{})
	dir := plant(t)
	res := run(t, b, sandboxtest.Spec("cat a d/new; stat -c %a a", func(s *sandbox.Spec) {
		s.Workspace = dir
		s.Files = []sandbox.File{{Path: "a", Content: []byte("claim\n")}, {Path: "d/new", Content: []byte("new\n")}}
	}))
	if want := "claim\nnew\n644\n"; string(res.Stdout.Kept) != want {
		t.Errorf("%v, stdout %q, stderr %q, want %q", res.Outcome, res.Stdout.Kept, res.Stderr.Kept, want)
	}
}

func TestImageDirectory(t *testing.T) {
	host.Need(t, host.Root, host.CgroupWritable, host.MemoryCgroup, host.PidsCgroup, host.UserNS, host.Bash)
	b := open(t, native.Config{})
	root := t.TempDir()
	if err := os.Chmod(root, 0o700); err != nil {
		t.Fatal(err)
	}
	spec := sandboxtest.Spec("echo ran", func(s *sandbox.Spec) { s.Root = images.Dir(root) })
	res := run(t, b, spec)
	if res.Outcome.Kind() != sandbox.KindStartFailed || !strings.Contains(res.Outcome.Detail(), "start bash: not found") {
		t.Errorf("an empty root: outcome = %v, want start_failed, bash not found", res.Outcome)
	}
	for _, name := range []string{"bin", "lib", "lib64"} { // links, as the host has them
		if target, err := os.Readlink("/" + name); err == nil {
			if err := os.Symlink(target, filepath.Join(root, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Fatal(err)
	}
	if err := copyPrograms(root, bash); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "marker"), []byte("image"), 0o644); err != nil {
		t.Fatal(err)
	}
	spec.Check = `read -r x </marker; echo "$x"; (: >/marker) 2>/dev/null || echo protected; [ -e /usr/bin/env -o -e /bin/env ] || echo alone; : >/tmp/x; : >/work/x`
	res = run(t, b, spec)
	if want := "image\nprotected\nalone\n"; res.Outcome != sandbox.Exited(0) || string(res.Stdout.Kept) != want {
		t.Errorf("%v, stdout %q, stderr %q, want exited 0, %q", res.Outcome, res.Stdout.Kept, res.Stderr.Kept, want)
	}
}
