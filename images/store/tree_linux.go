package store

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/checkcell/checkcell/images"
)

// Tree is an unpacked root that is in use. Until Close, or until this process
// ends, however it does, no Remove and no GC takes it away.
type Tree struct {
	Root  string // the directory; nobody may write to it: several cells share it
	Image Image  // without its References, which would take a look at every image
	lease hold
}

// Tree returns the tree of an image of the store; the caller closes it. It
// fetches nothing: its error wraps ErrNotFound where the image was not pulled.
// What to do with a tree: mount it read-only, or as the lower layer of an
// overlay, with nosuid and nodev. Where root unpacked it, files have the owners
// that the image gives them, for the cell's user namespace to be mapped to.
// Where anybody else did, all is that user's, and Store.Aside has the owners.
func (s *Store) Tree(ctx context.Context, ref images.Ref) (*Tree, error) {
	using, err := s.lock(ctx, claimStore, "", false)
	if err != nil {
		return nil, fmt.Errorf("image %s: %w", ref, err)
	}
	defer using.release()
	img, err := s.one(ref)
	if err != nil {
		return nil, err
	}
	lease, err := s.lock(ctx, claimTree, keyOf(img.Tree), false)
	if err != nil {
		return nil, fmt.Errorf("image %s: %w", ref, err)
	}
	now := time.Now()
	if err = os.Chtimes(s.recordPath(img.Digest), now, now); err == nil {
		_, err = os.Stat(img.Path)
	}
	if err != nil {
		lease.release()
		return nil, fmt.Errorf("image %s: its tree is broken: %w; remove the image, and pull it again", ref, err)
	}
	img.Used = now.UTC()
	return &Tree{Root: img.Path, Image: img, lease: lease}, nil
}

// Close ends the use of the tree. It may be called again.
func (t *Tree) Close() {
	t.lease.release()
	t.lease = hold{}
}
