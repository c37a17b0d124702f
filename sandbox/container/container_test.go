//go:build linux

package container_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/checkcell/checkcell/internal/host"
	"github.com/checkcell/checkcell/sandbox"
	"github.com/checkcell/checkcell/sandbox/cellspec"
	"github.com/checkcell/checkcell/sandbox/container"
	"github.com/opencontainers/runtime-spec/specs-go"
)

func TestMain(m *testing.M) { os.Exit(host.Main(m)) }

// The directory of a living supervisor is left alone. That of one which ended is
// cleaned and removed, but for one whose containers are elsewhere or stay.
func TestHomeSweep(t *testing.T) {
	shared := t.TempDir()
	home := func() *container.Home {
		h, err := container.OpenHome(shared, "x-")
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	living, ended, sweeper := home(), home(), home()
	ended.Leave()
	stays := errors.New("it stays")
	for _, tt := range []struct {
		clean   error
		want    error
		removed bool
	}{{container.ErrElsewhere, nil, false}, {stays, stays, false}, {nil, nil, true}} {
		var cleaned []string
		err := sweeper.Sweep(func(dir string) error {
			cleaned = append(cleaned, dir)
			return tt.clean
		})
		if !errors.Is(err, tt.want) || (err == nil) != (tt.want == nil) || !slices.Equal(cleaned, []string{ended.Dir}) {
			t.Errorf("Sweep with %v = %v, cleaned %v; want %v, %s", tt.clean, err, cleaned, tt.want, ended.Dir)
		}
		if _, err := os.Lstat(ended.Dir); errors.Is(err, os.ErrNotExist) != tt.removed {
			t.Errorf("after a sweep with %v: %v, want removed: %v", tt.clean, err, tt.removed)
		}
	}
	for _, h := range []*container.Home{living, sweeper} {
		if _, err := os.Stat(h.Init()); err != nil {
			t.Errorf("a living supervisor's init: %v", err)
		}
		if err := h.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
}

// An image's top level is shown beside what a cell has of its own; what may be
// written is there only where the image has a place for it.
func TestRootOfImage(t *testing.T) {
	image := t.TempDir()
	for _, err := range []error{
		os.Mkdir(filepath.Join(image, "usr"), 0o755), os.Symlink("usr/bin", filepath.Join(image, "bin")),
		os.WriteFile(filepath.Join(image, "readme"), nil, 0o644), os.Mkdir(filepath.Join(image, "var"), 0o755),
		os.Mkdir(filepath.Join(image, "proc"), 0o755), os.Mkdir(filepath.Join(image, "tmp"), 0o755),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	spec, err := cellspec.Build(sandbox.Spec{ID: "t", Args: []string{"true"}, Limits: sandbox.DefaultLimits()})
	if err != nil {
		t.Fatal(err)
	}
	spec.Mounts = slices.DeleteFunc(spec.Mounts, func(m specs.Mount) bool { return m.Type == "bind" })
	for _, withPlace := range []bool{false, true} {
		if withPlace {
			if err := os.Mkdir(filepath.Join(image, "var/tmp"), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		r, err := container.NewRoot(container.Order{Spec: spec, Root: image}, filepath.Join(image, "readme"))
		if err != nil {
			t.Fatal(err)
		}
		var binds, places []string
		for _, b := range r.Binds {
			binds = append(binds, b.Path)
		}
		for _, p := range r.Writable {
			places = append(places, p.Path)
		}
		if want := []string{"/readme", "/usr", "/var", container.InitPath}; !slices.Equal(binds, want) {
			t.Errorf("binds %v, want %v", binds, want)
		}
		if r.Links["/bin"] != "usr/bin" {
			t.Errorf("links %v, want that of the image", r.Links)
		}
		if slices.Contains(places, "/var/tmp") != withPlace || !slices.Contains(places, "/work") || slices.Contains(r.Dirs, "/var/tmp") {
			t.Errorf("places %v, directories %v; want /var/tmp: %v, in the image's own", places, r.Dirs, withPlace)
		}
	}
}
