package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/checkcell/checkcell/images"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

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
