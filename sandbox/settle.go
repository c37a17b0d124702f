package sandbox

import "time"

// cause is why the watch over a run ended: the first thing that happened, by
// the word of whoever made it happen.
type cause uint8

const (
	causeNone     cause = iota // the watch never began
	causeEnded                 // the first process was seen to end
	causeDeadline              // the wall budget ran out
	causeCanceled              // the caller withdrew
	causeStopped               // a stream cap or the CPU budget asked for the end
	causeLost                  // we could no longer watch
)

// facts are what settle decides from. All of them were collected before the
// cell was removed.
type facts struct {
	startErr  string // why the step did not start; "" if it did
	canceled  string // why the caller withdrew, for causeCanceled and a start that was withdrawn
	cause     cause
	stopped   Resource      // what asked for the end, for causeStopped
	lost      string        // why, for causeLost
	after     time.Duration // from the start to the latched cause
	end       End           // for causeEnded
	truncated Resource      // the stream that lost bytes; ResourceNone if neither did
	streamErr string        // why a stream could not be read to its end; "" if both were
	oomKills  Reading
}

// settle gives the one outcome of a run. It is pure. The order is that of
// design.md, section 3: what stopped the run counts before how it then ended,
// and a lost byte before an exit code.
func settle(f facts) Outcome {
	switch f.cause {
	case causeNone:
		if f.canceled != "" {
			return Canceled(f.canceled)
		}
		return StartFailed(f.startErr)
	case causeDeadline:
		return TimedOut(f.after)
	case causeCanceled:
		return Canceled(f.canceled)
	case causeStopped:
		return LimitExceeded(f.stopped)
	case causeLost:
		return Unknown(f.lost)
	case causeEnded:
		if f.truncated != ResourceNone {
			return LimitExceeded(f.truncated)
		}
		if f.streamErr != "" {
			return Unknown(f.streamErr)
		}
		return settleEnd(f.end, f.oomKills)
	}
	return Unknown("the cause of the end was not recorded")
}

// settleEnd gives the outcome of a first process that ended while nobody
// stopped it. With group OOM the kernel takes the cell's init too and no
// status arrives; the counter, read before teardown, still says why.
func settleEnd(end End, oomKills Reading) Outcome {
	const sigkill = 9
	switch {
	case end.exited:
		return Exited(end.code)
	case oomKills.Positive() && (end.signal == sigkill || end.signal == 0):
		return LimitExceeded(ResourceMemory)
	case end.signal != 0:
		return Signaled(end.signal)
	case end.lostWhy != "":
		return Unknown(end.lostWhy)
	}
	return Unknown("the first process's status was lost")
}
