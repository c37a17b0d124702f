package e2e

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/checkcell/checkcell/internal/host"
)

// stepClock sets the machine's clock ahead, or back where by is negative.
func stepClock(t *testing.T, by time.Duration) {
	t.Helper()
	to := syscall.NsecToTimeval(time.Now().Add(by).UnixNano())
	if err := syscall.Settimeofday(&to); err != nil {
		t.Fatalf("set the clock by %v: %v", by, err)
	}
}

// A clock that jumps while a check runs neither ends the check nor lets it go on:
// deadlines and durations are those of the monotonic clock.
func TestClockJumps(t *testing.T) {
	needCells(t)
	host.Need(t, host.ClockSettable)
	leavesNothing(t)
	const deadline = 8 * time.Second // the emulated machine is slow to begin
	for _, by := range []time.Duration{time.Hour, -time.Hour} {
		t.Run(by.String(), func(t *testing.T) {
			late := command{args: bash("sleep 606", "--timeout", deadline.String())}.start(t)
			early := command{args: bash("sleep 10; exit 3", "--timeout", "10m")}.start(t)
			waitForProcess(t, late, "sleep 606")
			waitForProcess(t, early, "sleep 10")
			stepClock(t, by)
			defer stepClock(t, -by)
			got, ended := decode[result](t, late.wait(t).stdout), decode[result](t, early.wait(t).stdout)
			took := time.Duration(got.Usage["wall_ns"])
			// The machine may be slow to act on a deadline, by far less than the jump.
			if !strings.HasPrefix(string(got.Outcome), `{"kind":"timed_out","after_ns":`) || took < deadline || took > 10*time.Minute {
				t.Errorf("a run over its deadline, with the clock %v off: outcome %s, wall time %v; want timed_out, from %v on", by, got.Outcome, took, deadline)
			}
			if took := time.Duration(ended.Usage["wall_ns"]); string(ended.Outcome) != `{"kind":"exited","exit_code":3}` || took < 10*time.Second || took > 9*time.Minute {
				t.Errorf("a run within its deadline, with the clock %v off: outcome %s, wall time %v; want exited 3, from 10s on", by, ended.Outcome, took)
			}
		})
	}
}
