package grade

import (
	"fmt"

	"github.com/checkcell/checkcell/sandbox"
)

// Execution is what was observed of one run of a check. The zero value is a
// run of which nothing is known; it never verifies.
type Execution struct {
	Outcome        sandbox.Outcome // how it ended
	Stdout, Stderr string
	Deadline       bool // it was stopped at its deadline, whatever Outcome says
	Aborted        bool // the caller withdrew it, whatever Outcome says
	Truncated      bool // a part of its output was lost
	CleanupFailed  bool // its cell could not be proven empty and removed
	CleanupDetail  string
	OOMKills       sandbox.Reading
	PIDsMaxHits    sandbox.Reading
}

// Observed is the execution that r is the result of.
func Observed(r sandbox.Result) Execution {
	return Execution{
		Outcome:       r.Outcome,
		Stdout:        r.Stdout.Text(),
		Stderr:        r.Stderr.Text(),
		Truncated:     r.Stdout.Truncated() || r.Stderr.Truncated(),
		CleanupFailed: r.CleanupFailed(),
		CleanupDetail: r.Cleanup.Detail,
		OOMKills:      r.Evidence.Usage.OOMKills,
		PIDsMaxHits:   r.Evidence.Usage.PIDsMaxHits,
	}
}

// RecordedExit is the outcome that an exit code in a record stands for. A code
// that no process can have is an unknown outcome, never its lowest eight bits.
func RecordedExit(code int) sandbox.Outcome {
	if code < 0 || code > 255 {
		return sandbox.Unknown(fmt.Sprintf("the recorded exit code %d is outside 0..255", code))
	}
	return sandbox.Exited(uint8(code))
}

// output is the text that an expectation is looked for in.
func (e Execution) output() string { return Trim(decode(e.Stdout + "\n" + e.Stderr)) }

// deadlineStatus is what timeout(1) exits with when it had to kill.
const deadlineStatus = 124

// stop gives the grade of an execution that did not reach its own end, or whose
// end can't be trusted: rules R3 to R5d. The order of the cases is the rules'.
// subject is what ran, for the note, and wall its wall limit.
func (e Execution) stop(subject, wall string) (g Grade, stopped bool) {
	code, exited := e.Outcome.ExitCode()
	after, timedOut := e.Outcome.After()
	resource, limited := e.Outcome.Resource()
	signal, signaled := e.Outcome.Signal()
	kind := e.Outcome.Kind()
	switch {
	case timedOut:
		return unrunnable(Deadline, "the %s reached %s and was killed after %v", subject, wall, after)
	case e.Deadline:
		return unrunnable(Deadline, "the %s reached %s and was stopped", subject, wall)
	case exited && code == deadlineStatus:
		return unrunnable(Deadline, "the %s ended with status %d, which stands for a time limit that a program inside it, or who ran it, had set", subject, code)
	case e.Aborted, kind == sandbox.KindCanceled:
		return unrunnable(Aborted, "the caller withdrew the %s%s", subject, because(e.Outcome.Detail()))
	case limited && resource.Stream():
		return unrunnable(TruncatedOutput, "the %s printed more on %s than is kept (the limit %v-cap), so what it printed is not known in full", subject, resource, resource)
	case e.Truncated:
		return unrunnable(TruncatedOutput, "a part of what the %s printed was lost (the limit stdout-cap or stderr-cap), so it is not known in full", subject)
	case limited:
		return unrunnable(Limit, "the %s used up its limit %s and was killed", subject, limitName(resource))
	case kind == sandbox.KindStartFailed:
		return unrunnable(NotStarted, "the %s was not started%s", subject, because(e.Outcome.Detail()))
	case e.CleanupFailed:
		return unrunnable(CleanupFailed, "the %s ended, but its cell could not be proven empty and removed%s", subject, because(e.CleanupDetail))
	case signaled:
		return unrunnable(Signaled, "the %s died of %s", subject, signalName(signal))
	}
	return Grade{}, false
}

// unknown is the grade of a run that nothing stopped and no status came from.
func (e Execution) unknown(subject string) Grade {
	g, _ := unrunnable(UnknownStatus, "how the %s ended could not be learned%s", subject, because(e.Outcome.Detail()))
	return g
}

// hit names the limit that the run's own counters show was met.
func (e Execution) hit() (note string, ok bool) {
	if n, known := e.OOMKills.Value(); known && n > 0 {
		return fmt.Sprintf("the check failed after the kernel had killed %d of its processes at the limit memory", n), true
	}
	if n, known := e.PIDsMaxHits.Value(); known && n > 0 {
		return fmt.Sprintf("the check failed after %d of its forks had been refused at the limit pids", n), true
	}
	return "", false
}

func unrunnable(kind NoteKind, format string, args ...any) (Grade, bool) {
	return Grade{Unrunnable, kind, fmt.Sprintf(format, args...)}, true
}

func because(detail string) string {
	if detail = cut(decode(detail)); detail == "" {
		return ""
	}
	return ": " + detail
}

// limitName is the limit that bounds r, as the command line spells it.
func limitName(r sandbox.Resource) string {
	if r == sandbox.ResourceCPU {
		return "cpu-time"
	}
	return r.String()
}

var signalNames = [...]string{1: "SIGHUP", "SIGINT", "SIGQUIT", "SIGILL", "SIGTRAP", "SIGABRT", "SIGBUS",
	"SIGFPE", "SIGKILL", "SIGUSR1", "SIGSEGV", "SIGUSR2", "SIGPIPE", "SIGALRM", "SIGTERM", "SIGSTKFLT",
	"SIGCHLD", "SIGCONT", "SIGSTOP", "SIGTSTP", "SIGTTIN", "SIGTTOU", "SIGURG", "SIGXCPU", "SIGXFSZ",
	"SIGVTALRM", "SIGPROF", "SIGWINCH", "SIGIO", "SIGPWR", "SIGSYS"}

// signalName names a signal as signal(7) does on every architecture but Alpha,
// SPARC, MIPS and PARISC. The C library keeps 32 and 33 for itself.
func signalName(n int) string {
	const rtmin, rtmax = 34, 64
	switch {
	case n > 0 && n < len(signalNames):
		return fmt.Sprintf("%s (signal %d)", signalNames[n], n)
	case n >= rtmin && n <= rtmax:
		return fmt.Sprintf("SIGRTMIN+%d (signal %d)", n-rtmin, n)
	}
	return fmt.Sprintf("signal %d", n)
}
