package store

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/checkcell/checkcell/internal/host"
)

// BenchmarkTree is what a cell pays for its root: one lease, whatever the size.
func BenchmarkTree(b *testing.B) {
	host.Need(b, host.Bash)
	s := openStore(b, Limits{})
	ref := parse(b, pack(b, s, "bash", "coreutils").Image.Digest.String())
	for b.Loop() {
		tree, err := s.Tree(b.Context(), ref)
		if err != nil {
			b.Fatal(err)
		}
		tree.Close()
	}
}

// BenchmarkUnpack unpacks 1,000 files of 8 KiB, and reports bytes of the tar.
func BenchmarkUnpack(b *testing.B) {
	entries := make([]entry, 1000)
	for i := range entries {
		entries[i] = entry{name: fmt.Sprintf("usr/lib/d%d/f%d", i%20, i), content: strings.Repeat("checkcell", 900)}
	}
	layer := tarOf(b, entries...)
	b.SetBytes(int64(len(layer)))
	for b.Loop() {
		u, err := newUnpacker(b.TempDir(), DefaultLimits(), false)
		if err != nil {
			b.Fatal(err)
		}
		_, err = u.layer(b.Context(), bytes.NewReader(layer), int64(len(layer)))
		if err == nil {
			_, err = u.finish()
		}
		if err != nil {
			b.Fatal(err)
		}
		if err := u.close(); err != nil {
			b.Fatal(err)
		}
	}
}
