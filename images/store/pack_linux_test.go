package store

import (
	"archive/tar"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/checkcell/checkcell/images"
	"github.com/checkcell/checkcell/internal/host"
	"github.com/google/go-cmp/cmp"
)

func pack(t testing.TB, s *Store, programs ...string) Pulled {
	t.Helper()
	got, err := s.Pack(t.Context(), PackSpec{Programs: programs}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// in runs a program in a tree, as chroot(8) does.
func in(t *testing.T, root string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "chroot", slices.Concat([]string{root}, args)...)
	cmd.Env = []string{"PATH=" + strings.Join(programDirs(), ":"), "LC_ALL=C.UTF-8"}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%q in the packed root: %v: %s", args, err, out)
	}
	return string(out)
}

// Twice the same programs are twice the same image, in whatever order they are
// named, and whatever the store has already.
func TestPackIsDeterministic(t *testing.T) {
	host.Need(t, host.Bash)
	first := pack(t, openStore(t, Limits{}), "bash", "coreutils", "grep")
	s := openStore(t, Limits{})
	pack(t, s, "bash")
	second := pack(t, s, "grep", "coreutils", "bash", "grep")
	if first.Image.Digest != second.Image.Digest || !second.Fresh {
		t.Errorf("the images are %v and %v, fresh %v, want one image", first.Image.Digest, second.Image.Digest, second.Fresh)
	}
	if third := pack(t, s, "bash", "coreutils", "grep"); third.Fresh || third.Image.Digest != first.Image.Digest {
		t.Errorf("the third time it is %v, fresh %v, want what is there", third.Image.Digest, third.Fresh)
	}
	for line := range strings.Lines(describe(t, first.Image.Path)) {
		owner := " 0:0 0"
		if os.Geteuid() != 0 {
			owner = fmt.Sprintf(" %d:%d 0", os.Geteuid(), os.Getegid())
		}
		if !strings.Contains(line, owner) {
			t.Errorf("%q has another owner or time than%s", line, owner)
		}
	}
}

// What is packed runs with nothing else of the host.
func TestPackRuns(t *testing.T) {
	host.Need(t, host.Root, host.Bash, host.Python3)
	root := pack(t, openStore(t, Limits{}), "std:python").Image.Path
	tests := []struct{ check, want string }{
		{`printf 'b\na\n' | sort | head -n 1`, "a\n"},
		{`echo 'x 1' | awk '{ print $2 + 1 }'`, "2\n"},
		{`find / -xdev -maxdepth 1 | sort | paste -sd ' '`, "/ /bin /dev /etc /lib /lib64 /proc /sbin /sys /tmp /usr /var /work\n"},
		{`cmp /etc/passwd /etc/passwd && sed -n 's/^cell:x:\([0-9]*\).*/\1/p' /etc/passwd`, "1000\n"},
		{`python3 -c 'import json, hashlib, sqlite3, ctypes, ssl, threading; print(json.dumps(sum(range(5))))'`, "10\n"},
		{`printf '#!/usr/bin/env bash\necho "$((6 * 7))"\n' >/tmp/x; chmod +x /tmp/x; /tmp/x; rm /tmp/x`, "42\n"},
		{`expr length "$(printf '\303\251')"`, "1\n"}, // C.UTF-8 is there
	}
	for _, tt := range tests {
		want := tt.want
		if _, err := os.Lstat("/lib64"); err != nil {
			want = strings.ReplaceAll(want, " /lib64", "")
		}
		if got := in(t, root, "bash", "-c", tt.check); got != want {
			t.Errorf("%s: %q, want %q", tt.check, got, want)
		}
	}
}

// The least that a pack holds has what a cell mounts over, and no more of the
// host than what it needs.
func TestPackHolds(t *testing.T) {
	host.Need(t, host.Bash)
	root := pack(t, openStore(t, Limits{}), "bash").Image.Path
	for _, name := range []string{"work", "tmp", "var/tmp", "proc", "dev", "dev/shm", "sys"} {
		if list, err := os.ReadDir(filepath.Join(root, name)); err != nil || name != "dev" && len(list) > 0 {
			t.Errorf("/%s holds %v, %v, want an empty directory", name, list, err)
		}
	}
	for _, name := range []string{"usr/bin/env", "bin/sh", "bin/bash", "etc/passwd", "etc/group", "etc/nsswitch.conf", "etc/hosts"} {
		if _, err := os.Stat(filepath.Join(root, name)); err != nil {
			t.Errorf("/%s is missing: %v", name, err)
		}
	}
	hosts, err := os.Lstat("/bin")
	packed, err2 := os.Lstat(filepath.Join(root, "bin"))
	if err := errors.Join(err, err2); err != nil || hosts.Mode().Type() != packed.Mode().Type() {
		t.Errorf("/bin is %v, %v, want it as on the host", packed.Mode(), err)
	}
	for _, name := range []string{"etc/shadow", "root", "home", "usr/bin/python3", "usr/bin/ls", "etc/ld.so.cache"} {
		if _, err := os.Lstat(filepath.Join(root, name)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("/%s is there, %v, and nobody asked for it", name, err)
		}
	}
}

// Scripts bring their interpreters, links what they lead to, directories all
// that is in them.
func TestPackPaths(t *testing.T) {
	host.Need(t, host.Bash)
	dir := t.TempDir()
	for name, content := range map[string]string{"a/script": "#!/usr/bin/env -S bash\n", "a/other": "#! /bin/cat x\n", "data/x/y": "1", "data/z": "2"} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(content), 0o700)); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range map[string]string{"link": "a/script", "a/up": "../data/z", "data/broken": "nowhere", "data/outside": filepath.Join(dir, "a/other")} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	root := pack(t, openStore(t, Limits{}), filepath.Join(dir, "link"), filepath.Join(dir, "a/up"), filepath.Join(dir, "a/other"), filepath.Join(dir, "data")).Image.Path
	for name, want := range map[string]string{"link": "#!/usr/bin/env -S bash\n", "a/up": "2", "data/x/y": "1", "data/z": "2", "data/outside": "#! /bin/cat x\n"} {
		if got, err := os.ReadFile(filepath.Join(root, dir, name)); string(got) != want {
			// An absolute link leads to the same file of the host's.
			t.Errorf("%s holds %q, %v, want %q", name, got, err, want)
		}
	}
	if target, err := os.Readlink(filepath.Join(root, dir, "data/broken")); target != "nowhere" {
		t.Errorf("the broken link leads to %q, %v, want it kept", target, err)
	}
	for _, name := range []string{"a/other", "a/script"} { // of what a link leads to
		if _, err := os.Lstat(filepath.Join(root, dir, name)); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(filepath.Join(root, "bin/cat")); err != nil {
		t.Errorf("the interpreter of a script is missing: %v", err)
	}
}

func TestPackRefuses(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "dir/socket")
	if err := os.Mkdir(filepath.Dir(pipe), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := exec.CommandContext(t.Context(), "mkfifo", pipe).Run(); err != nil {
		t.Fatal(err)
	}
	lost := write(t, "lost", []byte("#!/no/such/interpreter\n"))
	tests := []struct {
		programs []string
		name     string
		want     string
	}{
		{nil, "", "no program is named"},
		{[]string{"no-such-program", "nor-this-one"}, "", "no-such-program: no such program in /usr/local/sbin"},
		{[]string{"no-such-program", "nor-this-one"}, "", "nor-this-one: no such program"},
		{[]string{"bin/bash"}, "", "want a name or an absolute path"},
		{[]string{"/no/such/file"}, "", "no such file"},
		{[]string{"std:perl"}, "", "there are shell, python"},
		{[]string{filepath.Dir(pipe)}, "", "which an image can't have"},
		{[]string{lost}, "", "interpreter"},
		{[]string{"bash"}, "std:shell", "want the form of a tag"},
		{[]string{"bash"}, "debian@" + sum(nil).String(), "want the form of a tag"},
	}
	for _, tt := range tests {
		s := openStore(t, Limits{})
		_, err := s.Pack(t.Context(), PackSpec{Programs: tt.programs, Name: parse(t, tt.name)}, nil)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("Pack(%q, %q) = %v, want an error with %q", tt.programs, tt.name, err, tt.want)
		}
		leavesNoStage(t, s)
	}
}

// A packed image is found by its name, and by its digest without one.
func TestPackName(t *testing.T) {
	host.Need(t, host.Bash)
	s := openStore(t, Limits{})
	unnamed := pack(t, s, "true").Image
	if want := []string{unnamed.Digest.String()}; !slices.Equal(unnamed.References, want) {
		t.Errorf("without a name its references are %q, want %q", unnamed.References, want)
	}
	name := parse(t, "localhost/true:1")
	if _, err := s.Pack(t.Context(), PackSpec{Programs: []string{"true"}, Name: name}, nil); err != nil {
		t.Fatal(err)
	}
	for _, ref := range []images.Ref{name, images.Stored(unnamed.Digest)} {
		tree, err := s.Tree(t.Context(), ref)
		if err != nil || tree.Image.Digest != unnamed.Digest {
			t.Fatalf("Tree(%v) = %+v, %v, want %v", ref, tree, err, unnamed.Digest)
		}
		tree.Close()
	}
	img, err := s.Inspect(t.Context(), name)
	if want := []string{name.String(), unnamed.Digest.String()}; err != nil || !slices.Equal(img.References, want) {
		t.Errorf("Inspect(%v) = %q, %v, want the names %q", name, img.References, err, want)
	}
}

func TestReadProgram(t *testing.T) {
	host.Need(t, host.Bash)
	bash, err := lookUp("bash")
	if err != nil {
		t.Fatal(err)
	}
	p, ok, err := readProgram(bash)
	if !ok || err != nil || !filepath.IsAbs(p.loader) || len(p.needed) == 0 {
		t.Fatalf("readProgram(%s) = %+v, %v, %v, want a loader and libraries", bash, p, ok, err)
	}
	path, cached, err := p.library(p.needed[0], nil, nil)
	if err != nil || cached || !strings.HasSuffix(path, p.needed[0]) {
		t.Errorf("library(%s) = %q, cached %v, %v, want it in a trusted directory", p.needed[0], path, cached, err)
	}
	// A directory that only ld.so.conf names needs the loader's cache; one that
	// the program names does not, and comes first.
	dir := t.TempDir()
	content, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "libown.so"), content, 0o600)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "libtext.so"), []byte("no library"), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		runpath, configured []string
		cached, ok          bool
	}{{nil, []string{dir}, true, true}, {[]string{dir}, []string{dir}, false, true}, {nil, nil, false, false}} {
		got, cached, err := p.library("libown.so", tt.runpath, tt.configured)
		if (err == nil) != tt.ok || cached != tt.cached || tt.ok && got != filepath.Join(dir, "libown.so") {
			t.Errorf("library with %q and %q = %q, cached %v, %v, want cached %v, ok %v", tt.runpath, tt.configured, got, cached, err, tt.cached, tt.ok)
		}
	}
	if got, _, err := p.library("libtext.so", []string{dir}, nil); err == nil {
		t.Errorf("library of a text = %q, want an error", got)
	}
	for _, name := range []string{filepath.Join(dir, "libtext.so"), "/etc/passwd", "/dev/null"} {
		if p, ok, err := readProgram(name); ok || err != nil {
			t.Errorf("readProgram(%s) = %+v, %v, %v, want no program", name, p, ok, err)
		}
	}
	if got := originOf("$ORIGIN/../lib:${ORIGIN}", "/opt/x/bin/p"); got != "/opt/x/lib:/opt/x/bin" {
		t.Errorf("originOf = %q", got)
	}
}

func TestConfiguredDirs(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{
		"ld.so.conf": "include conf.d/*.conf # all\n/opt/lib\nrelative\n\n# /not\n", "conf.d/b.conf": "/b/\n", "conf.d/a.conf": "/a1 /a2\ninclude ../ld.so.conf\n", "conf.d/x": "/x\n",
	} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	got, err := configuredDirs(filepath.Join(dir, "ld.so.conf"), 0)
	if err != nil || len(got) > 100 {
		t.Fatalf("configuredDirs = %d directories, %v, want an end to what includes itself", len(got), err)
	}
	slices.Sort(got)
	if diff := cmp.Diff([]string{"/a1", "/a2", "/b", "/opt/lib"}, slices.Compact(got)); diff != "" {
		t.Errorf("configuredDirs (-want +got):\n%s", diff)
	}
	if got, err := configuredDirs(filepath.Join(dir, "none"), 0); got != nil || err != nil {
		t.Errorf("configuredDirs of no file = %v, %v, want none", got, err)
	}
}

// The layer of a pack is a tar as any other program reads it.
func TestPackedLayer(t *testing.T) {
	host.Need(t, host.Bash)
	s := openStore(t, Limits{})
	img := pack(t, s, "true").Image
	f, err := os.Open(s.blobPath(img.Layers[0]))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	last := ""
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if err != nil {
			break
		}
		if h.Name <= last && strings.TrimSuffix(h.Name, "/") <= strings.TrimSuffix(last, "/") {
			t.Errorf("%q comes behind %q", h.Name, last)
		}
		if last = h.Name; h.Uid != 0 || h.Gid != 0 || h.ModTime.Unix() != 0 || h.Mode&0o7000 != 0 && !strings.Contains(h.Name, "tmp") && h.Name != "dev/shm/" {
			t.Errorf("entry %+v, want it of root, without a time and without special bits", h)
		}
	}
	if last == "" {
		t.Error("the layer has no entry")
	}
}
