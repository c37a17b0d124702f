package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"

	"github.com/checkcell/checkcell/images"
	"github.com/checkcell/checkcell/images/store"
)

// openImages opens the store of images, if there is one, and has cells name its
// image by digest: one that is there, or that was brought in from the place on
// this host that it names. Nothing is fetched from a registry: that is said
// aloud, with checkcell image pull.
func (c *cellFlags) openImages(ctx context.Context, cells *cell) (*store.Store, error) {
	ref := cells.image
	isImage := !ref.IsHost() && ref.Kind() != images.KindDir
	where := imageFlags{dir: c.store}
	if !isImage && c.store == "" {
		if _, err := os.Stat(storeDir()); errors.Is(err, fs.ErrNotExist) {
			return nil, nil // and claims that name an image are told so
		}
	}
	kept, err := where.open(ctx)
	if err != nil && !isImage && c.store == "" {
		slog.Warn("images can't be had", "err", err) // and only what names one needs it
		return nil, nil
	}
	if err != nil || !isImage {
		return kept, err
	}
	if ref.IsPlace() {
		got, err := kept.Pull(ctx, ref, nil)
		if err != nil {
			return nil, fmt.Errorf("--image: %w", err)
		}
		cells.image = images.Stored(got.Image.Digest)
		return kept, nil
	}
	tree, err := kept.Tree(ctx, ref)
	if err != nil {
		return nil, fmt.Errorf("--image: %w", err)
	}
	tree.Close()
	cells.image = images.Stored(tree.Image.Digest)
	return kept, nil
}
