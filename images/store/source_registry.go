package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/checkcell/checkcell/images"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// answerTime bounds the wait for a registry to begin an answer. How long the
// rest takes depends on its size.
const answerTime = 60 * time.Second

// fetchers is how many layers are fetched at once.
const fetchers = 3

// registrySource is a repository of a registry. Credentials are those that the
// container tools of this user have stored.
type registrySource struct {
	puller     *remote.Puller
	ref        name.Reference
	repository name.Repository
}

func newRegistrySource(ref images.Ref) (*registrySource, error) {
	parsed, err := name.ParseReference(nameOf(ref))
	if err != nil {
		return nil, err
	}
	t, ok := remote.DefaultTransport.(*http.Transport)
	if !ok {
		return nil, errors.New("the library's transport is not net/http's")
	}
	t = t.Clone()
	t.ResponseHeaderTimeout = answerTime
	puller, err := remote.NewPuller(remote.WithAuthFromKeychain(authn.DefaultKeychain), remote.WithTransport(t),
		remote.WithUserAgent("checkcell"), remote.WithJobs(fetchers+1))
	return &registrySource{puller, parsed, parsed.Context()}, err
}

// nameOf is ref without its tag where it has a digest too: the digest counts.
func nameOf(ref images.Ref) string {
	if d, ok := ref.Digest(); ok {
		ref = ref.At(d)
	}
	return ref.String()
}

func (s *registrySource) top(ctx context.Context) (types.MediaType, []byte, error) {
	d, err := s.puller.Get(ctx, s.ref)
	if err != nil {
		return "", nil, s.explain(err)
	}
	return d.MediaType, d.Manifest, nil
}

func (s *registrySource) manifest(ctx context.Context, d v1.Descriptor) ([]byte, error) {
	got, err := s.puller.Get(ctx, s.repository.Digest(d.Digest.String()))
	if err != nil {
		return nil, s.explain(err)
	}
	return got.Manifest, nil
}

func (s *registrySource) blob(ctx context.Context, d v1.Descriptor) (io.ReadCloser, error) {
	l, err := s.puller.Layer(ctx, s.repository.Digest(d.Digest.String()))
	if err != nil {
		return nil, s.explain(err)
	}
	r, err := l.Compressed()
	if err != nil {
		return nil, s.explain(err)
	}
	return r, nil
}

// explain adds what a user can do.
func (s *registrySource) explain(err error) error {
	var answer *transport.Error
	if !errors.As(err, &answer) {
		return err
	}
	switch answer.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		return fmt.Errorf("%w\n  to fix it: check the name, or log in with docker login %s", err, s.repository.RegistryStr())
	case http.StatusNotFound:
		return fmt.Errorf("%w\n  to fix it: check name and tag; %s has no such image", err, s.repository.RegistryStr())
	}
	return err
}
