package grade

import (
	"strings"
	"testing"
	"time"

	"github.com/checkcell/checkcell/sandbox"
	"pgregory.net/rapid"
)

// The generators favour the texts that the rules look for.
func drawText(t *rapid.T, label string) string {
	part := rapid.OneOf(
		rapid.SampledFrom(append(signatures[:], "rows=17", "rows", "=17", "echo", "true", " ", "\n", "\u0085", "\ufeff", "ſ", "\xff", "$", "|", "a", "_")),
		rapid.String(),
	)
	return strings.Join(rapid.SliceOfN(part, 0, 5).Draw(t, label), "")
}

func drawEvidence(t *rapid.T) Evidence {
	ev := Evidence{Rung: rapid.IntRange(0, 6).Draw(t, "rung"), Check: drawText(t, "check"), Expect: drawText(t, "expect")}
	if rapid.Bool().Draw(t, "plain") {
		ev.Check, ev.Expect = "./m", rapid.SampledFrom([]string{"", "rows=17"}).Draw(t, "plain expect")
	}
	return ev
}

func drawReading(t *rapid.T, label string) sandbox.Reading {
	return rapid.SampledFrom([]sandbox.Reading{{}, sandbox.Read(0), sandbox.Read(1), sandbox.Read(-1)}).Draw(t, label)
}

func drawExecution(t *rapid.T) Execution {
	outcome := rapid.OneOf(
		rapid.SampledFrom([]sandbox.Outcome{{}, sandbox.Unknown("x"), sandbox.Exited(0), sandbox.Exited(0), sandbox.Exited(1),
			sandbox.TimedOut(time.Second), sandbox.Canceled("x"), sandbox.StartFailed("x"), sandbox.LimitExceeded(sandbox.ResourceStdout)}),
		rapid.Map(rapid.Uint8(), sandbox.Exited), rapid.Map(rapid.Uint8(), sandbox.Signaled),
		rapid.Map(rapid.Uint8(), func(r uint8) sandbox.Outcome { return sandbox.LimitExceeded(sandbox.Resource(r)) }),
	)
	rare := func(label string) bool { return rapid.IntRange(0, 5).Draw(t, label) == 0 }
	return Execution{
		Outcome: outcome.Draw(t, "outcome"), Stdout: drawText(t, "stdout"), Stderr: drawText(t, "stderr"),
		Deadline: rare("deadline"), Aborted: rare("aborted"), Truncated: rare("truncated"), CleanupFailed: rare("cleanup"),
		OOMKills: drawReading(t, "oom"), PIDsMaxHits: drawReading(t, "pids"),
	}
}

func TestVerifiedNeedsExitZeroAndNoFlag(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ev, e := drawEvidence(t), drawExecution(t)
		code, known := e.Outcome.ExitCode()
		clean := known && code == 0 && !e.Deadline && !e.Aborted && !e.Truncated && !e.CleanupFailed
		got := For(ev, &e)
		if (got.Verdict == Verified || got.Verdict == SilentCheck) && !clean {
			t.Errorf("For(%+v, %+v) = %v, want it only after a clean exit 0", ev, e, got.Verdict)
		}
		if (got.NoteKind != NoNote) != (got.Note != "") || len(got.Note) > 4000 {
			t.Errorf("For(%+v, %+v) = %+v, want a bounded note with every kind", ev, e, got)
		}
		noted := got.Verdict == Unrunnable || got.Verdict == Uncheckable
		if noted != (got.NoteKind != NoNote) {
			t.Errorf("For(%+v, %+v) = %v %q, want a note for unrunnable and uncheckable only", ev, e, got.Verdict, got.NoteKind)
		}
	})
}

// A signature more in the output, or a counter above zero, turns contradicted
// into unrunnable or changes nothing.
func TestSignsOnlySoften(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ev, e := drawEvidence(t), drawExecution(t)
		e.Stdout += "x" // so that the added line is not what ends a silence
		e.OOMKills, e.PIDsMaxHits = sandbox.Reading{}, sandbox.Reading{}
		before := For(ev, &e)

		signed := e
		signed.Stderr += "\n" + rapid.SampledFrom(signatures[:]).Draw(t, "signature")
		counted := e
		counted.OOMKills, counted.PIDsMaxHits = drawReading(t, "more oom"), drawReading(t, "more pids")
		for _, x := range []Execution{signed, counted} {
			after := For(ev, &x)
			softened := before.Verdict == Contradicted && after.Verdict == Unrunnable
			met := strings.Contains(x.output(), decode(ev.Expect)) != strings.Contains(e.output(), decode(ev.Expect))
			if after.Verdict != before.Verdict && !softened && !met {
				t.Errorf("For(%+v, %+v) = %v, with a sign more %+v = %v", ev, e, before.Verdict, x, after.Verdict)
			}
		}
	})
}

func TestRefusalOutranksEverything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ev, e := drawEvidence(t), drawExecution(t)
		want, refused := Refuse(ev)
		if !refused {
			return
		}
		if got := For(ev, &e); got != want {
			t.Errorf("For(%+v, %+v) = %+v, but Refuse gave %+v", ev, e, got, want)
		}
		if got, _ := AtRecord(ev); got != want {
			t.Errorf("AtRecord(%+v) = %+v, but Refuse gave %+v", ev, got, want)
		}
	})
}

func FuzzFor(f *testing.F) {
	for _, row := range rows[gradeRow](f, "grade-cases.jsonl", gradeRows) {
		e := row.Execution
		if e == nil {
			e = &executionRow{}
		}
		code := -1
		if e.ExitCode != nil {
			code = *e.ExitCode
		}
		f.Add(row.Evidence.Rung, row.Evidence.Check, row.Evidence.Expect, code, e.Stdout, e.Stderr, e.TimedOut || e.Aborted || e.Truncated)
	}
	f.Fuzz(func(t *testing.T, rung int, check, expect string, code int, stdout, stderr string, flag bool) {
		ev := Evidence{Rung: rung, Check: check, Expect: expect}
		e := Execution{Outcome: RecordedExit(code), Stdout: stdout, Stderr: stderr, Truncated: flag}
		got := For(ev, &e)
		if got.Verdict == Verified && (code != 0 || flag) {
			t.Errorf("For(%+v, %+v) = verified", ev, e)
		}
		if again := For(ev, &e); again != got {
			t.Errorf("For(%+v, %+v) = %+v, then %+v", ev, e, got, again)
		}
		if int(got.Verdict) >= len(verdictWords) || int(got.NoteKind) >= len(noteWords) {
			t.Errorf("For(%+v, %+v) = %+v, outside the closed sets", ev, e, got)
		}
	})
}

func FuzzBatch(f *testing.F) {
	for _, row := range rows[duplicateRow](f, "duplicate-cases.jsonl", duplicateRows) {
		a, b := row.Claims[0], row.Claims[1]
		f.Add(a.Title, a.Evidence.Check, a.Evidence.Expect, b.Title, b.Evidence.Check, b.Evidence.Expect)
	}
	f.Fuzz(func(t *testing.T, titleA, checkA, expectA, titleB, checkB, expectB string) {
		evA, evB := Evidence{Check: checkA, Expect: expectA}, Evidence{Check: checkB, Expect: expectB}
		var b Batch
		b.Add("a", titleA, evA)
		b.Add("b", titleB, evB)
		if of, ok := b.Duplicate("a", titleA, evA, Verified); ok {
			t.Errorf("Duplicate(the first claim) = %q", of)
		}
		of, dup := b.Duplicate("b", titleB, evB, Verified)
		ids, n, final := b.Shared(titleB, evB)
		if dup && (of != "a" || n != 0) || len(ids) != n || !final {
			t.Errorf("Duplicate = %q, %v and Shared = %v, %d, %v, want at most one of the two", of, dup, ids, n, final)
		}
		sameTitle := normalTitle(titleA) == normalTitle(titleB) && normalTitle(titleA) != ""
		sameCheck := Trim(decode(checkA)) == Trim(decode(checkB)) && Trim(decode(checkA)) != ""
		sameExpect := Trim(decode(expectA)) == Trim(decode(expectB))
		if want := sameTitle && sameCheck && sameExpect; dup != want {
			t.Errorf("Duplicate(%q %q %q, %q %q %q) = %v, want %v", titleA, checkA, expectA, titleB, checkB, expectB, dup, want)
		}
	})
}
