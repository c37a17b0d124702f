package sandbox

import (
	"fmt"
	"time"
)

// Kind is how a run ended. The set is closed: see design.md, section 3.
type Kind uint8

// The kinds of outcome. The zero value is KindUnknown, which is never success.
const (
	KindUnknown       Kind = iota // we could not learn how it ended
	KindExited                    // the first process ended by itself
	KindSignaled                  // it died of a signal that we did not send
	KindTimedOut                  // we killed it at the wall deadline
	KindCanceled                  // we killed it, or did not start it, because the caller withdrew
	KindLimitExceeded             // we, or the kernel for its limit, killed it
	KindStartFailed               // nothing of the check ran
)

var kindWords = [...]string{"unknown", "exited", "signaled", "timed_out", "canceled", "limit_exceeded", "start_failed"}

// String returns the word that stands for k in JSON.
func (k Kind) String() string { return word(kindWords[:], uint8(k), "Kind") }

// Resource is what a run used up when its outcome is limit_exceeded.
type Resource uint8

// The resources of a limit_exceeded outcome. The zero value names none.
const (
	ResourceNone Resource = iota
	ResourceCPU
	ResourceMemory
	ResourceStdout
	ResourceStderr
	ResourceDisk
)

var resourceWords = [...]string{"none", "cpu", "memory", "stdout", "stderr", "disk"}

// String returns the word that stands for r in JSON.
func (r Resource) String() string { return word(resourceWords[:], uint8(r), "Resource") }

// Stream reports whether r is a captured stream, whose loss is a truncation.
func (r Resource) Stream() bool { return r == ResourceStdout || r == ResourceStderr }

func word(words []string, i uint8, set string) string {
	if int(i) < len(words) {
		return words[i]
	}
	return fmt.Sprintf("%s(%d)", set, i)
}

// Outcome is how a run ended: one kind, and only what goes with that kind.
// Its zero value is unknown. Outcomes are made by the functions below, so no
// field can stand beside a kind that does not carry it, and they compare with ==.
type Outcome struct {
	kind     Kind
	code     uint8
	signal   uint8
	resource Resource
	after    time.Duration
	detail   string
}

// Unknown is the outcome of a run whose end could not be learned.
func Unknown(detail string) Outcome { return Outcome{kind: KindUnknown, detail: detail} }

// Exited is the outcome of a first process that ended by itself with code.
func Exited(code uint8) Outcome { return Outcome{kind: KindExited, code: code} }

// Signaled is the outcome of a first process that died of a signal that was
// not ours. Signal 0 is no signal; it gives an unknown outcome.
func Signaled(signal uint8) Outcome {
	if signal == 0 {
		return Unknown("death by a signal that is not named")
	}
	return Outcome{kind: KindSignaled, signal: signal}
}

// TimedOut is the outcome of a run that we killed at its wall deadline, after
// the given time since its start.
func TimedOut(after time.Duration) Outcome { return Outcome{kind: KindTimedOut, after: after} }

// Canceled is the outcome of a run that its caller withdrew.
func Canceled(detail string) Outcome { return Outcome{kind: KindCanceled, detail: detail} }

// LimitExceeded is the outcome of a run that was killed for using up r.
// ResourceNone is no resource; it gives an unknown outcome.
func LimitExceeded(r Resource) Outcome {
	if r == ResourceNone || int(r) >= len(resourceWords) {
		return Unknown("a limit was exceeded that is not named")
	}
	return Outcome{kind: KindLimitExceeded, resource: r}
}

// StartFailed is the outcome of a run of which nothing ran.
func StartFailed(detail string) Outcome { return Outcome{kind: KindStartFailed, detail: detail} }

// Kind returns how the run ended.
func (o Outcome) Kind() Kind { return o.kind }

// ExitCode returns the exit code; ok is false for every kind but exited.
func (o Outcome) ExitCode() (code int, ok bool) { return int(o.code), o.kind == KindExited }

// Signal returns the signal's number; ok is false for every kind but signaled.
func (o Outcome) Signal() (signal int, ok bool) { return int(o.signal), o.kind == KindSignaled }

// After returns how long the run had lasted when its deadline was acted on;
// ok is false for every kind but timed_out.
func (o Outcome) After() (after time.Duration, ok bool) { return o.after, o.kind == KindTimedOut }

// Resource returns what was used up; ok is false for every kind but limit_exceeded.
func (o Outcome) Resource() (r Resource, ok bool) { return o.resource, o.kind == KindLimitExceeded }

// Detail returns the words that go with unknown, canceled and start_failed,
// and "" for every other kind.
func (o Outcome) Detail() string { return o.detail }

// String describes the outcome in a few words for people.
func (o Outcome) String() string {
	switch o.kind {
	case KindExited:
		return fmt.Sprintf("exited %d", o.code)
	case KindSignaled:
		return fmt.Sprintf("signaled %d", o.signal)
	case KindTimedOut:
		return fmt.Sprintf("timed_out after %v", o.after)
	case KindLimitExceeded:
		return "limit_exceeded " + o.resource.String()
	case KindUnknown, KindCanceled, KindStartFailed:
		if o.detail == "" {
			return o.kind.String()
		}
		return o.kind.String() + ": " + o.detail
	}
	return o.kind.String()
}
