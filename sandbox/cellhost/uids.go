//go:build linux

package cellhost

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"sync"
)

// UIDs gives every cell of a root supervisor a host user of its own, so
// that cells can't reach one another through a common one. The ids lie where
// neither people, system users nor the ranges of containers are expected
// (0x70000000 to 0x7fffffff), at a random place for each supervisor.
type UIDs struct {
	mu    sync.Mutex
	first int
	used  map[int]bool
}

const uidsPerSupervisor = 4096

// NewUIDs chooses a range.
func NewUIDs() (*UIDs, error) {
	var b [4]byte
	if _, err := rand.Read(b[:]); err != nil {
		return nil, fmt.Errorf("choose user ids: %w", err)
	}
	blocks := uint32(0x10000000 / uidsPerSupervisor)
	return &UIDs{first: 0x70000000 + int(binary.NativeEndian.Uint32(b[:])%blocks)*uidsPerSupervisor, used: map[int]bool{}}, nil
}

// Take takes an id, for users and groups alike, until it is given back.
func (r *UIDs) Take() (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range uidsPerSupervisor {
		if !r.used[i] {
			r.used[i] = true
			return r.first + i, nil
		}
	}
	return 0, fmt.Errorf("all %d user ids for cells are taken", uidsPerSupervisor)
}

// Give gives an id back.
func (r *UIDs) Give(uid int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.used, uid-r.first)
}
