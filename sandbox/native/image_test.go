package native_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/checkcell/checkcell/images"
	"github.com/checkcell/checkcell/images/store"
	"github.com/checkcell/checkcell/internal/host"
	"github.com/checkcell/checkcell/sandbox"
	"github.com/checkcell/checkcell/sandbox/native"
	"github.com/checkcell/checkcell/sandbox/sandboxtest"
)

// An image of the store is the root: named by its digest, whatever it was asked
// for as, and in use while a cell is made of it.
func TestImageOfTheStore(t *testing.T) {
	host.Need(t, host.Root, host.CgroupWritable, host.MemoryCgroup, host.PidsCgroup, host.UserNS, host.Bash)
	kept, err := store.Open(t.Context(), store.Config{Dir: filepath.Join(t.TempDir(), "store")})
	if err != nil {
		t.Fatal(err)
	}
	name, err := images.Parse("localhost/tools:1")
	if err != nil {
		t.Fatal(err)
	}
	packed, err := kept.Pack(t.Context(), store.PackSpec{Programs: []string{"bash", "coreutils"}, Name: name}, nil)
	if err != nil {
		t.Fatal(err)
	}
	b := open(t, native.Config{Images: kept})
	const look = "ls /usr/bin | wc -l; ls /; cat /etc/hostname; touch /new /usr/new; echo hi >/tmp/a && cat /tmp/a; type -p python3"
	var digests []string
	for _, ref := range []images.Ref{name, images.Stored(packed.Image.Digest)} {
		res := run(t, b, sandboxtest.Spec(look, func(s *sandbox.Spec) { s.Root = ref }))
		if res.Outcome != sandbox.Exited(1) || !strings.Contains(string(res.Stdout.Kept), "work\n") || !strings.HasSuffix(string(res.Stdout.Kept), "hi\n") {
			t.Errorf("in %s: %v, stdout %q, stderr %q, want the image's programs, without python3", ref, res.Outcome, res.Stdout.Kept, res.Stderr.Kept)
		}
		if n := strings.Count(string(res.Stderr.Kept), "Read-only file system"); n != 2 {
			t.Errorf("in %s: stderr %q, want two refusals of a read-only root", ref, res.Stderr.Kept)
		}
		if got := res.Evidence.ImageDigest; got != packed.Image.Digest.String() {
			t.Errorf("in %s: image digest %q, want %s", ref, got, packed.Image.Digest)
		}
		digests = append(digests, res.Evidence.SpecDigest)
	}
	if digests[0] != digests[1] {
		t.Errorf("spec digests %q, want the same for the same image", digests)
	}
	held := sandboxtest.Spec("sleep 60", func(s *sandbox.Spec) { s.Root = name })
	box, err := b.Create(t.Context(), held)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := kept.GC(t.Context(), store.Keep{Age: time.Nanosecond}); err != nil || len(got.InUse) != 1 {
		t.Errorf("GC while a cell has the image = %+v, %v, want it in use", got, err)
	}
	if err := box.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, err := kept.GC(t.Context(), store.Keep{Age: time.Nanosecond}); err != nil || len(got.Removed) != 1 {
		t.Errorf("GC after the cell = %+v, %v, want the image removed", got, err)
	}
	for _, backend := range []*native.Backend{b, open(t, native.Config{})} {
		res := run(t, backend, sandboxtest.Spec(look, func(s *sandbox.Spec) { s.Root = name }))
		if res.Outcome.Kind() != sandbox.KindStartFailed || !strings.Contains(res.Outcome.Detail(), "is not in the store") {
			t.Errorf("without the image: %v, want start_failed, not in the store", res.Outcome)
		}
	}
}
