package cgroup

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Mode says which kinds of hierarchy a Host uses. The set is closed.
type Mode uint8

// The modes. The zero value is the one in which nothing can be enforced.
const (
	ModeNone   Mode = iota // no cgroup hierarchy is mounted
	ModeV1                 // version 1 only
	ModeHybrid             // version 1 for controllers, cgroup2 for membership and kill
	ModeV2                 // cgroup2 only
)

var modeWords = [...]string{"none", "v1", "hybrid", "v2"}

// String returns the word that receipts use for m.
func (m Mode) String() string {
	if int(m) < len(modeWords) {
		return modeWords[m]
	}
	return fmt.Sprintf("Mode(%d)", m)
}

// Controller is one thing that can be done to a group. The set is closed; the
// zero value is no controller.
type Controller uint8

// The controllers. Each is available or not; see [Host.Controllers].
const (
	Memory  Controller = iota + 1 // a bound on memory, and its peak
	PIDs                          // a bound on processes and threads
	CPU                           // a bound on CPU bandwidth
	CPUTime                       // the CPU time used so far
	Kill                          // ending all members, and proof that none is left
	Freeze                        // stopping all members at once; never required
)

var controllerWords = [...]string{"none", "memory", "pids", "cpu", "cpu-time", "kill", "freeze"}

// String returns the word for c.
func (c Controller) String() string {
	if int(c) < len(controllerWords) {
		return controllerWords[c]
	}
	return fmt.Sprintf("Controller(%d)", c)
}

// ParseController returns the controller that word stands for.
func ParseController(word string) (Controller, error) {
	if i := slices.Index(controllerWords[:], word); i > 0 {
		return Controller(i), nil
	}
	return 0, fmt.Errorf("unknown controller %q, known are %s", word, strings.Join(controllerWords[1:], ", "))
}

// Support says whether a controller can be used. The zero value says no.
type Support struct {
	Available bool
	Detail    string // what provides it, as "cgroup1 memory"; or why it is missing
}

// MissingError is the error of [Open] and [Host.Create] where something that is
// required can't be had here. Nothing has been made then.
type MissingError struct {
	Mode    Mode                  // what is mounted
	Missing map[Controller]string // why each is missing; never empty
	Hint    string                // what to do about it
}

// Error names each missing controller with its reason, and ends with the hint.
func (e *MissingError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "cgroup %v can't enforce", e.Mode)
	var reasons []string // in the order of the first controller they are given for
	words := map[string][]string{}
	for _, c := range slices.Sorted(maps.Keys(e.Missing)) {
		why := e.Missing[c]
		if words[why] == nil {
			reasons = append(reasons, why)
		}
		words[why] = append(words[why], c.String())
	}
	for i, why := range reasons {
		if i > 0 {
			b.WriteString(";")
		}
		fmt.Fprintf(&b, " %s: %s", strings.Join(words[why], ", "), why)
	}
	if e.Hint != "" {
		b.WriteString(". " + e.Hint)
	}
	return b.String()
}

// Config says where groups are made and what may be missing. The zero value
// makes them below our own position and requires every controller but Freeze.
type Config struct {
	// Parent is a group that exists, below which ours are made, written as in
	// /proc/PID/cgroup: "/checkcell.slice". It is looked up in every hierarchy
	// that is used. Empty means our own position; see Open.
	Parent string

	// AllowMissing lists the controllers that Open may do without. Create still
	// refuses a limit that needs one of them. Without Kill there are no groups,
	// so listing it changes nothing.
	AllowMissing []Controller

	// V1Only leaves a mounted cgroup2 alone.
	V1Only bool
}

// Validate names every bad field.
func (c Config) Validate() error {
	if p := c.Parent; p != "" && (!strings.HasPrefix(p, "/") || hasDots(p)) {
		return fmt.Errorf("cgroup parent %q: an absolute path without dots as elements is needed", p)
	}
	for _, one := range c.AllowMissing {
		if one == 0 || int(one) >= len(controllerWords) {
			return fmt.Errorf("allow missing: %v is not a controller", one)
		}
	}
	return nil
}

// requires reports whether Open fails without x.
func (c Config) requires(x Controller) bool {
	return x == Kill || x != Freeze && !slices.Contains(c.AllowMissing, x)
}
