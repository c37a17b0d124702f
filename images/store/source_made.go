package store

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/checkcell/checkcell/images"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// madeSource is an image of one layer that is made here. The same layer and
// settings make the same image, byte for byte.
type madeSource struct {
	made, config []byte
	layer        string // the file with the layer's content
}

// madeLayer is a layer that was written or read here.
type madeLayer struct {
	digest, diff images.Digest
	size         int64
	mediaType    types.MediaType
	path         string
}

// newMadeSource makes configuration and manifest. createdBy says of what the
// layer is, in the same words for the same content.
func newMadeSource(l madeLayer, platform string, settings v1.Config, createdBy string) (*madeSource, error) {
	system, arch, _ := strings.Cut(platform, "/")
	created := v1.Time{Time: time.Unix(0, 0).UTC()}
	config, err := json.Marshal(v1.ConfigFile{
		OS: system, Architecture: arch, Config: settings, Created: created,
		RootFS:  v1.RootFS{Type: "layers", DiffIDs: []v1.Hash{hashOf(l.diff)}},
		History: []v1.History{{Created: created, CreatedBy: createdBy}},
	})
	if err != nil {
		return nil, err
	}
	manifest, err := json.Marshal(v1.Manifest{
		SchemaVersion: 2, MediaType: types.OCIManifestSchema1,
		Config: v1.Descriptor{MediaType: types.OCIConfigJSON, Size: int64(len(config)), Digest: hashOf(sum(config))},
		Layers: []v1.Descriptor{{MediaType: l.mediaType, Size: l.size, Digest: hashOf(l.digest)}},
	})
	return &madeSource{manifest, config, l.path}, err
}

func hashOf(d images.Digest) v1.Hash { return v1.Hash{Algorithm: "sha256", Hex: d.Hex()} }

func (s *madeSource) top(context.Context) (types.MediaType, []byte, error) {
	return types.OCIManifestSchema1, s.made, nil
}

func (s *madeSource) manifest(context.Context, v1.Descriptor) ([]byte, error) {
	return nil, errors.New("what is made here has one manifest")
}

func (s *madeSource) blob(_ context.Context, d v1.Descriptor) (io.ReadCloser, error) {
	if d.MediaType.IsConfig() {
		return io.NopCloser(bytes.NewReader(s.config)), nil
	}
	return os.Open(s.layer)
}

// readTar takes a tar of a whole root, compressed or not, as the one layer.
func readTar(ctx context.Context, path string, limits Limits, report *reporter) (l madeLayer, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // never waits, as opening a pipe would
	if err != nil {
		return l, err
	}
	defer f.Close() // only read from
	info, err := f.Stat()
	if err != nil {
		return l, err
	}
	if !info.Mode().IsRegular() {
		return l, fmt.Errorf("%w: %s is no file", ErrRefused, path)
	}
	whole, bare := sha256.New(), sha256.New()
	file := io.TeeReader(&watched{ctx: ctx, r: f, tell: report.step(StepRead, path, info.Size())}, whole)
	head := make([]byte, 2)
	if _, err := f.ReadAt(head, 0); err != nil && err != io.EOF {
		return l, err
	}
	r, err := decompress(file)
	if err != nil {
		return l, err
	}
	defer r.Close() // only read from
	most, limit := limits.streamMax(info.Size())
	if _, err := io.Copy(bare, &capped{r: r, most: most, limit: limit}); err != nil {
		return l, err
	}
	if _, err := io.Copy(io.Discard, file); err != nil { // what is behind the compressed stream
		return l, err
	}
	l = madeLayer{path: path, size: info.Size(), mediaType: types.OCILayer}
	l.digest, l.diff = images.NewDigest([32]byte(whole.Sum(nil))), images.NewDigest([32]byte(bare.Sum(nil)))
	switch {
	case l.digest == l.diff:
		l.mediaType = types.OCIUncompressedLayer
	case head[0] != 0x1f:
		l.mediaType = types.OCILayerZStd
	}
	return l, nil
}

// tarDir writes the directory at dir as a tar into a file of the stage: every
// directory, file and link, with owner, mode and time, sorted. A device, pipe
// or socket is refused.
func tarDir(ctx context.Context, st *stage, dir string, report *reporter) (madeLayer, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return madeLayer{}, err
	}
	defer root.Close() // only read from
	return st.writeLayer(ctx, report.step(StepRead, dir, 0), func(w *tar.Writer) error {
		return fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			stat, ok := info.Sys().(*syscall.Stat_t)
			if !ok {
				return fmt.Errorf("%s: its owner is not known", name)
			}
			h := &tar.Header{Name: name, Mode: int64(stat.Mode & 0o7777), Uid: int(stat.Uid), Gid: int(stat.Gid), ModTime: time.Unix(stat.Mtim.Unix())}
			h.ModTime = h.ModTime.Truncate(time.Second)
			switch {
			case d.IsDir():
				h.Typeflag, h.Name = tar.TypeDir, name+"/"
			case info.Mode().IsRegular():
				h.Typeflag, h.Size = tar.TypeReg, info.Size()
			case info.Mode()&fs.ModeSymlink != 0:
				h.Typeflag = tar.TypeSymlink
				if h.Linkname, err = root.Readlink(name); err != nil {
					return err
				}
			default:
				return fmt.Errorf("%w: %s is a %v, which an image can't have", ErrRefused, name, info.Mode().Type())
			}
			return writeEntry(w, h, func() (io.ReadCloser, error) { return root.Open(name) })
		})
	})
}

// writeEntry writes a header and, for a file, its content, which must be as
// long as the header says.
func writeEntry(w *tar.Writer, h *tar.Header, open func() (io.ReadCloser, error)) error {
	if err := w.WriteHeader(h); err != nil {
		return fmt.Errorf("%s: %w", h.Name, err)
	}
	if h.Typeflag != tar.TypeReg {
		return nil
	}
	r, err := open()
	if err != nil {
		return err
	}
	n, err := io.Copy(w, r)
	if err := errors.Join(err, r.Close()); err != nil {
		return fmt.Errorf("%s: %w", h.Name, err)
	}
	if n != h.Size {
		return fmt.Errorf("%s: it has changed while it was read", h.Name)
	}
	return nil
}

// writeLayer has write make a bare tar, and takes it into the stage as a blob.
// It is not compressed: what a compressor makes of it differs from one version
// to the next, and with it would the digest.
func (st *stage) writeLayer(ctx context.Context, tell func(int64), write func(*tar.Writer) error) (madeLayer, error) {
	path := st.path("layer")
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o400)
	if err != nil {
		return madeLayer{}, err
	}
	hash := sha256.New()
	out := &written{ctx: ctx, w: io.MultiWriter(f, hash), tell: tell}
	w := tar.NewWriter(out)
	err = write(w)
	if err == nil {
		err = w.Close()
	}
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return madeLayer{}, err
	}
	digest := images.NewDigest([32]byte(hash.Sum(nil)))
	l := madeLayer{digest: digest, diff: digest, size: out.done, mediaType: types.OCIUncompressedLayer, path: st.blobPath(digest)}
	return l, os.Rename(path, l.path)
}

// written is watched for a stream that is written.
type written struct {
	ctx  context.Context
	w    io.Writer
	done int64
	tell func(done int64)
}

func (w *written) Write(p []byte) (int, error) {
	if w.ctx.Err() != nil {
		return 0, context.Cause(w.ctx)
	}
	n, err := w.w.Write(p)
	w.done += int64(n)
	w.tell(w.done)
	return n, err
}
