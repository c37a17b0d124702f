// Package report writes what grading found: grade lines for machines, a table,
// a summary and a progress line for people.
package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/checkcell/checkcell/grade"
	"github.com/checkcell/checkcell/internal/intake"
	"github.com/checkcell/checkcell/sandbox"
)

// LineSchema names the JSON form of a graded claim.
const LineSchema = "checkcell.grade/v1"

// The two halves of a grade line, in the order of design.md, section 4. What
// stands between them, shared_check, may be known only when later claims have
// been graded.
type (
	lineHead struct {
		Schema      string          `json:"schema"`
		ID          string          `json:"id"`
		Title       string          `json:"title"`
		Rung        int             `json:"rung"`
		Verdict     grade.Verdict   `json:"verdict"`
		NoteKind    *grade.NoteKind `json:"note_kind"`
		Note        *string         `json:"note"`
		DuplicateOf *string         `json:"duplicate_of"`
	}
	lineShared struct {
		SharedCheck      []string `json:"shared_check"`
		SharedCheckCount int      `json:"shared_check_count,omitempty"`
	}
	lineTail struct {
		Claim   json.RawMessage            `json:"claim"`
		Result  *sandbox.Result            `json:"result"`
		Parse   *sandbox.Result            `json:"parse"`
		Extra   map[string]json.RawMessage `json:"extra"`
		Clamped []string                   `json:"clamped,omitempty"`
	}
)

// entry is a grade line that waits for its shared_check.
type entry struct {
	Title    string
	Evidence grade.Evidence
	Head     json.RawMessage
	Tail     json.RawMessage
}

func newEntry(g intake.Graded, duplicateOf *string) (entry, error) {
	head := lineHead{
		Schema: LineSchema, ID: g.Claim.ID, Title: g.Claim.Title, Rung: g.Claim.Evidence.Rung,
		Verdict: g.Grade.Verdict, DuplicateOf: duplicateOf,
	}
	head.NoteKind, head.Note = note(g.Grade)
	extra := g.Claim.Extra
	if extra == nil {
		extra = map[string]json.RawMessage{}
	}
	h, err := marshal(head)
	if err != nil {
		return entry{}, err
	}
	t, err := marshal(lineTail{g.Claim.Raw, g.Result, g.Parse, extra, g.Clamped})
	return entry{g.Claim.Title, g.Claim.Evidence, h, t}, err
}

// note returns pointers, so that a verdict without a note has null for both.
func note(g grade.Grade) (*grade.NoteKind, *string) {
	if g.NoteKind == grade.NoNote {
		return nil, nil
	}
	return &g.NoteKind, &g.Note
}

// line joins the halves around shared_check into one JSON line.
func (e entry) line(ids []string, count int) ([]byte, error) {
	shared, err := marshal(lineShared{ids, count})
	if err != nil {
		return nil, err
	}
	return slices.Concat(
		bytes.TrimSuffix(e.Head, []byte("}")), []byte(","),
		bytes.TrimPrefix(bytes.TrimSuffix(shared, []byte("}")), []byte("{")), []byte(","),
		bytes.TrimPrefix(e.Tail, []byte("{")), []byte("\n")), nil
}

func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("write a grade line: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
