package main

import (
	"io"
	"slices"
	"sync"
	"unicode/utf8"

	"github.com/checkcell/checkcell/internal/report"
)

// passThrough hands a check's streams to ours while it runs. Its writers never
// block, however slow our reader is: what waits is bounded by the stream caps.
type passThrough struct {
	out, err *follower
}

func newPassThrough(s streams, raw bool) *passThrough {
	follow := func(to io.Writer) *follower {
		_, onTerminal := terminal(to)
		return newFollower(to, onTerminal && !raw)
	}
	return &passThrough{follow(s.out), follow(s.err)}
}

// close returns when all that came was handed on.
func (p *passThrough) close() {
	for _, f := range []*follower{p.out, p.err} {
		if f != nil {
			f.close()
		}
	}
}

// follower copies what is written to it to another writer, from a goroutine
// that close ends and waits for.
type follower struct {
	to     io.Writer
	escape bool

	mu     sync.Mutex
	wake   *sync.Cond
	buf    []byte
	closed bool

	done chan struct{}
}

func newFollower(to io.Writer, escape bool) *follower {
	f := &follower{to: to, escape: escape, done: make(chan struct{})}
	f.wake = sync.NewCond(&f.mu)
	go f.copy()
	return f
}

func (f *follower) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.buf = append(f.buf, p...)
	f.wake.Signal()
	return len(p), nil
}

func (f *follower) copy() {
	defer close(f.done)
	var half []byte // the beginning of a character whose rest is still to come
	for {
		f.mu.Lock()
		for len(f.buf) == 0 && !f.closed {
			f.wake.Wait()
		}
		b := f.buf
		f.buf = nil
		f.mu.Unlock()
		if len(b) == 0 {
			f.hand(half)
			return
		}
		if f.escape {
			b = append(half, b...)
			n := whole(b)
			b, half = b[:n], slices.Clone(b[n:])
		}
		f.hand(b)
	}
}

func (f *follower) hand(b []byte) {
	if f.escape {
		b = []byte(report.EscapeStream(string(b)))
	}
	if len(b) > 0 {
		_, _ = f.to.Write(b) // our reader went away; the result is the same
	}
}

// whole is how much of b is left when the beginning of a character is taken
// off its end.
func whole(b []byte) int {
	for i := len(b) - 1; i >= max(0, len(b)-utf8.UTFMax); i-- {
		if utf8.RuneStart(b[i]) {
			if !utf8.FullRune(b[i:]) {
				return i
			}
			break
		}
	}
	return len(b)
}

func (f *follower) close() {
	f.mu.Lock()
	f.closed = true
	f.wake.Signal()
	f.mu.Unlock()
	<-f.done
}
