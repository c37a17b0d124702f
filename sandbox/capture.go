package sandbox

import (
	"crypto/sha256"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// decode returns b as UTF-8 with U+FFFD for every byte that is none, one by
// one, as the Unicode standard's "maximal subpart" practice is for Go's range.
func decode(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	var s strings.Builder
	s.Grow(len(b) + len(b)/8)
	for _, r := range string(b) {
		s.WriteRune(r)
	}
	return s.String()
}

// stream is one captured stream: what came, and a reader that is at work on it.
type stream struct {
	resource Resource
	capture  Capture
	err      error         // why reading stopped, unless at the end
	done     chan struct{} // closed when capture and err are final
}

// read starts to read from until its end, keeping at most limit bytes. When one byte
// more than that has come it asks once, through stop, for the run's end, and
// goes on counting. The goroutine ends at the end of from, which the kill of
// the cell brings about; Runner waits for it. What is kept goes to live as
// well, if that is not nil.
func read(from io.Reader, limit Bytes, r Resource, stop chan<- Resource, live io.Writer) *stream {
	s := &stream{resource: r, done: make(chan struct{})}
	go func() {
		defer close(s.done)
		sum := sha256.New()
		buf := make([]byte, 32<<10)
		asked := false
		for {
			n, err := from.Read(buf)
			if n > 0 {
				_, _ = sum.Write(buf[:n]) // a hash never fails
				s.capture.Total += int64(n)
				room := int(limit) - len(s.capture.Kept)
				kept := buf[:min(n, room)]
				s.capture.Kept = append(s.capture.Kept, kept...)
				if live != nil && len(kept) > 0 {
					_, _ = live.Write(kept) // whoever looks on can't disturb the run
				}
			}
			if s.capture.Truncated() && !asked {
				asked = true
				stop <- r
			}
			if err != nil {
				if err != io.EOF {
					s.err = fmt.Errorf("read %s: %w", r, err)
				}
				sum.Sum(s.capture.SHA256[:0])
				return
			}
		}
	}()
	return s
}
