package store

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/checkcell/checkcell/internal/host"
	"github.com/klauspost/compress/zstd"
)

// unpackAll unpacks layers into a new directory, as root would or not.
func unpackAll(t testing.TB, limits Limits, owners bool, layers ...[]byte) (root, aside string, err error) {
	t.Helper()
	root = filepath.Join(t.TempDir(), "rootfs")
	if err := os.Mkdir(root, 0o700); err != nil {
		t.Fatal(err)
	}
	u, err := newUnpacker(root, limits, owners)
	if err != nil {
		t.Fatal(err)
	}
	defer u.close()
	for _, l := range layers {
		if _, err := u.layer(t.Context(), bytes.NewReader(l), int64(len(l))); err != nil {
			return root, "", err
		}
	}
	text, err := u.finish()
	return root, string(text), err
}

// paths lists the entries of a tree by path, with what a file holds.
func paths(t testing.TB, root string) string {
	t.Helper()
	var names []string
	for line := range strings.Lines(describe(t, root)) {
		name := strings.Fields(line)[0]
		if content, err := os.ReadFile(filepath.Join(root, name)); err == nil {
			name += "=" + string(content)
		}
		if name != "." {
			names = append(names, name)
		}
	}
	return strings.Join(names, " ")
}

func TestLayersOver(t *testing.T) {
	base := []entry{{name: "a/", kind: tar.TypeDir}, {name: "a/x", content: "1"}, {name: "a/d/y", content: "1"}, {name: "lib", kind: tar.TypeSymlink, link: "usr/lib"}, {name: "usr/lib/z", content: "1"}}
	tests := []struct {
		name  string
		upper []entry
		want  string
	}{
		{"nothing", nil, "a a/d a/d/y=1 a/x=1 lib usr usr/lib usr/lib/z=1"},
		{"a file replaces a file", []entry{{name: "a/x", content: "2"}}, "a a/d a/d/y=1 a/x=2 lib usr usr/lib usr/lib/z=1"},
		{"a file replaces a directory", []entry{{name: "a", content: "2"}}, "a=2 lib usr usr/lib usr/lib/z=1"},
		{"a directory replaces a file", []entry{{name: "a/x/", kind: tar.TypeDir}, {name: "a/x/w", content: "2"}}, "a a/d a/d/y=1 a/x a/x/w=2 lib usr usr/lib usr/lib/z=1"},
		{"a directory stays", []entry{{name: "a/", kind: tar.TypeDir, mode: 0o700}}, "a a/d a/d/y=1 a/x=1 lib usr usr/lib usr/lib/z=1"},
		{"a directory replaces a link", []entry{{name: "lib/", kind: tar.TypeDir}}, "a a/d a/d/y=1 a/x=1 lib usr usr/lib usr/lib/z=1"},
		{"through a link", []entry{{name: "lib/w", content: "2"}}, "a a/d a/d/y=1 a/x=1 lib usr usr/lib usr/lib/w=2 usr/lib/z=1"},
		{"whiteout of a file", []entry{{name: "a/.wh.x"}}, "a a/d a/d/y=1 lib usr usr/lib usr/lib/z=1"},
		{"whiteout of a directory", []entry{{name: ".wh.a"}}, "lib usr usr/lib usr/lib/z=1"},
		{"whiteout of a link", []entry{{name: ".wh.lib"}}, "a a/d a/d/y=1 a/x=1 usr usr/lib usr/lib/z=1"},
		{"whiteout through a link", []entry{{name: "lib/.wh.z"}}, "a a/d a/d/y=1 a/x=1 lib usr usr/lib"},
		{"whiteout of what is not there", []entry{{name: "a/.wh.nothing"}}, "a a/d a/d/y=1 a/x=1 lib usr usr/lib usr/lib/z=1"},
		{"opaque", []entry{{name: "a/.wh..wh..opq"}}, "a lib usr usr/lib usr/lib/z=1"},
		{"opaque before what is new", []entry{{name: "a/.wh..wh..opq"}, {name: "a/n", content: "2"}}, "a a/n=2 lib usr usr/lib usr/lib/z=1"},
		{"opaque behind what is new", []entry{{name: "a/n", content: "2"}, {name: "a/d/n", content: "2"}, {name: "a/.wh..wh..opq"}}, "a a/d a/d/n=2 a/n=2 lib usr usr/lib usr/lib/z=1"},
		{"whiteout does not hide its own layer", []entry{{name: "a/x", content: "2"}, {name: "a/.wh.x"}}, "a a/d a/d/y=1 a/x=2 lib usr usr/lib usr/lib/z=1"},
		{"whiteout of a directory with something new", []entry{{name: "a/d/n", content: "2"}, {name: ".wh.a"}}, "a a/d a/d/n=2 lib usr usr/lib usr/lib/z=1"},
		{"aufs's own", []entry{{name: ".wh..wh.plnk/", kind: tar.TypeDir}, {name: ".wh..wh.aufs"}}, "a a/d a/d/y=1 a/x=1 lib usr usr/lib usr/lib/z=1"},
		{"hard link to a lower layer", []entry{{name: "h", kind: tar.TypeLink, link: "./a/x"}}, "a a/d a/d/y=1 a/x=1 h=1 lib usr usr/lib usr/lib/z=1"},
		{"hard link through a link", []entry{{name: "h", kind: tar.TypeLink, link: "lib/z"}}, "a a/d a/d/y=1 a/x=1 h=1 lib usr usr/lib usr/lib/z=1"},
		{"twice in one layer", []entry{{name: "n", content: "2"}, {name: "n", content: "3"}}, "a a/d a/d/y=1 a/x=1 lib n=3 usr usr/lib usr/lib/z=1"},
		{"names with slashes and dots", []entry{{name: "/n", content: "2"}, {name: ".//m", content: "2"}}, "a a/d a/d/y=1 a/x=1 lib m=2 n=2 usr usr/lib usr/lib/z=1"},
	}
	for _, tt := range tests {
		root, _, err := unpackAll(t, DefaultLimits(), false, tarOf(t, base...), tarOf(t, tt.upper...))
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		if got := paths(t, root); got != tt.want {
			t.Errorf("%s: the tree is\n%s, want\n%s", tt.name, got, tt.want)
		}
	}
}

// What a hostile or broken layer does is refused, and the entry is named. Each
// comes behind honest entries, and nothing of it is outside of the root.
func hostileLayers(t testing.TB) []struct {
	name    string
	entries []entry
	entry   string // named
	want    string
} {
	deep := strings.Repeat("d/", 128) + "f"
	return []struct {
		name    string
		entries []entry
		entry   string
		want    string
	}{
		{"climbing", []entry{{name: "../evil", content: "x"}}, "../evil", "climbs with .."},
		{"climbing further in", []entry{{name: "a/../../evil", content: "x"}}, "a/../../evil", "climbs with .."},
		{"climbing and staying", []entry{{name: "a/../b", content: "x"}}, "a/../b", "climbs with .."},
		{"absolute and climbing", []entry{{name: "/../evil", content: "x"}}, "/../evil", "climbs with .."},
		{"link out of the root", []entry{{name: "l", kind: tar.TypeSymlink, link: "../evil"}}, "l", `out of the root, to "../evil"`},
		{"link out of the root, deeper", []entry{{name: "etc/l", kind: tar.TypeSymlink, link: "x/../../../evil"}}, "etc/l", "out of the root"},
		{"absolute link out of the root", []entry{{name: "l", kind: tar.TypeSymlink, link: "/../evil"}}, "l", "out of the root"},
		{"empty link", []entry{{name: "l", kind: tar.TypeSymlink}}, "l", "link to"},
		{"through an absolute link", []entry{{name: "l", kind: tar.TypeSymlink, link: "/tmp"}, {name: "l/evil", content: "x"}}, "l/evil", `"l" is a link to "/tmp"`},
		{"whiteout through an absolute link", []entry{{name: "l", kind: tar.TypeSymlink, link: "/tmp"}, {name: "l/.wh.evil"}}, "l/.wh.evil", "is not followed"},
		{"opaque through an absolute link", []entry{{name: "l", kind: tar.TypeSymlink, link: "/tmp"}, {name: "l/.wh..wh..opq"}}, "l/.wh..wh..opq", "is not followed"},
		{"links in a circle", []entry{{name: "l", kind: tar.TypeSymlink, link: "m"}, {name: "m", kind: tar.TypeSymlink, link: "l"}, {name: "l/x"}}, "l/x", "is not followed"},
		{"hard link with an absolute path", []entry{{name: "h", kind: tar.TypeLink, link: "/etc/passwd"}}, "h", `absolute path "/etc/passwd"`},
		{"hard link out of the root", []entry{{name: "h", kind: tar.TypeLink, link: "../etc/passwd"}}, "h", "out of the root"},
		{"hard link through an absolute link", []entry{{name: "l", kind: tar.TypeSymlink, link: "/etc"}, {name: "h", kind: tar.TypeLink, link: "l/passwd"}}, "h", "l"},
		{"hard link to nothing", []entry{{name: "h", kind: tar.TypeLink, link: "nothing"}}, "h", "no such file"},
		{"hard link to a directory", []entry{{name: "h", kind: tar.TypeLink, link: "etc"}}, "h", "directory"},
		{"hard link to the root", []entry{{name: "h", kind: tar.TypeLink, link: "."}}, "h", "out of the root"},
		{"hard link that moves a link up", []entry{{name: "etc/l", kind: tar.TypeSymlink, link: "../usr"}, {name: "h", kind: tar.TypeLink, link: "etc/l"}}, "h", "out of the root"},
		{"block device", []entry{{name: "dev/sda", kind: tar.TypeBlock, major: 8}}, "dev/sda", "block device 8:0"},
		{"character device", []entry{{name: "dev/mem", kind: tar.TypeChar, major: 1, minor: 1}}, "dev/mem", "character device 1:1"},
		{"known device elsewhere", []entry{{name: "etc/null", kind: tar.TypeChar, major: 1, minor: 3}}, "etc/null", "character device 1:3"},
		{"another device by a known name", []entry{{name: "dev/null", kind: tar.TypeChar, major: 1, minor: 1}}, "dev/null", "character device 1:1"},
		{"overlay's whiteout", []entry{{name: "etc/passwd", kind: tar.TypeChar}}, "etc/passwd", "character device 0:0"},
		{"below a file", []entry{{name: "etc/passwd/x", content: "x"}}, "etc/passwd/x", `"etc/passwd" is a file`},
		{"the root as a file", []entry{{name: ".", kind: tar.TypeSymlink, link: "x"}}, ".", "the root is no directory"},
		{"too deep", []entry{{name: deep, content: "x"}}, deep, "limit depth of 128"},
		{"a name that is too long", []entry{{name: strings.Repeat("n", 256), content: "x"}}, strings.Repeat("n", 256), "too long"},
		{"whiteout of no name", []entry{{name: ".wh."}}, ".wh.", "hides no name"},
		{"whiteout of the parent", []entry{{name: "etc/.wh..."}}, "etc/.wh...", "hides no name"},
		{"a large file", []entry{{name: "big", kind: tar.TypeReg, size: 5 << 30}}, "big", "limit file of"},
		{"an unknown type", []entry{{name: "odd", kind: '7'}}, "odd", "unknown type"},
	}
}

// rawTar is tarOf without a check of what an honest writer checks: what is
// announced and is not there is left out.
func rawTar(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	for _, e := range entries {
		w := tar.NewWriter(&b)
		if err := w.WriteHeader(e.header()); err != nil {
			t.Fatalf("entry %q: %v", e.name, err)
		}
		if e.size == 0 {
			if _, err := w.Write([]byte(e.content)); err != nil {
				t.Fatal(err)
			}
			if err := w.Flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
	return append(b.Bytes(), make([]byte, 1024)...)
}

func TestRefusesHostileLayers(t *testing.T) {
	for _, tt := range hostileLayers(t) {
		base := tarOf(t, plainEntries()...)
		root, _, err := unpackAll(t, DefaultLimits(), false, base, rawTar(t, tt.entries...))
		if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), fmt.Sprintf("entry %q", tt.entry)) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want it refused, with entry %q and %q", tt.name, err, tt.entry, tt.want)
		}
		if beside, err := os.ReadDir(filepath.Dir(root)); err != nil || len(beside) != 1 {
			t.Errorf("%s: beside the root there is %v, %v, want nothing", tt.name, beside, err)
		}
	}
	for _, evil := range []string{"/tmp/evil", "/evil"} {
		if _, err := os.Lstat(evil); err == nil {
			t.Errorf("%s was made", evil)
		}
	}
}

// sparse is a file of zeros of that size in the old form of GNU tar, which
// takes two blocks of the tar.
func sparse(name string, size int64) []byte {
	b := make([]byte, 512)
	copy(b, name)
	copy(b[100:], "0000644\x000000000\x000000000\x00")
	copy(b[124:], "00000000000\x0000000000000\x00")
	copy(b[148:], "        S")
	copy(b[257:], "ustar  \x00")
	copy(b[386:], fmt.Sprintf("%011o\x00%011o\x00", size, 0)) // one part: nothing, at the end
	b[483-1] = 0
	copy(b[483:], append([]byte{0x80, 0, 0, 0}, 0, 0, 0, byte(size>>32), byte(size>>24), byte(size>>16), byte(size>>8), byte(size)))
	sum := 0
	for _, c := range b {
		sum += int(c)
	}
	copy(b[148:], fmt.Sprintf("%06o\x00 ", sum))
	return append(b, make([]byte, 1024)...)
}

func TestRefusesBombs(t *testing.T) {
	small := DefaultLimits()
	small.Bytes, small.Files, small.File = 1000, 5, 600
	zeros := tarOf(t, entry{name: "zeros", content: strings.Repeat("\x00", 80<<20)})
	many := make([]entry, 6)
	for i := range many {
		many[i] = entry{name: fmt.Sprint(i)}
	}
	tests := []struct {
		name   string
		limits Limits
		layer  []byte
		want   string
	}{
		{"a sparse file of 10 GB", DefaultLimits(), sparse("bomb", 10<<30), `entry "bomb": refused: it has 10737418240 bytes, beyond the limit file`},
		{"a smaller sparse file", DefaultLimits(), sparse("bomb", 3<<30), `entry "bomb": refused: the layer unpacks to more bytes, beyond the limit ratio`},
		{"a file that compresses too well", DefaultLimits(), gzipped(t, zeros), "limit ratio"},
		{"nothing but padding", DefaultLimits(), gzipped(t, make([]byte, 96<<20)), "limit ratio"},
		{"bytes", small, tarOf(t, entry{name: "a", content: strings.Repeat("x", 600)}, entry{name: "b", content: strings.Repeat("x", 401)}), `entry "b": refused: the image unpacks to more bytes, beyond the limit bytes of 1000`},
		{"one file", small, tarOf(t, entry{name: "a", content: strings.Repeat("x", 601)}), `entry "a": refused: it has 601 bytes, beyond the limit file of 600`},
		{"files", small, tarOf(t, many...), `entry "5": refused: the image has more entries, beyond the limit files of 5`},
		{"directories that no entry names", small, tarOf(t, entry{name: "a/b/c/d/e/f"}), "limit files of 5"},
		{"xz", small, []byte("\xfd7zXZ\x00......"), "compressed with xz"},
		{"no tar", small, bytes.Repeat([]byte("no tar "), 200), "invalid tar header"},
		{"gzip that is cut off", DefaultLimits(), gzipped(t, tarOf(t, plainEntries()...))[:100], "unexpected EOF"},
	}
	for _, tt := range tests {
		root, _, err := unpackAll(t, tt.limits, false, tt.layer)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
		if info, err := os.Stat(filepath.Join(root, "bomb")); err == nil && info.Size() > 0 {
			t.Errorf("%s: %d bytes of it were written before it was refused", tt.name, info.Size())
		}
	}
	// At the limits is within them.
	layer := tarOf(t, entry{name: "a", content: strings.Repeat("x", 600)}, entry{name: "b", content: strings.Repeat("x", 400)}, entry{name: "c/d/e"})
	if _, _, err := unpackAll(t, small, false, layer); err != nil {
		t.Errorf("layer at the limits: %v", err)
	}
}

// What root unpacks has the owners of the layers; modes, times, links and
// attributes are kept, and what is not is noted.
func TestLooks(t *testing.T) {
	host.Need(t, host.Root)
	layer := tarOf(t,
		entry{name: "tmp/", kind: tar.TypeDir, mode: 0o1777},
		entry{name: "shared/", kind: tar.TypeDir, mode: 0o2775, gid: 50},
		entry{name: "closed/", kind: tar.TypeDir, mode: 0o500},
		entry{name: "closed/su", content: "x", mode: 0o4755, attrs: map[string]string{"security.capability": "\x01", "user.kept": "yes"}},
		entry{name: "closed/link", kind: tar.TypeSymlink, link: "/etc/passwd", uid: 8, gid: 9},
		entry{name: "owned", content: "x", uid: 1000, gid: 1001, mode: 0o640, attrs: map[string]string{"user.overlay.redirect": "/x", "trusted.overlay.opaque": "y"}},
		entry{name: "again", kind: tar.TypeLink, link: "owned"},
		entry{name: "dev/null", kind: tar.TypeChar, mode: 0o666, major: 1, minor: 3},
		entry{name: "run/initctl", kind: tar.TypeFifo},
	)
	root, aside, err := unpackAll(t, DefaultLimits(), true, layer)
	if err != nil {
		t.Fatal(err)
	}
	const want = `. drwxr-xr-x 0:0 0
again -rw-r----- 1000:1001 1000000000 1 2d711642b726b04401627ca9
closed dr-x------ 0:0 1000000000
closed/link Lrwxrwxrwx 8:9 1000000000 -> /etc/passwd
closed/su -rwxr-xr-x 0:0 1000000000 1 2d711642b726b04401627ca9 user.kept=yes
dev drwxr-xr-x 0:0 0
owned -rw-r----- 1000:1001 1000000000 = again
run drwxr-xr-x 0:0 0
shared drwxrwxr-x 0:50 1000000000
tmp dtrwxrwxrwx 0:0 1000000000
`
	if got := describe(t, root); got != want {
		t.Errorf("the tree is\n%swant\n%s", got, want)
	}
	const wantAside = `{"path":"closed/su","mode":"4755","xattrs":["security.capability"]}
{"path":"dev/null","node":"character device 1:3"}
{"path":"owned","xattrs":["trusted.overlay.opaque","user.overlay.redirect"]}
{"path":"run/initctl","node":"pipe"}
{"path":"shared","mode":"2775"}
`
	if aside != wantAside {
		t.Errorf("aside is\n%swant\n%s", aside, wantAside)
	}
	// Where nobody can be given a file, the owners are noted instead.
	_, aside, err = unpackAll(t, DefaultLimits(), false, layer, tarOf(t, entry{name: "closed/.wh.su"}, entry{name: "dev/.wh.null"}, entry{name: ".wh.run"}))
	const wantOwners = `{"path":"closed/link","owner":"8:9"}
{"path":"owned","owner":"1000:1001","xattrs":["trusted.overlay.opaque","user.overlay.redirect"]}
{"path":"shared","owner":"0:50","mode":"2775"}
`
	if aside != wantOwners || err != nil {
		t.Errorf("aside without owners is\n%s, %v, want\n%s", aside, err, wantOwners)
	}
}

// The three forms of one layer make one tree and have one digest.
func TestForms(t *testing.T) {
	bare := tarOf(t, plainEntries()...)
	enc, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer enc.Close()
	want, _, err := unpackAll(t, DefaultLimits(), false, bare)
	if err != nil {
		t.Fatal(err)
	}
	for name, layer := range map[string][]byte{"gzip": gzipped(t, bare), "zstd": enc.EncodeAll(bare, nil)} {
		u, err := newUnpacker(t.TempDir(), DefaultLimits(), false)
		if err != nil {
			t.Fatal(err)
		}
		digest, err := u.layer(t.Context(), bytes.NewReader(layer), int64(len(layer)))
		if err != nil || digest != sum(bare) {
			t.Errorf("%s: layer = %v, %v, want %v", name, digest, err, sum(bare))
		}
		if _, err := u.finish(); err != nil {
			t.Fatal(err)
		}
		if got := describe(t, u.root.Name()); got != describe(t, want) {
			t.Errorf("%s: the tree is\n%swant\n%s", name, got, describe(t, want))
		}
		if err := u.close(); err != nil {
			t.Error(err)
		}
	}
}

// Whatever a layer holds, nothing is made outside of the root, and what is
// accepted can be removed again.
func FuzzUnpack(f *testing.F) {
	f.Add(tarOf(f, plainEntries()...))
	f.Add(gzipped(f, tarOf(f, plainEntries()...)))
	f.Add(sparse("bomb", 10<<30))
	for _, tt := range hostileLayers(f) {
		f.Add(rawTar(f, tt.entries...))
	}
	f.Add(tarOf(f, entry{name: "a/.wh..wh..opq"}, entry{name: ".wh.a"}, entry{name: "l", kind: tar.TypeSymlink, link: "/etc"}))
	limits := Limits{Bytes: 1 << 20, Files: 100, File: 1 << 20, Depth: 16, Ratio: 100}
	f.Fuzz(func(t *testing.T, layer []byte) {
		outer := t.TempDir()
		root := filepath.Join(outer, "in/rootfs")
		if err := os.MkdirAll(root, 0o700); err != nil {
			t.Fatal(err)
		}
		u, err := newUnpacker(root, limits, false)
		if err != nil {
			t.Fatal(err)
		}
		_, err = u.layer(t.Context(), bytes.NewReader(layer), int64(len(layer)))
		if err == nil {
			_, err = u.layer(t.Context(), bytes.NewReader(layer), int64(len(layer))) // over itself
		}
		if err == nil {
			_, err = u.finish()
		}
		if err == nil && u.files > 2*limits.Files {
			t.Errorf("%d entries were made, want at most %d", u.files, limits.Files)
		}
		if err := u.close(); err != nil {
			t.Error(err)
		}
		for _, dir := range []string{outer, filepath.Join(outer, "in")} {
			if beside, err := os.ReadDir(dir); err != nil || len(beside) != 1 {
				t.Errorf("in %s there is %v, %v, want one directory", dir, beside, err)
			}
		}
		if err := removeTree(root); err != nil {
			t.Errorf("remove the tree: %v", err)
		}
	})
}
