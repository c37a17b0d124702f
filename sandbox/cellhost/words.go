//go:build linux

package cellhost

import (
	"bytes"
	"sync"
)

// Words keeps the beginning of what a program of ours says as it fails, which is
// the reason where the rest is a trace. Its methods may be called at the same time.
type Words struct {
	mu sync.Mutex
	b  []byte
}

// Write keeps the first KiB. It never fails.
func (w *Words) Write(p []byte) (int, error) {
	const most = 1 << 10
	w.mu.Lock()
	defer w.mu.Unlock()
	w.b = append(w.b, p[:min(len(p), most-len(w.b))]...)
	return len(p), nil
}

// String returns the first paragraph of what was written.
func (w *Words) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	first, _, _ := bytes.Cut(bytes.TrimSpace(w.b), []byte("\n\n"))
	return string(first)
}
