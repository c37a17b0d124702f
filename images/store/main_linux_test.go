package store

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/checkcell/checkcell/images"
	"github.com/checkcell/checkcell/internal/host"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"golang.org/x/sys/unix"
)

// pullerVar makes this program a puller instead of a test: it holds the store,
// the reference, and what to do behind the pull, a line each.
const pullerVar = "CHECKCELL_TEST_PULLER"

func TestMain(m *testing.M) {
	if job := os.Getenv(pullerVar); job != "" {
		os.Exit(puller(strings.Split(job, "\n")))
	}
	os.Exit(host.Main(m))
}

// puller pulls, and prints a line for each event and each result. It ends
// when its standard input does if it is told to hold the tree.
func puller(job []string) int {
	ctx := context.Background()
	ref, err := images.Parse(job[1])
	var s *Store
	if err == nil {
		s, err = Open(ctx, Config{Dir: job[0]})
	}
	var got Pulled
	if err == nil {
		fmt.Println("open")
		got, err = s.Pull(ctx, ref, func(e Event) { fmt.Println(e.Step, e.What, e.Done, e.Total) })
	}
	if err == nil {
		fmt.Println("pulled", got.Image.Digest, got.Fresh)
	}
	if err == nil && job[2] == "remove" {
		_, err = s.Remove(ctx, ref)
	}
	if err == nil && job[2] == "hold" {
		var tree *Tree
		if tree, err = s.Tree(ctx, ref); err == nil {
			fmt.Println("held", tree.Root)
			_, err = io.Copy(io.Discard, os.Stdin)
		}
	}
	if err != nil {
		fmt.Println("error", err)
		return 1
	}
	return 0
}

// entry is one entry of a test's layer. The zero type is a file.
type entry struct {
	name, content, link string
	kind                byte
	mode                int64 // 0 is 0755 for a directory, 0644 for what else
	uid, gid            int
	attrs               map[string]string
	major, minor        int64
	size                int64 // announced instead of that of content
}

var layerTime = time.Unix(1_000_000_000, 0)

func (e entry) header() *tar.Header {
	h := &tar.Header{
		Name: e.name, Typeflag: e.kind, Linkname: e.link, Mode: e.mode, Uid: e.uid, Gid: e.gid,
		Size: max(int64(len(e.content)), e.size), ModTime: layerTime, Devmajor: e.major, Devminor: e.minor, Format: tar.FormatPAX,
	}
	if h.Typeflag == 0 {
		h.Typeflag = tar.TypeReg
	}
	if h.Mode == 0 {
		h.Mode = 0o644
		if h.Typeflag == tar.TypeDir {
			h.Mode = 0o755
		}
	}
	for name, value := range e.attrs {
		if h.PAXRecords == nil {
			h.PAXRecords = map[string]string{}
		}
		h.PAXRecords[xattrRecord+name] = value
	}
	return h
}

func tarOf(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		if err := w.WriteHeader(e.header()); err != nil {
			t.Fatalf("entry %q: %v", e.name, err)
		}
		if _, err := io.WriteString(w, e.content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func gzipped(t testing.TB, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// imageOf makes an image for this machine of layers, each a tar or what a
// compressor made of one.
func imageOf(t testing.TB, layers ...[]byte) v1.Image {
	t.Helper()
	img, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{
		OS: "linux", Architecture: runtime.GOARCH, Config: v1.Config{Env: []string{"A=b"}, WorkingDir: "/srv", User: "7"},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range layers {
		layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(l)), nil })
		if err == nil {
			img, err = mutate.AppendLayers(img, layer)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return img
}

// plainEntries are a small root.
func plainEntries() []entry {
	return []entry{
		{name: "./", kind: tar.TypeDir},
		{name: "bin", kind: tar.TypeSymlink, link: "usr/bin"},
		{name: "etc/", kind: tar.TypeDir},
		{name: "etc/passwd", content: "root:x:0:0::/:/bin/sh\n"},
		{name: "usr/", kind: tar.TypeDir},
		{name: "usr/bin/", kind: tar.TypeDir},
		{name: "usr/bin/true", content: "#!/bin/sh\n", mode: 0o755},
		{name: "usr/bin/also", kind: tar.TypeLink, link: "usr/bin/true"},
		{name: "home/ada/notes", content: "x", uid: 1000, gid: 1001, mode: 0o600},
	}
}

// serve starts a registry on loopback, through wrap if that is not nil.
func serve(t testing.TB, wrap func(http.Handler) http.Handler) (hostPort string) {
	t.Helper()
	handler := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	if wrap != nil {
		handler = wrap(handler)
	}
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// push pushes an image or index.
func push(t testing.TB, where string, img remote.Taggable) images.Ref {
	t.Helper()
	tag, err := name.ParseReference(where)
	if err != nil {
		t.Fatal(err)
	}
	switch img := img.(type) {
	case v1.Image:
		err = remote.Write(tag, img)
	case v1.ImageIndex:
		err = remote.WriteIndex(tag, img)
	}
	if err != nil {
		t.Fatalf("push %s: %v", where, err)
	}
	return parse(t, where)
}

func parse(t testing.TB, s string) images.Ref {
	t.Helper()
	ref, err := images.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

func openStore(t testing.TB, limits Limits) *Store {
	t.Helper()
	s, err := Open(t.Context(), Config{Dir: filepath.Join(t.TempDir(), "images"), Limits: limits})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func pull(t testing.TB, s *Store, ref images.Ref) Pulled {
	t.Helper()
	got, err := s.Pull(t.Context(), ref, nil)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func write(t testing.TB, name string, content []byte) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, content, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// describe writes down all of a tree that an image says: a line an entry.
func describe(t testing.TB, root string) string {
	t.Helper()
	var b strings.Builder
	inodes := map[uint64]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		stat := info.Sys().(*syscall.Stat_t)
		rel, _ := filepath.Rel(root, path)
		fmt.Fprintf(&b, "%s %v %d:%d %d", rel, info.Mode(), stat.Uid, stat.Gid, info.ModTime().Unix())
		switch {
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(path)
			fmt.Fprintf(&b, " -> %s", target)
			if err != nil {
				return err
			}
		case info.Mode().IsRegular():
			if first, ok := inodes[stat.Ino]; ok {
				fmt.Fprintf(&b, " = %s", first)
				break
			}
			inodes[stat.Ino] = rel
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			fmt.Fprintf(&b, " %d %.12x", len(content), sha256.Sum256(content))
		}
		for _, attr := range attrsOf(path) {
			fmt.Fprintf(&b, " %s", attr)
		}
		b.WriteByte('\n')
		return nil
	})
	if err != nil {
		t.Fatalf("describe %s: %v", root, err)
	}
	return b.String()
}

// attrsOf lists the user's attributes of a file, as NAME=VALUE.
func attrsOf(path string) []string {
	names := make([]byte, 4096)
	n, err := unix.Llistxattr(path, names)
	if err != nil {
		return nil
	}
	all := map[string]bool{}
	for attr := range strings.SplitSeq(strings.TrimRight(string(names[:n]), "\x00"), "\x00") {
		value := make([]byte, 4096)
		if n, err := unix.Lgetxattr(path, attr, value); err == nil && attr != "" {
			all[attr+"="+string(value[:n])] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// leavesNoStage fails the test unless the store's directory of rests is empty.
func leavesNoStage(t testing.TB, s *Store) {
	t.Helper()
	left, err := os.ReadDir(s.path("tmp"))
	if err != nil || len(left) > 0 {
		t.Errorf("below tmp there is %v, %v, want nothing", left, err)
	}
}
