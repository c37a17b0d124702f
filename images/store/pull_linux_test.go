package store

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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

// What a registry or file serves instead of what was announced is refused, and
// nothing of it is kept.
func TestRefusesWhatIsNotAsAnnounced(t *testing.T) {
	img := twoLayers(t)
	change := func(t *testing.T, f func(dir string, manifest *v1.Manifest)) images.Ref {
		t.Helper()
		dir := saveLayout(t, img)
		m, err := img.Manifest()
		if err != nil {
			t.Fatal(err)
		}
		m = m.DeepCopy()
		f(dir, m)
		raw, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		for name, content := range map[string][]byte{
			"blobs/sha256/" + sum(raw).Hex(): raw,
			"index.json":                     fmt.Appendf(nil, `{"schemaVersion":2,"manifests":[{"mediaType":%q,"size":%d,"digest":%q}]}`, m.MediaType, len(raw), sum(raw)),
		} {
			if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		return parse(t, "oci-layout:"+dir)
	}
	tests := []struct {
		name, want string
		change     func(dir string, m *v1.Manifest)
	}{
		{"another layer", "bytes came that are", func(dir string, m *v1.Manifest) {
			path := filepath.Join(dir, "blobs/sha256", m.Layers[1].Digest.Hex)
			if err := os.WriteFile(path, []byte("another"), 0o644); err != nil {
				t.Fatal(err)
			}
		}},
		{"another layer of the same size", "bytes came that are", func(dir string, m *v1.Manifest) {
			path := filepath.Join(dir, "blobs/sha256", m.Layers[1].Digest.Hex)
			content, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			content[len(content)-1]++
			if err := os.WriteFile(path, content, 0o644); err != nil {
				t.Fatal(err)
			}
		}},
		{"another size", "bytes came that are", func(_ string, m *v1.Manifest) { m.Layers[0].Size-- }},
		{"layers in another order", "it unpacks to", func(_ string, m *v1.Manifest) { slices.Reverse(m.Layers) }},
		{"a layer less", "its manifest has 1 layers, its configuration 2", func(_ string, m *v1.Manifest) { m.Layers = m.Layers[:1] }},
		{"no layer", "it has 0 layers", func(_ string, m *v1.Manifest) { m.Layers = nil }},
		{"another configuration", "configuration", func(dir string, m *v1.Manifest) {
			path := filepath.Join(dir, "blobs/sha256", m.Config.Digest.Hex)
			if err := os.WriteFile(path, []byte("{}"), 0o644); err != nil {
				t.Fatal(err)
			}
		}},
		{"a large configuration", "its configuration has more than", func(_ string, m *v1.Manifest) { m.Config.Size = 1 << 40 }},
		{"large layers", "limit bytes", func(_ string, m *v1.Manifest) { m.Layers[0].Size = 1 << 40 }},
		{"no image", `configuration is of the type "application/x"`, func(_ string, m *v1.Manifest) { m.Config.MediaType = "application/x" }},
		{"an unknown layer", `unknown type "application/x"`, func(_ string, m *v1.Manifest) { m.Layers[0].MediaType = "application/x" }},
		{"an old manifest", "schema 1", func(_ string, m *v1.Manifest) { m.SchemaVersion = 1 }},
		{"another digest", "sha512", func(_ string, m *v1.Manifest) {
			m.Layers[0].Digest = v1.Hash{Algorithm: "sha512", Hex: strings.Repeat("0", 128)}
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := openStore(t, Limits{})
			ref := change(t, tt.change)
			if _, err := s.Pull(t.Context(), ref, nil); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), ref.String()) {
				t.Errorf("Pull = %v, want it refused with %q", err, tt.want)
			}
			all, err := s.List(t.Context())
			if err != nil || len(all) != 0 {
				t.Errorf("List = %v, %v, want no image", all, err)
			}
			if trees, err := stored(s.path("trees/sha256"), ""); err != nil || len(trees) != 0 {
				t.Errorf("there are the trees %v, %v, want none", trees, err)
			}
			leavesNoStage(t, s)
		})
	}
}

func TestRefusesAnotherPlatform(t *testing.T) {
	img, err := mutate.ConfigFile(twoLayers(t), &v1.ConfigFile{OS: "linux", Architecture: "s390x"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = openStore(t, Limits{}).Pull(t.Context(), saveArchive(t, img), nil)
	if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "linux/s390x") {
		t.Errorf("Pull = %v, want it refused for its platform", err)
	}
}

// What can't be found says what to do.
func TestPullFails(t *testing.T) {
	where := serve(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.Contains(r.URL.Path, "/private/") {
				w.WriteHeader(http.StatusForbidden)
				return
			}
			next.ServeHTTP(w, r)
		})
	})
	file := write(t, "x", []byte("no archive"))
	for _, tt := range []struct{ ref, want string }{
		{where + "/none:1", "check name and tag"},
		{where + "/private/a:1", "docker login " + where},
		{"host", "needs no pull"},
		{sum(nil).String(), "put the repository before it"},
		{"oci-layout:" + t.TempDir(), "no OCI image layout"},
		{"oci-layout:/no/such/dir", "no such file"},
		{"docker-archive:" + file, "it is no tar"},
		{"docker-archive:" + write(t, "x.gz", gzipped(t, []byte("x"))), "gunzip"},
		{"docker-archive:" + write(t, "x.tar", tarOf(t)), `no file "manifest.json"`},
		{"docker-archive:/no/such/file", "no such file"},
		{"rootfs-tar:" + file, "tar"},
		{"dir:/no/such/dir", "no such file"},
		{"dir:/dev", "which an image can't have"},
	} {
		s := openStore(t, Limits{})
		_, err := s.Pull(t.Context(), parse(t, tt.ref), nil)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("Pull(%s) = %v, want an error with %q", tt.ref, err, tt.want)
		}
		leavesNoStage(t, s)
	}
}

// A connection that breaks in the middle of a layer fails the pull, and the
// next one has the image.
func TestConnectionBreaks(t *testing.T) {
	img := twoLayers(t)
	layers, err := img.Layers()
	if err != nil {
		t.Fatal(err)
	}
	broken, err := layers[1].Digest()
	if err != nil {
		t.Fatal(err)
	}
	var mended atomic.Bool
	where := serve(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, broken.String()) && !mended.Load() {
				w.Header().Set("Content-Length", "100")
				_, _ = w.Write([]byte("too little"))
				panic(http.ErrAbortHandler)
			}
			next.ServeHTTP(w, r)
		})
	})
	ref := push(t, where+"/a:1", img)
	s := openStore(t, Limits{})
	if _, err := s.Pull(t.Context(), ref, nil); err == nil || !strings.Contains(err.Error(), broken.String()) {
		t.Errorf("Pull = %v, want an error with the layer %v", err, broken)
	}
	if all, err := s.List(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("List = %v, %v, want no image", all, err)
	}
	leavesNoStage(t, s)
	mended.Store(true)
	if got := pull(t, s, ref); got.Image.Digest != digestIn(t, img) {
		t.Errorf("the next Pull = %v, want %v", got.Image.Digest, digestIn(t, img))
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

// Several pull one image at once: it is fetched once, and all have it.
func TestPullTogether(t *testing.T) {
	var mu sync.Mutex
	asked := map[string]int{}
	where := serve(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/") {
				mu.Lock()
				asked[filepath.Base(r.URL.Path)]++
				mu.Unlock()
			}
			next.ServeHTTP(w, r)
		})
	})
	img := twoLayers(t)
	ref := push(t, where+"/a:1", img)
	dir := filepath.Join(t.TempDir(), "images")
	const pullers = 6
	var fresh atomic.Int32
	var group sync.WaitGroup
	for range pullers {
		group.Go(func() {
			s, err := Open(t.Context(), Config{Dir: dir})
			if err != nil {
				t.Error(err)
				return
			}
			got, err := s.Pull(t.Context(), ref, nil)
			if err != nil || got.Image.Digest != digestIn(t, img) {
				t.Errorf("Pull = %v, %v, want %v", got.Image.Digest, err, digestIn(t, img))
			}
			if got.Fresh {
				fresh.Add(1)
			}
		})
	}
	group.Wait()
	if n := fresh.Load(); n != 1 {
		t.Errorf("%d of %d pulls fetched the image, want 1", n, pullers)
	}
	m, err := img.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range m.Layers {
		if n := asked[l.Digest.String()]; n != 1 {
			t.Errorf("layer %v was asked for %d times, want once", l.Digest, n)
		}
	}
}

// A pull that is canceled says why and leaves nothing; the next finds the
// layers that were whole.
func TestPullCanceled(t *testing.T) {
	canceled := errors.New("the caller withdrew")
	img := twoLayers(t)
	ref := push(t, serve(t, nil)+"/a:1", img)
	s := openStore(t, Limits{})
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	_, err := s.Pull(ctx, ref, func(e Event) {
		if e.Step == StepUnpack {
			cancel(canceled)
		}
	})
	if !errors.Is(err, canceled) {
		t.Errorf("Pull = %v, want %v", err, canceled)
	}
	leavesNoStage(t, s)
	if all, err := s.List(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("List = %v, %v, want no image", all, err)
	}
	fetched := 0
	if _, err := s.Pull(t.Context(), ref, func(e Event) {
		if e.Step == StepFetch {
			fetched++
		}
	}); err != nil || fetched > 0 {
		t.Errorf("the next Pull = %v, and fetched in %d pieces what the first had", err, fetched)
	}
}

// Who waits for another's pull can be called back.
func TestWaitCanceled(t *testing.T) {
	ref := saveArchive(t, twoLayers(t))
	s := openStore(t, Limits{})
	canceled := errors.New("the caller withdrew")
	waiting, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	done := make(chan error, 1)
	started := false
	_, err := s.Pull(t.Context(), ref, func(e Event) {
		if e.Step != StepUnpack || started {
			return
		}
		started = true
		go func() {
			_, err := s.Pull(waiting, ref, func(e Event) {
				if e.Step == StepResolve { // what comes next is the wait
					cancel(canceled)
				}
			})
			done <- err
		}()
		if err := <-done; !errors.Is(err, canceled) {
			t.Errorf("the second Pull = %v, want %v", err, canceled)
		}
	})
	if err != nil || !started {
		t.Errorf("the first Pull = %v, unpacked %v", err, started)
	}
}

func TestOCIMediaTypes(t *testing.T) {
	img := mutate.ConfigMediaType(mutate.MediaType(imageOf(t, tarOf(t, entry{name: "v", content: "1"})), types.OCIManifestSchema1), types.OCIConfigJSON)
	got := pull(t, openStore(t, Limits{}), push(t, serve(t, nil)+"/a:1", img))
	if got.Image.Digest != digestIn(t, img) || paths(t, got.Image.Path) != "v=1" {
		t.Errorf("Pull of an OCI image = %+v, want %v", got.Image, digestIn(t, img))
	}
}
