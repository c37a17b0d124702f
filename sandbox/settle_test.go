package sandbox

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
)

func TestSettle(t *testing.T) {
	oom := Read(1)
	tests := []struct {
		name string
		in   facts
		want Outcome
	}{
		{"zero facts", facts{}, StartFailed("")},
		{"not started", facts{startErr: "no bash"}, StartFailed("no bash")},
		{"withdrawn before the start", facts{startErr: "x", canceled: "bye"}, Canceled("bye")},
		{"end", facts{cause: causeEnded, end: EndExited(3)}, Exited(3)},
		{"end, oom of a child", facts{cause: causeEnded, end: EndExited(137), oomKills: oom}, Exited(137)},
		{"end, truncated", facts{cause: causeEnded, end: EndExited(0), truncated: ResourceStdout}, LimitExceeded(ResourceStdout)},
		{"end, stream error", facts{cause: causeEnded, end: EndExited(0), streamErr: "EIO"}, Unknown("EIO")},
		{"end, truncated and stream error", facts{cause: causeEnded, end: EndExited(0), truncated: ResourceStderr, streamErr: "EIO"}, LimitExceeded(ResourceStderr)},
		{"signal", facts{cause: causeEnded, end: EndSignaled(15)}, Signaled(15)},
		{"SIGKILL without oom", facts{cause: causeEnded, end: EndSignaled(9), oomKills: Read(0)}, Signaled(9)},
		{"SIGKILL, counter unknown", facts{cause: causeEnded, end: EndSignaled(9)}, Signaled(9)},
		{"SIGKILL with oom", facts{cause: causeEnded, end: EndSignaled(9), oomKills: oom}, LimitExceeded(ResourceMemory)},
		{"SIGTERM with oom", facts{cause: causeEnded, end: EndSignaled(15), oomKills: oom}, Signaled(15)},
		{"lost with oom", facts{cause: causeEnded, end: EndLost("x"), oomKills: oom}, LimitExceeded(ResourceMemory)},
		{"lost", facts{cause: causeEnded, end: EndLost("x")}, Unknown("x")},
		{"zero end", facts{cause: causeEnded}, Unknown("the first process's status was lost")},
		{"deadline, exit 0 after the kill", facts{cause: causeDeadline, after: time.Second, end: EndExited(0)}, TimedOut(time.Second)},
		{"deadline, truncated on the way", facts{cause: causeDeadline, after: time.Second, truncated: ResourceStdout}, TimedOut(time.Second)},
		{"deadline, oom on the way", facts{cause: causeDeadline, after: time.Second, oomKills: oom}, TimedOut(time.Second)},
		{"canceled", facts{cause: causeCanceled, canceled: "bye", end: EndExited(0)}, Canceled("bye")},
		{"stopped", facts{cause: causeStopped, stopped: ResourceCPU, end: EndExited(0)}, LimitExceeded(ResourceCPU)},
		{"stopped by nothing", facts{cause: causeStopped}, Unknown("a limit was exceeded that is not named")},
		{"watch lost", facts{cause: causeLost, lost: "x", end: EndExited(0)}, Unknown("x")},
		{"cause outside the set", facts{cause: 99, end: EndExited(0)}, Unknown("the cause of the end was not recorded")},
	}
	for _, tt := range tests {
		if got := settle(tt.in); got != tt.want {
			t.Errorf("%s: settle(%+v) = %v, want %v", tt.name, tt.in, got, tt.want)
		}
	}
}

// Ties, with everything ready at once: which of the ready cases of a select
// is taken is random, so each is tried many times.
func TestWatchTies(t *testing.T) {
	canceled, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("bye"))
	tests := []struct {
		name     string
		ctx      context.Context
		end, cap bool
		deadline time.Duration
		want     cause
	}{
		{"end and deadline", t.Context(), true, false, 0, causeEnded},
		{"end and cancel", canceled, true, false, time.Hour, causeEnded},
		{"end and cap", t.Context(), true, true, time.Hour, causeStopped},
		{"end, cap, cancel and deadline", canceled, true, true, 0, causeStopped},
		{"end alone", t.Context(), true, false, time.Hour, causeEnded},
		{"cap alone", t.Context(), false, true, time.Hour, causeStopped},
	}
	for _, tt := range tests {
		for range 200 {
			ended := make(chan End, 1)
			w := &watched{ended: ended, stop: make(chan Resource, 2), deadline: time.NewTimer(tt.deadline), cpuBudget: Unlimited[time.Duration]()}
			if tt.end {
				ended <- EndExited(0)
			}
			if tt.cap {
				w.stop <- ResourceStderr
			}
			if tt.deadline == 0 {
				<-time.After(time.Microsecond)
			}
			var f facts
			w.watch(tt.ctx, &f)
			if tt.name == "end, cap, cancel and deadline" && (f.cause == causeDeadline || f.cause == causeCanceled) {
				t.Fatalf("%s: cause %d beat a seen end and a cap", tt.name, f.cause)
			}
			if f.cause != tt.want {
				t.Fatalf("%s: cause = %d, want %d", tt.name, f.cause, tt.want)
			}
		}
	}
}

func TestCaptureAtTheCap(t *testing.T) {
	tests := []struct {
		in        string
		limit     Bytes
		kept      string
		truncated bool
	}{
		{"", 4, "", false},
		{"abc", 4, "abc", false},
		{"abcd", 4, "abcd", false},
		{"abcde", 4, "abcd", true},
		{strings.Repeat("x", 100_000), 4, "xxxx", true},
	}
	for _, tt := range tests {
		for _, r := range []io.Reader{strings.NewReader(tt.in), &oneByte{strings.NewReader(tt.in)}} {
			stop := make(chan Resource, 1)
			s := read(r, tt.limit, ResourceStdout, stop, nil)
			<-s.done
			c := s.capture
			if string(c.Kept) != tt.kept || c.Truncated() != tt.truncated || c.Total != int64(len(tt.in)) {
				t.Errorf("read(%d bytes, cap %d) kept %q, truncated %v, total %d; want %q, %v", len(tt.in), tt.limit, c.Kept, c.Truncated(), c.Total, tt.kept, tt.truncated)
			}
			if got := len(stop) == 1; got != tt.truncated {
				t.Errorf("read(%d bytes, cap %d) asked for the end: %v, want %v", len(tt.in), tt.limit, got, tt.truncated)
			}
		}
	}
}

type oneByte struct{ r io.Reader }

func (o *oneByte) Read(p []byte) (int, error) { return o.r.Read(p[:min(len(p), 1)]) }
