package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/checkcell/checkcell/images"
)

// reference is one file of refs.
type reference struct {
	Reference string        `json:"reference"`
	Digest    images.Digest `json:"digest"`   // of the image
	Resolved  images.Digest `json:"resolved"` // what the reference stood for then: the image, or an index that lists it
}

func (s *Store) recordPath(d images.Digest) string { return s.path("images/sha256", d.Hex()+".json") }

func (s *Store) refPath(name string) string {
	return s.path("refs", sum([]byte(name)).Hex()+".json")
}

// write makes img known, as added now.
func (s *Store) write(st *stage, img Image) error {
	var size treeSize
	if err := readJSON(filepath.Join(s.treeDir(img.Tree), "tree.json"), &size); err != nil {
		return err
	}
	img.TreeBytes, img.TreeFiles = size.Bytes, size.Files
	img.Added = time.Now().UTC()
	if before, err := s.read(img.Digest); err == nil {
		img.Added = before.Added
	}
	text, err := json.Marshal(img)
	if err != nil {
		return err
	}
	return st.writeFile(s.recordPath(img.Digest), text)
}

// read reads one image, but for its references.
func (s *Store) read(d images.Digest) (Image, error) {
	path := s.recordPath(d)
	var img Image
	err := readJSON(path, &img)
	if errors.Is(err, fs.ErrNotExist) {
		return Image{}, fmt.Errorf("image %s %w", d, ErrNotFound)
	}
	if err != nil {
		return Image{}, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return Image{}, err
	}
	img.Used, img.Path, img.References = info.ModTime().UTC(), s.rootPath(img.Tree), []string{}
	return img, nil
}

func (s *Store) writeRef(st *stage, r reference) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return st.writeFile(s.refPath(r.Reference), text)
}

func readJSON(path string, into any) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("%s is broken: %w; remove it, and pull again", path, err)
	}
	return nil
}

// refs reads all references.
func (s *Store) refs() ([]reference, error) {
	names, err := stored(s.path("refs"), ".json")
	if err != nil {
		return nil, err
	}
	var all []reference
	for _, d := range names {
		var r reference
		if err := readJSON(s.path("refs", d.Hex()+".json"), &r); err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b reference) int { return strings.Compare(a.Reference, b.Reference) })
	return all, nil
}

// contents is all that the store knows at a moment. Whoever reads it holds
// claimStore.
type contents struct {
	images []Image // by digest
	refs   []reference
}

func (s *Store) contents() (contents, error) {
	digests, err := stored(s.path("images/sha256"), ".json")
	if err != nil {
		return contents{}, err
	}
	var c contents
	if c.refs, err = s.refs(); err != nil {
		return contents{}, err
	}
	for _, d := range digests {
		img, err := s.read(d)
		if err != nil {
			return contents{}, err
		}
		for _, r := range c.refs {
			if r.Digest == d {
				img.References = append(img.References, r.Reference)
			}
		}
		c.images = append(c.images, img)
	}
	slices.SortFunc(c.images, func(a, b Image) int { return strings.Compare(a.Digest.Hex(), b.Digest.Hex()) })
	return c, nil
}

// find returns the image that ref names. A digest may be that of the image's
// manifest, of its configuration, or of an index that it was pulled by.
func (c contents) find(ref images.Ref) (Image, error) {
	name := ref.String()
	digest, byDigest := ref.Digest()
	if standard, ok := ref.Standard(); ok {
		digest, byDigest = standard.From.Digest()
	}
	if !byDigest {
		i := slices.IndexFunc(c.refs, func(r reference) bool { return r.Reference == name })
		if i < 0 {
			return Image{}, fmt.Errorf("image %s %w; get it with checkcell image pull %s", name, ErrNotFound, name)
		}
		digest = c.refs[i].Digest
	}
	for _, same := range []func(Image) bool{
		func(img Image) bool { return img.Digest == digest },
		func(img Image) bool { return img.ID == digest },
		func(img Image) bool {
			return slices.ContainsFunc(c.refs, func(r reference) bool { return r.Digest == img.Digest && r.Resolved == digest })
		},
	} {
		if i := slices.IndexFunc(c.images, same); i >= 0 {
			return c.images[i], nil
		}
	}
	if ref.Kind() == images.KindStored {
		return Image{}, fmt.Errorf("image %s %w; see checkcell image list", name, ErrNotFound)
	}
	return Image{}, fmt.Errorf("image %s %w; get it with checkcell image pull %s", name, ErrNotFound, name)
}

// one is find without a look at every image, where that can be had: as often
// as a cell is made. Whoever calls it holds claimStore.
func (s *Store) one(ref images.Ref) (Image, error) {
	digest, byDigest := ref.Digest()
	var r reference
	if err := readJSON(s.refPath(ref.String()), &r); err == nil {
		digest, byDigest = r.Digest, true
	}
	if byDigest {
		if img, err := s.read(digest); err == nil {
			return img, nil
		}
	}
	c, err := s.contents()
	if err != nil {
		return Image{}, fmt.Errorf("image %s: %w", ref, err)
	}
	img, err := c.find(ref)
	img.References = []string{}
	return img, err
}

// List returns all images, the latest used first.
func (s *Store) List(ctx context.Context) ([]Image, error) {
	c, err := s.look(ctx)
	if err != nil {
		return nil, fmt.Errorf("list images: %w", err)
	}
	slices.SortStableFunc(c.images, func(a, b Image) int { return b.Used.Compare(a.Used) })
	return c.images, nil
}

// Inspect returns one image. Its error wraps ErrNotFound where there is none.
func (s *Store) Inspect(ctx context.Context, ref images.Ref) (Image, error) {
	c, err := s.look(ctx)
	if err != nil {
		return Image{}, fmt.Errorf("image %s: %w", ref, err)
	}
	return c.find(ref)
}

// Aside returns what the image's layers say and its tree does not have.
func (s *Store) Aside(img Image) ([]Aside, error) {
	text, err := os.ReadFile(filepath.Join(s.treeDir(img.Tree), "aside.jsonl"))
	if err != nil {
		return nil, fmt.Errorf("image %s: %w", img.Digest, err)
	}
	var all []Aside
	for line := range strings.Lines(string(text)) {
		var a Aside
		if err := json.Unmarshal([]byte(line), &a); err != nil {
			return nil, fmt.Errorf("image %s: %w", img.Digest, err)
		}
		all = append(all, a)
	}
	return all, nil
}

func (s *Store) look(ctx context.Context) (contents, error) {
	reading, err := s.lock(ctx, claimStore, "", false)
	if err != nil {
		return contents{}, err
	}
	defer reading.release()
	return s.contents()
}
