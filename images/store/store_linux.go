// Package store keeps images on this host: it fetches them from registries
// and files, packs them of the host's own programs, unpacks them once, and
// hands out their trees.
//
// On disk, below one directory:
//
//	version                     what this layout is called
//	locks                       ranges of this file are locked; see claim
//	blobs/sha256/HEX            manifests, configurations and layers, as they came
//	trees/sha256/HEX/rootfs     an unpacked root, named by its chain ID
//	trees/sha256/HEX/tree.json  its size
//	trees/sha256/HEX/aside.jsonl what the layers say and the tree does not have; see Aside
//	images/sha256/HEX.json      an Image, named by the digest of its manifest
//	refs/HEX.json               what a reference stands for, named by the reference's digest
//	tmp/HEX                     what is being made, or removed
//
// Whatever is not below tmp is whole: it was made there, written out and
// renamed. What a process that died left below tmp is removed by the next Open.
// Any number of processes may use a store at once.
package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/checkcell/checkcell/images"
)

// Errors that a caller may tell apart.
var (
	ErrNotFound = errors.New("is not in the store")
	ErrInUse    = errors.New("is in use")
	// ErrRefused is wrapped where content is refused for what it is: hostile,
	// larger than a limit, broken, or for another machine. To try again is no use.
	ErrRefused = errors.New("refused")
)

const layoutVersion = "checkcell.images/v1\n"

// Config says how a store is opened.
type Config struct {
	Dir    string // absolute; made if missing, for this user alone
	Limits Limits // of what is unpacked; the zero value is DefaultLimits
}

// Store is an open store. It may be used by several goroutines at once, needs
// no closing, and holds no lock but while a method runs, and for each Tree.
type Store struct {
	dir      string
	limits   Limits
	platform string // "linux/amd64"
	owners   bool   // whether files get their owners; only root can give them
}

// Image is what the store knows of one image.
type Image struct {
	Digest     images.Digest   `json:"digest"`     // of its manifest, which names it
	ID         images.Digest   `json:"id"`         // of its configuration: the same however the image travelled
	Tree       images.Digest   `json:"tree"`       // the chain ID of its layers: equal trees have equal ones
	References []string        `json:"references"` // what it was pulled or packed as, sorted
	Platform   string          `json:"platform"`   // "linux/amd64"; "/" where the image does not say
	Config     ImageConfig     `json:"config"`
	Layers     []images.Digest `json:"layers"`     // lowest first
	Bytes      int64           `json:"bytes"`      // of its blobs
	TreeBytes  int64           `json:"tree_bytes"` // of the files of its tree
	TreeFiles  int64           `json:"tree_files"` // entries of its tree
	Path       string          `json:"path"`       // of its root on this host; use Store.Tree to keep it there
	Added      time.Time       `json:"added"`
	Used       time.Time       `json:"used"` // when it was last added or its tree was last taken
}

// ImageConfig is what an image says about how its programs are run.
type ImageConfig struct {
	Env        []string          `json:"env"` // NAME=VALUE
	WorkingDir string            `json:"working_dir"`
	User       string            `json:"user"`
	Entrypoint []string          `json:"entrypoint"`
	Cmd        []string          `json:"cmd"`
	Labels     map[string]string `json:"labels"`
}

// Open opens the store at c.Dir, makes it if there is none, and removes what
// crashed processes left unfinished in it.
func Open(ctx context.Context, c Config) (*Store, error) {
	if !filepath.IsAbs(c.Dir) {
		return nil, fmt.Errorf("open image store %q: want an absolute path", c.Dir)
	}
	if c.Limits == (Limits{}) {
		c.Limits = DefaultLimits()
	}
	if err := c.Limits.Validate(); err != nil {
		return nil, fmt.Errorf("open image store %s: %w", c.Dir, err)
	}
	s := &Store{dir: filepath.Clean(c.Dir), limits: c.Limits, platform: "linux/" + runtime.GOARCH, owners: os.Geteuid() == 0}
	if err := s.prepare(ctx); err != nil {
		return nil, fmt.Errorf("open image store %s: %w", s.dir, err)
	}
	return s, nil
}

func (s *Store) prepare(ctx context.Context) error {
	// Trees hold directories that anybody may write to, such as /tmp: nobody
	// else gets at them.
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return fmt.Errorf("%w; name another directory with --store", err)
	}
	for _, dir := range []string{"blobs/sha256", "trees/sha256", "images/sha256", "refs", "tmp"} {
		if err := os.MkdirAll(filepath.Join(s.dir, dir), 0o700); err != nil {
			return err
		}
	}
	lock, err := os.OpenFile(s.path("locks"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	if err := lock.Close(); err != nil {
		return err
	}
	if err := s.checkVersion(ctx); err != nil {
		return err
	}
	return s.sweep(ctx)
}

func (s *Store) checkVersion(ctx context.Context) error {
	text, err := os.ReadFile(s.path("version"))
	if errors.Is(err, fs.ErrNotExist) {
		st, err := s.newStage(ctx)
		if err != nil {
			return err
		}
		return errors.Join(st.writeFile(s.path("version"), []byte(layoutVersion)), st.close())
	}
	if err == nil && string(text) != layoutVersion {
		err = fmt.Errorf("its version is %.40q, this program knows %q; name another directory with --store", text, layoutVersion)
	}
	return err
}

func (s *Store) path(parts ...string) string {
	return filepath.Join(append([]string{s.dir}, parts...)...)
}

func (s *Store) blobPath(d images.Digest) string { return s.path("blobs/sha256", d.Hex()) }
func (s *Store) treeDir(d images.Digest) string  { return s.path("trees/sha256", d.Hex()) }
func (s *Store) rootPath(d images.Digest) string { return filepath.Join(s.treeDir(d), "rootfs") }

// stored returns the digests that the entries of a directory are named by.
// What is named otherwise is not ours and is let be.
func stored(dir, suffix string) ([]images.Digest, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var all []images.Digest
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), suffix)
		if d, err := images.ParseDigest("sha256:" + name); ok && err == nil {
			all = append(all, d)
		}
	}
	return all, nil
}
