package images

import (
	"slices"
	"strings"
	"testing"
)

// Every standard image is defined, with a base that is pinned, and every
// definition is in the catalogue.
func TestCatalogue(t *testing.T) {
	all, err := Catalogue()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range all {
		names = append(names, s.Name+".Dockerfile")
		d, pinned := s.From.Digest()
		if host, ok := s.From.Repository(); !pinned || d.IsZero() || !ok || strings.Contains(host, "/") {
			t.Errorf("%s has the base %v, want an official image by digest", s.Name, s.From)
		}
		if s.Summary == "" || !slices.Contains(s.Programs, "bash") {
			t.Errorf("%s has the summary %q and the programs %q, want both, with bash", s.Name, s.Summary, s.Programs)
		}
		// What would add a file would make the base another tree.
		for line := range strings.Lines(s.Dockerfile) {
			word, _, _ := strings.Cut(strings.TrimSpace(line), " ")
			if !slices.Contains([]string{"", "#", "FROM", "ENV", "CMD", "LABEL"}, word) {
				t.Errorf("%s: %q adds more than settings", s.Name, line)
			}
		}
		if got, ok := mustParse(t, "std:"+s.Name).Standard(); !ok || got.From != s.From {
			t.Errorf("std:%s is %v, %v, want %v", s.Name, got.From, ok, s.From)
		}
	}
	files, err := definitions.ReadDir("standard")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !slices.Contains(names, f.Name()) {
			t.Errorf("standard/%s is not in the catalogue", f.Name())
		}
	}
	if _, err := FindStandard("perl"); err == nil || !strings.Contains(err.Error(), "shell, python") {
		t.Errorf("FindStandard(perl) = %v, want an error that lists what there is", err)
	}
}

func TestPinnedFrom(t *testing.T) {
	for _, tt := range []struct {
		text string
		ok   bool
	}{
		{"# x\nFROM debian@" + sumText + "\n", true},
		{"FROM debian:12\n", false},
		{"FROM Debian\n", false},
		{"ENV A=b\n", false},
	} {
		if got, err := pinnedFrom(tt.text); (err == nil) != tt.ok {
			t.Errorf("pinnedFrom(%q) = %v, %v, want ok %v", tt.text, got, err, tt.ok)
		}
	}
}
