package grade

import (
	"strings"
	"testing"
	"time"

	"github.com/checkcell/checkcell/sandbox"
)

// good is evidence that grading has nothing to refuse in.
func good() Evidence { return Evidence{Rung: 4, Check: "./measure.sh", Expect: "rows=17"} }

func exited(code uint8, stdout, stderr string) *Execution {
	return &Execution{Outcome: sandbox.Exited(code), Stdout: stdout, Stderr: stderr}
}

func TestConsequences(t *testing.T) {
	refused := Evidence{Rung: 4, Check: "true", Expect: "rows=17"}
	noExpect := Evidence{Rung: 4, Check: "./measure.sh"}
	predicts := Evidence{Rung: 4, Check: "./gate.sh", Expect: "gate: Permission denied"}
	for _, tt := range []struct {
		rule    string
		ev      Evidence
		e       *Execution
		verdict Verdict
		kind    NoteKind
	}{
		{"refused evidence outranks a deadline", refused, &Execution{Outcome: sandbox.TimedOut(time.Second)}, Uncheckable, ConstantEmitter},
		{"refused evidence outranks a missing execution", refused, nil, Uncheckable, ConstantEmitter},
		{"a nonzero exit comes before a missing expectation", noExpect, exited(1, "x", ""), Contradicted, NoNote},
		{"a deadline never verifies", good(), &Execution{Outcome: sandbox.Exited(0), Stdout: "rows=17", Deadline: true}, Unrunnable, Deadline},
		{"an abort never verifies", good(), &Execution{Outcome: sandbox.Exited(0), Stdout: "rows=17", Aborted: true}, Unrunnable, Aborted},
		{"a truncation never verifies", good(), &Execution{Outcome: sandbox.Exited(0), Stdout: "rows=17", Truncated: true}, Unrunnable, TruncatedOutput},
		{"a met expectation verifies whatever else is printed", good(), exited(0, "rows=17", "x: ENOENT"), Verified, NoNote},
		{"a predicted error, printed, exit 0", predicts, exited(0, "", "gate: Permission denied"), Verified, NoNote},
		{"a predicted error, printed, nonzero exit", predicts, exited(1, "", "gate: Permission denied"), Contradicted, NoNote},
		{"the silent test precedes the predicted-error test", predicts, exited(0, " \n", ""), SilentCheck, NoNote},
		{"nothing is refused below rung 4", Evidence{Rung: 3, Check: ":", Expect: "a\nb"}, exited(0, "a\nb", ""), Verified, NoNote},
		{"below rung 4 exit 0 without expectation verifies", Evidence{Rung: 1}, exited(0, "", ""), Verified, NoNote},
	} {
		if got := For(tt.ev, tt.e); got.Verdict != tt.verdict || got.NoteKind != tt.kind {
			t.Errorf("%s: For(%+v, %+v) = %v %q, want %v %q", tt.rule, tt.ev, tt.e, got.Verdict, got.NoteKind, tt.verdict, tt.kind)
		}
	}
}

// TestPrecedence puts ever more reasons on one execution, the weakest first.
// Each that is added must take over the note.
func TestPrecedence(t *testing.T) {
	e := exited(1, "rows=18", "")
	ev := good()
	expect := func(added string, verdict Verdict, kind NoteKind) {
		t.Helper()
		if got := For(ev, e); got.Verdict != verdict || got.NoteKind != kind {
			t.Errorf("with %s: For = %v %q, want %v %q", added, got.Verdict, got.NoteKind, verdict, kind)
		}
	}
	expect("a nonzero exit", Contradicted, NoNote)
	e.PIDsMaxHits = sandbox.Read(3)
	expect("a counter", Unrunnable, Limit)
	e.Stderr = "x: command not found"
	expect("a signature", Unrunnable, UnreachedInput)
	e.Outcome = sandbox.Unknown("lost")
	expect("an unknown exit code", Unrunnable, UnknownStatus)
	e.Outcome = sandbox.Signaled(11)
	expect("a signal", Unrunnable, Signaled)
	e.CleanupFailed = true
	expect("a failed cleanup", Unrunnable, CleanupFailed)
	e.Outcome = sandbox.StartFailed("no bash")
	expect("a failed start", Unrunnable, NotStarted)
	e.Outcome = sandbox.LimitExceeded(sandbox.ResourceMemory)
	expect("a limit", Unrunnable, Limit)
	e.Truncated = true
	expect("a truncation", Unrunnable, TruncatedOutput)
	e.Aborted = true
	expect("an abort", Unrunnable, Aborted)
	e.Deadline = true
	expect("a deadline", Unrunnable, Deadline)
	ev.Check = "grep rows=17 f"
	expect("a self-certifying check", Uncheckable, SelfCertifying)
	ev.Check = "echo rows=17"
	expect("a constant emitter", Uncheckable, ConstantEmitter)
}

func TestOutcomeKinds(t *testing.T) {
	for _, tt := range []struct {
		outcome sandbox.Outcome
		kind    NoteKind
		names   string // what the note must name
	}{
		{sandbox.Outcome{}, UnknownStatus, "learned"},
		{sandbox.Unknown("wait: no child"), UnknownStatus, "wait: no child"},
		{sandbox.TimedOut(30 * time.Second), Deadline, "the wall limit (timeout) and was killed after 30s"},
		{sandbox.Exited(124), Deadline, "status 124"},
		{sandbox.Canceled("interrupt"), Aborted, "withdrew the check: interrupt"},
		{sandbox.LimitExceeded(sandbox.ResourceStdout), TruncatedOutput, "limit stdout-cap"},
		{sandbox.LimitExceeded(sandbox.ResourceStderr), TruncatedOutput, "limit stderr-cap"},
		{sandbox.LimitExceeded(sandbox.ResourceMemory), Limit, "limit memory"},
		{sandbox.LimitExceeded(sandbox.ResourceCPU), Limit, "limit cpu-time"},
		{sandbox.LimitExceeded(sandbox.ResourceDisk), Limit, "limit disk"},
		{sandbox.StartFailed("no cgroup"), NotStarted, "not started: no cgroup"},
		{sandbox.Signaled(9), Signaled, "SIGKILL (signal 9)"},
		{sandbox.Signaled(11), Signaled, "SIGSEGV (signal 11)"},
		{sandbox.Signaled(31), Signaled, "SIGSYS (signal 31)"},
		{sandbox.Signaled(32), Signaled, "signal 32"},
		{sandbox.Signaled(34), Signaled, "SIGRTMIN+0 (signal 34)"},
		{sandbox.Signaled(64), Signaled, "SIGRTMIN+30 (signal 64)"},
		{sandbox.Signaled(200), Signaled, "signal 200"},
	} {
		// The expected text is there and would verify after exit 0.
		got := For(good(), &Execution{Outcome: tt.outcome, Stdout: "rows=17"})
		if got.Verdict != Unrunnable || got.NoteKind != tt.kind || !strings.Contains(got.Note, tt.names) {
			t.Errorf("For(%v) = %+v, want unrunnable %v with a note on %q", tt.outcome, got, tt.kind, tt.names)
		}
	}
}

func TestRefutationByCounters(t *testing.T) {
	predicts := Evidence{Rung: 4, Check: "./gate.sh", Expect: "ENOENT"}
	for _, tt := range []struct {
		name  string
		ev    Evidence
		e     Execution
		want  Verdict
		kind  NoteKind
		names string
	}{
		{"oom", good(), Execution{Outcome: sandbox.Exited(1), OOMKills: sandbox.Read(2)}, Unrunnable, Limit, "killed 2 of its processes at the limit memory"},
		{"pids", good(), Execution{Outcome: sandbox.Exited(0), Stdout: "x", PIDsMaxHits: sandbox.Read(7)}, Unrunnable, Limit, "7 of its forks had been refused at the limit pids"},
		{"counters at zero", good(), Execution{Outcome: sandbox.Exited(1), OOMKills: sandbox.Read(0), PIDsMaxHits: sandbox.Read(0)}, Contradicted, NoNote, ""},
		{"counters unknown", good(), Execution{Outcome: sandbox.Exited(1)}, Contradicted, NoNote, ""},
		{"predicted error", predicts, Execution{Outcome: sandbox.Exited(1), OOMKills: sandbox.Read(2)}, Contradicted, NoNote, ""},
		{"a pass stays", good(), Execution{Outcome: sandbox.Exited(0), Stdout: "rows=17", OOMKills: sandbox.Read(2)}, Verified, NoNote, ""},
		{"silence stays", good(), Execution{Outcome: sandbox.Exited(0), OOMKills: sandbox.Read(2)}, SilentCheck, NoNote, ""},
	} {
		got := For(tt.ev, &tt.e)
		if got.Verdict != tt.want || got.NoteKind != tt.kind || !strings.Contains(got.Note, tt.names) {
			t.Errorf("%s: For(%+v) = %+v, want %v %q naming %q", tt.name, tt.e, got, tt.want, tt.kind, tt.names)
		}
	}
}

func TestUnreachedInputNote(t *testing.T) {
	long := strings.Repeat("é", 600) + "ENOENT"
	for _, tt := range []struct{ output, ends string }{
		{"a\ncat: x: NO SUCH file or directory\nb", `it printed "cat: x: NO SUCH file or directory" (NO SUCH file)`},
		{"x: Permission denied; y: ENOENT", "(Permission denied)"}, // the leftmost, not the first listed
		{"eNoEnT\nNo such file", `"eNoEnT" (eNoEnT)`},
		{long, `é…" (ENOENT)`},
	} {
		got := For(good(), exited(1, tt.output, "")).Note
		if !strings.HasSuffix(got, tt.ends) || len([]rune(got)) > 700 {
			t.Errorf("For(output %q).Note = %q, want at most 700 runes that end with %q", tt.output, got, tt.ends)
		}
	}
}

func TestForSyntax(t *testing.T) {
	said := "bash: -c: line 1: syntax error near unexpected token `done'\nbash: -c: line 1: `done'\n"
	for _, tt := range []struct {
		name    string
		outcome sandbox.Outcome
		stderr  string
		passed  bool
		want    Verdict
		kind    NoteKind
		names   string
	}{
		{"accepted", sandbox.Exited(0), "warning: here-document", true, Unrunnable, NoNote, ""},
		{"refused", sandbox.Exited(2), said, false, Uncheckable, InvalidShellSyntax, strings.TrimSpace(said)},
		{"refused with 1", sandbox.Exited(1), "bad array", false, Uncheckable, InvalidShellSyntax, "status 1): bad array"},
		{"refused with 124", sandbox.Exited(124), "x", false, Uncheckable, InvalidShellSyntax, "status 124"},
		{"refused in silence", sandbox.Exited(2), " \n", false, Uncheckable, InvalidShellSyntax, "said nothing"},
		{"not started", sandbox.StartFailed("the check holds a NUL byte"), "", false, Unrunnable, NotStarted, "syntax pass was not started: the check holds a NUL"},
		{"deadline", sandbox.TimedOut(5 * time.Second), "", false, Unrunnable, Deadline, "(parse-timeout) and was killed after 5s"},
		{"withdrawn", sandbox.Canceled(""), "", false, Unrunnable, Aborted, "withdrew the syntax pass"},
		{"limit", sandbox.LimitExceeded(sandbox.ResourceMemory), "", false, Unrunnable, Limit, "memory"},
		{"stream", sandbox.LimitExceeded(sandbox.ResourceStderr), "x", false, Unrunnable, TruncatedOutput, "stderr-cap"},
		{"signal", sandbox.Signaled(6), "", false, Unrunnable, Signaled, "SIGABRT (signal 6)"},
		{"unknown", sandbox.Outcome{}, "", false, Unrunnable, UnknownStatus, "syntax pass"},
	} {
		r := sandbox.Result{Outcome: tt.outcome, Stderr: capture(tt.stderr)}
		got, passed := ForSyntax(r)
		if passed != tt.passed || got.Verdict != tt.want || got.NoteKind != tt.kind || !strings.Contains(got.Note, tt.names) {
			t.Errorf("%s: ForSyntax(%v) = %+v, %v, want %v %q naming %q, %v", tt.name, tt.outcome, got, passed, tt.want, tt.kind, tt.names, tt.passed)
		}
	}
}

func TestSyntaxNoteIsBounded(t *testing.T) {
	r := sandbox.Result{Outcome: sandbox.Exited(2), Stderr: capture(strings.Repeat("ü", 100_000))}
	got, _ := ForSyntax(r)
	if n := len([]rune(got.Note)); n > 600 || !strings.HasSuffix(got.Note, "ü…") {
		t.Errorf("ForSyntax(100000 runes of stderr).Note has %d runes and ends %q, want at most 600 and an ellipsis", n, got.Note[len(got.Note)-8:])
	}
}

func capture(s string) sandbox.Capture {
	return sandbox.Capture{Kept: []byte(s), Total: int64(len(s))}
}

func TestObserved(t *testing.T) {
	done := sandbox.Cleanup{State: sandbox.CleanupDone}
	short := capture("rows=17")
	short.Total++
	for _, tt := range []struct {
		name string
		r    sandbox.Result
		want Verdict
		kind NoteKind
	}{
		{"exited", sandbox.Result{Outcome: sandbox.Exited(0), Stdout: capture("rows=17"), Cleanup: done}, Verified, NoNote},
		{"stderr", sandbox.Result{Outcome: sandbox.Exited(0), Stderr: capture("rows=17"), Cleanup: done}, Verified, NoNote},
		{"cleanup unknown", sandbox.Result{Outcome: sandbox.Exited(0), Stdout: capture("rows=17")}, Unrunnable, CleanupFailed},
		{"cleanup failed", sandbox.Result{Outcome: sandbox.Exited(0), Stdout: capture("rows=17"), Cleanup: sandbox.Cleanup{State: sandbox.CleanupFailed, Detail: "rmdir: busy"}}, Unrunnable, CleanupFailed},
		{"timed out", sandbox.Result{Outcome: sandbox.TimedOut(1), Stdout: capture("rows=17"), Cleanup: done}, Unrunnable, Deadline},
		{"canceled", sandbox.Result{Outcome: sandbox.Canceled("x"), Stdout: capture("rows=17"), Cleanup: done}, Unrunnable, Aborted},
		{"stdout truncated", sandbox.Result{Outcome: sandbox.Exited(0), Stdout: short, Cleanup: done}, Unrunnable, TruncatedOutput},
		{"stderr truncated", sandbox.Result{Outcome: sandbox.Exited(0), Stderr: short, Cleanup: done}, Unrunnable, TruncatedOutput},
		{"zero", sandbox.Result{}, Unrunnable, UnknownStatus},
		{"counters", sandbox.Result{Outcome: sandbox.Exited(3), Cleanup: done, Evidence: sandbox.Evidence{Usage: sandbox.Usage{OOMKills: sandbox.Read(1)}}}, Unrunnable, Limit},
		{"fork refused", sandbox.Result{Outcome: sandbox.Exited(3), Cleanup: done, Evidence: sandbox.Evidence{Usage: sandbox.Usage{PIDsMaxHits: sandbox.Read(1)}}}, Unrunnable, Limit},
	} {
		e := Observed(tt.r)
		if got := For(good(), &e); got.Verdict != tt.want || got.NoteKind != tt.kind {
			t.Errorf("%s: For(Observed(%v)) = %+v, want %v %q", tt.name, tt.r.Outcome, got, tt.want, tt.kind)
		}
	}
	if e := Observed(sandbox.Result{Stdout: capture("a\xff\xfeb")}); e.Stdout != "a\uFFFD\uFFFDb" {
		t.Errorf("Observed(invalid UTF-8).Stdout = %q, want each byte as U+FFFD", e.Stdout)
	}
	failed := Observed(sandbox.Result{Outcome: sandbox.Exited(0), Cleanup: sandbox.Cleanup{Detail: "rmdir: busy"}})
	if got := For(good(), &failed).Note; !strings.Contains(got, "rmdir: busy") {
		t.Errorf("For(cleanup failed).Note = %q, want the reason in it", got)
	}
}

func TestRecordedExit(t *testing.T) {
	for _, tt := range []struct {
		code int
		want int
		ok   bool
	}{{0, 0, true}, {255, 255, true}, {256, 0, false}, {-1, 0, false}, {512, 0, false}} {
		if got, ok := RecordedExit(tt.code).ExitCode(); ok != tt.ok || ok && got != tt.want {
			t.Errorf("RecordedExit(%d).ExitCode() = %d, %v, want %d, %v", tt.code, got, ok, tt.want, tt.ok)
		}
	}
}

func TestClosedSets(t *testing.T) {
	if got := (Grade{}); got.Verdict != Unrunnable || got.NoteKind != NoNote {
		t.Errorf("zero Grade = %+v, want unrunnable without a note", got)
	}
	for v := range Verdict(len(verdictWords)) {
		text, err := v.MarshalText()
		back := Verdict(99)
		if err := errorsOf(err, back.UnmarshalText(text)); err != "" || back != v || string(text) != v.String() {
			t.Errorf("verdict %d: text %q reads back as %d, errors %s", v, text, back, err)
		}
	}
	for k := range NoteKind(len(noteWords)) {
		text, err := k.MarshalText()
		back := NoteKind(99)
		if err := errorsOf(err, back.UnmarshalText(text)); err != "" || back != k || string(text) != k.String() {
			t.Errorf("note kind %d: text %q reads back as %d, errors %s", k, text, back, err)
		}
	}
	for _, text := range []string{"", "Verified", "verified ", "passed", "Verdict(7)"} {
		v := Contradicted
		if err := v.UnmarshalText([]byte(text)); err == nil || v != Contradicted {
			t.Errorf("Verdict.UnmarshalText(%q) = %v, verdict now %v, want an error and no change", text, err, v)
		}
	}
	k := Deadline
	if err := k.UnmarshalText([]byte("deadline")); err == nil || k != Deadline {
		t.Errorf("NoteKind.UnmarshalText(deadline) = %v, kind now %v, want an error and no change", err, k)
	}
	if text, err := Verdict(len(verdictWords)).MarshalText(); err == nil {
		t.Errorf("MarshalText outside the set = %q, want an error", text)
	}
	if got, want := Verdict(9).String(), "Verdict(9)"; got != want {
		t.Errorf("Verdict(9).String() = %q, want %q", got, want)
	}
	if got := int(UnreachedInput) + 1; got != len(noteWords) {
		t.Errorf("%d note kinds have %d words", got, len(noteWords))
	}
}

func errorsOf(errs ...error) string {
	var b strings.Builder
	for _, err := range errs {
		if err != nil {
			b.WriteString(err.Error())
		}
	}
	return b.String()
}
