package cgroup

import "errors"

// Reading is a number that was read, or why it couldn't be. Its zero value
// is not known; it is never filled with 0.
type Reading struct {
	n     int64
	known bool
	err   error
}

// Value returns the number; ok is false where it is not known.
func (r Reading) Value() (n int64, ok bool) { return r.n, r.known }

// Err says why the number is not known, and is nil where it is.
func (r Reading) Err() error {
	if r.err == nil && !r.known {
		return errors.New("not read")
	}
	return r.err
}

// reading makes a Reading of what a read returned.
func reading(n int64, err error) Reading { return Reading{n: n, known: err == nil, err: err} }

// Usage is what a group, with all below it, has used so far.
type Usage struct {
	CPU         Reading // nanoseconds, user and system
	PeakMemory  Reading // bytes
	PeakPIDs    Reading // processes and threads at one time
	OOMKills    Reading // kills by the kernel for want of memory
	PIDsMaxHits Reading // forks refused for a limit on processes
}
