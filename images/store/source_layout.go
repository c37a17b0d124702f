package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"syscall"

	"github.com/checkcell/checkcell/images"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// layoutSource is an OCI image layout (image-spec image-layout.md). It is read
// through an os.Root, so that links in it lead nowhere else.
type layoutSource struct {
	root *os.Root
	want images.Digest // the image of it that is meant, or none for the only one
}

func newLayoutSource(dir string, want images.Digest) (*layoutSource, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	text, err := root.ReadFile("oci-layout")
	var version struct {
		Version string `json:"imageLayoutVersion"`
	}
	if err == nil {
		err = json.Unmarshal(text, &version)
	}
	if err == nil && version.Version != "1.0.0" {
		err = fmt.Errorf("%w: its layout version is %q, want 1.0.0", ErrRefused, version.Version)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("it is no OCI image layout: %w", err), root.Close())
	}
	return &layoutSource{root, want}, nil
}

func (s *layoutSource) top(context.Context) (types.MediaType, []byte, error) {
	if !s.want.IsZero() {
		raw, err := s.read(path.Join("blobs/sha256", s.want.Hex()))
		if err == nil && sum(raw) != s.want {
			err = fmt.Errorf("%w: the content of %s is that of %s", ErrRefused, s.want, sum(raw))
		}
		var shape struct {
			MediaType types.MediaType `json:"mediaType"`
		}
		if err == nil {
			err = json.Unmarshal(raw, &shape)
		}
		return shape.MediaType, raw, err
	}
	raw, err := s.read("index.json")
	return types.OCIImageIndex, raw, err
}

// read reads a manifest or index, of a size that one may have.
func (s *layoutSource) read(name string) ([]byte, error) {
	f, err := s.openFile(name)
	if err != nil {
		return nil, err
	}
	raw, err := io.ReadAll(io.LimitReader(f, maxManifest+1))
	if err == nil && len(raw) > maxManifest {
		err = fmt.Errorf("%w: %s has more than %d bytes", ErrRefused, name, maxManifest)
	}
	return raw, errors.Join(err, f.Close())
}

func (s *layoutSource) manifest(_ context.Context, d v1.Descriptor) ([]byte, error) {
	digest, err := digestOf(d.Digest)
	if err != nil {
		return nil, err
	}
	return s.read(path.Join("blobs/sha256", digest.Hex()))
}

func (s *layoutSource) blob(_ context.Context, d v1.Descriptor) (io.ReadCloser, error) {
	digest, err := digestOf(d.Digest)
	if err != nil {
		return nil, err
	}
	return s.openFile(path.Join("blobs/sha256", digest.Hex()))
}

// openFile never waits, as opening a pipe would.
func (s *layoutSource) openFile(name string) (*os.File, error) {
	return s.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
}

func (s *layoutSource) close() error { return s.root.Close() }
