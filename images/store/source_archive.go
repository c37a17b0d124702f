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
	"os"
	"path"

	"github.com/checkcell/checkcell/images"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// archiveSource is what `docker save` writes: a tar with manifest.json, a
// configuration and layers. It has no manifest of a registry, so one is made
// from it, as a registry would have for these layers.
type archiveSource struct {
	f     *os.File
	files map[string]*io.SectionReader
	links map[string]string // old archives have a layer once, and links to it
	made  []byte            // the manifest
	blobs map[images.Digest]string
}

// maxArchiveFiles bounds what an archive's list of files may take of memory.
const maxArchiveFiles = 64 << 10

func newArchiveSource(ctx context.Context, name string) (*archiveSource, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	s := &archiveSource{f: f, files: map[string]*io.SectionReader{}, links: map[string]string{}, blobs: map[images.Digest]string{}}
	if err = s.list(ctx); err == nil {
		err = s.makeManifest(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return s, nil
}

// list finds where in the file each entry's content is.
func (s *archiveSource) list(ctx context.Context) error {
	magic := make([]byte, 4)
	if _, err := s.f.ReadAt(magic, 0); err == nil && (bytes.HasPrefix(magic, []byte{0x1f, 0x8b}) || bytes.Equal(magic, []byte{0x28, 0xb5, 0x2f, 0xfd})) {
		return fmt.Errorf("%w: it is compressed; unpack it first, with gunzip or unzstd", ErrRefused)
	}
	for archive := tar.NewReader(s.f); ; {
		h, err := archive.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%w: it is no tar: %w", ErrRefused, err)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if len(s.files)+len(s.links) == maxArchiveFiles {
			return fmt.Errorf("%w: it has more than %d files", ErrRefused, maxArchiveFiles)
		}
		name := path.Clean(h.Name)
		switch h.Typeflag {
		case tar.TypeReg:
			at, err := s.f.Seek(0, io.SeekCurrent) // the reader has read its header, and not a byte more
			if err != nil {
				return err
			}
			s.files[name] = io.NewSectionReader(s.f, at, h.Size)
		case tar.TypeSymlink:
			s.links[name] = path.Join(path.Dir(name), h.Linkname)
		case tar.TypeLink:
			s.links[name] = path.Clean(h.Linkname)
		}
	}
}

func (s *archiveSource) open(name string) (*io.SectionReader, error) {
	name = path.Clean(name)
	if to, ok := s.links[name]; ok {
		name = to
	}
	r, ok := s.files[name]
	if !ok {
		return nil, fmt.Errorf("%w: it has no file %q; is it what docker save writes?", ErrRefused, name)
	}
	return io.NewSectionReader(r, 0, r.Size()), nil
}

func (s *archiveSource) readJSON(name string, into any) ([]byte, error) {
	r, err := s.open(name)
	if err != nil {
		return nil, err
	}
	if r.Size() > maxConfig {
		return nil, fmt.Errorf("%w: %s has more than %d bytes", ErrRefused, name, maxConfig)
	}
	raw, err := io.ReadAll(r)
	if err == nil {
		err = json.Unmarshal(raw, into)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrRefused, name, err)
	}
	return raw, nil
}

func (s *archiveSource) makeManifest(ctx context.Context) error {
	var listed []struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	if _, err := s.readJSON("manifest.json", &listed); err != nil {
		return err
	}
	if len(listed) != 1 {
		return fmt.Errorf("%w: it holds %d images; save one alone", ErrRefused, len(listed))
	}
	if n := len(listed[0].Layers); n > maxLayers {
		return fmt.Errorf("%w: it has %d layers, want at most %d", ErrRefused, n, maxLayers)
	}
	config, err := s.readJSON(listed[0].Config, &v1.ConfigFile{})
	if err != nil {
		return err
	}
	m := v1.Manifest{SchemaVersion: 2, MediaType: types.DockerManifestSchema2}
	if m.Config, err = s.add(listed[0].Config, types.DockerConfigJSON, bytes.NewReader(config)); err != nil {
		return err
	}
	for _, name := range listed[0].Layers {
		r, err := s.open(name)
		if err != nil {
			return err
		}
		mediaType := types.DockerLayer
		if head, err := io.ReadAll(io.NewSectionReader(r, 0, 2)); err == nil && !bytes.Equal(head, []byte{0x1f, 0x8b}) {
			mediaType = types.DockerUncompressedLayer
		}
		layer, err := s.add(name, mediaType, &watched{ctx: ctx, r: r})
		if err != nil {
			return err
		}
		m.Layers = append(m.Layers, layer)
	}
	s.made, err = json.Marshal(m)
	return err
}

// add describes a file of the archive as a blob.
func (s *archiveSource) add(name string, mediaType types.MediaType, r io.Reader) (v1.Descriptor, error) {
	hash := sha256.New()
	n, err := io.Copy(hash, r)
	if err != nil {
		return v1.Descriptor{}, fmt.Errorf("%s: %w", name, err)
	}
	digest := images.NewDigest([32]byte(hash.Sum(nil)))
	s.blobs[digest] = name
	return v1.Descriptor{MediaType: mediaType, Size: n, Digest: v1.Hash{Algorithm: "sha256", Hex: digest.Hex()}}, nil
}

func (s *archiveSource) top(context.Context) (types.MediaType, []byte, error) {
	return types.DockerManifestSchema2, s.made, nil
}

func (s *archiveSource) manifest(context.Context, v1.Descriptor) ([]byte, error) {
	return nil, errors.New("an archive has one manifest")
}

func (s *archiveSource) blob(_ context.Context, d v1.Descriptor) (io.ReadCloser, error) {
	digest, err := digestOf(d.Digest)
	if err != nil {
		return nil, err
	}
	r, err := s.open(s.blobs[digest])
	if err != nil {
		return nil, err
	}
	return io.NopCloser(r), nil
}

func (s *archiveSource) close() error { return s.f.Close() }
