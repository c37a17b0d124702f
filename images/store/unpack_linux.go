package store

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/checkcell/checkcell/images"
	"golang.org/x/sys/unix"
)

// unpacker makes one tree of layers. All it does it does through an os.Root,
// on paths whose directories it has looked at: nothing outside is reached,
// whatever the layers say.
type unpacker struct {
	root   *os.Root
	limits Limits
	owners bool // give files their owners
	bytes  int64
	files  int64

	dirs  map[string]dirLook // of every directory; given at the end
	aside map[string]Aside

	made    map[string]bool // of the present layer, with the directories above
	most    int64           // what bytes may come to with the present layer
	limit   string          // that most comes of
	lastDir [2]string       // the last directory that was looked up, and its real path
	buffer  []byte
}

// dirLook is what a directory gets once nothing is put into it any more.
type dirLook struct {
	mode  fs.FileMode
	mtime time.Time
}

// newUnpacker unpacks into dir, an empty directory.
func newUnpacker(dir string, limits Limits, owners bool) (*unpacker, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	return &unpacker{
		root: root, limits: limits, owners: owners, aside: map[string]Aside{}, buffer: make([]byte, 256<<10),
		dirs: map[string]dirLook{".": {0o755, time.Unix(0, 0)}},
	}, nil
}

// layer unpacks one layer of size compressed bytes over those before, and
// returns the digest of its tar.
func (u *unpacker) layer(ctx context.Context, r io.Reader, size int64) (images.Digest, error) {
	u.made = map[string]bool{}
	bare, err := decompress(r)
	if err != nil {
		return images.Digest{}, err
	}
	defer bare.Close() // only read from
	most, limit := u.limits.streamMax(size)
	// A sparse file is longer than what stands for it in the stream.
	u.most, u.limit = u.bytes+most, limit
	hash := sha256.New()
	stream := io.TeeReader(&capped{r: bare, most: most, limit: limit}, hash)
	for archive := tar.NewReader(stream); ; {
		h, err := archive.Next()
		if err == io.EOF {
			break
		}
		if err == nil {
			if err = u.entry(h, archive); err != nil {
				err = fmt.Errorf("entry %q: %w", h.Name, err)
			}
		}
		if err == nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return images.Digest{}, err
		}
	}
	if _, err := io.CopyBuffer(io.Discard, stream, u.buffer); err != nil { // padding is part of the digest
		return images.Digest{}, err
	}
	return images.NewDigest([32]byte(hash.Sum(nil))), nil
}

// refused marks an error of an entry as the layer's own fault.
func refused(err error) error {
	if err == nil || errors.Is(err, ErrRefused) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrRefused, err)
}

func (u *unpacker) entry(h *tar.Header, content io.Reader) error {
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	if err := u.count(); err != nil {
		return err
	}
	name, err := entryPath(h.Name, u.limits.Depth)
	if err != nil {
		return refused(err)
	}
	if name == "." {
		if h.Typeflag != tar.TypeDir {
			return refused(errors.New("the root is no directory"))
		}
		return u.dir(name, h)
	}
	dir, last := path.Split(name)
	parent, err := u.parent(path.Clean(dir))
	if err != nil {
		return err
	}
	name = path.Join(parent, last)
	if strings.HasPrefix(last, whiteout) {
		return u.whiteout(parent, last)
	}
	if err := u.makeRoom(name, h.Typeflag == tar.TypeDir); err != nil {
		return err
	}
	u.mark(name)
	switch h.Typeflag {
	case tar.TypeDir:
		return u.dir(name, h)
	case tar.TypeReg, tar.TypeGNUSparse:
		return u.file(name, h, content)
	case tar.TypeSymlink:
		return u.symlink(name, h)
	case tar.TypeLink:
		return u.hardLink(name, h)
	case tar.TypeChar, tar.TypeBlock, tar.TypeFifo:
		node, err := checkDevice(name, h)
		if err == nil {
			u.aside[name] = Aside{Path: name, Node: node}
		}
		return refused(err)
	}
	return refused(fmt.Errorf("it is of the unknown type %q", h.Typeflag))
}

// count counts one entry, or one directory that no entry names.
func (u *unpacker) count() error {
	if u.files++; u.files > u.limits.Files {
		return over("files", u.limits.Files, "the image has more entries")
	}
	return nil
}

// mark notes that name is of the present layer, and so are the directories
// that it needs.
func (u *unpacker) mark(name string) {
	for ; name != "." && !u.made[name]; name = path.Dir(name) {
		u.made[name] = true
	}
}

// parent returns the real path of directory dir, which is made where it is
// missing. Links below the root are followed, as lib -> usr/lib has to be;
// absolute ones are not.
func (u *unpacker) parent(dir string) (string, error) {
	if dir == "." {
		return dir, nil
	}
	if dir == u.lastDir[0] {
		return u.lastDir[1], nil
	}
	real, links := ".", 0
	for todo := strings.Split(dir, "/"); len(todo) > 0; {
		part := todo[0]
		todo = todo[1:]
		next := path.Join(real, part)
		info, err := u.root.Lstat(next)
		switch {
		case part == "" || part == ".":
		case part == "..":
			real = path.Dir(real) // checkLink saw to it that this is below the root
		case errors.Is(err, fs.ErrNotExist):
			if err := errors.Join(u.count(), u.root.Mkdir(next, 0o700)); err != nil {
				return "", err
			}
			u.dirs[next] = dirLook{0o755, time.Unix(0, 0)}
			real = next
		case err != nil:
			return "", refused(err) // such as a name that is too long
		case info.IsDir():
			real = next
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := u.root.Readlink(next)
			if err != nil {
				return "", err
			}
			if links++; path.IsAbs(target) || links > 40 {
				return "", refused(fmt.Errorf("its directory %q is a link to %q, which is not followed", next, target))
			}
			todo = append(strings.Split(target, "/"), todo...)
		default:
			return "", refused(fmt.Errorf("its directory %q is a file", next))
		}
	}
	u.lastDir = [2]string{dir, real}
	return real, nil
}

// makeRoom removes what is at name, unless it is a directory and stays one.
func (u *unpacker) makeRoom(name string, forDir bool) error {
	info, err := u.root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return refused(err)
	}
	if forDir && info.IsDir() {
		return nil
	}
	return u.remove(name)
}

// remove is os.RemoveAll that forgets what it removes.
func (u *unpacker) remove(name string) error {
	u.lastDir = [2]string{}
	info, err := u.root.Lstat(name)
	if err != nil {
		return err
	}
	if info.IsDir() {
		children, err := u.children(name)
		if err != nil {
			return err
		}
		for _, child := range children {
			if err := u.remove(child); err != nil {
				return err
			}
		}
	}
	delete(u.dirs, name)
	delete(u.aside, name)
	delete(u.made, name)
	return u.root.Remove(name)
}

func (u *unpacker) children(dir string) ([]string, error) {
	f, err := u.root.Open(dir)
	if err != nil {
		return nil, err
	}
	names, err := f.Readdirnames(-1)
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	for i := range names {
		names[i] = path.Join(dir, names[i])
	}
	return names, nil
}

// whiteout hides what lower layers have in parent: one entry, or all. What the
// present layer has there stays, whatever the order of its entries.
func (u *unpacker) whiteout(parent, last string) error {
	if last == whiteoutOpaque {
		children, err := u.children(parent)
		for _, child := range children {
			if err == nil {
				err = u.removeLower(child)
			}
		}
		u.mark(parent)
		return err
	}
	if strings.HasPrefix(last, whiteoutMeta) {
		return nil // AUFS's own, of no meaning here
	}
	hidden := strings.TrimPrefix(last, whiteout)
	if hidden == "" || hidden == "." || hidden == ".." {
		return refused(errors.New("it hides no name"))
	}
	name := path.Join(parent, hidden)
	if !u.made[name] {
		delete(u.aside, name) // a device is nowhere else
	}
	err := u.removeLower(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (u *unpacker) removeLower(name string) error {
	if !u.made[name] {
		return u.remove(name)
	}
	info, err := u.root.Lstat(name)
	if err != nil || !info.IsDir() {
		return err
	}
	children, err := u.children(name)
	for _, child := range children {
		if err == nil {
			err = u.removeLower(child)
		}
	}
	return err
}

// finish gives the directories their looks, deepest first, and returns what
// was left out of the tree, by path.
func (u *unpacker) finish() ([]byte, error) {
	for _, name := range slices.Backward(slices.Sorted(maps.Keys(u.dirs))) {
		look := u.dirs[name]
		if err := errors.Join(u.root.Chmod(name, look.mode), u.root.Chtimes(name, look.mtime, look.mtime)); err != nil {
			return nil, err
		}
	}
	var text []byte
	for _, name := range slices.Sorted(maps.Keys(u.aside)) {
		a := u.aside[name]
		if _, err := u.root.Lstat(path.Dir(name)); err != nil || a.isEmpty() {
			continue // its directory was removed by a later layer
		}
		line, err := json.Marshal(a)
		if err != nil {
			return nil, err
		}
		text = append(append(text, line...), '\n')
	}
	return text, nil
}

// close may be called at any time, and once.
func (u *unpacker) close() error { return u.root.Close() }

// syncTree has a whole file system written out, and with it the tree at dir:
// one call instead of one for each file.
func syncTree(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close() // only read from
	if err := unix.Syncfs(int(f.Fd())); err != nil {
		return fmt.Errorf("write out %s: %w", dir, err)
	}
	return nil
}
