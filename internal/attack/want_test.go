package attack

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/checkcell/checkcell/sandbox"
)

// ended is a run of 1.5s that printed a line and left three processes.
func ended(o sandbox.Outcome) sandbox.Result {
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	return sandbox.Result{
		Outcome: o, Cleanup: sandbox.Cleanup{State: sandbox.CleanupDone}, Leftovers: sandbox.Read(3),
		Stdout:  sandbox.Capture{Kept: []byte("a\n"), Total: 2},
		Stderr:  sandbox.Capture{Kept: []byte("\xff"), Total: 2},
		Started: began, Ended: began.Add(1500 * time.Millisecond),
		Evidence: sandbox.Evidence{Usage: sandbox.Usage{OOMKills: sandbox.Read(1)}},
	}
}

// Each field that is wanted is looked at, and named where it is not met.
func TestMatch(t *testing.T) {
	exited, killed := ended(sandbox.Exited(0)), ended(sandbox.Signaled(9))
	full := ended(sandbox.LimitExceeded(sandbox.ResourceMemory))
	tests := []struct {
		have  sandbox.Result
		want  string
		fault string // a part of what is wrong, or ""
	}{
		{exited, `{"kind":"exited"}`, ""},
		{exited, `{"kind":"timed_out"}`, "it ended as exited 0, want timed_out"},
		{exited, `{}`, "it ended as exited 0, want "},
		{exited, `{"kind":"exited","exit_code":0}`, ""},
		{exited, `{"kind":"exited","exit_code":1}`, "want exit code 1"},
		{killed, `{"kind":"signaled","exit_code":0}`, "want exit code 0"},
		{killed, `{"kind":"signaled","signal":9}`, ""},
		{killed, `{"kind":"signaled","signal":15}`, "want signal 15"},
		{exited, `{"kind":"exited","signal":0}`, "want signal 0"},
		{full, `{"kind":"limit_exceeded","resource":"memory"}`, ""},
		{full, `{"kind":"limit_exceeded","resource":"cpu"}`, "want limit cpu"},
		{exited, `{"kind":"exited","resource":"none"}`, "want limit none"},
		{exited, `{"kind":"exited","stdout":"a\n"}`, ""},
		{exited, `{"kind":"exited","stdout":""}`, `stdout is "a\n", want ""`},
		{exited, `{"kind":"exited","stderr":"\ufffd"}`, `stderr is "\xff", want`},
		{exited, `{"kind":"exited","stdout_base64":"YQo="}`, ""},
		{exited, `{"kind":"exited","stdout_base64":"YQ=="}`, "stdout in base64 is YQo="},
		{exited, `{"kind":"exited","stdout_contains":["a","\n"]}`, ""},
		{exited, `{"kind":"exited","stdout_contains":["a","b"]}`, `want "b" in it`},
		{exited, `{"kind":"exited","stdout_not_contains":"b"}`, ""},
		{exited, `{"kind":"exited","stdout_not_contains":["b","a"]}`, `want no "a" in it`},
		{exited, `{"kind":"exited","stderr_contains":"b"}`, `stderr is "\xff", want "b" in it`},
		{exited, `{"kind":"exited","stderr_not_contains":""}`, `stderr is "\xff", want no ""`},
		{exited, `{"kind":"exited","stdout_bytes":2,"stderr_bytes":1}`, ""},
		{exited, `{"kind":"exited","stdout_bytes":3}`, "stdout has 2 bytes, want 3"},
		{exited, `{"kind":"exited","stderr_bytes":2}`, "stderr has 1 bytes, want 2"},
		{exited, `{"kind":"exited","truncated":{"stdout":false,"stderr":true}}`, ""},
		{exited, `{"kind":"exited","truncated":{"stdout":true}}`, "stdout truncated is false, want true"},
		{exited, `{"kind":"exited","truncated":{"stderr":false}}`, "stderr truncated is true, want false"},
		{exited, `{"kind":"exited","leftovers_at_least":3,"leftovers_at_most":3}`, ""},
		{exited, `{"kind":"exited","leftovers_at_least":4}`, "leftovers is 3, want at least 4"},
		{exited, `{"kind":"exited","leftovers_at_most":2}`, "leftovers is 3, want at most 2"},
		{exited, `{"kind":"exited","usage_at_least":{"oom_kills":1},"usage_at_most":{"oom_kills":1}}`, ""},
		{exited, `{"kind":"exited","usage_at_least":{"oom_kills":2}}`, "oom_kills is 1, want at least 2"},
		{exited, `{"kind":"exited","usage_at_most":{"oom_kills":0}}`, "oom_kills is 1, want at most 0"},
		{exited, `{"kind":"exited","usage_at_most":{"pids_max_hits":9}}`, "pids_max_hits is not known, want at most 9"},
		{exited, `{"kind":"exited","usage_at_least":{"pids_max_hits":0}}`, "pids_max_hits is not known, want at least 0"},
		{exited, `{"kind":"exited","usage_at_least":{"surprise":0}}`, "surprise is not known"},
		{exited, `{"kind":"exited","min_wall_ms":1500,"max_wall_ms":750}`, ""},
		{exited, `{"kind":"exited","min_wall_ms":1501}`, "it took 1.5s, want at least 1501ms"},
		{exited, `{"kind":"exited","max_wall_ms":749}`, "it took 1.5s, want at most 1498ms"},
	}
	for _, tt := range tests {
		var want Want
		if err := json.Unmarshal([]byte(tt.want), &want); err != nil {
			t.Fatal(err)
		}
		err := want.match(tt.have)
		if (err != nil) != (tt.fault != "") || err != nil && !strings.Contains(err.Error(), tt.fault) {
			t.Errorf("match(%s) of %v = %v, want %q", tt.want, tt.have.Outcome, err, tt.fault)
		}
	}
	lost := exited
	lost.Leftovers = sandbox.Reading{}
	zero := int64(0)
	for _, want := range []Want{{Kind: "exited", LeftoversAtLeast: &zero}, {Kind: "exited", LeftoversAtMost: &zero}} {
		if err := want.match(lost); err == nil {
			t.Errorf("match(%+v) of leftovers that are not known = nil, want an error", want)
		}
	}
}
