package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/checkcell/checkcell/images"
)

// fill pulls images v1, v2 …, used that many hours ago, the first the longest
// ago, and returns their references.
func fill(t *testing.T, s *Store, n int) []images.Ref {
	t.Helper()
	shared := gzipped(t, tarOf(t, entry{name: "shared", content: "x"}))
	var refs []images.Ref
	for i := range n {
		ref := saveArchive(t, imageOf(t, shared, tarOf(t, entry{name: "v", content: fmt.Sprint(i) + strings.Repeat("x", 1000)})))
		img := pull(t, s, ref).Image
		setUsed(t, s, img, time.Duration(n-i)*time.Hour)
		refs = append(refs, ref)
	}
	return refs
}

func setUsed(t *testing.T, s *Store, img Image, ago time.Duration) {
	t.Helper()
	at := time.Now().Add(-ago)
	if err := os.Chtimes(s.recordPath(img.Digest), at, at); err != nil {
		t.Fatal(err)
	}
}

// have lists the references of the images that are left, and fails the test
// unless the store has just what belongs to these.
func have(t *testing.T, s *Store) []string {
	t.Helper()
	all, err := s.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var refs []string
	blobs, trees := map[string]bool{}, map[string]bool{}
	for _, img := range all {
		refs = append(refs, img.References...)
		trees[img.Tree.Hex()] = true
		for _, d := range append(img.Layers, img.Digest, img.ID) {
			blobs[d.Hex()] = true
		}
	}
	for dir, want := range map[string]map[string]bool{"blobs/sha256": blobs, "trees/sha256": trees} {
		got, err := stored(s.path(dir), "")
		if err != nil || len(got) != len(want) {
			t.Errorf("%s has %d entries, %v, want the %d of the images that are left", dir, len(got), err, len(want))
		}
	}
	leavesNoStage(t, s)
	slices.Sort(refs)
	return refs
}

func names(refs ...images.Ref) []string {
	var all []string
	for _, r := range refs {
		all = append(all, r.String())
	}
	slices.Sort(all)
	return all
}

func TestGC(t *testing.T) {
	s := openStore(t, Limits{})
	refs := fill(t, s, 4)
	before := have(t, s)
	if got, err := s.GC(t.Context(), Keep{}); err != nil || len(got.Removed) > 0 || !slices.Equal(have(t, s), before) {
		t.Errorf("GC of nothing = %+v, %v, and left %v, want all", got, err, have(t, s))
	}
	got, err := s.GC(t.Context(), Keep{Age: 210 * time.Minute})
	if err != nil || len(got.Removed) != 1 || got.Bytes < 1000 || !slices.Equal(have(t, s), names(refs[1:]...)) {
		t.Errorf("GC by age = %+v, %v, and left %v, want %v", got, err, have(t, s), names(refs[1:]...))
	}
	one, err := s.Inspect(t.Context(), refs[3])
	if err != nil {
		t.Fatal(err)
	}
	got, err = s.GC(t.Context(), Keep{Bytes: one.Bytes + one.TreeBytes})
	if err != nil || len(got.Removed) != 2 || !slices.Equal(have(t, s), names(refs[3])) {
		t.Errorf("GC by size = %+v, %v, and left %v, want the last used %v", got, err, have(t, s), refs[3])
	}
	if got, err = s.GC(t.Context(), Keep{Age: time.Nanosecond}); err != nil || len(got.Removed) != 1 || len(have(t, s)) != 0 {
		t.Errorf("GC of any age = %+v, %v, and left %v, want nothing", got, err, have(t, s))
	}
}

// To take a tree is to use its image.
func TestTreeIsUse(t *testing.T) {
	s := openStore(t, Limits{})
	refs := fill(t, s, 2)
	tree, err := s.Tree(t.Context(), refs[0])
	if err != nil {
		t.Fatal(err)
	}
	tree.Close()
	if _, err := s.GC(t.Context(), Keep{Age: 30 * time.Minute}); err != nil || !slices.Equal(have(t, s), names(refs[0])) {
		t.Errorf("GC = %v, and left %v, want %v, whose tree was taken", err, have(t, s), refs[0])
	}
}

// Nothing that is in use is removed, within this process or by another one,
// and all of it is once that has ended, however it did.
func TestInUse(t *testing.T) {
	s := openStore(t, Limits{})
	refs := fill(t, s, 2)
	tree, err := s.Tree(t.Context(), refs[0])
	if err != nil {
		t.Fatal(err)
	}
	second, err := s.Tree(t.Context(), refs[0])
	if err != nil {
		t.Fatal(err)
	}
	c := startPuller(t, s.dir, refs[1], "hold", nil)
	if lines := c.lines(1<<30, "held"); len(lines) == 0 || !strings.HasPrefix(lines[len(lines)-1], "held") {
		t.Fatalf("the other process printed %q, want it to hold a tree", lines)
	}
	tree.Close()
	tree.Close() // of no effect on the second
	got, err := s.GC(t.Context(), Keep{Age: time.Nanosecond})
	if err != nil || len(got.Removed) > 0 || len(got.InUse) != 2 || !slices.Equal(have(t, s), names(refs...)) {
		t.Errorf("GC of what is in use = %+v, %v, want both in use", got, err)
	}
	if _, err := s.Remove(t.Context(), refs[1]); !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), refs[1].String()) {
		t.Errorf("Remove of what is in use = %v, want %v", err, ErrInUse)
	}
	if paths(t, second.Root) == "" {
		t.Error("the tree that is in use is empty")
	}
	second.Close()
	c.kill(t)
	if got, err := s.GC(t.Context(), Keep{Age: time.Nanosecond}); err != nil || len(got.Removed) != 2 || len(have(t, s)) != 0 {
		t.Errorf("GC once nobody uses them = %+v, %v, want both removed", got, err)
	}
}

// A GC in the middle of a pull takes nothing that the pull needs.
func TestGCWhilePulling(t *testing.T) {
	s := openStore(t, Limits{})
	img := twoLayers(t)
	ref := saveArchive(t, img)
	steps := map[Step]bool{}
	_, err := s.Pull(t.Context(), ref, func(e Event) {
		if steps[e.Step] && e.Done != e.Total {
			return
		}
		steps[e.Step] = true
		if _, err := s.GC(t.Context(), Keep{Age: time.Nanosecond}); err != nil {
			t.Errorf("GC during %v: %v", e.Step, err)
		}
	})
	if err != nil || !steps[StepFetch] || !steps[StepUnpack] {
		t.Fatalf("Pull = %v with the steps %v", err, steps)
	}
	if want := names(ref); !slices.Equal(have(t, s), want) {
		t.Errorf("after the pull there is %v, want %v", have(t, s), want)
	}
	// The tree of a pull that found the image there is held, and so is the image.
	got, err := s.Pull(t.Context(), ref, func(e Event) {
		if _, err := s.GC(t.Context(), Keep{Age: time.Nanosecond}); err != nil {
			t.Error(err)
		}
	})
	if err != nil || !slices.Equal(have(t, s), names(ref)) {
		t.Errorf("Pull beside GC = %+v, %v, and there is %v", got, err, have(t, s))
	}
}

// Between its unpacking and its first name a tree is held by the pull alone.
func TestGCBeforeTheName(t *testing.T) {
	s := openStore(t, Limits{})
	place, _ := saveArchive(t, twoLayers(t)).Place()
	src, err := newArchiveSource(t.Context(), place)
	if err != nil {
		t.Fatal(err)
	}
	defer src.close()
	p, err := resolve(t.Context(), src, s.platform)
	if err != nil {
		t.Fatal(err)
	}
	st, err := s.newStage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer st.close()
	if err := s.fetchAll(t.Context(), st, src, &p, &reporter{}); err != nil {
		t.Fatal(err)
	}
	lease, err := s.unpacked(t.Context(), st, &p, &reporter{})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name  string
		trees int
	}{{"while it is held", 1}, {"once it is let go", 0}} {
		if _, err := s.GC(t.Context(), Keep{}); err != nil {
			t.Fatal(err)
		}
		if trees, err := stored(s.path("trees/sha256"), ""); err != nil || len(trees) != tt.trees {
			t.Errorf("%s, GC left the trees %v, %v, want %d", tt.name, trees, err, tt.trees)
		}
		lease.release()
	}
}

// An image that is being pulled again is in use: it was found whole, and its
// blobs were not staged.
func TestGCOfWhatIsPulledAgain(t *testing.T) {
	s := openStore(t, Limits{})
	img := pull(t, s, saveArchive(t, twoLayers(t))).Image
	pulling, err := s.lock(t.Context(), claimPull, keyOf(img.Digest), true)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := s.GC(t.Context(), Keep{Age: time.Nanosecond}); err != nil || len(got.InUse) != 1 || len(got.Removed) != 0 {
		t.Errorf("GC while it is pulled = %+v, %v, want it in use", got, err)
	}
	pulling.release()
	if got, err := s.GC(t.Context(), Keep{Age: time.Nanosecond}); err != nil || len(got.Removed) != 1 {
		t.Errorf("GC afterwards = %+v, %v, want it removed", got, err)
	}
}

func TestRemove(t *testing.T) {
	s := openStore(t, Limits{})
	img := twoLayers(t)
	one, other := saveArchive(t, img), saveArchive(t, img)
	digest := pull(t, s, one).Image.Digest
	pull(t, s, other)
	if got, err := s.Remove(t.Context(), one); err != nil || len(got.Removed) != 0 || !slices.Equal(have(t, s), names(other)) {
		t.Errorf("Remove of one of two names = %+v, %v, and left %v, want the other", got, err, have(t, s))
	}
	if _, err := s.Remove(t.Context(), one); !errors.Is(err, ErrNotFound) {
		t.Errorf("Remove again = %v, want %v", err, ErrNotFound)
	}
	if got, err := s.Remove(t.Context(), other); err != nil || len(got.Removed) != 1 || len(have(t, s)) != 0 {
		t.Errorf("Remove of the last name = %+v, %v, and left %v, want nothing", got, err, have(t, s))
	}
	pull(t, s, one)
	pull(t, s, other)
	if got, err := s.Remove(t.Context(), images.Stored(digest)); err != nil || len(got.Removed) != 1 || len(have(t, s)) != 0 {
		t.Errorf("Remove by digest = %+v, %v, and left %v, want nothing", got, err, have(t, s))
	}
}

func TestNotFound(t *testing.T) {
	s := openStore(t, Limits{})
	for _, name := range []string{"debian:12", "std:shell", "docker-archive:/a", sum(nil).String(), "debian@" + sum(nil).String()} {
		ref := parse(t, name)
		_, inspect := s.Inspect(t.Context(), ref)
		_, tree := s.Tree(t.Context(), ref)
		_, remove := s.Remove(t.Context(), ref)
		for _, err := range []error{inspect, tree, remove} {
			if !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), "checkcell image ") {
				t.Errorf("%s: %v, want %v and what to do", name, err, ErrNotFound)
			}
		}
	}
}

// A tree that somebody removed by hand is made again.
func TestTreeIsGone(t *testing.T) {
	s := openStore(t, Limits{})
	ref := saveArchive(t, twoLayers(t))
	want := describe(t, pull(t, s, ref).Image.Path)
	if err := os.RemoveAll(s.path("trees/sha256")); err != nil {
		t.Fatal(err)
	}
	s, err := Open(t.Context(), Config{Dir: s.dir})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Tree(t.Context(), ref); err == nil || !strings.Contains(err.Error(), "pull it again") {
		t.Errorf("Tree = %v, want an error that says what to do", err)
	}
	if got := describe(t, pull(t, s, ref).Image.Path); got != want {
		t.Errorf("pulled again, the tree is\n%swant\n%s", got, want)
	}
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "version"), []byte("checkcell.images/v9\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		config Config
		want   string
	}{
		{Config{Dir: "images"}, "absolute path"},
		{Config{Dir: dir}, "v9"},
		{Config{Dir: "/dev/null/images"}, "--store"},
		{Config{Dir: filepath.Join(dir, "x"), Limits: Limits{Bytes: 1}}, "limit files"},
	} {
		if _, err := Open(t.Context(), tt.config); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("Open(%+v) = %v, want an error with %q", tt.config, err, tt.want)
		}
	}
}

// A tree is found by any name and digest of its image.
func TestTreeByAnyName(t *testing.T) {
	s := openStore(t, Limits{})
	pulled := pull(t, s, push(t, serve(t, nil)+"/a:1", twoLayers(t)))
	img := pulled.Image
	for _, name := range []string{img.References[0], img.Digest.String(), img.ID.String(), "debian@" + img.Digest.String(), "debian:12@" + img.Digest.String()} {
		tree, err := s.Tree(t.Context(), parse(t, name))
		if err != nil || tree.Root != img.Path || tree.Image.Digest != img.Digest {
			t.Errorf("Tree(%s) = %+v, %v, want %s", name, tree, err, img.Path)
			continue
		}
		tree.Close()
	}
}
