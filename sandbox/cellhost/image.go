//go:build linux

package cellhost

import (
	"context"
	"fmt"

	"github.com/checkcell/checkcell/images"
	"github.com/checkcell/checkcell/images/store"
)

// TakeRoot finds the root file system that ref names. That of an image is held
// until the caller closes its tree, and is named by its digest from then on; the
// host view and directories have no tree. Kept may be nil.
func TakeRoot(ctx context.Context, kept *store.Store, ref images.Ref) (images.Ref, *store.Tree, error) {
	if ref.IsHost() || ref.Kind() == images.KindDir {
		return ref, nil, nil
	}
	if kept == nil {
		return ref, nil, fmt.Errorf("image %s %w: no store of images is open", ref, store.ErrNotFound)
	}
	tree, err := kept.Tree(ctx, ref)
	if err != nil {
		return ref, nil, err
	}
	return images.Stored(tree.Image.Digest), tree, nil
}
