package images

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// LockName is what the lock file is called by default.
const LockName = "checkcell.lock"

// lockHeader is the first line of a lock file.
const lockHeader = "checkcell.lock/v1"

// ErrNotLocked is wrapped by Pin where the lock has no digest for a tag.
var ErrNotLocked = errors.New("is not locked")

// Lock says what tags stand for. It is a value: Add returns another one. The
// zero value holds nothing.
type Lock struct {
	pins map[string]Digest
}

// ParseLock reads a lock file as String writes it, and nothing else: a first
// line with the version, then one line "REFERENCE DIGEST" for each tag, sorted,
// with one blank, each ended by a line feed. Its errors name the line.
func ParseLock(text string) (Lock, error) {
	lines := strings.SplitAfter(text, "\n")
	if lines[0] != lockHeader+"\n" {
		return Lock{}, fmt.Errorf("line 1: want %q, the version of the file", lockHeader)
	}
	l := Lock{pins: map[string]Digest{}}
	last := ""
	for i, line := range lines[1:] {
		if line == "" { // behind the last line feed
			break
		}
		at := func(format string, args ...any) error {
			return fmt.Errorf("line %d: "+format, append([]any{i + 2}, args...)...)
		}
		name, digest, found := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if !found || !strings.HasSuffix(line, "\n") {
			return Lock{}, at("want a reference, one blank, a digest, and a line feed")
		}
		ref, err := Parse(name)
		if err != nil {
			return Lock{}, at("%w", err)
		}
		if !ref.IsTag() || ref.String() != name {
			return Lock{}, at("%q: want a tag of a repository, in full, such as debian:12", name)
		}
		d, err := ParseDigest(digest)
		if err != nil {
			return Lock{}, at("%w", err)
		}
		if name <= last {
			return Lock{}, at("%q comes behind %q: want each reference once, sorted", name, last)
		}
		l.pins[name], last = d, name
	}
	return l, nil
}

// IsTag reports whether r is a registry's tag, which may be moved.
func (r Ref) IsTag() bool { return r.kind == KindRegistry && r.digest.IsZero() }

// Add returns a lock in which ref, a tag, stands for d.
func (l Lock) Add(ref Ref, d Digest) (Lock, error) {
	if !ref.IsTag() || d.IsZero() {
		return Lock{}, fmt.Errorf("image %s: only a tag can be locked, and only to a digest", ref)
	}
	pins := maps.Clone(l.pins)
	if pins == nil {
		pins = map[string]Digest{}
	}
	pins[ref.String()] = d
	return Lock{pins}, nil
}

// Pin returns ref by the digest that it is locked to. What can't change is
// returned as it is: the host view, which has no content of its own to lock,
// and whatever has a digest already. A tag that is not in the lock, and a place
// on this host, which can't be locked, are errors that wrap ErrNotLocked.
func (l Lock) Pin(ref Ref) (Ref, error) {
	switch {
	case ref.IsHost() || ref.kind == KindStandard || !ref.digest.IsZero():
		return ref, nil
	case !ref.IsTag():
		return Ref{}, fmt.Errorf("image %s %w: it is a place, whose content may change; pull it, and name it by the digest that is printed", ref, ErrNotLocked)
	}
	d, ok := l.pins[ref.String()]
	if !ok {
		return Ref{}, fmt.Errorf("image %s %w: pull it once with --lock, or name it by digest", ref, ErrNotLocked)
	}
	return ref.At(d), nil
}

// Len is the number of locked tags.
func (l Lock) Len() int { return len(l.pins) }

// String is the text of the lock file. Equal locks have the same text.
func (l Lock) String() string {
	text := lockHeader + "\n"
	for _, name := range slices.Sorted(maps.Keys(l.pins)) {
		text += name + " " + l.pins[name].String() + "\n"
	}
	return text
}
