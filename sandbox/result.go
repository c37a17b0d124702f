package sandbox

import (
	"time"
)

// Reading is a number that was read from the system, or the fact that it
// could not be. Its zero value is "not known"; it is never filled with 0.
type Reading struct {
	n     int64
	known bool
}

// Read is the reading n.
func Read(n int64) Reading { return Reading{n: n, known: true} }

// Value returns the number; ok is false where it is not known.
func (r Reading) Value() (n int64, ok bool) { return r.n, r.known }

// Positive reports whether the number is known and above zero.
func (r Reading) Positive() bool { return r.known && r.n > 0 }

// Capture is what was kept of one stream: its first bytes up to a cap.
type Capture struct {
	Kept   []byte   // the first bytes, at most the cap
	Total  int64    // how many bytes came, kept or not
	SHA256 [32]byte // of all that came
}

// Truncated reports whether bytes came that were not kept.
func (c Capture) Truncated() bool { return c.Total > int64(len(c.Kept)) }

// Usage is what the run used. Wall is from the step's start to its seen end
// or to the stop; the readings are of the whole cell so far.
type Usage struct {
	Wall        time.Duration
	CPU         Reading // nanoseconds
	PeakMemory  Reading // bytes
	PeakPIDs    Reading // processes and threads at one time
	OOMKills    Reading // processes that the kernel killed for the memory limit
	PIDsMaxHits Reading // forks refused for the process limit
}

// Receipt lists the controls that were really in force.
type Receipt struct {
	Cgroup   string             // "v2", "hybrid", "v1" or "none"
	Controls map[Control]string // how each is enforced, for people
	Missing  []Control          // asked for, allowed to be missing, and not in force
}

// Evidence is what a backend collects before teardown. Missing names, in the
// words of the result's JSON, what should have been read and could not be,
// with the reason.
type Evidence struct {
	Usage       Usage // Wall is the engine's to fill
	Receipt     Receipt
	SpecDigest  string // "sha256:…" of the cell's description
	ImageDigest string // "sha256:…", or "" for a root without one
	Missing     []string
}

// CleanupState is what teardown came to.
type CleanupState uint8

// The states of cleanup. The zero value is not success.
const (
	CleanupUnknown CleanupState = iota
	CleanupDone                 // proven empty and removed
	CleanupFailed
)

var cleanupWords = [...]string{"unknown", "done", "failed"}

// String returns the word that stands for s in JSON.
func (s CleanupState) String() string { return word(cleanupWords[:], uint8(s), "CleanupState") }

// Cleanup is what teardown did. It never changes an outcome.
type Cleanup struct {
	State  CleanupState
	Detail string // why it failed
}

// Result is one run of one step in full. Its JSON is checkcell.result/v1.
type Result struct {
	ID        string
	Step      Step // what ran; StepCheck where there was no cell. It is not part of the JSON.
	Backend   string
	Outcome   Outcome
	Stdout    Capture
	Stderr    Capture
	Leftovers Reading // processes of the cell still alive when the first one ended
	Killed    bool    // the first process was still running when we killed the cell
	Cleanup   Cleanup
	Evidence  Evidence
	Started   time.Time // when the first process started, or set-up began if it never did
	Ended     time.Time // when the outcome was settled
}

// Success is true only for exit 0 with cleanup done.
func (r Result) Success() bool {
	code, ok := r.Outcome.ExitCode()
	return ok && code == 0 && r.Cleanup.State == CleanupDone
}

// CleanupFailed is true where the first process ended by itself but the cell
// could not be proven empty and removed.
func (r Result) CleanupFailed() bool {
	return r.Outcome.Kind() == KindExited && r.Cleanup.State != CleanupDone
}

// Terminal is the one word for a transcript: the outcome's kind, but
// "cleanup_failed" where CleanupFailed.
func (r Result) Terminal() string {
	if r.CleanupFailed() {
		return "cleanup_failed"
	}
	return r.Outcome.Kind().String()
}

// Record is all that one call of Runner.Run found. Parse is nil where no
// syntax pass was asked for; Check is nil where the syntax pass did not pass.
// One of the two is always there.
type Record struct {
	Parse *Result
	Check *Result
}

// Last returns the result of the step that the run came to.
func (r Record) Last() Result {
	if r.Check != nil {
		return *r.Check
	}
	if r.Parse != nil {
		return *r.Parse
	}
	return Result{}
}
