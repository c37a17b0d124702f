package e2e

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// regradeLine is a line of regrade's output.
type regradeLine struct {
	Name             string   `json:"name"`
	ID               *string  `json:"id"`
	Verdict          string   `json:"verdict"`
	NoteKind         *string  `json:"note_kind"`
	Note             *string  `json:"note"`
	DuplicateOf      *string  `json:"duplicate_of"`
	SharedCheck      []string `json:"shared_check"`
	SharedCheckCount int      `json:"shared_check_count"`
}

// The tables that grade's own tests read are also files of recorded
// executions. Each has the verdicts of an outsider beside them.
const tables = "../grade/testdata/"

// regrade grades a file again and returns the lines.
func regrade(t testing.TB, path string) []regradeLine {
	t.Helper()
	got := checkcell(t, "regrade", path)
	lines := decodeLines[regradeLine](t, got.stdout)
	want := 0
	for _, l := range lines {
		switch {
		case l.Verdict == "contradicted":
			want = 1
		case l.Verdict != "verified" && want == 0:
			want = 3
		}
	}
	if got.code != want || got.stderr != "" {
		t.Errorf("regrade %s = %d with stderr %q, want %d and none", path, got.code, got.stderr, want)
	}
	return lines
}

func TestRegradeGradeTable(t *testing.T) {
	type row struct {
		Name     string  `json:"name"`
		Verdict  string  `json:"verdict"`
		NoteKind *string `json:"note_kind"`
	}
	table := rows[row](t, tables+"grade-cases.jsonl", 260)
	lines := regrade(t, tables+"grade-cases.jsonl")
	if len(lines) != len(table) {
		t.Fatalf("regrade wrote %d lines, want %d", len(lines), len(table))
	}
	for i, want := range table {
		got := lines[i]
		if got.Name != want.Name || got.Verdict != want.Verdict || deref(got.NoteKind) != deref(want.NoteKind) {
			t.Errorf("regrade, row %d = %s: %s %s, want %s: %s %s", i+1, got.Name, got.Verdict, deref(got.NoteKind), want.Name, want.Verdict, deref(want.NoteKind))
		}
		if (got.Note == nil) != (got.NoteKind == nil) || got.Note != nil && *got.Note == "" {
			t.Errorf("%s: regrade gives note %s of kind %s, want both or none", got.Name, deref(got.Note), deref(got.NoteKind))
		}
	}
}

func TestRegradeRecordTable(t *testing.T) {
	type row struct {
		Name     string  `json:"name"`
		Refused  bool    `json:"refused"`
		NoteKind *string `json:"note_kind"`
	}
	table := rows[row](t, tables+"record-cases.jsonl", 23)
	lines := regrade(t, tables+"record-cases.jsonl")
	if len(lines) != len(table) {
		t.Fatalf("regrade wrote %d lines, want %d", len(lines), len(table))
	}
	for i, want := range table {
		got := lines[i]
		verdict := "unrunnable" // it was never executed
		if want.Refused {
			verdict = "uncheckable"
		}
		if got.Name != want.Name || got.Verdict != verdict || deref(got.NoteKind) != deref(want.NoteKind) {
			t.Errorf("regrade, row %d = %s: %s %s, want %s: %s %s", i+1, got.Name, got.Verdict, deref(got.NoteKind), want.Name, verdict, deref(want.NoteKind))
		}
	}
}

func TestRegradeDuplicateTable(t *testing.T) {
	type row struct {
		Name   string `json:"name"`
		Claims []struct {
			ID string `json:"id"`
		} `json:"claims"`
		Verdicts    []string   `json:"verdicts"`
		DuplicateOf []*string  `json:"duplicate_of"`
		Shared      [][]string `json:"shared_check_defect"`
	}
	var want []string
	for _, r := range rows[row](t, tables+"duplicate-cases.jsonl", 13) {
		for i, c := range r.Claims {
			var shared []string
			for _, group := range r.Shared {
				if slices.Contains(group, c.ID) {
					shared = group
				}
			}
			want = append(want, fmt.Sprintf("%s/%s: %s, duplicate of %s, shares with %q of %d", r.Name, c.ID, r.Verdicts[i], deref(r.DuplicateOf[i]), shared, len(shared)))
		}
	}
	var got []string
	for _, l := range regrade(t, tables+"duplicate-cases.jsonl") {
		got = append(got, fmt.Sprintf("%s/%s: %s, duplicate of %s, shares with %q of %d", l.Name, deref(l.ID), l.Verdict, deref(l.DuplicateOf), l.SharedCheck, l.SharedCheckCount))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("regrade of the duplicates, - want, + got:\n%s", diff)
	}
}

// Lines come out in the order in which they went in, batches of their own among
// them.
func TestRegradeKeepsOrder(t *testing.T) {
	one := `{"id":%q,"evidence":{"rung":1,"check":"x"},"execution":{"exit_code":0}}`
	text := fmt.Sprintf(`{"claims":[`+one+`]}`+"\n"+one+"\n", "batch", "own")
	path := write(t, "recorded.jsonl", text)
	var got []string
	for _, l := range regrade(t, path) {
		got = append(got, deref(l.ID))
	}
	if want := []string{"batch", "own"}; !slices.Equal(got, want) {
		t.Errorf("regrade of\n%s= %q, want %q", text, got, want)
	}
}

// Nothing is run: regrade works where nothing can be.
func TestRegradeRunsNothing(t *testing.T) {
	text, err := os.ReadFile(tables + "record-cases.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	got := command{args: []string{"regrade", "-"}, stdin: string(text), dir: "/", env: []string{"TMPDIR=/no/such/directory", "HOME=/no/such/directory"}}.run(t)
	if got.code != 3 || got.stderr != "" {
		t.Errorf("regrade - = %d with stderr %q, want 3 and none", got.code, got.stderr)
	}
}
