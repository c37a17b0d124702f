//go:build linux

package docker

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/checkcell/checkcell/sandbox/container"
	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/image"
)

// skeletonRepository is the name of the images of skeletons in the daemon; their
// tags are digests. They are some KiB in size, are kept for the next run, and can
// be removed at any time.
const skeletonRepository = "checkcell-root"

// skeleton has the daemon hold an image of the root's skeleton, and returns its
// name. The same skeleton is the same image.
func (b *Backend) skeleton(ctx context.Context, r container.Root) (string, error) {
	content, err := skeletonTar(r)
	if err != nil {
		return "", fmt.Errorf("make the container's root: %w", err)
	}
	sum := sha256.Sum256(content)
	digest := hex.EncodeToString(sum[:])
	b.mu.Lock()
	defer b.mu.Unlock() // two imports of the same would leave one without a name
	if name, ok := b.skeletons[digest]; ok {
		return name, nil
	}
	name := skeletonRepository + ":" + digest
	_, err = b.api.ImageInspect(ctx, name)
	if errdefs.IsNotFound(err) {
		err = b.importImage(ctx, name, content)
	}
	if err != nil {
		return "", fmt.Errorf("have the docker daemon hold the container's root: %w", why(ctx, err))
	}
	b.skeletons[digest] = name
	return name, nil
}

func (b *Backend) importImage(ctx context.Context, name string, content []byte) error {
	answer, err := b.api.ImageImport(ctx, image.ImportSource{Source: bytes.NewReader(content), SourceName: "-"}, name, image.ImportOptions{})
	if err != nil {
		return err
	}
	defer answer.Close() // it was read to its end
	progress, err := io.ReadAll(answer)
	if err != nil {
		return err
	}
	if text := string(progress); strings.Contains(text, `"errorDetail"`) {
		return fmt.Errorf("%s", strings.TrimSpace(text))
	}
	return nil
}

// skeletonTar is the skeleton as an archive, always the same for the same.
func skeletonTar(r container.Root) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	modes := map[string]int64{} // a tmpfs takes the mode of the directory that it covers, whatever its own is (tmpcopyup)
	for _, p := range r.Writable {
		mode, err := strconv.ParseInt(p.Mode, 8, 64)
		if err != nil {
			return nil, fmt.Errorf("mode of %s: %w", p.Path, err)
		}
		modes[p.Path] = mode
	}
	for _, dir := range r.Dirs {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir[1:] + "/", Mode: cmp.Or(modes[dir], 0o755)}); err != nil {
			return nil, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.Links)) {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: name[1:], Linkname: r.Links[name], Mode: 0o777}); err != nil {
			return nil, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.Files)) {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name[1:], Size: int64(len(r.Files[name])), Mode: 0o444}); err != nil {
			return nil, err
		}
		if _, err := io.WriteString(w, r.Files[name]); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
