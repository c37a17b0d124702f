package recorded

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/checkcell/checkcell/grade"
	"github.com/checkcell/checkcell/sandbox"
	"github.com/google/go-cmp/cmp"
)

// table reads one of the grading tables, and fails unless it has as many rows
// as it is known to.
func table[T any](t *testing.T, name string, want int) (text string, rows []T) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "grade", "testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(b) {
		var row T
		if err := json.Unmarshal(line, &row); err != nil {
			t.Fatalf("%s, row %d: %v", name, len(rows)+1, err)
		}
		rows = append(rows, row)
	}
	if len(rows) != want {
		t.Fatalf("%s has %d rows, want %d", name, len(rows), want)
	}
	return string(b), rows
}

// word is the word of a note kind, "" for none.
func word(k *grade.NoteKind) string {
	if k == nil {
		return ""
	}
	return k.String()
}

func TestGradeTable(t *testing.T) {
	text, rows := table[struct {
		Name     string          `json:"name"`
		Verdict  grade.Verdict   `json:"verdict"`
		NoteKind *grade.NoteKind `json:"note_kind"`
	}](t, "grade-cases.jsonl", 260)
	got, err := Regrade(strings.NewReader(text), "grade-cases.jsonl")
	if err != nil || len(got) != len(rows) {
		t.Fatalf("Regrade(grade-cases.jsonl) = %d lines, %v, want %d", len(got), err, len(rows))
	}
	for i, row := range rows {
		g := got[i]
		if g.Name != row.Name || g.Verdict != row.Verdict || word(g.NoteKind) != word(row.NoteKind) {
			t.Errorf("Regrade: line %d = %s %v %s, want %s %v %s", i+1, g.Name, g.Verdict, word(g.NoteKind), row.Name, row.Verdict, word(row.NoteKind))
		}
		if (g.Note != nil) != (g.NoteKind != nil) || g.Note != nil && *g.Note == "" {
			t.Errorf("Regrade: line %d has note kind %s without a note, or the other way round", i+1, word(g.NoteKind))
		}
	}
}

func TestRecordTable(t *testing.T) {
	text, rows := table[struct {
		Name     string          `json:"name"`
		Refused  bool            `json:"refused"`
		NoteKind *grade.NoteKind `json:"note_kind"`
	}](t, "record-cases.jsonl", 23)
	got, err := Regrade(strings.NewReader(text), "record-cases.jsonl")
	if err != nil || len(got) != len(rows) {
		t.Fatalf("Regrade(record-cases.jsonl) = %d lines, %v, want %d", len(got), err, len(rows))
	}
	for i, row := range rows {
		want := grade.Unrunnable // accepted, and never executed
		if row.Refused {
			want = grade.Uncheckable
		}
		if g := got[i]; g.Name != row.Name || g.Verdict != want || word(g.NoteKind) != word(row.NoteKind) {
			t.Errorf("Regrade: line %d = %s %v %s, want %s %v %s", i+1, g.Name, g.Verdict, word(g.NoteKind), row.Name, want, word(row.NoteKind))
		}
	}
}

func TestDuplicateTable(t *testing.T) {
	text, rows := table[struct {
		Name        string                `json:"name"`
		Claims      []struct{ ID string } `json:"claims"`
		Verdicts    []grade.Verdict       `json:"verdicts"`
		DuplicateOf []*string             `json:"duplicate_of"`
		Shared      [][]string            `json:"shared_check_defect"`
	}](t, "duplicate-cases.jsonl", 13)
	got, err := Regrade(strings.NewReader(text), "duplicate-cases.jsonl")
	if err != nil {
		t.Fatalf("Regrade(duplicate-cases.jsonl): %v", err)
	}
	for _, row := range rows {
		for i, c := range row.Claims {
			if len(got) == 0 {
				t.Fatalf("Regrade has no line left for %s of %s", c.ID, row.Name)
			}
			g := got[0]
			got = got[1:]
			want := Regraded{Name: row.Name, ID: &c.ID, Verdict: row.Verdicts[i], NoteKind: g.NoteKind, Note: g.Note, DuplicateOf: row.DuplicateOf[i]}
			for _, group := range row.Shared {
				if strings.Contains(" "+strings.Join(group, " ")+" ", " "+c.ID+" ") {
					want.SharedCheck, want.SharedCount = group, len(group)
				}
			}
			if diff := cmp.Diff(want, g); diff != "" {
				t.Errorf("%s: Regrade of %s, want - got +:\n%s", row.Name, c.ID, diff)
			}
		}
	}
	if len(got) != 0 {
		t.Errorf("Regrade has %d lines more than the table", len(got))
	}
}

const pass = `"evidence":{"rung":4,"check":"./c","expect":"rows=17"},"execution":{"exit_code":0,"stdout":"rows=17","stderr":""}`

// verdicts is "name verdict kind" of each line.
func verdicts(list []Regraded) []string {
	var out []string
	for _, g := range list {
		out = append(out, strings.TrimSpace(fmt.Sprint(g.Name, " ", g.Verdict, " ", word(g.NoteKind))))
	}
	return out
}

func TestRegradeReads(t *testing.T) {
	ev := `"evidence":{"rung":4,"check":"./c","expect":"rows=17"}`
	tests := []struct {
		name, text string
		want       []string
	}{
		{"two lines", `{"name":"a",` + pass + "}\n" + `{"name":"b",` + pass + "}\n", []string{"a verified", "b verified"}},
		{"no newline at the end", `{"name":"a",` + pass + "}", []string{"a verified"}},
		{"CRLF and blank lines", "\r\n" + `{"name":"a",` + pass + "}\r\n \t\r\n" + `{"name":"b",` + pass + "}\r\n", []string{"a verified", "b verified"}},
		{"a byte order mark", "\uFEFF" + `{"name":"a",` + pass + "}\n", []string{"a verified"}},
		{"a byte order mark, then blanks", "\uFEFF  \n" + `{"name":"a",` + pass + "}\n", []string{"a verified"}},
		{"unknown keys", `{"name":"a","why":{"x":[1]},"Name":"other",` + pass + "}", []string{"a verified"}},
		{"a digit string as rung", `{"name":"a","evidence":{"rung":"2"},"execution":{"exit_code":0}}`, []string{"a verified"}},
		{"rung 3.0", `{"name":"a","evidence":{"rung":3.0},"execution":{"exit_code":0}}`, []string{"a verified"}},
		{"null texts", `{"name":"a","id":null,"title":null,"evidence":{"rung":1,"check":null,"expect":null},"execution":{"exit_code":0,"stdout":null}}`, []string{"a verified"}},
		{"no execution", `{"name":"a",` + ev + `,"execution":null}`, []string{"a unrunnable"}},
		{"recorded only", `{"name":"a",` + ev + `}`, []string{"a unrunnable"}},
		{"recorded only, refused", `{"name":"a","evidence":{"rung":4,"check":"./c"}}`, []string{"a uncheckable NO_EXPECTATION"}},
		{"exit code null", `{"name":"a",` + ev + `,"execution":{"exit_code":null,"stdout":"rows=17"}}`, []string{"a unrunnable UNKNOWN_STATUS"}},
		{"exit code missing", `{"name":"a",` + ev + `,"execution":{"stdout":"rows=17"}}`, []string{"a unrunnable UNKNOWN_STATUS"}},
		{"an empty execution", `{"name":"a",` + ev + `,"execution":{}}`, []string{"a unrunnable UNKNOWN_STATUS"}},
		{"exit code 256", `{"name":"a",` + ev + `,"execution":{"exit_code":256,"stdout":"rows=17"}}`, []string{"a unrunnable UNKNOWN_STATUS"}},
		{"exit code -1", `{"name":"a",` + ev + `,"execution":{"exit_code":-1,"stdout":"rows=17"}}`, []string{"a unrunnable UNKNOWN_STATUS"}},
		{"another key in capitals", `{"name":"a",` + ev + `,"execution":{"EXIT_CODE":0,"stdout":"rows=17"}}`, []string{"a unrunnable UNKNOWN_STATUS"}},
		{"deadline", `{"name":"a",` + ev + `,"execution":{"exit_code":0,"stdout":"rows=17","timed_out":true}}`, []string{"a unrunnable DEADLINE"}},
		{"aborted", `{"name":"a",` + ev + `,"execution":{"exit_code":0,"stdout":"rows=17","aborted":true}}`, []string{"a unrunnable ABORTED"}},
		{"truncated", `{"name":"a",` + ev + `,"execution":{"exit_code":0,"stdout":"rows=17","truncated":true}}`, []string{"a unrunnable TRUNCATED_OUTPUT"}},
		{"the order of lines and batches", `{"name":"a",` + pass + "}\n" + `{"name":"b","claims":[{` + pass + `},{"name":"own",` + pass + "}]}\n" + `{"name":"c",` + pass + `}`,
			[]string{"a verified", "b verified", "own verified", "c verified"}},
		{"claims null", `{"name":"a","claims":null,` + pass + `}`, []string{"a verified"}},
	}
	for _, tt := range tests {
		got, err := Regrade(strings.NewReader(tt.text), "f")
		if diff := cmp.Diff(tt.want, verdicts(got)); err != nil || diff != "" {
			t.Errorf("%s: Regrade(%q) = %v, want - got +:\n%s", tt.name, tt.text, err, diff)
		}
	}
}

func TestRegradeRefuses(t *testing.T) {
	ok := `{"name":"a",` + pass + "}"
	line := func(evidence, execution string) string {
		return `{"evidence":` + evidence + `,"execution":` + execution + `}`
	}
	ev := `{"rung":4,"check":"./c","expect":"rows=17"}`
	tests := []struct{ name, text, want string }{
		{"empty", "", "f: there is no recorded execution in it"},
		{"only blank lines", "\uFEFF\n \n\r\n", "f: there is no recorded execution in it"},
		{"not JSON", ok + "\nnonsense\n", "f:2: "},
		{"cut off", ok + "\n\n" + ok[:40], "f:3: unexpected end of JSON input"},
		{"trailing garbage", ok + " x", "f:1: invalid character 'x' after top-level value"},
		{"a second value", ok + ok, "f:1: invalid character '{' after top-level value"},
		{"an array", "[" + ok + "]", "f:1: want an object, got an array"},
		{"null", "null", "f:1: want an object, got null"},
		{"a string", `"x"`, "f:1: want an object, got a string"},
		{"not UTF-8", `{"name":"` + "\xff" + `",` + pass + "}", "f:1: the line is not UTF-8"},
		{"a byte order mark later on", ok + "\n\uFEFF" + ok, "f:2: "},
		{"no evidence", `{"name":"a","execution":null}`, "f:1: evidence: it is missing; want {rung, check, expect}"},
		{"evidence null", line("null", "null"), "f:1: evidence: want an object, got null"},
		{"no rung", line("{}", "null"), "f:1: evidence: rung: it is missing"},
		{"rung 0", line(`{"rung":0}`, "null"), "f:1: evidence: rung: want an integer from 1 to 5, got 0"},
		{"rung 6", line(`{"rung":"6"}`, "null"), `f:1: evidence: rung: want an integer from 1 to 5, got "6"`},
		{"rung 1.5", line(`{"rung":1.5}`, "null"), "f:1: evidence: rung: want an integer from 1 to 5, got 1.5"},
		{"rung of words", line(`{"rung":"4e0"}`, "null"), `f:1: evidence: rung: want an integer from 1 to 5, got "4e0"`},
		{"rung true", line(`{"rung":true}`, "null"), "f:1: evidence: rung: want an integer from 1 to 5, got true"},
		{"check a number", line(`{"rung":1,"check":1}`, "null"), "f:1: evidence: check: want a string, got the number 1"},
		{"expect a list", line(`{"rung":1,"expect":[]}`, "null"), "f:1: evidence: expect: want a string, got an array"},
		{"evidence_path an object", line(`{"rung":1,"evidence_path":{}}`, "null"), "f:1: evidence: evidence_path: want a string, got an object"},
		{"id a number", `{"id":7,` + pass + `}`, "f:1: id: want a string, got the number 7"},
		{"title false", `{"title":false,` + pass + `}`, "f:1: title: want a string, got a boolean"},
		{"execution true", line(ev, "true"), "f:1: execution: want an object, got a boolean"},
		{"exit code a string", line(ev, `{"exit_code":"0"}`), "f:1: execution: exit_code: want an integer or null, got a string"},
		{"exit code a fraction", line(ev, `{"exit_code":0.5}`), "f:1: execution: exit_code: want an integer or null, got the number 0.5"},
		{"exit code too large", line(ev, `{"exit_code":1e99}`), "f:1: execution: exit_code: want an integer or null, got the number 1e99"},
		{"stdout a list", line(ev, `{"exit_code":0,"stdout":["rows=17"]}`), "f:1: execution: stdout: want a string, got an array"},
		{"a flag as text", line(ev, `{"exit_code":0,"timed_out":"false"}`), "f:1: execution: timed_out: want a boolean, got a string"},
		{"a key twice", `{"name":"a","name":"b",` + pass + `}`, "f:1: name: the key is there twice in one object; remove one"},
		{"an exit code twice", line(ev, `{"exit_code":1,"exit_code":0}`), "f:1: exit_code: the key is there twice in one object; remove one"},
		{"two problems", `{"id":7,"evidence":{"rung":0,"check":1},"execution":{"exit_code":"0"}}`,
			"f:1: id: want a string, got the number 7; evidence: rung: want an integer from 1 to 5, got 0; check: want a string, got the number 1; execution: exit_code: "},
		{"no claims", `{"claims":[]}`, "f:1: claims: want a list of at least one object"},
		{"claims of another type", `{"claims":{}}`, "f:1: claims: want a list of at least one object, got an object"},
		{"claims and evidence", `{"claims":[{` + pass + `}],` + pass + `}`, "f:1: evidence: claims is there too; remove one; execution: claims is there too; remove one"},
		{"a bad claim of many", `{"claims":[{` + pass + `},{},3]}`, "f:1: claims[1]: evidence: it is missing; want {rung, check, expect}; claims[2]: want an object, got the number 3"},
		{"another schema", line(ev, `{"schema":"checkcell.result/v2"}`), "f:1: execution: read result: "},
		{"an empty schema", line(ev, `{"schema":"","exit_code":0,"stdout":"rows=17"}`), "f:1: execution: read result: "},
		{"a null schema", line(ev, `{"schema":null,"exit_code":0,"stdout":"rows=17"}`), "f:1: execution: read result: "},
	}
	for _, tt := range tests {
		got, err := Regrade(strings.NewReader(tt.text), "f")
		if err == nil || got != nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: Regrade(%q) = %q, %v, want no line and an error with %q", tt.name, tt.text, verdicts(got), err, tt.want)
		}
	}
}

// Every bad line is named, and then nothing is graded.
func TestRegradeNamesEveryBadLine(t *testing.T) {
	text := `{"name":"a",` + pass + "}\n{}\n\n[]\n"
	_, err := Regrade(strings.NewReader(text), "dir/f.jsonl")
	want := "dir/f.jsonl:2: evidence: it is missing; want {rung, check, expect}\ndir/f.jsonl:4: want an object, got an array"
	if err == nil || err.Error() != want {
		t.Errorf("Regrade(%q) = %v, want %s", text, err, want)
	}
	broken := errors.New("the disk is broken")
	in := iotest.TimeoutReader(strings.NewReader(text))
	if _, err := Regrade(in, "f"); !errors.Is(err, iotest.ErrTimeout) {
		t.Errorf("Regrade(a reader that fails) = %v, want %v", err, iotest.ErrTimeout)
	}
	if _, err := Regrade(iotest.ErrReader(broken), "f"); !errors.Is(err, broken) || !strings.HasPrefix(err.Error(), "f:1: ") {
		t.Errorf("Regrade(a reader that fails) = %v, want f:1: %v", err, broken)
	}
}

func TestRegradeOfALongLine(t *testing.T) {
	line := `{"name":"a",` + pass + "}"
	if got, err := regrade(strings.NewReader(line+"\n"), "f", len(line)+1); err != nil || len(got) != 1 {
		t.Errorf("regrade(a line at the limit) = %q, %v, want one line", verdicts(got), err)
	}
	_, err := regrade(strings.NewReader("\n"+line+"\n"), "f", len(line)-1)
	if want := fmt.Sprintf("f:2: the line is longer than %d bytes", len(line)-1); err == nil || err.Error() != want {
		t.Errorf("regrade(a line over the limit) = %v, want %s", err, want)
	}
}

// Claims are known by their id, else their name, else their place.
func TestDuplicatesAreNamed(t *testing.T) {
	text := `{"title":"t",` + pass + "}\n" + `{"title":"T.md",` + pass + "}\n" + `{"name":"n","title":"t",` + pass + "}\n" +
		`{"id":"i","title":"u",` + pass + "}\n"
	got, err := Regrade(strings.NewReader(text), "f")
	if err != nil || len(got) != 4 {
		t.Fatalf("Regrade = %q, %v, want 4 lines", verdicts(got), err)
	}
	for i, want := range []string{"", "#1", "#1", ""} {
		of := ""
		if got[i].DuplicateOf != nil {
			of = *got[i].DuplicateOf
		}
		if of != want {
			t.Errorf("line %d is a duplicate of %q, want %q", i+1, of, want)
		}
		if diff := cmp.Diff([]string{"#1", "#2", "n", "i"}, got[i].SharedCheck); diff != "" || got[i].SharedCount != 4 {
			t.Errorf("line %d shares its check with %q (%d), want - got +:\n%s", i+1, got[i].SharedCheck, got[i].SharedCount, diff)
		}
	}
}

func TestRegradedJSON(t *testing.T) {
	got, err := Regrade(strings.NewReader(`{"name":"n","id":"i",`+pass+"}\n"+`{"evidence":{"rung":4}}`), "f")
	if err != nil || len(got) != 2 {
		t.Fatalf("Regrade = %q, %v, want 2 lines", verdicts(got), err)
	}
	for i, want := range []string{
		`{"name":"n","id":"i","verdict":"verified","note_kind":null,"note":null,"duplicate_of":null,"shared_check":null}`,
		`{"id":null,"verdict":"uncheckable","note_kind":"NO_CHECK","note":"` + *got[1].Note + `","duplicate_of":null,"shared_check":null}`,
	} {
		b, err := json.Marshal(got[i])
		if err != nil || string(b) != want {
			t.Errorf("line %d = %s, %v, want %s", i+1, b, err, want)
		}
	}
}

// sample is a whole result with the given outcome.
func sample(o sandbox.Outcome, stdout string) sandbox.Result {
	return sandbox.Result{
		ID: "a", Backend: "native", Outcome: o, Stdout: capture(stdout), Stderr: capture(""),
		Leftovers: sandbox.Read(0), Cleanup: sandbox.Cleanup{State: sandbox.CleanupDone},
		Evidence: sandbox.Evidence{Usage: sandbox.Usage{Wall: time.Second, OOMKills: sandbox.Read(0)}},
		Started:  time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC), Ended: time.Date(2026, 1, 2, 3, 4, 6, 0, time.UTC),
	}
}
