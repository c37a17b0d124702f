package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/checkcell/checkcell/images"
)

// Keep says what GC leaves. The zero value leaves every image, and has only
// what belongs to none removed.
type Keep struct {
	Age   time.Duration // images that were used since; 0 for any age
	Bytes int64         // so much of blobs and trees, what was used last first; 0 for any size
}

// Collected is what Remove or GC came to.
type Collected struct {
	Removed []Image
	InUse   []Image // would have been removed, but were in use
	Bytes   int64   // that were freed, of blobs and trees
}

// GC removes the images that keep does not leave, and every blob and tree that
// then belongs to none. An image whose tree is in use, or that is being pulled,
// stays. Whatever else uses the store waits for it only while it decides.
func (s *Store) GC(ctx context.Context, keep Keep) (Collected, error) {
	got, err := s.collect(ctx, func(c contents) ([]Image, error) { return s.surplus(c, keep, time.Now()), nil })
	if err != nil {
		return got, fmt.Errorf("collect images: %w", err)
	}
	return got, nil
}

// Remove takes the reference ref away, and with the last reference of an image
// the image. By digest it removes the image with all its references. Its error
// wraps ErrInUse where the image can't go, and ErrNotFound where there is none.
func (s *Store) Remove(ctx context.Context, ref images.Ref) (Collected, error) {
	_, byDigest := ref.Digest()
	got, err := s.collect(ctx, func(c contents) ([]Image, error) {
		img, err := c.find(ref)
		if err != nil {
			return nil, err
		}
		if !byDigest && !slices.Contains(img.References, ref.String()) {
			return nil, fmt.Errorf("image %s %w under that name", ref, ErrNotFound)
		}
		if !byDigest && len(img.References) > 1 {
			return nil, os.Remove(s.refPath(ref.String()))
		}
		return []Image{img}, nil
	})
	if err == nil && len(got.InUse) > 0 {
		err = fmt.Errorf("image %s %w; wait for the runs to end", ref, ErrInUse)
	}
	return got, err
}

// surplus lists the images that keep does not leave.
func (s *Store) surplus(c contents, keep Keep, now time.Time) []Image {
	byUse := slices.SortedStableFunc(slices.Values(c.images), func(a, b Image) int { return b.Used.Compare(a.Used) })
	var kept, gone []Image
	for _, img := range byUse {
		old := keep.Age > 0 && now.Sub(img.Used) > keep.Age
		if !old && (keep.Bytes <= 0 || sizeOf(append(kept, img)) <= keep.Bytes) {
			kept = append(kept, img)
		} else {
			gone = append(gone, img)
		}
	}
	return gone
}

// sizeOf is what images take on disk, with trees that several have counted
// once. Blobs are not looked at one by one: those of several count twice.
func sizeOf(all []Image) int64 {
	var n int64
	seen := map[images.Digest]bool{}
	for _, img := range all {
		n += img.Bytes
		if !seen[img.Tree] {
			n += img.TreeBytes
		}
		seen[img.Tree] = true
	}
	return n
}

// collect removes what decide chooses, and all that belongs to no image.
func (s *Store) collect(ctx context.Context, decide func(contents) ([]Image, error)) (got Collected, err error) {
	removing, err := s.lock(ctx, claimStore, "", true)
	if err != nil {
		return got, err
	}
	st, err := s.stageLocked()
	if err != nil {
		removing.release()
		return got, err
	}
	got, err = s.detach(decide, st)
	removing.release()
	return got, errors.Join(err, st.close()) // which takes the time, and holds up nobody
}

// detach takes out of the store what goes, into the stage.
func (s *Store) detach(decide func(contents) ([]Image, error), st *stage) (got Collected, err error) {
	c, err := s.contents()
	if err != nil {
		return got, err
	}
	chosen, err := decide(c)
	if err != nil {
		return got, err
	}
	for _, img := range chosen {
		gone, err := s.forget(c, img)
		if err != nil {
			return got, err
		}
		if gone {
			got.Removed = append(got.Removed, img)
		} else {
			got.InUse = append(got.InUse, img)
		}
	}
	left := slices.DeleteFunc(c.images, func(img Image) bool {
		return slices.ContainsFunc(got.Removed, func(r Image) bool { return r.Digest == img.Digest })
	})
	blobs, err := s.dropBlobs(left)
	got.Bytes = blobs
	if err != nil {
		return got, err
	}
	trees, err := s.dropTrees(left, st)
	got.Bytes += trees
	return got, err
}

// forget removes an image's references and then its record, unless it is in use.
func (s *Store) forget(c contents, img Image) (gone bool, err error) {
	pulling, free, err := s.tryLock(claimPull, keyOf(img.Digest), true)
	if err != nil || !free {
		return false, err
	}
	defer pulling.release()
	using, free, err := s.tryLock(claimTree, keyOf(img.Tree), true)
	if err != nil || !free {
		return false, err
	}
	defer using.release() // nobody gets at the tree while claimStore is held
	for _, r := range c.refs {
		if r.Digest == img.Digest {
			if err := os.Remove(s.refPath(r.Reference)); err != nil {
				return false, err
			}
		}
	}
	return true, os.Remove(s.recordPath(img.Digest))
}

// dropBlobs removes the blobs of no image. A pull that needs one has a link of
// its own to it.
func (s *Store) dropBlobs(left []Image) (freed int64, err error) {
	needed := map[images.Digest]bool{}
	for _, img := range left {
		needed[img.Digest], needed[img.ID] = true, true
		for _, d := range img.Layers {
			needed[d] = true
		}
	}
	all, err := stored(s.path("blobs/sha256"), "")
	for _, d := range all {
		if needed[d] {
			continue
		}
		info, err := os.Stat(s.blobPath(d))
		if err == nil {
			err = os.Remove(s.blobPath(d))
		}
		if err != nil {
			return freed, err
		}
		freed += info.Size()
	}
	return freed, err
}

// dropTrees moves the trees of no image into the stage, but for those that are
// in use, or about to be named by an image that is being pulled.
func (s *Store) dropTrees(left []Image, st *stage) (freed int64, err error) {
	all, err := stored(s.path("trees/sha256"), "")
	for _, d := range all {
		if slices.ContainsFunc(left, func(img Image) bool { return img.Tree == d }) {
			continue
		}
		using, free, err := s.tryLock(claimTree, keyOf(d), true)
		if err != nil {
			return freed, err
		}
		if !free {
			continue
		}
		var size treeSize
		_ = readJSON(filepath.Join(s.treeDir(d), "tree.json"), &size) // only to be told; a broken one goes too
		err = os.Rename(s.treeDir(d), st.path(d.Hex()))
		using.release()
		if err != nil {
			return freed, err
		}
		freed += size.Bytes
	}
	return freed, err
}
