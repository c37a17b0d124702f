//go:build linux

package container

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/checkcell/checkcell/sandbox/cellspec"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// Root is the root file system of a container in terms that every runtime and
// engine knows: a skeleton, which is small and ours, and what is mounted on it.
// All paths are absolute and those of the container, unless they say otherwise.
type Root struct {
	Dirs  []string          // of the skeleton, each behind its parents
	Links map[string]string // of the skeleton, with their targets
	Files map[string]string // of the skeleton and small, with their content; Binds of files are among them, empty

	Binds    []Bind
	Writable []Place       // each is a directory of a tmpfs
	Others   []specs.Mount // proc and /dev
}

// Bind shows a file or directory of the host, read-only.
type Bind struct {
	Host, Path string // Host is a path of the host
}

// Place is a directory that the check's user may write in.
type Place struct {
	Path string
	Mode string // octal, of the directory
}

// own lists what a cell has of its own and takes from no image.
var own = []string{"dev", "proc", "sys", "tmp", "work", "run", ".checkcell"}

// NewRoot describes the root of o, whose process 1 lies at init on the host.
func NewRoot(o Order, init string) (Root, error) {
	r := Root{Links: map[string]string{}, Files: map[string]string{}}
	var errs []error
	if o.Root != "" {
		errs = append(errs, r.showImage(o.Root))
	}
	for _, m := range o.Spec.Mounts {
		errs = append(errs, r.mount(m, o.Root))
	}
	for key, text := range o.Spec.Annotations {
		if name, ok := strings.CutPrefix(key, cellspec.FileAnnotation); ok {
			r.file(name, text)
		}
	}
	errs = append(errs, r.bind(init, InitPath, false))
	slices.Sort(r.Dirs)
	r.Dirs = slices.Compact(r.Dirs)
	return r, errors.Join(errs...)
}

// showImage shows the top level of an image, entry by entry, so that places which
// the image lacks can be made beside them.
func (r *Root) showImage(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("read the root file system: %w", err)
	}
	for _, e := range entries {
		if slices.Contains(own, e.Name()) {
			continue
		}
		if err := r.bind(filepath.Join(dir, e.Name()), "/"+e.Name(), true); err != nil {
			return err
		}
	}
	return nil
}

// mount carries over one mount of the description.
func (r *Root) mount(m specs.Mount, image string) error {
	switch {
	case m.Type == "bind":
		return r.bind(m.Source, m.Destination, slices.Contains(m.Options, cellspec.OptionalOption))
	case m.Source == cellspec.Scratch:
		return r.writable(m, image)
	case m.Type == "proc" || m.Type == "tmpfs":
		r.Others = append(r.Others, m)
		r.dir(m.Destination)
		return nil
	}
	return fmt.Errorf("mount %s: type %q is not one that this backend knows", m.Destination, m.Type)
}

func (r *Root) writable(m specs.Mount, image string) error {
	p := Place{Path: m.Destination}
	for _, o := range m.Options {
		if mode, ok := strings.CutPrefix(o, "mode="); ok {
			p.Mode = mode
		}
	}
	if p.Mode == "" {
		return fmt.Errorf("mount %s: it has no mode", m.Destination)
	}
	if top := strings.Split(p.Path, "/")[1]; image == "" || slices.Contains(own, top) {
		r.dir(p.Path)
	} else if _, err := os.Lstat(filepath.Join(image, p.Path)); errors.Is(err, fs.ErrNotExist) {
		return nil // the image's directory is read-only and has no such place
	}
	r.Writable = append(r.Writable, p)
	return nil
}

// bind shows what is at host at dst. A link is made again; what is not there is
// left out if it may be.
func (r *Root) bind(host, dst string, optional bool) error {
	info, err := os.Lstat(host)
	switch {
	case errors.Is(err, fs.ErrNotExist) && optional:
		return nil
	case err != nil:
		return fmt.Errorf("look at %s: %w", host, err)
	case info.Mode()&fs.ModeSymlink != 0:
		r.dir(path.Dir(dst))
		if r.Links[dst], err = os.Readlink(host); err != nil {
			return fmt.Errorf("read link %s: %w", host, err)
		}
		return nil
	case info.IsDir():
		r.dir(dst)
	case info.Mode().IsRegular():
		r.file(dst, "")
	default:
		return nil // a socket or device of the host is no part of a cell
	}
	r.Binds = append(r.Binds, Bind{host, dst})
	return nil
}

// dir has the skeleton hold a directory, and those above it.
func (r *Root) dir(dir string) {
	for ; dir != "/"; dir = path.Dir(dir) {
		r.Dirs = append(r.Dirs, dir)
	}
}

func (r *Root) file(name, text string) {
	r.dir(path.Dir(name))
	r.Files[name] = text
}
