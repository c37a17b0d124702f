package grade

import (
	"bufio"
	"encoding/json"
	"os"
	"slices"
	"testing"

	"github.com/checkcell/checkcell/sandbox"
)

// The rows of the tables in testdata.
type (
	evidenceRow struct {
		Rung   int    `json:"rung"`
		Check  string `json:"check"`
		Expect string `json:"expect"`
	}
	executionRow struct {
		ExitCode  *int   `json:"exit_code"`
		Stdout    string `json:"stdout"`
		Stderr    string `json:"stderr"`
		TimedOut  bool   `json:"timed_out"`
		Aborted   bool   `json:"aborted"`
		Truncated bool   `json:"truncated"`
	}
	gradeRow struct {
		Name      string        `json:"name"`
		Evidence  evidenceRow   `json:"evidence"`
		Execution *executionRow `json:"execution"`
		Verdict   Verdict       `json:"verdict"`
		NoteKind  NoteKind      `json:"note_kind"`
		Why       string        `json:"why"`
	}
	recordRow struct {
		Name     string      `json:"name"`
		Evidence evidenceRow `json:"evidence"`
		Refused  bool        `json:"refused"`
		NoteKind NoteKind    `json:"note_kind"`
		Why      string      `json:"why"`
	}
	duplicateRow struct {
		Name   string `json:"name"`
		Claims []struct {
			ID        string        `json:"id"`
			Title     string        `json:"title"`
			Evidence  evidenceRow   `json:"evidence"`
			Execution *executionRow `json:"execution"`
		} `json:"claims"`
		Verdicts    []Verdict  `json:"verdicts"`
		DuplicateOf []*string  `json:"duplicate_of"`
		Shared      [][]string `json:"shared_check_defect"`
		Why         string     `json:"why"`
	}
)

func (r evidenceRow) evidence() Evidence {
	return Evidence{Rung: r.Rung, Check: r.Check, Expect: r.Expect}
}

func (r *executionRow) execution() *Execution {
	if r == nil {
		return nil
	}
	e := Execution{Stdout: r.Stdout, Stderr: r.Stderr, Deadline: r.TimedOut, Aborted: r.Aborted, Truncated: r.Truncated}
	if r.ExitCode != nil {
		e.Outcome = RecordedExit(*r.ExitCode)
	}
	return &e
}

// rows reads a table and fails unless it has as many rows as it is known to.
func rows[T any](t testing.TB, name string, want int) []T {
	t.Helper()
	f, err := os.Open("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out []T
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var row T
		if err := json.Unmarshal(lines.Bytes(), &row); err != nil {
			t.Fatalf("%s, row %d: %v", name, len(out)+1, err)
		}
		out = append(out, row)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	if len(out) != want {
		t.Fatalf("%s has %d rows, want %d", name, len(out), want)
	}
	return out
}

const (
	gradeRows     = 260
	recordRows    = 23
	duplicateRows = 13
)

func TestGradeTable(t *testing.T) {
	for _, row := range rows[gradeRow](t, "grade-cases.jsonl", gradeRows) {
		ev, e := row.Evidence.evidence(), row.Execution.execution()
		got := For(ev, e)
		if got.Verdict != row.Verdict || got.NoteKind != row.NoteKind {
			t.Errorf("%s: For(%+v, %+v) = %v %v, want %v %v (%s)", row.Name, ev, e, got.Verdict, got.NoteKind, row.Verdict, row.NoteKind, row.Why)
		}
		if (got.Note != "") != (got.NoteKind != NoNote) {
			t.Errorf("%s: For(…) = kind %q with note %q, want both or none", row.Name, got.NoteKind, got.Note)
		}
		// The record does not change with the execution, so what Refuse says
		// must be what For said.
		refusal, refused := Refuse(ev)
		if refused && refusal != got {
			t.Errorf("%s: Refuse(%+v) = %+v, but For gave %+v", row.Name, ev, refusal, got)
		}
	}
}

func TestRecordTable(t *testing.T) {
	for _, row := range rows[recordRow](t, "record-cases.jsonl", recordRows) {
		ev := row.Evidence.evidence()
		got, refused := AtRecord(ev)
		if refused != row.Refused || got.NoteKind != row.NoteKind {
			t.Errorf("%s: AtRecord(%+v) = %v, %v, want %v, %v (%s)", row.Name, ev, got.NoteKind, refused, row.NoteKind, row.Refused, row.Why)
		}
		if !refused {
			continue
		}
		passing := &Execution{Outcome: sandbox.Exited(0), Stdout: "x"}
		if want := For(ev, passing); got != want {
			t.Errorf("%s: AtRecord(%+v) = %+v, but grading gives %+v", row.Name, ev, got, want)
		}
	}
}

func TestDuplicateTable(t *testing.T) {
	for _, row := range rows[duplicateRow](t, "duplicate-cases.jsonl", duplicateRows) {
		var b Batch
		for _, c := range row.Claims {
			b.Add(c.ID, c.Title, c.Evidence.evidence())
		}
		for i, c := range row.Claims {
			got := For(c.Evidence.evidence(), c.Execution.execution()).Verdict
			if got != row.Verdicts[i] {
				t.Errorf("%s: verdict of %s = %v, want %v", row.Name, c.ID, got, row.Verdicts[i])
			}
			of, ok := b.Duplicate(c.ID, c.Title, c.Evidence.evidence(), got)
			want := ""
			if p := row.DuplicateOf[i]; p != nil {
				want = *p
			}
			if of != want || ok != (want != "") {
				t.Errorf("%s: Duplicate(%s) = %q, %v, want %q (%s)", row.Name, c.ID, of, ok, want, row.Why)
			}
		}
		for _, c := range row.Claims {
			var want []string
			for _, group := range row.Shared {
				if slices.Contains(group, c.ID) {
					want = group
				}
			}
			ids, count, final := b.Shared(c.Title, c.Evidence.evidence())
			if !slices.Equal(ids, want) || count != len(want) || !final {
				t.Errorf("%s: Shared(%s) = %v, %d, %v, want %v, %d, true (%s)", row.Name, c.ID, ids, count, final, want, len(want), row.Why)
			}
		}
	}
}
