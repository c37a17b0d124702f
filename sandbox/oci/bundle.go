//go:build linux

package oci

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/checkcell/checkcell/sandbox/cellhost"
	"github.com/checkcell/checkcell/sandbox/cellspec"
	"github.com/checkcell/checkcell/sandbox/container"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// bundle is a directory that a runtime makes a container of.
type bundle struct {
	dir    string
	root   string            // in dir: the root file system, which holds places for mounts
	places map[string]string // writable places, each with its directory in scratch
	modes  map[string]string // of those directories
	spec   specs.Spec        // for the runtime
}

// The entries of a bundle.
const (
	rootName    = "rootfs"
	scratchName = "scratch" // where the tmpfs of all writable places is mounted, out of the host's sight
	configName  = "config.json"
)

// ids are the container's users and groups on the host.
type ids struct{ root, user int }

// write lays out the bundle in dir, which is new.
func (b *bundle) write(o container.Order, initPath, cgroupsPath string, who ids) error {
	b.root = filepath.Join(b.dir, rootName)
	b.places, b.modes = map[string]string{}, map[string]string{}
	for _, dir := range []string{b.dir, b.root, filepath.Join(b.dir, scratchName)} {
		if err := os.Mkdir(dir, 0o711); err != nil {
			return err
		}
	}
	if err := os.Chmod(b.root, 0o755); err != nil { // the umask may have cut it
		return err
	}
	if err := b.translate(o, cgroupsPath, who); err != nil {
		return err
	}
	var errs []error
	if o.Root != "" {
		errs = append(errs, b.showImage(o.Root))
	}
	for _, m := range o.Spec.Mounts {
		errs = append(errs, b.mount(m, o.Root))
	}
	for key, text := range o.Spec.Annotations {
		if name, ok := strings.CutPrefix(key, cellspec.FileAnnotation); ok {
			errs = append(errs, b.file(name, []byte(text), 0o444))
		}
	}
	errs = append(errs, b.bind(initPath, container.InitPath, false))
	if err := errors.Join(errs...); err != nil {
		return err
	}
	config, err := json.Marshal(b.spec)
	if err != nil {
		return fmt.Errorf("write the runtime's description: %w", err)
	}
	return os.WriteFile(filepath.Join(b.dir, configName), config, 0o600)
}

// translate turns the cell's description into the runtime's, but for its mounts.
// The limits are those of our group, so the runtime is given none.
func (b *bundle) translate(o container.Order, cgroupsPath string, who ids) error {
	limits, err := cellhost.Rlimits(o.Spec.Process.Rlimits)
	if err != nil {
		return err
	}
	s := *o.Spec
	process, linux := *s.Process, *s.Linux
	process.Args, process.Cwd, process.Env, process.Rlimits = []string{container.InitPath}, "/", nil, limits
	linux.CgroupsPath = cgroupsPath
	linux.Resources = &specs.LinuxResources{Devices: []specs.LinuxDeviceCgroup{{Allow: false, Access: "rwm"}}}
	user := int64(process.User.UID)
	maps := []specs.LinuxIDMapping{
		{ContainerID: 0, HostID: uint32(who.root), Size: 1}, // who the runtime is while it sets the container up
		{ContainerID: uint32(user), HostID: uint32(who.user), Size: 1},
	}
	linux.UIDMappings, linux.GIDMappings = maps, maps
	s.Root = &specs.Root{Path: b.root, Readonly: true}
	s.Process, s.Linux, s.Mounts, s.Annotations = &process, &linux, nil, nil
	b.spec = s
	return nil
}

// own lists what a cell has of its own and takes from no image.
var own = []string{"dev", "proc", "sys", "tmp", "work", "run", ".checkcell"}

// showImage shows the top level of an image, entry by entry, so that places which
// the image lacks can be made beside them.
func (b *bundle) showImage(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("read the root file system: %w", err)
	}
	for _, e := range entries {
		if slices.Contains(own, e.Name()) {
			continue
		}
		if err := b.bind(filepath.Join(dir, e.Name()), "/"+e.Name(), true); err != nil {
			return err
		}
	}
	return nil
}

// mount carries over one mount of the description.
func (b *bundle) mount(m specs.Mount, image string) error {
	switch {
	case m.Type == "bind":
		return b.bind(m.Source, m.Destination, slices.Contains(m.Options, cellspec.OptionalOption))
	case m.Source == cellspec.Scratch:
		return b.writable(m, image)
	case m.Type == "proc" || m.Type == "tmpfs":
		b.spec.Mounts = append(b.spec.Mounts, m)
		return b.place(m.Destination)
	}
	return fmt.Errorf("mount %s: type %q is not one that this backend knows", m.Destination, m.Type)
}

// writable gives one writable place its directory of the scratch tmpfs.
func (b *bundle) writable(m specs.Mount, image string) error {
	inImage := image != "" && strings.Count(m.Destination, "/") > 1 && !strings.HasPrefix(m.Destination, "/dev/")
	if inImage {
		if _, err := os.Lstat(filepath.Join(image, m.Destination)); errors.Is(err, fs.ErrNotExist) {
			return nil // the image's directory is read-only and has no such place
		}
	}
	name := strings.ReplaceAll(strings.TrimPrefix(m.Destination, "/"), "/", "-")
	b.places[m.Destination] = name
	for _, o := range m.Options {
		if mode, ok := strings.CutPrefix(o, "mode="); ok {
			b.modes[name] = mode
		}
	}
	b.spec.Mounts = append(b.spec.Mounts, specs.Mount{
		Destination: m.Destination, Type: "bind", Source: filepath.Join(b.dir, scratchName, name),
		Options: []string{"bind", "nosuid", "nodev", "private"},
	})
	if inImage || strings.HasPrefix(m.Destination, "/dev/") {
		return nil // the place is there, or the runtime makes it in the /dev that it mounts
	}
	return b.place(m.Destination)
}

// bind shows what is at host at dst, read-only. A link is made again; what is not
// there is left out if it may be.
func (b *bundle) bind(host, dst string, optional bool) error {
	info, err := os.Lstat(host)
	switch {
	case errors.Is(err, fs.ErrNotExist) && optional:
		return nil
	case err != nil:
		return fmt.Errorf("look at %s: %w", host, err)
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := os.Readlink(host)
		if err != nil {
			return fmt.Errorf("read link %s: %w", host, err)
		}
		if err := b.place(path.Dir(dst)); err != nil {
			return err
		}
		return os.Symlink(target, filepath.Join(b.root, dst))
	case info.IsDir():
		err = b.place(dst)
	case info.Mode().IsRegular():
		err = b.file(dst, nil, 0o444)
	default:
		return nil // a socket or device of the host is no part of a cell
	}
	if err != nil {
		return err
	}
	b.spec.Mounts = append(b.spec.Mounts, specs.Mount{
		Destination: dst, Type: "bind", Source: host, Options: []string{"rbind", "ro", "nosuid", "nodev", "rprivate"},
	})
	return nil
}

// place makes a directory of the root for something to be mounted on.
func (b *bundle) place(dst string) error { return os.MkdirAll(filepath.Join(b.root, dst), 0o755) }

// file makes a file of the root.
func (b *bundle) file(dst string, content []byte, mode fs.FileMode) error {
	if err := b.place(path.Dir(dst)); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(b.root, dst), content, mode)
}
