//go:build linux

package oci

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/checkcell/checkcell/sandbox/cellhost"
	"github.com/checkcell/checkcell/sandbox/container"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// bundle is a directory that a runtime makes a container of.
type bundle struct {
	dir  string
	root container.Root
}

// The entries of a bundle.
const (
	rootName    = "rootfs"
	scratchName = "scratch" // where the tmpfs of all writable places is mounted, out of the host's sight
	configName  = "config.json"
)

// ids are the container's users and groups on the host.
type ids struct{ root, user int }

// scratch is where the directory of a writable place is.
func (b *bundle) scratch(p container.Place) string {
	return filepath.Join(b.dir, scratchName, strings.ReplaceAll(strings.TrimPrefix(p.Path, "/"), "/", "-"))
}

// write lays out the bundle in its directory, which is empty.
func (b *bundle) write(o container.Order, initPath, cgroupsPath string, who ids, ownsKernel bool) error {
	var err error
	if b.root, err = container.NewRoot(o, initPath); err != nil {
		return err
	}
	root := filepath.Join(b.dir, rootName)
	for _, dir := range []string{filepath.Join(b.dir, scratchName), root} {
		if err := os.Mkdir(dir, 0o711); err != nil {
			return err
		}
	}
	errs := []error{os.Chmod(root, 0o755)} // the umask may have cut it
	for _, dir := range b.root.Dirs {
		errs = append(errs, os.Mkdir(filepath.Join(root, dir), 0o755))
	}
	for name, target := range b.root.Links {
		errs = append(errs, os.Symlink(target, filepath.Join(root, name)))
	}
	for name, text := range b.root.Files {
		errs = append(errs, os.WriteFile(filepath.Join(root, name), []byte(text), 0o444))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	spec, err := b.translate(o, cgroupsPath, who, ownsKernel)
	if err != nil {
		return err
	}
	config, err := json.Marshal(spec)
	if err != nil {
		return fmt.Errorf("write the runtime's description: %w", err)
	}
	return os.WriteFile(filepath.Join(b.dir, configName), config, 0o600)
}

// oldestVersion of the runtime specification has all that we use, and no runtime
// that is in use refuses it, as crun 1.8 does 1.3.
const oldestVersion = "1.0.2"

// translate turns the cell's description into the runtime's. The limits are those
// of our group, so the runtime is given none.
func (b *bundle) translate(o container.Order, cgroupsPath string, who ids, ownsKernel bool) (*specs.Spec, error) {
	limits, err := cellhost.Rlimits(o.Spec.Process.Rlimits)
	if err != nil {
		return nil, err
	}
	s := *o.Spec
	s.Version = oldestVersion
	process, linux := *s.Process, *s.Linux
	process.Args, process.Cwd, process.Env, process.Rlimits = []string{container.InitPath}, "/", nil, limits
	linux.CgroupsPath = cgroupsPath
	linux.Resources = &specs.LinuxResources{Devices: []specs.LinuxDeviceCgroup{{Allow: false, Access: "rwm"}}}
	maps := []specs.LinuxIDMapping{
		{ContainerID: 0, HostID: uint32(who.root), Size: 1}, // who the runtime is while it sets the container up
		{ContainerID: process.User.UID, HostID: uint32(who.user), Size: 1},
	}
	linux.UIDMappings, linux.GIDMappings = maps, maps
	s.Root = &specs.Root{Path: filepath.Join(b.dir, rootName), Readonly: true}
	s.Process, s.Linux, s.Annotations, s.Mounts = &process, &linux, nil, nil
	for _, m := range b.root.Others { // /dev before /dev/shm
		if ownsKernel && m.Destination == "/dev" {
			continue // gVisor makes its own, and opens no device for writing on a read-only mount
		}
		s.Mounts = append(s.Mounts, m)
	}
	for _, p := range b.root.Binds {
		s.Mounts = append(s.Mounts, specs.Mount{
			Destination: p.Path, Type: "bind", Source: p.Host, Options: []string{"rbind", "ro", "nosuid", "nodev", "rprivate"},
		})
	}
	for _, p := range b.root.Writable { // some lie in what is bound
		s.Mounts = append(s.Mounts, specs.Mount{
			Destination: p.Path, Type: "bind", Source: b.scratch(p), Options: []string{"bind", "nosuid", "nodev", "private"},
		})
	}
	return &s, nil
}
