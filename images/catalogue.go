package images

import (
	"embed"
	"fmt"
	"strings"
)

//go:embed standard/*.Dockerfile
var definitions embed.FS

// Standard is one standard check image.
type Standard struct {
	Name     string // as in std:NAME
	Summary  string // one line
	From     Ref    // what it is pulled as, by digest
	Programs []string
	// Dockerfile is its definition. It adds settings to From and no files, so
	// that both have the same tree.
	Dockerfile string
}

// standards are the images of the catalogue, with the programs that make the
// likeness of one on a host that reaches no registry (see store.Pack).
func standards() []Standard {
	shell := []string{"bash", "coreutils", "grep", "sed", "awk", "find", "xargs", "diff", "cmp"}
	return []Standard{
		{Name: "shell", Summary: "bash and the usual tools for text and files", Programs: shell},
		{Name: "python", Summary: "Python 3 and its standard library, with what shell has", Programs: append(shell[:len(shell):len(shell)], "python3")},
	}
}

// Catalogue returns the standard check images, in order. Its error is a fault
// of the embedded definitions.
func Catalogue() ([]Standard, error) {
	all := standards()
	for i := range all {
		s := &all[i]
		text, err := definitions.ReadFile("standard/" + s.Name + ".Dockerfile")
		if err != nil {
			return nil, fmt.Errorf("standard image %s: %w", s.Name, err)
		}
		s.Dockerfile = string(text)
		if s.From, err = pinnedFrom(s.Dockerfile); err != nil {
			return nil, fmt.Errorf("standard image %s: %w", s.Name, err)
		}
	}
	return all, nil
}

// pinnedFrom reads the one FROM line of a Dockerfile.
func pinnedFrom(dockerfile string) (Ref, error) {
	for line := range strings.Lines(dockerfile) {
		if from, ok := strings.CutPrefix(line, "FROM "); ok {
			base, err := Parse(strings.TrimSpace(from))
			if _, pinned := base.Digest(); err == nil && !pinned {
				err = fmt.Errorf("its base %s is not pinned by a digest", base)
			}
			return base, err
		}
	}
	return Ref{}, fmt.Errorf("its Dockerfile has no FROM line")
}

// FindStandard returns the image of the catalogue with that name. Its error
// lists those that there are.
func FindStandard(name string) (Standard, error) {
	all, err := Catalogue()
	if err != nil {
		return Standard{}, err
	}
	var names []string
	for _, s := range all {
		if s.Name == name {
			return s, nil
		}
		names = append(names, s.Name)
	}
	return Standard{}, fmt.Errorf("no standard image is called %q; there are %s", name, strings.Join(names, ", "))
}
