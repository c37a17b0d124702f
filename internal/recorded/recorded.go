// Package recorded reads executions that were recorded earlier, and grades
// them again without running anything.
package recorded

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/checkcell/checkcell/grade"
	"github.com/checkcell/checkcell/sandbox"
)

// MaxLine is the longest line that is read, in bytes.
const MaxLine = 512 << 20

// Regraded is one line of regrade's output.
type Regraded struct {
	Name        string          `json:"name,omitempty"`
	ID          *string         `json:"id"`
	Verdict     grade.Verdict   `json:"verdict"`
	NoteKind    *grade.NoteKind `json:"note_kind"`
	Note        *string         `json:"note"`
	DuplicateOf *string         `json:"duplicate_of"`
	SharedCheck []string        `json:"shared_check"`
	SharedCount int             `json:"shared_check_count,omitempty"`
}

// claim is a recorded claim, before it is a line: what grading it needs later.
type claim struct {
	line        string // name of the line, where that is a batch of its own
	name, title string
	id          *string
	evidence    grade.Evidence
	grade       grade.Grade
}

// Regrade reads the lines of r, each {"name"?, "id"?, "title"?, "evidence",
// "execution"}, grades them as one batch and returns them in their order. A
// line with "claims", a list of such objects, is a batch of its own. A line
// without the key execution was recorded and never run: it is refused as at
// record time. Keys that are not known are let be. All bad lines are reported,
// joined, by file and line; file is r's name.
func Regrade(r io.Reader, file string) ([]Regraded, error) { return regrade(r, file, MaxLine) }

func regrade(r io.Reader, file string, longest int) ([]Regraded, error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, longest)
	var out []Regraded
	var errs []error
	var batch []claim
	var places []int // of the batch's claims in out
	n := 0
	for lines.Scan() {
		n++
		text := lines.Bytes()
		if n == 1 {
			text = bytes.TrimPrefix(text, []byte("\uFEFF"))
		}
		if text = bytes.TrimSpace(text); len(text) == 0 {
			continue
		}
		read, apart, err := readLine(text)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("%s:%d: %w", file, n, err))
		case apart:
			out = append(out, gradeBatch(read)...)
		default:
			batch, places = append(batch, read...), append(places, len(out))
			out = append(out, Regraded{})
		}
	}
	switch err := lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		errs = append(errs, fmt.Errorf("%s:%d: the line is longer than %d bytes", file, n+1, longest))
	case err != nil:
		errs = append(errs, fmt.Errorf("%s:%d: %w", file, n+1, err))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	for i, g := range gradeBatch(batch) {
		out[places[i]] = g
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s: there is no recorded execution in it", file)
	}
	return out, nil
}

// readLine reads one line; apart is true where it is a batch of its own.
func readLine(text []byte) (read []claim, apart bool, err error) {
	if !utf8.Valid(text) {
		return nil, false, errors.New("the line is not UTF-8")
	}
	o, err := parseObject(text)
	if err != nil {
		return nil, false, err
	}
	list, ok := o["claims"]
	if !ok || isNull(list) {
		c, err := o.claim()
		return []claim{c}, false, err
	}
	read, err = o.claims(list)
	return read, true, err
}

// claims reads the list of a line that is a batch of its own.
func (o object) claims(list json.RawMessage) ([]claim, error) {
	f := fields{of: o}
	var name string
	f.read("name", &name, "a string")
	for _, key := range []string{"evidence", "execution"} {
		if _, both := o[key]; both {
			f.errs = append(f.errs, fmt.Errorf("%s: claims is there too; remove one", key))
		}
	}
	var members []json.RawMessage
	if json.Unmarshal(list, &members) != nil || len(members) == 0 {
		f.errs = append(f.errs, fmt.Errorf("claims: want a list of at least one object, got %s", kindOf(list)))
	}
	var read []claim
	for i, m := range members {
		var c claim
		member, err := parseObject(m)
		if err == nil {
			c, err = member.claim()
		}
		if err != nil {
			f.errs = append(f.errs, fmt.Errorf("claims[%d]: %w", i, err))
		}
		c.line = name
		read = append(read, c)
	}
	return read, f.err()
}

func (o object) claim() (claim, error) {
	var c claim
	f := fields{of: o}
	f.read("name", &c.name, "a string")
	f.read("id", &c.id, "a string")
	f.read("title", &c.title, "a string")
	if err := o.evidence(&c.evidence); err != nil {
		f.errs = append(f.errs, fmt.Errorf("evidence: %w", err))
	}
	raw, executed := o["execution"]
	var x *grade.Execution
	if executed && !isNull(raw) {
		var err error
		if x, err = execution(raw); err != nil {
			f.errs = append(f.errs, fmt.Errorf("execution: %w", err))
		}
	}
	if err := f.err(); err != nil {
		return claim{}, err
	}
	var refused bool
	if !executed {
		c.grade, refused = grade.AtRecord(c.evidence)
	}
	if !refused {
		c.grade = grade.For(c.evidence, x)
	}
	return c, nil
}

func (o object) evidence(into *grade.Evidence) error {
	raw, ok := o["evidence"]
	if !ok {
		return errors.New("it is missing; want {rung, check, expect}")
	}
	e, err := parseObject(raw)
	if err != nil {
		return err
	}
	f := fields{of: e}
	into.Rung = f.rung()
	f.read("check", &into.Check, "a string")
	f.read("expect", &into.Expect, "a string")
	f.read("evidence_path", &into.EvidencePath, "a string")
	return f.err()
}

// execution reads a recorded execution or a result.
func execution(raw json.RawMessage) (*grade.Execution, error) {
	o, err := parseObject(raw)
	if err != nil {
		return nil, err
	}
	if _, ok := o["schema"]; ok {
		return result(raw, o)
	}
	f := fields{of: o}
	var x grade.Execution
	var code *int
	f.read("exit_code", &code, "an integer or null")
	f.read("stdout", &x.Stdout, "a string")
	f.read("stderr", &x.Stderr, "a string")
	f.read("timed_out", &x.Deadline, "a boolean")
	f.read("aborted", &x.Aborted, "a boolean")
	f.read("truncated", &x.Truncated, "a boolean")
	if code != nil {
		x.Outcome = grade.RecordedExit(*code)
	}
	return &x, f.err()
}

// result reads a result, and refuses one that contradicts itself.
func result(raw json.RawMessage, o object) (*grade.Execution, error) {
	if err := twice(raw, foldCase); err != nil {
		return nil, err
	}
	var r sandbox.Result
	if err := json.Unmarshal(raw, &r); err != nil {
		return nil, err
	}
	if err := cmp.Or(honest("stdout", o["stdout"], r.Stdout), honest("stderr", o["stderr"], r.Stderr)); err != nil {
		return nil, err
	}
	x := grade.Observed(r)
	return &x, nil
}

// honest checks that what a stream says twice is the same: its text beside its
// base64, and its digest where all that came was kept.
func honest(name string, raw json.RawMessage, c sandbox.Capture) error {
	var said struct {
		Text   string `json:"text"`
		SHA256 string `json:"sha256"`
	}
	if raw == nil {
		return nil
	}
	if err := json.Unmarshal(raw, &said); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	switch none := [sha256.Size]byte{}; {
	case said.Text != c.Text():
		return fmt.Errorf("%s: text and base64 are not the same", name)
	case !c.Truncated() && c.SHA256 != none && c.SHA256 != sha256.Sum256(c.Kept):
		return fmt.Errorf("%s: sha256 %s is not that of the bytes", name, said.SHA256)
	}
	return nil
}

// gradeBatch finds duplicates and shared checks.
func gradeBatch(list []claim) []Regraded {
	var batch grade.Batch
	for i, c := range list {
		batch.Add(c.label(i), c.title, c.evidence)
	}
	out := make([]Regraded, 0, len(list))
	for i, c := range list {
		r := Regraded{Name: cmp.Or(c.name, c.line), ID: c.id, Verdict: c.grade.Verdict}
		if c.grade.NoteKind != grade.NoNote {
			r.NoteKind, r.Note = &c.grade.NoteKind, &c.grade.Note
		}
		if of, ok := batch.Duplicate(c.label(i), c.title, c.evidence, c.grade.Verdict); ok {
			r.DuplicateOf = &of
		}
		out = append(out, r)
	}
	for i, c := range list {
		out[i].SharedCheck, out[i].SharedCount, _ = batch.Shared(c.title, c.evidence) // all verdicts are known
	}
	return out
}

// label is what the i-th claim of a batch is called: its id, else its name,
// else its place.
func (c claim) label(i int) string {
	switch {
	case c.id != nil:
		return *c.id
	case c.name != "":
		return c.name
	}
	return fmt.Sprintf("#%d", i+1)
}
