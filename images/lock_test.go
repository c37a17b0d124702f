package images

import (
	"errors"
	"strings"
	"testing"
)

func mustParse(t *testing.T, s string) Ref {
	t.Helper()
	r, err := Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

const lockText = "checkcell.lock/v1\n" +
	"debian:12 " + sumText + "\n" +
	"r.example/a:1 " + sumText + "\n"

func TestLock(t *testing.T) {
	var l Lock
	var err error
	for _, name := range []string{"r.example/a:1", "debian:12", "r.example/a:1"} {
		if l, err = l.Add(mustParse(t, name), sum); err != nil {
			t.Fatalf("Add(%s) = %v", name, err)
		}
	}
	if got := l.String(); got != lockText || l.Len() != 2 {
		t.Errorf("the lock of two tags is %q, want %q", got, lockText)
	}
	before, err := ParseLock(lockText)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := before.Add(mustParse(t, "debian:13"), sum); err != nil || before.String() != lockText {
		t.Errorf("Add changed the lock that it was called on to %q, %v", before, err)
	}
	for _, name := range []string{"host", "/srv", "debian@" + sumText, "std:shell", sumText} {
		if _, err := l.Add(mustParse(t, name), sum); err == nil {
			t.Errorf("Add(%s) = nil, want an error: it is no tag", name)
		}
	}
	if _, err := l.Add(mustParse(t, "debian:12"), Digest{}); err == nil {
		t.Error("Add of no digest = nil, want an error")
	}
}

func TestPin(t *testing.T) {
	l, err := ParseLock(lockText)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ in, want string }{
		{"debian:12", "debian@" + sumText},
		{"host", "host"},
		{"std:shell", "std:shell"},
		{sumText, sumText},
		{"r.example/b@" + sumText, "r.example/b@" + sumText},
		{"oci-layout:/l@" + sumText, "oci-layout:/l@" + sumText},
		{"debian:13", ""}, {"debian", ""}, {"/srv", ""}, {"oci-layout:/l", ""}, {"docker-archive:/a", ""}, {"rootfs-tar:/a", ""},
	} {
		got, err := l.Pin(mustParse(t, tt.in))
		if tt.want == "" {
			if !errors.Is(err, ErrNotLocked) || got != (Ref{}) {
				t.Errorf("Pin(%s) = %v, %v, want %v", tt.in, got, err, ErrNotLocked)
			}
		} else if got.String() != tt.want || err != nil {
			t.Errorf("Pin(%s) = %v, %v, want %s", tt.in, got, err, tt.want)
		}
	}
	if _, err := (Lock{}).Pin(mustParse(t, "debian:12")); !errors.Is(err, ErrNotLocked) {
		t.Errorf("the zero lock pins: %v, want %v", err, ErrNotLocked)
	}
}

var badLocks = []struct{ text, want string }{
	{"", "line 1"},
	{"checkcell.lock/v1", "line 1"},
	{"checkcell.lock/v2\n", "line 1"},
	{"# a comment\n" + lockText, "line 1"},
	{lockText + "\n", "line 4"},
	{lockText + lockText, "line 4"},
	{strings.TrimSuffix(lockText, "\n"), "line 3"},
	{strings.ReplaceAll(lockText, "\n", "\r\n"), "line 1"},
	{"checkcell.lock/v1\ndebian:12  " + sumText + "\n", "line 2"},
	{"checkcell.lock/v1\ndebian:12 " + sumText + " \n", "line 2"},
	{"checkcell.lock/v1\ndebian " + sumText + "\n", "in full"},
	{"checkcell.lock/v1\nhost " + sumText + "\n", "want a tag"},
	{"checkcell.lock/v1\n/srv " + sumText + "\n", "want a tag"},
	{"checkcell.lock/v1\ndebian@" + sumText + " " + sumText + "\n", "want a tag"},
	{"checkcell.lock/v1\nr.example/b:1 " + sumText + "\nr.example/a:1 " + sumText + "\n", "sorted"},
	{"checkcell.lock/v1\nr.example/a:1 " + sumText + "\nr.example/a:1 " + sumText + "\n", "once"},
	{"checkcell.lock/v1\nr.example/a:1 sha256:12\n", "line 2"},
}

func TestParseLockRefuses(t *testing.T) {
	for _, tt := range badLocks {
		if l, err := ParseLock(tt.text); err == nil || !strings.Contains(err.Error(), tt.want) || l.Len() != 0 {
			t.Errorf("ParseLock(%q) = %v, %v, want an error with %q", tt.text, l, err, tt.want)
		}
	}
	if l, err := ParseLock(lockHeader + "\n"); err != nil || l.Len() != 0 {
		t.Errorf("ParseLock of a header alone = %v, %v, want an empty lock", l, err)
	}
}

// What is accepted is written back byte for byte.
func FuzzParseLock(f *testing.F) {
	f.Add(lockText)
	for _, tt := range badLocks {
		f.Add(tt.text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if l, err := ParseLock(text); err == nil && l.String() != text {
			t.Errorf("ParseLock(%q).String() = %q", text, l.String())
		}
	})
}
