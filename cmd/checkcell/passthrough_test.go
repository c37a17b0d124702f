package main

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
)

func TestFollower(t *testing.T) {
	tests := []struct {
		name   string
		escape bool
		writes []string
		want   string
	}{
		{"nothing", true, nil, ""},
		{"raw", false, []string{"a\x1b[31m", "\xff", "b\xe2"}, "a\x1b[31m\xffb\xe2"},
		{"escaped", true, []string{"a\x1b[31m\n", "\tb"}, `a\x1b[31m` + "\n\tb"},
		{"a character in two writes", true, []string{"price: \xe2", "\x82", "\xac 5"}, "price: € 5"},
		{"four bytes one by one", true, []string{"\xf0", "\x9f", "\x98", "\x80"}, "\U0001F600"},
		{"half a character at the end", true, []string{"a\xe2\x82"}, `a\xe2\x82`},
		{"half a character, then another", true, []string{"\xe2\x82", "a"}, `\xe2\x82a`},
		{"a control character in two writes", true, []string{"\xc2", "\x9b1m"}, `\x9b1m`},
	}
	for _, tt := range tests {
		var out bytes.Buffer
		f := newFollower(&out, tt.escape)
		for _, s := range tt.writes {
			if n, err := f.Write([]byte(s)); n != len(s) || err != nil {
				t.Errorf("%s: Write(%q) = %d, %v, want %d, nil", tt.name, s, n, err, len(s))
			}
		}
		f.close()
		if got := out.String(); got != tt.want {
			t.Errorf("%s: %q arrived, want %q", tt.name, got, tt.want)
		}
	}
}

func TestWhole(t *testing.T) {
	tests := []struct {
		in   string
		want int
	}{{"", 0}, {"a", 1}, {"aé", 3}, {"a\xc3", 1}, {"a\xe2\x82", 1}, {"\xf0\x9f\x98", 0}, {"a\xff", 2}, {"\x80\x80\x80\x80\x80", 5}, {"a\xc3b", 3}}
	for _, tt := range tests {
		if got := whole([]byte(tt.in)); got != tt.want {
			t.Errorf("whole(%q) = %d, want %d", tt.in, got, tt.want)
		}
	}
}

// Write returns though nobody reads, and what was written arrives when
// somebody does, before close returns.
func TestFollowerNeverBlocks(t *testing.T) {
	r, w := io.Pipe() // holds nothing: a write waits for its reader
	f := newFollower(w, false)
	block := bytes.Repeat([]byte("0123456789abcdef"), 4096)
	const blocks = 32
	written := make(chan struct{})
	go func() {
		defer close(written)
		for range blocks {
			f.Write(block)
		}
	}()
	limit := time.NewTimer(20 * time.Second)
	defer limit.Stop()
	select {
	case <-written:
	case <-limit.C:
		t.Fatal("Write waits for a reader")
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		f.close()
		w.Close()
	}()
	got, err := io.ReadAll(r)
	if want := bytes.Repeat(block, blocks); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes arrived, %v, want the %d that were written", len(got), err, len(want))
	}
	<-closed
}

// The caller may change its buffer as soon as Write has returned.
func TestFollowerCopies(t *testing.T) {
	var out bytes.Buffer
	f := newFollower(&out, false)
	b := []byte("one")
	f.Write(b)
	copy(b, "two")
	f.Write(b)
	f.close()
	if got := out.String(); got != "onetwo" {
		t.Errorf("%q arrived, want onetwo", got)
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

// A reader that goes away does not disturb the run.
func TestPassThroughToABrokenReader(t *testing.T) {
	var errs bytes.Buffer
	p := newPassThrough(streams{nil, broken{}, &errs}, false)
	for range 10 {
		if _, err := p.out.Write([]byte("x")); err != nil {
			t.Errorf("Write = %v, want nil", err)
		}
		if _, err := p.err.Write([]byte("y\x1b")); err != nil {
			t.Errorf("Write = %v, want nil", err)
		}
	}
	p.close()
	if want := strings.Repeat("y\x1b", 10); errs.String() != want {
		t.Errorf("stderr got %q, want %q: it is no terminal", errs.String(), want)
	}
	(&passThrough{}).close() // of run --json, which follows nothing
}
