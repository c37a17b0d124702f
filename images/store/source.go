package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/checkcell/checkcell/images"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// source is where one image comes from. What it returns is not trusted: whoever
// asks compares it with its digest.
type source interface {
	// top returns what the reference stands for: a manifest or an index.
	top(ctx context.Context) (types.MediaType, []byte, error)
	// manifest returns a manifest or index that an index lists.
	manifest(ctx context.Context, d v1.Descriptor) ([]byte, error)
	// blob opens a configuration or a layer.
	blob(ctx context.Context, d v1.Descriptor) (io.ReadCloser, error)
}

// plan is an image that was found and is yet to be fetched.
type plan struct {
	resolved images.Digest // of what the reference stands for: the manifest, or an index that lists it
	manifest []byte
	config   []byte
	layers   []layerPlan // lowest first
	file     v1.ConfigFile
}

type layerPlan struct {
	descriptor v1.Descriptor
	digest     images.Digest // of the blob
	diff       images.Digest // of its tar
}

func sum(b []byte) images.Digest { return images.NewDigest(sha256.Sum256(b)) }

// digestOf reads a digest of the library. Only SHA-256 is known here.
func digestOf(h v1.Hash) (images.Digest, error) {
	d, err := images.ParseDigest(h.String())
	if err != nil {
		return images.Digest{}, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return d, nil
}

// resolve finds the image for platform behind a source, down to its
// configuration, and checks that all of it fits together.
func resolve(ctx context.Context, src source, platform string) (plan, error) {
	mediaType, raw, err := src.top(ctx)
	if err != nil {
		return plan{}, err
	}
	p := plan{resolved: sum(raw)}
	for depth := 0; isIndex(mediaType, raw); depth++ {
		if depth == 3 {
			return plan{}, fmt.Errorf("%w: its indexes are nested too deep", ErrRefused)
		}
		chosen, err := choose(raw, platform)
		if err != nil {
			return plan{}, err
		}
		if raw, err = src.manifest(ctx, chosen); err == nil {
			err = verify(raw, chosen, maxManifest)
		}
		if err != nil {
			return plan{}, fmt.Errorf("manifest: %w", err)
		}
		mediaType = chosen.MediaType
	}
	if _, isLayout := src.(*layoutSource); isLayout {
		p.resolved = sum(raw) // the index of a layout is no content that has a name
	}
	p.manifest = raw
	if err := p.readManifest(mediaType); err != nil {
		return plan{}, err
	}
	return p, p.readConfig(ctx, src, platform)
}

// isIndex goes by what is there where a registry gives no media type.
func isIndex(mediaType types.MediaType, raw []byte) bool {
	if mediaType.IsIndex() || mediaType.IsImage() {
		return mediaType.IsIndex()
	}
	var shape struct {
		Manifests []json.RawMessage `json:"manifests"`
	}
	return json.Unmarshal(raw, &shape) == nil && shape.Manifests != nil
}

// choose returns the image of an index that is for platform.
func choose(raw []byte, platform string) (v1.Descriptor, error) {
	index, err := v1.ParseIndexManifest(bytes.NewReader(raw))
	if err != nil {
		return v1.Descriptor{}, fmt.Errorf("%w: its index: %w", ErrRefused, err)
	}
	var fit []v1.Descriptor
	var others []string
	for _, d := range index.Manifests {
		if !d.MediaType.IsImage() && !d.MediaType.IsIndex() {
			continue // a signature or the like
		}
		if d.Platform == nil || d.Platform.OS+"/"+d.Platform.Architecture == platform {
			fit = append(fit, d)
		} else {
			others = append(others, d.Platform.String())
		}
	}
	switch {
	case len(fit) == 0:
		return v1.Descriptor{}, fmt.Errorf("%w: none of its images is for %s; there are [%s]", ErrRefused, platform, strings.Join(others, ", "))
	case len(fit) > 1 && fit[0].Platform == nil:
		var all []string
		for _, d := range fit {
			all = append(all, strings.TrimSpace(d.Digest.String()+" "+d.Annotations["org.opencontainers.image.ref.name"]))
		}
		return v1.Descriptor{}, fmt.Errorf("%w: it holds several images; name one, as in oci-layout:PATH@DIGEST: %s", ErrRefused, strings.Join(all, ", "))
	}
	return fit[0], nil // the first that fits (image-spec image-index.md)
}

// verify compares content with what was said of it.
func verify(content []byte, d v1.Descriptor, most int64) error {
	want, err := digestOf(d.Digest)
	if err != nil {
		return err
	}
	if n := int64(len(content)); n > most || n != d.Size {
		return fmt.Errorf("%w: %s has %d bytes, want the %d that were announced, at most %d", ErrRefused, want, n, d.Size, most)
	}
	if got := sum(content); got != want {
		return fmt.Errorf("%w: the content of %s is that of %s", ErrRefused, want, got)
	}
	return nil
}

// readManifest takes the layers from the manifest.
func (p *plan) readManifest(mediaType types.MediaType) error {
	if len(p.manifest) > maxManifest {
		return fmt.Errorf("%w: its manifest has more than %d bytes", ErrRefused, maxManifest)
	}
	m, err := v1.ParseManifest(bytes.NewReader(p.manifest))
	if err != nil {
		return fmt.Errorf("%w: its manifest: %w", ErrRefused, err)
	}
	if mediaType.IsSchema1() || m.SchemaVersion != 2 {
		return fmt.Errorf("%w: its manifest is of an old form (schema 1); push the image again with a program of today", ErrRefused)
	}
	if !m.Config.MediaType.IsConfig() {
		return fmt.Errorf("%w: it is no image: its configuration is of the type %q", ErrRefused, m.Config.MediaType)
	}
	if n := len(m.Layers); n == 0 || n > maxLayers {
		return fmt.Errorf("%w: it has %d layers, want 1 to %d", ErrRefused, n, maxLayers)
	}
	for _, d := range m.Layers {
		digest, err := digestOf(d.Digest)
		if err != nil {
			return err
		}
		if !d.MediaType.IsLayer() && d.MediaType != "application/vnd.docker.image.rootfs.diff.tar.zstd" {
			return fmt.Errorf("%w: layer %s is of the unknown type %q", ErrRefused, digest, d.MediaType)
		}
		p.layers = append(p.layers, layerPlan{descriptor: d, digest: digest})
	}
	return nil
}

func (p *plan) readConfig(ctx context.Context, src source, platform string) error {
	m, err := v1.ParseManifest(bytes.NewReader(p.manifest))
	if err != nil {
		return err
	}
	if m.Config.Size > maxConfig {
		return fmt.Errorf("%w: its configuration has more than %d bytes", ErrRefused, maxConfig)
	}
	r, err := src.blob(ctx, m.Config)
	if err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	p.config, err = io.ReadAll(io.LimitReader(r, maxConfig+1))
	if err := errors.Join(err, r.Close()); err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	if err := verify(p.config, m.Config, maxConfig); err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	file, err := v1.ParseConfigFile(bytes.NewReader(p.config))
	if err != nil {
		return fmt.Errorf("%w: its configuration: %w", ErrRefused, err)
	}
	p.file = *file
	if got := p.platform(); got != "/" && got != platform {
		return fmt.Errorf("%w: it is for %s, and this host runs %s", ErrRefused, got, platform)
	}
	if len(file.RootFS.DiffIDs) != len(p.layers) {
		return fmt.Errorf("%w: its manifest has %d layers, its configuration %d", ErrRefused, len(p.layers), len(file.RootFS.DiffIDs))
	}
	for i, h := range file.RootFS.DiffIDs {
		if p.layers[i].diff, err = digestOf(h); err != nil {
			return err
		}
	}
	return nil
}

func (p *plan) platform() string { return p.file.OS + "/" + p.file.Architecture }

// chain is the chain ID of all layers (image-spec config.md, "Layer ChainID"):
// the same for images whose trees are made of the same tars.
func (p *plan) chain() images.Digest {
	chain := p.layers[0].diff
	for _, l := range p.layers[1:] {
		chain = sum([]byte(chain.String() + " " + l.diff.String()))
	}
	return chain
}

// blobs lists the digests of all that belongs to the image.
func (p *plan) blobs() []images.Digest {
	all := []images.Digest{sum(p.manifest), sum(p.config)}
	for _, l := range p.layers {
		all = append(all, l.digest)
	}
	return all
}

// image is what the store will know of it, but for its tree's size and times.
func (p *plan) image() Image {
	c := p.file.Config
	img := Image{
		Digest: sum(p.manifest), ID: sum(p.config), Tree: p.chain(), Platform: p.platform(), Bytes: int64(len(p.manifest) + len(p.config)),
		Config: ImageConfig{Env: c.Env, WorkingDir: c.WorkingDir, User: c.User, Entrypoint: c.Entrypoint, Cmd: c.Cmd, Labels: c.Labels},
	}
	for _, l := range p.layers {
		img.Layers = append(img.Layers, l.digest)
		img.Bytes += l.descriptor.Size
	}
	return img
}
