package e2e

import (
	"encoding/json"
	"strings"
	"testing"
)

// matched is a result that the rows of TestMatch change.
const matched = `{"outcome":{"kind":"exited","exit_code":0},"terminal":"exited","success":true,
	"stdout":{"text":"a\n","kept":2,"truncated":false},"stderr":{"text":"\ufffd","base64":"/w==","kept":1,"truncated":true},
	"usage":{"oom_kills":1,"pids_max_hits":2,"cpu_ns":null},"leftovers":3,"cleanup":{"state":"done","detail":""},
	"started":"2026-01-02T03:04:05Z","ended":"2026-01-02T03:04:06.5Z"}`

// Each field that is wanted is looked at, and named where it is not met.
func TestMatch(t *testing.T) {
	tests := []struct {
		want  string
		fault string // a part of what is wrong, or ""
	}{
		{`{"kind":"exited"}`, ""},
		{`{"kind":"timed_out"}`, "kind is exited, want timed_out"},
		{`{"kind":"none"}`, "want a death by signal"},
		{`{"kind":"exited","exit_code":0}`, ""},
		{`{"kind":"exited","exit_code":1}`, "exit_code is 0, want 1"},
		{`{"kind":"exited","signal":9}`, "signal is null, want 9"},
		{`{"kind":"exited","resource":"memory"}`, `resource is "", want "memory"`},
		{`{"kind":"exited","stdout":"a\n"}`, ""},
		{`{"kind":"exited","stdout":""}`, `stdout is "a\n", want ""`},
		{`{"kind":"exited","stderr":"\ufffd"}`, `stderr is "\xff", want`},
		{`{"kind":"exited","stdout_base64":"YQo="}`, ""},
		{`{"kind":"exited","stdout_base64":"YQ=="}`, "stdout in base64 is YQo="},
		{`{"kind":"exited","stdout_contains":["a","\n"]}`, ""},
		{`{"kind":"exited","stdout_contains":["a","b"]}`, `want "b" in it`},
		{`{"kind":"exited","stdout_not_contains":"b"}`, ""},
		{`{"kind":"exited","stdout_not_contains":["b","a"]}`, `want no "a" in it`},
		{`{"kind":"exited","stderr_contains":"b"}`, `stderr is "\xff", want "b" in it`},
		{`{"kind":"exited","stderr_not_contains":""}`, `stderr is "\xff", want no ""`},
		{`{"kind":"exited","stdout_bytes":2,"stderr_bytes":1}`, ""},
		{`{"kind":"exited","stdout_bytes":3}`, "stdout has 2 bytes and kept says 2, want 3"},
		{`{"kind":"exited","stderr_bytes":3}`, "stderr has 1 bytes and kept says 1, want 3"},
		{`{"kind":"exited","truncated":{"stdout":false,"stderr":true}}`, ""},
		{`{"kind":"exited","truncated":{"stdout":true}}`, "stdout truncated is false, want true"},
		{`{"kind":"exited","truncated":{"stderr":false}}`, "stderr truncated is true, want false"},
		{`{"kind":"exited","leftovers_at_least":3,"leftovers_at_most":3}`, ""},
		{`{"kind":"exited","leftovers_at_least":4}`, "leftovers is 3, want at least 4"},
		{`{"kind":"exited","leftovers_at_most":2}`, "leftovers is 3, want at most 2"},
		{`{"kind":"exited","usage_at_least":{"oom_kills":1,"pids_max_hits":2},"usage_at_most":{"oom_kills":1}}`, ""},
		{`{"kind":"exited","usage_at_least":{"oom_kills":2}}`, "usage.oom_kills is 1, want at least 2"},
		{`{"kind":"exited","usage_at_most":{"pids_max_hits":1}}`, "usage.pids_max_hits is 2, want at most 1"},
		{`{"kind":"exited","usage_at_most":{"cpu_ns":9}}`, "usage.cpu_ns is null, want at most 9"},
		{`{"kind":"exited","usage_at_least":{"cpu_ns":0}}`, "usage.cpu_ns is null, want at least 0"},
		{`{"kind":"exited","usage_at_least":{"none":0}}`, "usage.none is null"},
		{`{"kind":"exited","min_wall_ms":1500,"max_wall_ms":750}`, ""},
		{`{"kind":"exited","min_wall_ms":1501}`, "it took 1.5s, want at least 1.501s"},
		{`{"kind":"exited","max_wall_ms":749}`, "it took 1.5s, want at most 1.498s"},
	}
	for _, tt := range tests {
		err := decode[hostileWant](t, tt.want).match(ended{stdout: matched}, 2)
		if (err != nil) != (tt.fault != "") || err != nil && !strings.Contains(err.Error(), tt.fault) {
			t.Errorf("match(%s) = %v, want %q", tt.want, err, tt.fault)
		}
	}
}

// Whatever is wanted, a result that is at odds with itself, or with the
// program's exit code, does not match.
func TestMatchNeedsConsistency(t *testing.T) {
	tests := []struct {
		name      string
		kind      string
		from, to  string // changed in the result
		code      int
		faultPart string // or ""
	}{
		{"as it is", "exited", "", "", 0, ""},
		{"exit code 1", "exited", "", "", 1, "run = 1 for outcome"},
		{"killed", "exited", "", "", -1, "run = -1 for outcome"},
		{"cleanup failed", "exited", `"done"`, `"failed"`, 0, `cleanup is "failed"`},
		{"terminal", "exited", `"terminal":"exited"`, `"terminal":"unknown"`, 0, `terminal "unknown"`},
		{"no success", "exited", "true,", "false,", 0, "success is false"},
		{"success with exit 1", "exited", `"exit_code":0`, `"exit_code":1`, 1, "success is true"},
		{"no exit code", "exited", `,"exit_code":0`, "", 125, "exit_code null"},
		{"no leftovers", "exited", `"leftovers":3`, `"leftovers":null`, 0, "leftovers is null"},
		{"bad base64", "exited", "/w==", "%", 0, "stderr: illegal base64"},
		{"no JSON", "exited", "{", "", 0, "want a result"},
		{"no outcome", "exited", `{"kind":"exited","exit_code":0}`, `7`, 0, "outcome 7"},
		{"timed out with success", "timed_out", `{"kind":"exited","exit_code":0},"terminal":"exited"`, `{"kind":"timed_out"},"terminal":"timed_out"`, 124, "success is true"},
	}
	for _, tt := range tests {
		least := int64(0)
		want := hostileWant{Kind: tt.kind, LeftoversAtLeast: &least}
		err := want.match(ended{code: tt.code, stdout: strings.Replace(matched, tt.from, tt.to, 1)}, 1)
		if (err != nil) != (tt.faultPart != "") || err != nil && !strings.Contains(err.Error(), tt.faultPart) {
			t.Errorf("%s: match = %v, want %q", tt.name, err, tt.faultPart)
		}
	}
	none := hostileWant{Kind: kindNone}
	if err := none.match(ended{code: -1}, 1); err != nil {
		t.Errorf("match(none) of a killed run without a result = %v", err)
	}
	if none.match(ended{code: -1, stdout: "{"}, 1) == nil || none.match(ended{}, 1) == nil {
		t.Error("match(none) of a run with a result, or that was not killed, = nil")
	}
}

func TestMatchAny(t *testing.T) {
	got := ended{stdout: matched}
	exited, timedOut := hostileWant{Kind: "exited"}, hostileWant{Kind: "timed_out"}
	if err := matchAny([]hostileWant{timedOut, exited}, got, 1); err != nil {
		t.Errorf("matchAny(timed_out, exited) = %v, want nil", err)
	}
	err := matchAny([]hostileWant{timedOut, {Kind: "canceled"}}, got, 1)
	if err == nil || !strings.Contains(err.Error(), "timed_out") || !strings.Contains(err.Error(), "canceled") {
		t.Errorf("matchAny(timed_out, canceled) = %v, want both", err)
	}
}

func TestExitCodeOf(t *testing.T) {
	tests := []struct {
		outcome string
		want    int
	}{
		{`{"kind":"exited","exit_code":7}`, 7}, {`{"kind":"signaled","signal":9}`, 137}, {`{"kind":"timed_out"}`, 124},
		{`{"kind":"limit_exceeded","resource":"cpu"}`, 137}, {`{"kind":"canceled"}`, 130}, {`{"kind":"start_failed"}`, 125},
		{`{"kind":"unknown"}`, 125}, {`{"kind":"signaled"}`, 125},
	}
	for _, tt := range tests {
		var o outcome
		if err := json.Unmarshal([]byte(tt.outcome), &o); err != nil {
			t.Fatal(err)
		}
		if got := exitCodeOf(o); got != tt.want {
			t.Errorf("exitCodeOf(%s) = %d, want %d", tt.outcome, got, tt.want)
		}
	}
}
