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
	{"sha256:00", Ref{}, false},
	{"\x00", Ref{}, false},
	{"/srv\x00", Ref{}, false},

	{"dir:/srv//root", Dir("/srv/root"), true},
	{"dir:root", Ref{}, false},
	{"dir:", Ref{}, false},
	{"oci-layout:/srv/l", Ref{kind: KindLayout, name: "/srv/l"}, true},
	{"oci-layout:/srv/l@" + sumText, Ref{kind: KindLayout, name: "/srv/l", digest: sum}, true},
	{"oci-layout:/srv/l@sha256:12", Ref{}, false},
	{"oci-layout:l", Ref{}, false},
	{"docker-archive:/srv/a.tar", Ref{kind: KindArchive, name: "/srv/a.tar"}, true},
	{"rootfs-tar:/srv/r.tar.zst", Ref{kind: KindTar, name: "/srv/r.tar.zst"}, true},
	{sumText, Stored(sum), true},
	{strings.ToUpper(sumText), Ref{}, false},
	{"std:shell", Ref{kind: KindStandard, name: "shell"}, true},
	{"std:python", Ref{kind: KindStandard, name: "python"}, true},
	{"std:", Ref{}, false},
	{"std:perl", Ref{}, false},

	{"root", Ref{kind: KindRegistry, name: "root", tag: "latest"}, true},
	{"debian:12", Ref{kind: KindRegistry, name: "debian", tag: "12"}, true},
	{"debian@" + sumText, Ref{kind: KindRegistry, name: "debian", digest: sum}, true},
	{"debian:12@" + sumText, Ref{kind: KindRegistry, name: "debian", tag: "12", digest: sum}, true},
	{"dir", Ref{}, false},
	{"std@" + sumText, Ref{}, false},
	{"sha256", Ref{}, false},
	{"acme/tool", Ref{kind: KindRegistry, name: "acme/tool", tag: "latest"}, true},
	{"localhost/a", Ref{kind: KindRegistry, name: "localhost/a", tag: "latest"}, true},
	{"127.0.0.1:5000/a/b:c", Ref{kind: KindRegistry, name: "127.0.0.1:5000/a/b", tag: "c"}, true},
	{"[::1]:5000/a:1", Ref{kind: KindRegistry, name: "[::1]:5000/a", tag: "1"}, true},
	{"r.example/a/b__c.d-----e:A_9.-", Ref{kind: KindRegistry, name: "r.example/a/b__c.d-----e", tag: "A_9.-"}, true},
	{"r.example/" + strings.Repeat("a", 245), Ref{kind: KindRegistry, name: "r.example/" + strings.Repeat("a", 245), tag: "latest"}, true},
	{"r.example/" + strings.Repeat("a", 246), Ref{}, false},
	{"debian:", Ref{}, false},
	{"debian:-1", Ref{}, false},
	{"debian:" + strings.Repeat("1", 129), Ref{}, false},
	{"debian@", Ref{}, false},
	{"debian@sha512:00", Ref{}, false},
	{"Debian", Ref{}, false},
	{"a//b", Ref{}, false},
	{"a/", Ref{}, false},
	{"a/-b", Ref{}, false},
	{"a/b-", Ref{}, false},
	{"a/b___c", Ref{}, false},
	{"a/b..c", Ref{}, false},
	{"-r.example/a", Ref{}, false},
	{"r.example:/a", Ref{}, false},
	{"r.example:123456/a", Ref{}, false},
	{"[::1/a", Ref{}, false},
	{"[::1]5000/a", Ref{}, false},
	{"http://r.example/a", Ref{}, false},
	{"user@r.example/a", Ref{}, false},
	{"a\nb", Ref{}, false},
}

const sumText = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

var sum = Digest{strings.TrimPrefix(sumText, "sha256:")}

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

func TestParseIn(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{"dir:root", "/home/ada/root"},
		{"dir:../x", "/home/x"},
		{"dir:/srv", "/srv"},
		{"oci-layout:l@" + sumText, "oci-layout:/home/ada/l@" + sumText},
		{"docker-archive:a.tar", "docker-archive:/home/ada/a.tar"},
		{"rootfs-tar:./a.tar", "rootfs-tar:/home/ada/a.tar"},
		{"debian:12", "debian:12"},
		{"host", "host"},
	} {
		if got, err := ParseIn("/home/ada", tt.in); got.String() != tt.want || err != nil {
			t.Errorf("ParseIn(/home/ada, %q) = %v, %v, want %s", tt.in, got, err, tt.want)
		}
	}
	for _, in := range []string{"dir:", "root dir", "rootfs-tar:"} {
		if got, err := ParseIn("/home/ada", in); err == nil {
			t.Errorf("ParseIn(/home/ada, %q) = %v, want an error", in, got)
		}
	}
}

// What a stranger may name is content; what only the caller may, a place.
func TestIsPlace(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want bool
	}{
		{"host", false}, {"/srv", true}, {"dir:/srv", true}, {"oci-layout:/l", true}, {"oci-layout:/l@" + sumText, true},
		{"docker-archive:/a", true}, {"rootfs-tar:/a", true}, {"debian", false}, {sumText, false}, {"std:shell", false},
	} {
		r, err := Parse(tt.in)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.IsPlace(); got != tt.want {
			t.Errorf("Parse(%q).IsPlace() = %v, want %v", tt.in, got, tt.want)
		}
		if path, ok := r.Place(); ok != tt.want || ok != filepath.IsAbs(path) {
			t.Errorf("Parse(%q).Place() = %q, %v, want a path: %v", tt.in, path, ok, tt.want)
		}
	}
}

func TestAt(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{"debian:12", "debian@" + sumText},
		{"rootfs-tar:/a", sumText},
	} {
		r, err := Parse(tt.in)
		if err != nil {
			t.Fatal(err)
		}
		got := r.At(sum)
		if d, ok := got.Digest(); got.String() != tt.want || !ok || d != sum {
			t.Errorf("Parse(%q).At(%v) = %v, want %s", tt.in, sum, got, tt.want)
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
		if ok && (!filepath.IsAbs(dir) || filepath.Clean(dir) != dir) {
			t.Errorf("Parse(%q) is at %q, %v, want a clean absolute path", s, dir, ok)
		}
		if r.IsHost() && s != "" && s != "host" {
			t.Errorf("Parse(%q) is the host view, want that for host alone", s)
		}
		if name, ok := r.Repository(); ok && (name == "" || name[0] == '/' || strings.ContainsAny(name, " @\n\x00")) {
			t.Errorf("Parse(%q) is of the repository %q, want a name of one", s, name)
		}
	})
}
