package images

import (
	"path/filepath"
	"strings"
	"testing"
)

var parseTests = []struct {
	in   string
	want Ref
	ok   bool
}{
	{"", Host(), true},
	{"host", Host(), true},
	{"/", Dir("/"), true},
	{"/srv/root", Dir("/srv/root"), true},
	{"/srv//root/", Dir("/srv/root"), true},
	{"/srv/../root/.", Dir("/root"), true},
	{"/../..", Dir("/"), true},
	{"/host", Dir("/host"), true},
	{"/srv/with space", Dir("/srv/with space"), true},
	{" /srv", Ref{}, false},
	{"Host", Ref{}, false},
	{"host ", Ref{}, false},
	{".", Ref{}, false},
	{"./root", Ref{}, false},
	{"../root", Ref{}, false},
	{"root", Ref{}, false},
	{"debian:12", Ref{}, false},
	{"sha256:00", Ref{}, false},
	{"\x00", Ref{}, false},
}

func TestParse(t *testing.T) {
	for _, tt := range parseTests {
		got, err := Parse(tt.in)
		if got != tt.want || (err == nil) != tt.ok {
			t.Errorf("Parse(%q) = %+v, %v, want %+v, ok %v", tt.in, got, err, tt.want, tt.ok)
		}
		if err != nil && !strings.Contains(err.Error(), "image ") {
			t.Errorf("Parse(%q) = %v, want an error that says it is an image", tt.in, err)
		}
	}
}

func TestRef(t *testing.T) {
	tests := []struct {
		name   string
		ref    Ref
		isHost bool
		path   string
		text   string
	}{
		{"zero", Ref{}, true, "", "host"},
		{"host", Host(), true, "", "host"},
		{"directory", Dir("/srv/root"), false, "/srv/root", "/srv/root"},
		{"unclean", Dir("/srv/../root/"), false, "/root", "/root"},
		{"root", Dir("/"), false, "/", "/"},
		{"no directory is not the host view", Dir(""), false, ".", "."},
	}
	for _, tt := range tests {
		if got := tt.ref.IsHost(); got != tt.isHost {
			t.Errorf("%s: IsHost() = %v, want %v", tt.name, got, tt.isHost)
		}
		if got, ok := tt.ref.Path(); got != tt.path || ok == tt.isHost {
			t.Errorf("%s: Path() = %q, %v, want %q, %v", tt.name, got, ok, tt.path, !tt.isHost)
		}
		if got := tt.ref.String(); got != tt.text {
			t.Errorf("%s: String() = %q, want %q", tt.name, got, tt.text)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, tt := range parseTests {
		f.Add(tt.in)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := Parse(s)
		if err != nil {
			if r != (Ref{}) {
				t.Errorf("Parse(%q) = %+v beside an error, want the zero Ref", s, r)
			}
			return
		}
		if again, err := Parse(r.String()); again != r || err != nil {
			t.Errorf("Parse(%q) = %+v, but Parse(%q) = %+v, %v", s, r, r.String(), again, err)
		}
		dir, ok := r.Path()
		if ok && (!filepath.IsAbs(dir) || filepath.Clean(dir) != dir) || !ok && s != "" && s != "host" {
			t.Errorf("Parse(%q) is at %q, %v, want a clean absolute path, or the host view for host alone", s, dir, ok)
		}
	})
}
