package store

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/checkcell/checkcell/images"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// twoLayers is an image whose second layer changes the first.
func twoLayers(t testing.TB) v1.Image {
	t.Helper()
	upper := []entry{{name: "etc/.wh.passwd"}, {name: "etc/group", content: "root:x:0:\n"}, {name: "usr/bin/tool", content: "x", mode: 0o4755, uid: 3}}
	return imageOf(t, gzipped(t, tarOf(t, plainEntries()...)), gzipped(t, tarOf(t, upper...)))
}

func digestIn(t testing.TB, img interface{ Digest() (v1.Hash, error) }) images.Digest {
	t.Helper()
	h, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	d, err := digestOf(h)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func saveArchive(t testing.TB, img v1.Image) images.Ref {
	t.Helper()
	path := filepath.Join(t.TempDir(), "image.tar")
	tag, err := name.NewTag("localhost/test:1")
	if err == nil {
		err = tarball.WriteToFile(path, tag, img)
	}
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, "docker-archive:"+path)
}

func saveLayout(t testing.TB, all ...v1.Image) (dir string) {
	t.Helper()
	dir = t.TempDir()
	l, err := layout.Write(dir, empty.Index)
	for _, img := range all {
		if err == nil {
			err = l.AppendImage(img)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// One image has one digest and one tree, wherever it comes from.
func TestSameFromEverywhere(t *testing.T) {
	img := twoLayers(t)
	want := digestIn(t, img)
	refs := []images.Ref{
		push(t, serve(t, nil)+"/a/image:1", img),
		parse(t, "oci-layout:"+saveLayout(t, img)),
		saveArchive(t, img),
	}
	var tree, id string
	for _, ref := range refs {
		s := openStore(t, Limits{})
		got := pull(t, s, ref)
		if got.Image.Digest != want || got.Resolved != want || !got.Fresh {
			t.Errorf("Pull(%s) = %v, resolved %v, fresh %v, want %v, fresh", ref, got.Image.Digest, got.Resolved, got.Fresh, want)
		}
		text := describe(t, got.Image.Path)
		if tree == "" {
			tree, id = text, got.Image.ID.String()
		}
		if text != tree || got.Image.ID.String() != id {
			t.Errorf("Pull(%s) has the id %v and the tree\n%swant %s and\n%s", ref, got.Image.ID, text, id, tree)
		}
		wantConfig := ImageConfig{Env: []string{"A=b"}, WorkingDir: "/srv", User: "7"}
		if diff := cmp.Diff(wantConfig, got.Image.Config); diff != "" {
			t.Errorf("Pull(%s) has another configuration (-want +got):\n%s", ref, diff)
		}
		if got.Image.Platform != "linux/"+runtime.GOARCH || !slices.Equal(got.Image.References, []string{ref.String()}) || len(got.Image.Layers) != 2 {
			t.Errorf("Pull(%s) = %+v, want this platform, that reference and two layers", ref, got.Image)
		}
		leavesNoStage(t, s)
	}
	if !strings.Contains(tree, "\nusr/bin/tool -rwxr-xr-x ") || strings.Contains(tree, "etc/passwd") {
		t.Errorf("the tree is\n%swant a tool without set-user-ID, and no passwd", tree)
	}
}

// An archive whose layers are not compressed has another manifest than the
// registry's, and still the same id and tree.
func TestBareArchive(t *testing.T) {
	img := twoLayers(t)
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	add := func(name string, content []byte) {
		t.Helper()
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(content)), Mode: 0o644}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(content); err != nil {
			t.Fatal(err)
		}
	}
	layers, err := img.Layers()
	if err != nil {
		t.Fatal(err)
	}
	for i, l := range layers {
		r, err := l.Uncompressed()
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		add(fmt.Sprintf("layer%d/real.tar", i), content)
		// As docker save wrote a layer that was there twice.
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: fmt.Sprintf("layer%d/layer.tar", i), Linkname: fmt.Sprintf("../layer%d/real.tar", i)}); err != nil {
			t.Fatal(err)
		}
	}
	config, err := img.RawConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	add("config.json", config)
	add("manifest.json", []byte(`[{"Config":"config.json","RepoTags":["a:1"],"Layers":["layer0/layer.tar","layer1/layer.tar"]}]`))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	s := openStore(t, Limits{})
	first := pull(t, s, saveArchive(t, img)).Image
	got := pull(t, s, parse(t, "docker-archive:"+write(t, "bare.tar", b.Bytes()))).Image
	if got.ID != first.ID || got.Tree != first.Tree || got.Path != first.Path || got.Digest == first.Digest {
		t.Errorf("the bare archive is %+v, want id and tree of %+v", got, first)
	}
	if by, err := s.Inspect(t.Context(), images.Stored(first.ID)); err != nil || by.Tree != first.Tree {
		t.Errorf("Inspect(%v) by id = %v, %v, want either", first.ID, by.Digest, err)
	}
}

// A root as a tar, compressed or not, and as a directory.
func TestPullRoot(t *testing.T) {
	bare := tarOf(t, plainEntries()...)
	s := openStore(t, Limits{})
	first := pull(t, s, parse(t, "rootfs-tar:"+write(t, "root.tar", bare)))
	packed := pull(t, s, parse(t, "rootfs-tar:"+write(t, "root.tar.gz", gzipped(t, bare))))
	if first.Image.Tree != packed.Image.Tree || first.Image.ID != packed.Image.ID || first.Image.Tree != sum(bare) {
		t.Errorf("bare and packed are %+v and %+v, want one tree", first.Image, packed.Image)
	}
	dir := parse(t, "dir:"+first.Image.Path)
	fromDir := pull(t, s, dir)
	// All but the one hard link, of which two files are made.
	want, rest, found := strings.Cut(describe(t, first.Image.Path), "usr/bin/true ")
	if got := describe(t, fromDir.Image.Path); !found || !strings.HasPrefix(got, want+"usr/bin/true -rwxr-xr-x ") {
		t.Errorf("the tree of a directory is\n%swant\n%susr/bin/true %s", got, want, rest)
	}
	if again := pull(t, s, dir); again.Image.Digest != fromDir.Image.Digest || again.Fresh {
		t.Errorf("the same directory again is %v, fresh %v, want %v", again.Image.Digest, again.Fresh, fromDir.Image.Digest)
	}
	if _, err := s.Pull(t.Context(), parse(t, "rootfs-tar:"+t.TempDir()), nil); !errors.Is(err, ErrRefused) {
		t.Errorf("Pull of a directory as a tar = %v, want it refused", err)
	}
}

// A tag is looked up at each pull; what it stood for before stays by digest.
func TestTagMoves(t *testing.T) {
	where := serve(t, nil) + "/a:1"
	s := openStore(t, Limits{})
	ref := push(t, where, imageOf(t, tarOf(t, entry{name: "v", content: "1"})))
	first := pull(t, s, ref)
	if again := pull(t, s, ref); again.Fresh || again.Image.Digest != first.Image.Digest {
		t.Errorf("the second pull = %+v, want nothing new", again)
	}
	push(t, where, imageOf(t, tarOf(t, entry{name: "v", content: "2"})))
	second := pull(t, s, ref)
	if second.Image.Digest == first.Image.Digest || !second.Fresh {
		t.Errorf("after the tag moved, the pull is %+v, want another image", second)
	}
	tree, err := s.Tree(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	if got := paths(t, tree.Root); got != "v=2" {
		t.Errorf("the tag's tree holds %s, want v=2", got)
	}
	pinned := pull(t, s, ref.At(first.Resolved))
	if got := paths(t, pinned.Image.Path); got != "v=1" || pinned.Fresh {
		t.Errorf("by its first digest, the tree holds %s, fresh %v, want v=1, from the store", got, pinned.Fresh)
	}
}

// Of an index the image for this machine is taken, and the index's digest
// names it too.
func TestIndex(t *testing.T) {
	forPlatform := func(content, arch string) mutate.IndexAddendum {
		return mutate.IndexAddendum{Add: imageOf(t, tarOf(t, entry{name: "v", content: content})),
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}}}
	}
	where := serve(t, nil)
	index := mutate.AppendManifests(empty.Index, forPlatform("other", "s390x"), forPlatform("ours", runtime.GOARCH), forPlatform("unknown", "unknown"))
	s := openStore(t, Limits{})
	got := pull(t, s, push(t, where+"/multi:1", index))
	if paths(t, got.Image.Path) != "v=ours" || got.Resolved != digestIn(t, index) || got.Image.Digest == got.Resolved {
		t.Errorf("Pull of an index = %+v, holding %s, want ours, by the index %v", got, paths(t, got.Image.Path), digestIn(t, index))
	}
	if by, err := s.Inspect(t.Context(), images.Stored(got.Resolved)); err != nil || by.Digest != got.Image.Digest {
		t.Errorf("Inspect by the index's digest = %v, %v, want %v", by.Digest, err, got.Image.Digest)
	}
	_, err := s.Pull(t.Context(), push(t, where+"/others:1", mutate.AppendManifests(empty.Index, forPlatform("other", "s390x"))), nil)
	if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "linux/s390x") {
		t.Errorf("Pull of an index without this platform = %v, want it refused, with what there is", err)
	}
}

func TestLayoutOfSeveral(t *testing.T) {
	one, other := imageOf(t, tarOf(t, entry{name: "v", content: "1"})), imageOf(t, tarOf(t, entry{name: "v", content: "2"}))
	dir := saveLayout(t, one, other)
	s := openStore(t, Limits{})
	_, err := s.Pull(t.Context(), parse(t, "oci-layout:"+dir), nil)
	if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), digestIn(t, other).String()) {
		t.Errorf("Pull of a layout with two images = %v, want it refused with both digests", err)
	}
	got := pull(t, s, parse(t, "oci-layout:"+dir+"@"+digestIn(t, other).String()))
	if paths(t, got.Image.Path) != "v=2" {
		t.Errorf("Pull by digest holds %s, want v=2", paths(t, got.Image.Path))
	}
}

// Credentials are those of the container tools.
func TestCredentials(t *testing.T) {
	where := serve(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if user, password, _ := r.BasicAuth(); r.Method == http.MethodGet && (user != "ada" || password != "secret") {
				w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			next.ServeHTTP(w, r)
		})
	})
	dir := t.TempDir()
	t.Setenv("DOCKER_CONFIG", dir)
	t.Setenv("HOME", dir)
	ref := parse(t, where+"/a:1")
	config := fmt.Sprintf(`{"auths":{%q:{"auth":"YWRhOnNlY3JldA=="}}}`, where)
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := openStore(t, Limits{}).Pull(t.Context(), ref, nil)
	if err == nil || !strings.Contains(err.Error(), "docker login "+where) || strings.Contains(err.Error(), "secret") {
		t.Errorf("Pull without credentials = %v, want an error that says how to log in", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	tag, err := name.ParseReference(ref.String())
	if err == nil {
		err = remote.Write(tag, twoLayers(t), remote.WithAuthFromKeychain(authn.DefaultKeychain))
	}
	if err != nil {
		t.Fatal(err)
	}
	if got := pull(t, openStore(t, Limits{}), ref); !got.Fresh {
		t.Errorf("Pull with credentials = %+v, want the image", got)
	}
}

// Every byte that is fetched is told of, and the digest before any of them.
func TestProgress(t *testing.T) {
	img := twoLayers(t)
	done := map[string]int64{}
	var first Event
	s := openStore(t, Limits{})
	got, err := s.Pull(t.Context(), push(t, serve(t, nil)+"/a:1", img), func(e Event) {
		if first == (Event{}) {
			first = e
		}
		key := e.Step.String() + " " + e.What
		if e.Done < done[key] || e.Total > 0 && e.Done > e.Total {
			t.Errorf("event %+v comes after %d bytes", e, done[key])
		}
		done[key] = e.Done
	})
	if err != nil {
		t.Fatal(err)
	}
	if first.Step != StepResolve || first.Resolved != got.Image.Digest || !strings.HasSuffix(first.What, "/a@"+got.Image.Digest.String()) {
		t.Errorf("the first event is %+v, want what the tag stands for", first)
	}
	m, err := img.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range m.Layers {
		for _, step := range []Step{StepFetch, StepUnpack} {
			if n := done[step.String()+" "+l.Digest.String()]; n != l.Size {
				t.Errorf("%v of %v told of %d bytes, want %d", step, l.Digest, n, l.Size)
			}
		}
	}
}

func TestOCIMediaTypes(t *testing.T) {
	img := mutate.ConfigMediaType(mutate.MediaType(imageOf(t, tarOf(t, entry{name: "v", content: "1"})), types.OCIManifestSchema1), types.OCIConfigJSON)
	got := pull(t, openStore(t, Limits{}), push(t, serve(t, nil)+"/a:1", img))
	if got.Image.Digest != digestIn(t, img) || paths(t, got.Image.Path) != "v=1" {
		t.Errorf("Pull of an OCI image = %+v, want %v", got.Image, digestIn(t, img))
	}
}
