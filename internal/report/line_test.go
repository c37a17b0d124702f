package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/checkcell/checkcell/grade"
	"github.com/checkcell/checkcell/internal/claims"
	"github.com/checkcell/checkcell/internal/intake"
	"github.com/checkcell/checkcell/sandbox"
	"github.com/google/go-cmp/cmp"
)

// graded is a claim of rung 4 with a verdict; check and title may be "".
func graded(id, title, check string, v grade.Verdict) intake.Graded {
	return intake.Graded{
		Claim: claims.Claim{
			ID: id, Title: title, Evidence: grade.Evidence{Rung: 4, Check: check, Expect: "rows=17"},
			Raw: json.RawMessage(`{"id":"` + id + `"}`),
		},
		Grade: grade.Grade{Verdict: v},
	}
}

// ran gives g a result with an exit code.
func ran(g intake.Graded, code uint8) intake.Graded {
	g.Result = &sandbox.Result{ID: g.Claim.ID, Backend: "fake", Outcome: sandbox.Exited(code), Cleanup: sandbox.Cleanup{State: sandbox.CleanupDone}}
	return g
}

// written is the one line that Lines writes for g alone.
func written(t *testing.T, g intake.Graded, duplicateOf *string) string {
	t.Helper()
	var out bytes.Buffer
	l := NewLines(&out, &grade.Batch{})
	if err := errors.Join(l.Add(g, duplicateOf), l.Close()); err != nil {
		t.Fatalf("Add(%s), Close() = %v", g.Claim.ID, err)
	}
	return out.String()
}

// keys returns the keys of a JSON object in the order in which they stand.
func keys(t *testing.T, text string) []string {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(text))
	if _, err := dec.Token(); err != nil {
		t.Fatal(err)
	}
	var names []string
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, key.(string))
		if err := dec.Decode(&json.RawMessage{}); err != nil {
			t.Fatal(err)
		}
	}
	return names
}

func TestLineHasTheFieldsInOrder(t *testing.T) {
	got := keys(t, written(t, ran(graded("a", "t", "c", grade.Verified), 0), nil))
	want := []string{"schema", "id", "title", "rung", "verdict", "note_kind", "note", "duplicate_of", "shared_check", "claim", "result", "parse", "extra"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("keys of a grade line, want - got +:\n%s", diff)
	}
}

func TestLine(t *testing.T) {
	first := "first"
	bare := graded("a", "", "", grade.Unrunnable)
	full := graded("b<&>", "a \"title\"", "c", grade.Uncheckable)
	full.Grade.NoteKind, full.Grade.Note = grade.NoCheck, "none\nat all <here>"
	full.Claim.Raw = json.RawMessage(`{ "check" : "a && b" , "z":1e2,"rung":4.0 }`)
	full.Claim.Extra = map[string]json.RawMessage{"z": json.RawMessage("1e2"), "a": json.RawMessage(`"<x>"`)}
	full.Clamped = []string{"memory"}
	tests := []struct {
		name        string
		graded      intake.Graded
		duplicateOf *string
		want        string
	}{
		{"nothing known", bare, nil, `{"schema":"checkcell.grade/v1","id":"a","title":"","rung":4,"verdict":"unrunnable","note_kind":null,"note":null,` +
			`"duplicate_of":null,"shared_check":null,"claim":{"id":"a"},"result":null,"parse":null,"extra":{}}` + "\n"},
		{"all there", full, &first, `{"schema":"checkcell.grade/v1","id":"b<&>","title":"a \"title\"","rung":4,"verdict":"uncheckable","note_kind":"NO_CHECK",` +
			`"note":"none\nat all <here>","duplicate_of":"first","shared_check":null,"claim":{"check":"a && b","z":1e2,"rung":4.0},` +
			`"result":null,"parse":null,"extra":{"a":"<x>","z":1e2},"clamped":["memory"]}` + "\n"},
	}
	for _, tt := range tests {
		if diff := cmp.Diff(tt.want, written(t, tt.graded, tt.duplicateOf)); diff != "" {
			t.Errorf("%s: the grade line, want - got +:\n%s", tt.name, diff)
		}
	}
}

// Both results stand in the line as they are, and can be read back.
func TestLineHoldsTheResults(t *testing.T) {
	g := ran(graded("a", "t", "c", grade.Contradicted), 3)
	g.Result.Stdout = sandbox.Capture{Kept: []byte("a\xff\n"), Total: 3}
	g.Result.Started = time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	parse := *g.Result
	parse.Outcome, parse.Stdout = sandbox.Exited(0), sandbox.Capture{}
	g.Parse = &parse
	var line struct{ Result, Parse *sandbox.Result }
	if err := json.Unmarshal([]byte(written(t, g, nil)), &line); err != nil {
		t.Fatal(err)
	}
	for name, pair := range map[string][2]*sandbox.Result{"result": {line.Result, g.Result}, "parse": {line.Parse, g.Parse}} {
		got, err := json.Marshal(pair[0])
		if err != nil {
			t.Fatal(err)
		}
		want, err := json.Marshal(pair[1])
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s of the line = %s, want %s", name, got, want)
		}
	}
}

// A claim that can't be written as JSON is an error, not a broken line.
func TestLineOfBrokenClaim(t *testing.T) {
	g := graded("a", "t", "c", grade.Verified)
	g.Claim.Raw = json.RawMessage(`{"id":`)
	var out bytes.Buffer
	l := NewLines(&out, &grade.Batch{})
	if err := l.Add(g, nil); err == nil || out.Len() != 0 {
		t.Errorf("Add(a claim that is no JSON) = %v with %q written, want an error and nothing", err, out.String())
	}
}
