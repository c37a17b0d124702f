package store

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/checkcell/checkcell/images"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sync/errgroup"
)

// Pulled is what a pull or pack came to.
type Pulled struct {
	Image    Image
	Resolved images.Digest // what the reference stands for: its image, or an index that lists it. This is what a lock holds
	Fresh    bool          // false where the store had the image already
}

// Pull fetches the image that ref names and unpacks it. What the store has of
// it already is not fetched again; of several processes that pull one image at
// the same time, one does the work. A tag is looked up anew at every call.
// After an error the store has no more than whole layers, which the next
// attempt finds, and GC removes. The host view and images of the store itself
// can't be pulled.
func (s *Store) Pull(ctx context.Context, ref images.Ref, progress Progress) (Pulled, error) {
	got, err := s.pull(ctx, ref, &reporter{tell: progress})
	if err != nil {
		return Pulled{}, fmt.Errorf("pull %s: %w", ref, err)
	}
	return got, nil
}

func (s *Store) pull(ctx context.Context, ref images.Ref, report *reporter) (got Pulled, err error) {
	st, err := s.newStage(ctx)
	if err != nil {
		return Pulled{}, err
	}
	defer func() { err = errors.Join(err, st.close()) }()
	src, err := s.open(ctx, st, ref, report)
	if err != nil {
		return Pulled{}, err
	}
	if c, ok := src.(interface{ close() error }); ok {
		defer func() { err = errors.Join(err, c.close()) }()
	}
	return s.add(ctx, st, src, ref, report)
}

// open finds the source that ref names.
func (s *Store) open(ctx context.Context, st *stage, ref images.Ref, report *reporter) (source, error) {
	place, _ := ref.Place()
	switch ref.Kind() {
	case images.KindRegistry:
		return newRegistrySource(ref)
	case images.KindStandard:
		standard, _ := ref.Standard()
		return newRegistrySource(standard.From)
	case images.KindLayout:
		want, _ := ref.Digest()
		return newLayoutSource(place, want)
	case images.KindArchive:
		return newArchiveSource(ctx, place)
	case images.KindTar:
		l, err := readTar(ctx, place, s.limits, report)
		if err != nil {
			return nil, err
		}
		return newMadeSource(l, s.platform, v1.Config{}, "rootfs-tar")
	case images.KindDir:
		l, err := tarDir(ctx, st, place, report)
		if err != nil {
			return nil, err
		}
		return newMadeSource(l, s.platform, v1.Config{}, "dir")
	case images.KindHost:
		return nil, errors.New("the host view needs no pull")
	case images.KindStored:
		return nil, errors.New("a digest alone does not say where from; put the repository before it, as in debian@sha256:…")
	}
	return nil, fmt.Errorf("%v is no source of images", ref.Kind())
}

// add brings the image behind a source into the store.
func (s *Store) add(ctx context.Context, st *stage, src source, ref images.Ref, report *reporter) (Pulled, error) {
	p, err := resolve(ctx, src, s.platform)
	if err != nil {
		return Pulled{}, err
	}
	from := ref
	if standard, ok := ref.Standard(); ok {
		from = standard.From
	}
	report.send(Event{Step: StepResolve, What: from.At(p.resolved).String(), Resolved: p.resolved})
	img := p.image()
	if img.Bytes > s.limits.Bytes {
		return Pulled{}, over("bytes", s.limits.Bytes, fmt.Sprintf("its layers have %d bytes, packed", img.Bytes))
	}
	alone, err := s.lock(ctx, claimPull, keyOf(img.Digest), true)
	if err != nil {
		return Pulled{}, err
	}
	defer alone.release()
	_, err = s.read(img.Digest)
	fresh := errors.Is(err, ErrNotFound)
	if err != nil && !fresh {
		return Pulled{}, err
	}
	if fresh {
		if err := s.fetchAll(ctx, st, src, &p, report); err != nil {
			return Pulled{}, err
		}
	}
	lease, err := s.unpacked(ctx, st, &p, report)
	if err != nil {
		return Pulled{}, err
	}
	defer lease.release() // it keeps the tree until the image is there to name it
	if err := s.commit(ctx, st, &p, img, ref); err != nil {
		return Pulled{}, err
	}
	img, err = s.Inspect(ctx, images.Stored(img.Digest))
	return Pulled{Image: img, Resolved: p.resolved, Fresh: fresh}, err
}

// fetchAll brings every blob into the stage, from the store where that has it.
func (s *Store) fetchAll(ctx context.Context, st *stage, src source, p *plan, report *reporter) error {
	for _, raw := range [][]byte{p.manifest, p.config} {
		if err := st.writeFile(st.blobPath(sum(raw)), raw); err != nil {
			return err
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(fetchers)
	begun := map[images.Digest]bool{} // an image may have a layer twice
	for _, l := range p.layers {
		if begun[l.digest] {
			continue
		}
		begun[l.digest] = true
		group.Go(func() error {
			if err := s.fetch(ctx, st, src, l, report); err != nil {
				return fmt.Errorf("layer %s: %w", l.digest, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// fetch brings one layer into the stage and, once it is whole, the store: an
// attempt that is cut off leaves the next one less to do.
func (s *Store) fetch(ctx context.Context, st *stage, src source, l layerPlan, report *reporter) error {
	staged, size := st.blobPath(l.digest), l.descriptor.Size
	if _, err := os.Stat(staged); err == nil {
		return nil // made here
	}
	if err := os.Link(s.blobPath(l.digest), staged); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	r, err := src.blob(ctx, l.descriptor)
	if err != nil {
		return err
	}
	defer r.Close() // only read from
	part := staged + ".part"
	f, err := os.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o400)
	if err != nil {
		return err
	}
	hash := sha256.New()
	in := &watched{ctx: ctx, r: io.LimitReader(r, size+1), tell: report.step(StepFetch, l.digest.String(), size)}
	n, err := io.Copy(io.MultiWriter(f, hash), in)
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if got := images.NewDigest([32]byte(hash.Sum(nil))); n != size || got != l.digest {
		return fmt.Errorf("%w: %d bytes came that are %s, want %d", ErrRefused, n, got, size)
	}
	if err := os.Rename(part, staged); err != nil {
		return err
	}
	return linkBlob(staged, s.blobPath(l.digest))
}

func linkBlob(from, to string) error {
	if err := os.Link(from, to); !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// commit makes an image known whose blobs are staged, or in the store, and
// whose tree is there and held.
func (s *Store) commit(ctx context.Context, st *stage, p *plan, img Image, ref images.Ref) error {
	adding, err := s.lock(ctx, claimStore, "", false)
	if err != nil {
		return err
	}
	defer adding.release()
	for _, d := range p.blobs() {
		if _, err := os.Stat(st.blobPath(d)); err != nil {
			continue // the image was there before
		}
		if err := linkBlob(st.blobPath(d), s.blobPath(d)); err != nil {
			return err
		}
	}
	if err := syncDir(s.path("blobs/sha256")); err != nil {
		return err
	}
	if err := s.write(st, img); err != nil {
		return err
	}
	return s.writeRef(st, reference{Reference: ref.String(), Digest: img.Digest, Resolved: p.resolved})
}

// treeSize is the file tree.json.
type treeSize struct {
	Bytes int64 `json:"bytes"`
	Files int64 `json:"files"`
}

// unpacked returns a lease of the image's tree, which is unpacked where the
// store does not have it.
func (s *Store) unpacked(ctx context.Context, st *stage, p *plan, report *reporter) (hold, error) {
	chain := p.chain()
	alone, err := s.lock(ctx, claimUnpack, keyOf(chain), true)
	if err != nil {
		return hold{}, err
	}
	defer alone.release()
	lease, err := s.lock(ctx, claimTree, keyOf(chain), false)
	if err != nil {
		return hold{}, err
	}
	if _, err = os.Stat(s.treeDir(chain)); errors.Is(err, fs.ErrNotExist) {
		err = s.unpack(ctx, st, p, report)
	}
	if err != nil {
		lease.release()
		return hold{}, err
	}
	return lease, nil
}

// unpack makes the tree in the stage, has it written out, and moves it to its
// place as a whole.
func (s *Store) unpack(ctx context.Context, st *stage, p *plan, report *reporter) error {
	fresh := st.path("tree")
	if err := os.MkdirAll(filepath.Join(fresh, "rootfs"), 0o700); err != nil {
		return err
	}
	u, err := newUnpacker(filepath.Join(fresh, "rootfs"), s.limits, s.owners)
	if err != nil {
		return err
	}
	aside, err := s.unpackLayers(ctx, st, u, p, report)
	if err := errors.Join(err, u.close()); err != nil {
		return err
	}
	size, err := json.Marshal(treeSize{u.bytes, u.files})
	if err != nil {
		return err
	}
	err = errors.Join(os.WriteFile(filepath.Join(fresh, "aside.jsonl"), aside, 0o600), os.WriteFile(filepath.Join(fresh, "tree.json"), size, 0o600))
	if err == nil {
		err = syncTree(fresh)
	}
	if err == nil {
		err = os.Rename(fresh, s.treeDir(p.chain()))
	}
	if err != nil {
		return err
	}
	return syncDir(s.path("trees/sha256"))
}

func (s *Store) unpackLayers(ctx context.Context, st *stage, u *unpacker, p *plan, report *reporter) ([]byte, error) {
	for _, l := range p.layers {
		if err := s.unpackLayer(ctx, st, u, l, report); err != nil {
			return nil, fmt.Errorf("layer %s: %w", l.digest, err)
		}
	}
	return u.finish()
}

func (s *Store) unpackLayer(ctx context.Context, st *stage, u *unpacker, l layerPlan, report *reporter) error {
	f, err := os.Open(st.blobPath(l.digest))
	if errors.Is(err, fs.ErrNotExist) {
		f, err = os.Open(s.blobPath(l.digest)) // the image was there, its tree was not
	}
	if err != nil {
		return err
	}
	defer f.Close() // only read from
	size := l.descriptor.Size
	diff, err := u.layer(ctx, &watched{ctx: ctx, r: f, tell: report.step(StepUnpack, l.digest.String(), size)}, size)
	if err == nil && diff != l.diff {
		err = fmt.Errorf("%w: it unpacks to %s, and the configuration says %s", ErrRefused, diff, l.diff)
	}
	return err
}
