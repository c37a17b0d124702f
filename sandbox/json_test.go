package sandbox_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/checkcell/checkcell/sandbox"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestOutcomeJSON(t *testing.T) {
	tests := []struct {
		outcome sandbox.Outcome
		want    string
	}{
		{sandbox.Outcome{}, `{"kind":"unknown","detail":""}`},
		{sandbox.Unknown("why"), `{"kind":"unknown","detail":"why"}`},
		{sandbox.Exited(0), `{"kind":"exited","exit_code":0}`},
		{sandbox.Exited(255), `{"kind":"exited","exit_code":255}`},
		{sandbox.Signaled(9), `{"kind":"signaled","signal":9}`},
		{sandbox.TimedOut(300 * time.Millisecond), `{"kind":"timed_out","after_ns":300000000}`},
		{sandbox.Canceled("bye"), `{"kind":"canceled","detail":"bye"}`},
		{sandbox.LimitExceeded(sandbox.ResourceStdout), `{"kind":"limit_exceeded","resource":"stdout"}`},
		{sandbox.StartFailed("no bash"), `{"kind":"start_failed","detail":"no bash"}`},
		{sandbox.Signaled(0), `{"kind":"unknown","detail":"death by a signal that is not named"}`},
		{sandbox.LimitExceeded(sandbox.ResourceNone), `{"kind":"unknown","detail":"a limit was exceeded that is not named"}`},
	}
	for _, tt := range tests {
		got, err := json.Marshal(tt.outcome)
		if err != nil || string(got) != tt.want {
			t.Errorf("Marshal(%v) = %s, %v, want %s", tt.outcome, got, err, tt.want)
		}
		var back sandbox.Outcome
		if err := json.Unmarshal(got, &back); err != nil || back != tt.outcome {
			t.Errorf("Unmarshal(%s) = %v, %v, want %v", got, back, err, tt.outcome)
		}
	}
}

func TestOutcomeJSONRefuses(t *testing.T) {
	for _, in := range []string{
		`{}`, `{"kind":""}`, `{"kind":"success"}`, `{"kind":"Exited","exit_code":0}`, `null_`, `[]`, `"exited"`,
		`{"kind":"exited"}`, `{"kind":"exited","exit_code":256}`, `{"kind":"exited","exit_code":-1}`, `{"kind":"exited","exit_code":"0"}`,
		`{"kind":"exited","exit_code":0,"signal":9}`, `{"kind":"exited","exit_code":0,"detail":""}`, `{"kind":"exited","exit_code":0,"x":1}`,
		`{"kind":"signaled"}`, `{"kind":"signaled","signal":0}`, `{"kind":"signaled","signal":65}`, `{"kind":"signaled","signal":9,"exit_code":0}`,
		`{"kind":"timed_out"}`, `{"kind":"timed_out","after_ns":-1}`, `{"kind":"timed_out","after_ns":1,"exit_code":0}`,
		`{"kind":"limit_exceeded"}`, `{"kind":"limit_exceeded","resource":"none"}`, `{"kind":"limit_exceeded","resource":"time"}`,
		`{"kind":"canceled","exit_code":0}`, `{"kind":"start_failed","exit_code":127}`, `{"kind":"unknown","exit_code":0}`,
	} {
		var o sandbox.Outcome
		if err := json.Unmarshal([]byte(in), &o); err == nil {
			t.Errorf("Unmarshal(%s) = %v, want an error", in, o)
		}
	}
}

func TestAccessorsOfOtherKinds(t *testing.T) {
	for _, o := range []sandbox.Outcome{{}, sandbox.Signaled(1), sandbox.TimedOut(1), sandbox.Canceled(""), sandbox.LimitExceeded(sandbox.ResourceCPU), sandbox.StartFailed("")} {
		if code, ok := o.ExitCode(); ok {
			t.Errorf("%v.ExitCode() = %d, true, want false", o, code)
		}
	}
	if _, ok := sandbox.Exited(0).Signal(); ok {
		t.Error("exited has a signal")
	}
	if _, ok := sandbox.Exited(0).After(); ok {
		t.Error("exited has a time")
	}
	if _, ok := sandbox.Exited(0).Resource(); ok {
		t.Error("exited has a resource")
	}
}

func sample() sandbox.Result {
	return sandbox.Result{
		ID: "a", Backend: "native", Outcome: sandbox.Exited(0),
		Stdout:    sandbox.Capture{Kept: []byte("a\xffb <&>"), Total: 7},
		Stderr:    sandbox.Capture{Kept: []byte("é"), Total: 9},
		Leftovers: sandbox.Read(0), Cleanup: sandbox.Cleanup{State: sandbox.CleanupDone},
		Evidence: sandbox.Evidence{
			Usage:      sandbox.Usage{Wall: time.Second, CPU: sandbox.Read(5), OOMKills: sandbox.Read(0)},
			Receipt:    sandbox.Receipt{Cgroup: "hybrid", Controls: map[sandbox.Control]string{"memory": "x"}, Missing: []sandbox.Control{"cpu"}},
			SpecDigest: "sha256:00", Missing: []string{"usage.peak_pids: no file"},
		},
		Started: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC), Ended: time.Date(2026, 1, 2, 3, 4, 6, 0, time.UTC),
	}
}

func TestResultJSON(t *testing.T) {
	got, err := json.Marshal(sample())
	if err != nil {
		t.Fatal(err)
	}
	zeros := strings.Repeat("0", 64)
	want := `{"schema":"checkcell.result/v1","id":"a","backend":"native","outcome":{"kind":"exited","exit_code":0},"terminal":"exited","success":true,` +
		`"stdout":{"text":"a` + "\uFFFD" + `b \u003c\u0026\u003e","base64":"Yf9iIDwmPg==","bytes":7,"kept":7,"truncated":false,"sha256":"` + zeros + `"},` +
		`"stderr":{"text":"é","bytes":9,"kept":2,"truncated":true,"sha256":"` + zeros + `"},` +
		`"usage":{"wall_ns":1000000000,"cpu_ns":5,"peak_memory_bytes":null,"peak_pids":null,"oom_kills":0,"pids_max_hits":null},` +
		`"leftovers":0,"killed":false,"cleanup":{"state":"done","detail":""},` +
		`"receipt":{"cgroup":"hybrid","controls":{"memory":"x"},"missing":["cpu"]},"missing_evidence":["usage.peak_pids: no file"],` +
		`"spec_digest":"sha256:00","image_digest":"","started":"2026-01-02T03:04:05.000000006Z","ended":"2026-01-02T03:04:06Z"}`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("Marshal (-want +got):\n%s", diff)
	}
	var back sandbox.Result
	if err := json.Unmarshal(got, &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(fmt.Sprintf("%+v", sample()), fmt.Sprintf("%+v", back)); diff != "" {
		t.Errorf("round trip (-want +got):\n%s", diff)
	}
}

func TestResultJSONRefuses(t *testing.T) {
	b, err := json.Marshal(sample())
	if err != nil {
		t.Fatal(err)
	}
	for _, edit := range [][2]string{
		{`checkcell.result/v1`, `checkcell.result/v2`},
		{`"outcome":{"kind":"exited","exit_code":0}`, `"outcome_":1`},
		{`"outcome":{"kind":"exited","exit_code":0}`, `"outcome":null`},
		{`"terminal":"exited"`, `"terminal":"timed_out"`},
		{`"state":"done"`, `"state":"failed"`}, // success is then a lie
		{`"state":"done"`, `"state":"fine"`},
		{`"success":true`, `"success":false`},
		{`"bytes":7,"kept":7,"truncated":false`, `"bytes":8,"kept":7,"truncated":false`},
		{`"bytes":7,"kept":7`, `"bytes":7,"kept":6`},
		{`"Yf9iIDwmPg=="`, `"%"`},
		{`"oom_kills":0`, `"oom_kills":"0"`},
	} {
		in := strings.Replace(string(b), edit[0], edit[1], 1)
		if in == string(b) {
			t.Fatalf("edit %q changes nothing", edit)
		}
		var r sandbox.Result
		if err := json.Unmarshal([]byte(in), &r); err == nil {
			t.Errorf("Unmarshal with %s = no error", edit[1])
		}
	}
}

func FuzzResultJSON(f *testing.F) {
	b, err := json.Marshal(sample())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{"schema":"checkcell.result/v1","outcome":{"kind":"canceled"}}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		var r sandbox.Result
		if json.Unmarshal(in, &r) != nil {
			return
		}
		out, err := json.Marshal(r)
		if err != nil {
			return // a time outside the years of RFC 3339 can be read but not written
		}
		var again sandbox.Result
		if err := json.Unmarshal(out, &again); err != nil {
			t.Fatalf("Unmarshal(Marshal(%s)): %v", in, err)
		}
		if again.Outcome != r.Outcome || again.Success() != r.Success() {
			t.Fatalf("round trip of %s changed %v to %v", in, r.Outcome, again.Outcome)
		}
	})
}

func TestSuccessNeedsEverything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		outcomes := []sandbox.Outcome{{}, sandbox.Exited(0), sandbox.Exited(1), sandbox.Signaled(9), sandbox.TimedOut(1), sandbox.Canceled("x"),
			sandbox.LimitExceeded(sandbox.ResourceMemory), sandbox.StartFailed("x"), sandbox.Unknown("x")}
		r := sandbox.Result{
			Outcome: rapid.SampledFrom(outcomes).Draw(t, "outcome"),
			Cleanup: sandbox.Cleanup{State: rapid.SampledFrom([]sandbox.CleanupState{sandbox.CleanupUnknown, sandbox.CleanupDone, sandbox.CleanupFailed}).Draw(t, "cleanup")},
		}
		want := r.Outcome == sandbox.Exited(0) && r.Cleanup.State == sandbox.CleanupDone
		if r.Success() != want {
			t.Fatalf("Success of %v, %v = %v, want %v", r.Outcome, r.Cleanup, r.Success(), want)
		}
	})
}
