package recorded

import (
	"crypto/sha256"
	"encoding/json"
	"strings"
	"testing"

	"github.com/checkcell/checkcell/grade"
	"github.com/checkcell/checkcell/sandbox"
)

func capture(s string) sandbox.Capture {
	return sandbox.Capture{Kept: []byte(s), Total: int64(len(s)), SHA256: sha256.Sum256([]byte(s))}
}

// recordOf is a line with r as its execution.
func recordOf(t testing.TB, r sandbox.Result) string {
	t.Helper()
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return `{"evidence":{"rung":4,"check":"./c","expect":"rows=17"},"execution":` + string(b) + `}`
}

// A result that was written is graded again as it was the first time.
func TestResultsRoundTrip(t *testing.T) {
	cut := sample(sandbox.LimitExceeded(sandbox.ResourceStdout), "rows=17")
	cut.Stdout.Total += 100
	dirty := sample(sandbox.Exited(0), "rows=17")
	dirty.Cleanup = sandbox.Cleanup{State: sandbox.CleanupFailed, Detail: "busy"}
	killed := sample(sandbox.Exited(1), "no")
	killed.Evidence.Usage.OOMKills = sandbox.Read(1)
	tests := []struct {
		name   string
		result sandbox.Result
		want   string
	}{
		{"verified", sample(sandbox.Exited(0), "rows=17\n"), "verified"},
		{"bytes that are no text", sample(sandbox.Exited(0), "\xff rows=17 \x00"), "verified"},
		{"silent", sample(sandbox.Exited(0), ""), "silent-check"},
		{"contradicted", sample(sandbox.Exited(3), "rows=9"), "contradicted"},
		{"status 124", sample(sandbox.Exited(124), ""), "unrunnable DEADLINE"},
		{"signaled", sample(sandbox.Signaled(11), "rows=17"), "unrunnable SIGNALED"},
		{"timed out", sample(sandbox.TimedOut(1), "rows=17"), "unrunnable DEADLINE"},
		{"canceled", sample(sandbox.Canceled("x"), "rows=17"), "unrunnable ABORTED"},
		{"out of memory", sample(sandbox.LimitExceeded(sandbox.ResourceMemory), "rows=17"), "unrunnable LIMIT"},
		{"cut off", cut, "unrunnable TRUNCATED_OUTPUT"},
		{"not started", sample(sandbox.StartFailed("x"), ""), "unrunnable NOT_STARTED"},
		{"unknown", sample(sandbox.Unknown("x"), "rows=17"), "unrunnable UNKNOWN_STATUS"},
		{"cleanup failed", dirty, "unrunnable CLEANUP_FAILED"},
		{"failed after the kernel killed", killed, "unrunnable LIMIT"},
		{"never started, nothing captured", sandbox.Result{Outcome: sandbox.StartFailed("x")}, "unrunnable NOT_STARTED"},
	}
	for _, tt := range tests {
		line := recordOf(t, tt.result)
		got, err := Regrade(strings.NewReader(line), "f")
		if err != nil || len(got) != 1 || verdicts(got)[0] != tt.want {
			t.Errorf("%s: Regrade(%s) = %q, %v, want %s", tt.name, line, verdicts(got), err, tt.want)
			continue
		}
		e := grade.Observed(tt.result)
		first := grade.For(grade.Evidence{Rung: 4, Check: "./c", Expect: "rows=17"}, &e)
		if note := first.Note; got[0].Verdict != first.Verdict || (got[0].Note == nil) != (note == "") || note != "" && *got[0].Note != note {
			t.Errorf("%s: Regrade = %v with another note than the first time, which was %v %q", tt.name, got[0].Verdict, first.Verdict, note)
		}
	}
}

// A result that says two things is refused, whichever of them is true.
func TestForgedResults(t *testing.T) {
	honest := recordOf(t, sample(sandbox.Exited(1), "rows=17"))
	text := recordOf(t, sample(sandbox.Exited(0), "rows=18 \xff"))
	tests := []struct{ name, line, from, to, want string }{
		{"success", honest, `"success":false`, `"success":true`, "success true"},
		{"terminal", honest, `"terminal":"exited"`, `"terminal":"timed_out"`, "terminal"},
		{"an outcome that is none", honest, `{"kind":"exited","exit_code":1}`, `{"kind":"passed"}`, "kind"},
		{"fields of two kinds", honest, `{"kind":"exited","exit_code":1}`, `{"kind":"exited","exit_code":0,"signal":9}`, "signal does not go with"},
		{"no outcome", honest, `"outcome":{"kind":"exited","exit_code":1},`, ``, "outcome"},
		{"outcome null", honest, `"outcome":{"kind":"exited","exit_code":1}`, `"outcome":null`, "kind"},
		{"an exit code out of range", honest, `"exit_code":1`, `"exit_code":256`, "256"},
		{"a second outcome", honest, `"killed":false`, `"killed":false,"outcome":{"kind":"exited","exit_code":0}`, "twice"},
		{"a second outcome in capitals", honest, `"killed":false`, `"killed":false,"OUTCOME":{"kind":"exited","exit_code":0}`, "twice"},
		{"a second one with a long s", honest, `"killed":false`, `"killed":false,"` + "\u017F" + `tdout":{}`, "twice"},
		{"more text than bytes", honest, `"text":"rows=17"`, `"text":"rows=17 and more"`, "bytes"},
		{"another text", honest, `"text":"rows=17"`, `"text":"rows=18"`, "sha256"},
		{"not truncated", honest, `"bytes":7,`, `"bytes":9,`, "truncated"},
		{"text beside other base64", text, "rows=18", "rows=17", "text and base64"},
		{"a cleanup that is none", honest, `"state":"done"`, `"state":"clean"`, "cleanup"},
		{"a reading that is text", honest, `"oom_kills":0`, `"oom_kills":"0"`, "oom_kills"},
	}
	for _, tt := range tests {
		if strings.Count(tt.line, tt.from) != 1 {
			t.Fatalf("%s: %s holds %q %d times, want once", tt.name, tt.line, tt.from, strings.Count(tt.line, tt.from))
		}
		forged := strings.Replace(tt.line, tt.from, tt.to, 1)
		got, err := Regrade(strings.NewReader(forged), "f")
		if err == nil || !strings.HasPrefix(err.Error(), "f:1: ") || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: Regrade(%s) = %q, %v, want f:1: … %s …", tt.name, forged, verdicts(got), err, tt.want)
		}
	}
}

// A result without a cleanup is one whose cell was never proven gone.
func TestResultWithoutCleanup(t *testing.T) {
	line := `{"evidence":{"rung":3},"execution":{"schema":"checkcell.result/v1","outcome":{"kind":"exited","exit_code":0}}}`
	got, err := Regrade(strings.NewReader(line), "f")
	if err != nil || len(got) != 1 || verdicts(got)[0] != "unrunnable CLEANUP_FAILED" {
		t.Errorf("Regrade(%s) = %q, %v, want unrunnable CLEANUP_FAILED", line, verdicts(got), err)
	}
}

// Whatever comes in, a line is either an error or graded, and only exit 0
// without a flag verifies.
func FuzzRegrade(f *testing.F) {
	f.Add(`{"name":"a",` + pass + "}\n")
	f.Add("\uFEFF{" + pass + "}\r\n{" + pass + "}")
	f.Add(`{"claims":[{` + pass + `},{"id":"x","title":"t",` + pass + `}]}`)
	f.Add(`{"evidence":{"rung":"3"},"execution":null}`)
	f.Add(recordOf(f, sample(sandbox.Exited(0), "rows=17")))
	f.Add(recordOf(f, sample(sandbox.LimitExceeded(sandbox.ResourceStderr), "\xff")))
	f.Fuzz(func(t *testing.T, text string) {
		got, err := Regrade(strings.NewReader(text), "f")
		if (err == nil) == (len(got) == 0) {
			t.Fatalf("Regrade(%q) = %d lines, %v, want lines or an error", text, len(got), err)
		}
		if err != nil && !strings.HasPrefix(err.Error(), "f:") {
			t.Errorf("Regrade(%q) = %v, want the file named", text, err)
		}
		for i, g := range got {
			if _, err := json.Marshal(g); err != nil {
				t.Errorf("Regrade(%q): line %d can't be written: %v", text, i+1, err)
			}
			if g.Verdict == grade.Verified && !strings.Contains(text, "0") {
				t.Errorf("Regrade(%q): line %d is verified without an exit code 0", text, i+1)
			}
		}
	})
}
