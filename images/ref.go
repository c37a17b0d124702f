// Package images names the root file systems that a cell can be given: the
// host's own programs, a directory, or an image of a registry, a file or the
// local store. It reads nothing but its embedded catalogue; images/store
// fetches and keeps what is named here.
package images

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

// Kind is the sort of thing that a Ref names. The set is closed; the zero
// value is the host view.
type Kind uint8

// The kinds of references, with what a user writes.
const (
	KindHost     Kind = iota // host: a read-only view of the host's own programs
	KindDir                  // dir:PATH or an absolute PATH: a directory, used where it is
	KindLayout               // oci-layout:PATH: an image in an OCI image layout
	KindArchive              // docker-archive:PATH: what `docker save` writes
	KindTar                  // rootfs-tar:PATH: the whole root as one tar, compressed or not
	KindRegistry             // [HOST/]REPOSITORY[:TAG][@DIGEST]
	KindStored               // sha256:…: what the local store has, by digest
	KindStandard             // std:NAME: a standard image of the catalogue
)

var kindWords = [...]string{"host", "dir", "oci-layout", "docker-archive", "rootfs-tar", "registry", "stored", "std"}

// String is the word of the kind; for kinds with a prefix, the prefix.
func (k Kind) String() string {
	if int(k) < len(kindWords) {
		return kindWords[k]
	}
	return fmt.Sprintf("Kind(%d)", k)
}

// Ref names a root file system. Its zero value is the host view: a read-only
// view of the host's own programs. Two that name the same in the same way are
// equal.
type Ref struct {
	kind   Kind
	name   string // path, repository with its host, or name of the catalogue
	tag    string // of a registry
	digest Digest // of a registry, a layout or the store
}

// Host is the host view.
func Host() Ref { return Ref{} }

// Dir is the directory at path, an absolute path of the host, as a read-only
// root. It never is the host view: "" is the relative path ".", which no cell
// is made of.
func Dir(path string) Ref { return Ref{kind: KindDir, name: filepath.Clean(path)} }

// Stored is the image of the local store with that digest.
func Stored(d Digest) Ref { return Ref{kind: KindStored, digest: d} }

// Parse reads what a user writes; the forms are with the kinds. The empty text
// is the host view. Paths are absolute: see ParseIn.
func Parse(s string) (Ref, error) {
	r, err := parse(s)
	if err != nil {
		return Ref{}, fmt.Errorf("image %q: %w", s, err)
	}
	return r, nil
}

// ParseIn is Parse for a user at work in the absolute path wd: a relative path
// behind a prefix is below it.
func ParseIn(wd, s string) (Ref, error) {
	for kind := KindDir; kind <= KindTar; kind++ {
		if path, ok := strings.CutPrefix(s, kind.String()+":"); ok && path != "" && !filepath.IsAbs(path) {
			return Parse(kind.String() + ":" + filepath.Join(wd, path))
		}
	}
	return Parse(s)
}

func parse(s string) (Ref, error) {
	if strings.IndexByte(s, 0) >= 0 {
		return Ref{}, errors.New("it holds a NUL byte")
	}
	switch {
	case s == "" || s == "host":
		return Host(), nil
	case filepath.IsAbs(s):
		return Dir(s), nil
	case strings.HasPrefix(s, digestPrefix):
		d, err := ParseDigest(s)
		return Ref{kind: KindStored, digest: d}, err
	}
	prefix, rest, found := strings.Cut(s, ":")
	if found {
		switch prefix {
		case KindDir.String(), KindArchive.String(), KindTar.String(), KindLayout.String():
			return parsePlace(prefix, rest)
		case KindStandard.String():
			standard, err := FindStandard(rest)
			return Ref{kind: KindStandard, name: standard.Name}, err
		}
	}
	return parseRegistry(s)
}

// parsePlace reads what is behind the prefix of a place on this host.
func parsePlace(prefix, rest string) (Ref, error) {
	var digest Digest
	if prefix == KindLayout.String() {
		if i := strings.LastIndex(rest, "@"+digestPrefix); i >= 0 {
			var err error
			if digest, err = ParseDigest(rest[i+1:]); err != nil {
				return Ref{}, err
			}
			rest = rest[:i]
		}
	}
	if !filepath.IsAbs(rest) {
		return Ref{}, fmt.Errorf("behind %s: want an absolute path", prefix)
	}
	for kind := KindDir; kind <= KindTar; kind++ {
		if kind.String() == prefix {
			return Ref{kind: kind, name: filepath.Clean(rest), digest: digest}, nil
		}
	}
	return Ref{}, fmt.Errorf("%s: names no place", prefix)
}

// Kind returns what sort of thing r names.
func (r Ref) Kind() Kind { return r.kind }

// IsHost reports whether r is the host view.
func (r Ref) IsHost() bool { return r.kind == KindHost }

// IsPlace reports whether r names a place on this host, a directory or a file,
// whose content may change: nothing that somebody who is not trusted may choose.
func (r Ref) IsPlace() bool { return r.kind >= KindDir && r.kind <= KindTar }

// Path returns the directory; ok is false for anything else.
func (r Ref) Path() (dir string, ok bool) {
	if r.kind != KindDir {
		return "", false
	}
	return r.name, true
}

// Place returns the path of a place on this host; ok is false for anything
// else. See IsPlace.
func (r Ref) Place() (path string, ok bool) {
	if !r.IsPlace() {
		return "", false
	}
	return r.name, true
}

// Digest returns the digest that r names its content by; ok is false where it
// names none, as a tag or a file does.
func (r Ref) Digest() (d Digest, ok bool) { return r.digest, !r.digest.IsZero() }

// Standard returns the image of the catalogue that r names; ok is false where
// it names none.
func (r Ref) Standard() (s Standard, ok bool) {
	if r.kind != KindStandard {
		return Standard{}, false
	}
	s, err := FindStandard(r.name)
	return s, err == nil
}

// String writes r as Parse reads it.
func (r Ref) String() string {
	text := r.name
	switch r.kind {
	case KindHost:
		return kindWords[KindHost]
	case KindDir:
		return text
	case KindStored:
		return r.digest.String()
	case KindStandard, KindArchive, KindTar, KindLayout:
		text = r.kind.String() + ":" + r.name
	case KindRegistry:
		if r.tag != "" {
			text += ":" + r.tag
		}
	}
	if !r.digest.IsZero() {
		text += "@" + r.digest.String()
	}
	return text
}
