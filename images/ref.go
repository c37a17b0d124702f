// Package images names the root file systems that a cell can be given.
package images

import (
	"fmt"
	"path/filepath"
)

// Ref names a root file system. Its zero value is the host view: a read-only
// view of the host's own programs.
type Ref struct {
	dir string
}

// Host is the host view.
func Host() Ref { return Ref{} }

// Dir is the directory at path, an absolute path of the host, as a read-only
// root. It never is the host view: "" is the relative path ".", which no cell
// is made of.
func Dir(path string) Ref { return Ref{dir: filepath.Clean(path)} }

// Parse reads what a user writes: "host" or "" for the host view, or an
// absolute path of a directory.
func Parse(s string) (Ref, error) {
	switch {
	case s == "" || s == "host":
		return Host(), nil
	case filepath.IsAbs(s):
		return Dir(s), nil
	}
	return Ref{}, fmt.Errorf("image %q: want host or the absolute path of a root directory", s)
}

// IsHost reports whether r is the host view.
func (r Ref) IsHost() bool { return r.dir == "" }

// Path returns the directory; ok is false for the host view.
func (r Ref) Path() (dir string, ok bool) { return r.dir, r.dir != "" }

// String writes r as Parse reads it.
func (r Ref) String() string {
	if r.IsHost() {
		return "host"
	}
	return r.dir
}
