package sandbox

import (
	"context"
	"io"
	"time"
)

// Backend makes cells of one kind. Its methods may be called at the same time.
type Backend interface {
	// Name is the word of --backend and of a result's backend field.
	Name() string

	// Probe says what this host enforces, by trying it.
	Probe(ctx context.Context) []Capability

	// Create makes a cell for spec and readies it, so that only Start is
	// left. Nothing of the check runs. On error nothing is left behind, or
	// the error says what is. An error because of ctx wraps its cause.
	Create(ctx context.Context, spec Spec) (Box, error)

	// Sweep removes what crashed runs left on this host, and only that.
	Sweep(ctx context.Context) (Swept, error)

	// Close gives back what the backend itself holds. Boxes must be destroyed
	// before.
	Close() error
}

// Box is one cell. Start comes first, Kill before Collect, Destroy last.
type Box interface {
	// Start starts step. It returns when the step's program has been
	// executed. An error means that nothing of the step ran.
	Start(ctx context.Context, step Step) (Process, error)

	// CPUTime is what the cell's processes have used so far.
	CPUTime() (time.Duration, error)

	// Kill ends every process of the cell and returns when it is proven empty.
	// It first counts the processes of the check that are alive, the first
	// one left out. It may be called again.
	Kill(ctx context.Context) (leftovers Reading, err error)

	// Collect reads usage and counters. What can't be read is named in
	// Evidence.Missing.
	Collect() Evidence

	// Destroy removes the cell, whatever state it is in. It may be called
	// again.
	Destroy(ctx context.Context) error
}

// Process is a step that runs. Both streams reach their end when the last
// process that holds them has ended.
type Process struct {
	Stdout io.ReadCloser
	Stderr io.ReadCloser
	Ended  <-chan End // has room for one; gets exactly one value
}

// End is what was learned of the first process's end. The zero value is that
// its status was lost.
type End struct {
	exited  bool
	code    uint8
	signal  uint8
	lostWhy string
}

// EndExited is the end of a process that exited with code.
func EndExited(code uint8) End { return End{exited: true, code: code} }

// EndSignaled is the end of a process that died of signal.
func EndSignaled(signal uint8) End { return End{signal: signal} }

// EndLost is the end of a process whose status was lost, and why.
func EndLost(why string) End { return End{lostWhy: why} }

// Capability is one control as this host has it.
type Capability struct {
	Control Control
	State   CapabilityState
	How     string // how it is enforced, or what stands in the way
	Fix     string // what to do where it is not in force
}

// CapabilityState is whether a control can be enforced.
type CapabilityState uint8

// The states of a capability. The zero value is the safe one.
const (
	CapabilityMissing CapabilityState = iota
	CapabilityInForce
	CapabilityAbsent // an extra that this host lacks, and that no cell needs
)

var capabilityWords = [...]string{"missing", "in force", "absent"}

// String returns the word for people and for doctor's JSON.
func (s CapabilityState) String() string {
	return word(capabilityWords[:], uint8(s), "CapabilityState")
}

// Swept says what Sweep removed.
type Swept struct {
	Runs      int // crashed supervisors whose groups were removed
	Processes int // processes that were still alive in them
}
