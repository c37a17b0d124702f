//go:build linux

package cellhost

import (
	"strings"
	"testing"
)

// Of what a launcher says as Go's runtime ends it the reason is kept, not the trace.
func TestWords(t *testing.T) {
	const reason = "runtime: failed to create new OS thread\nfatal error: newosproc"
	w := &Words{}
	for _, part := range []string{reason[:10], reason[10:] + "\n\n", "goroutine 1:\n", strings.Repeat("x", 9000)} {
		if n, err := w.Write([]byte(part)); n != len(part) || err != nil {
			t.Fatalf("Write = %d, %v, want %d", n, err, len(part))
		}
	}
	if got := w.String(); got != reason {
		t.Errorf("words = %q, want %q", got, reason)
	}
	if got := (&Words{}).String(); got != "" {
		t.Errorf("no words = %q, want none", got)
	}
}
