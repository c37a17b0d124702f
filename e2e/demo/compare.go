package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// example is what is expected of a claim, or what became of it. A claim
// without a note has the note kind "-".
type example struct {
	id, verdict, noteKind string
}

const header = "id\tverdict\tnote_kind"

// readExpected reads a table with a header and one claim a line.
func readExpected(r io.Reader) ([]example, error) {
	var all []example
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		if n == 1 {
			if lines.Text() != header {
				return nil, fmt.Errorf("line 1 is %q, want %q", lines.Text(), header)
			}
			continue
		}
		fields := strings.Split(lines.Text(), "\t")
		if len(fields) != 3 || slices.Contains(fields, "") {
			return nil, fmt.Errorf("line %d is %q, want three fields", n, lines.Text())
		}
		e := example{fields[0], fields[1], fields[2]}
		if _, ok := find(all, e.id); ok {
			return nil, fmt.Errorf("line %d: %s is there twice", n, e.id)
		}
		all = append(all, e)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read expected grades: %w", err)
	}
	if len(all) == 0 {
		return nil, errors.New("it expects nothing")
	}
	return all, nil
}

// readGrades reads lines of the schema checkcell.grade/v1.
func readGrades(r io.Reader) ([]example, error) {
	const schema = "checkcell.grade/v1"
	var all []example
	for d := json.NewDecoder(r); ; {
		var line struct {
			Schema   string `json:"schema"`
			ID       string `json:"id"`
			Verdict  string `json:"verdict"`
			NoteKind string `json:"note_kind"`
		}
		if err := d.Decode(&line); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("read grade %d: %w", len(all)+1, err)
		}
		if line.Schema != schema {
			return nil, fmt.Errorf("grade %d has the schema %q, want %q", len(all)+1, line.Schema, schema)
		}
		if line.NoteKind == "" {
			line.NoteKind = "-"
		}
		all = append(all, example{line.ID, line.Verdict, line.NoteKind})
	}
}

func find(all []example, id string) (example, bool) {
	i := slices.IndexFunc(all, func(e example) bool { return e.id == id })
	if i < 0 {
		return example{}, false
	}
	return all[i], true
}

// agreeing counts the claims of want that were graded so.
func agreeing(got, want []example) int {
	n := 0
	for _, w := range want {
		if g, ok := find(got, w.id); ok && g == w {
			n++
		}
	}
	return n
}

// compare says what is missing, what is other than expected, what was not
// expected at all and what was graded twice.
func compare(got, want []example) []string {
	var found []string
	for _, w := range want {
		g, ok := find(got, w.id)
		switch {
		case !ok:
			found = append(found, fmt.Sprintf("%s: not graded, want %s %s", w.id, w.verdict, w.noteKind))
		case g != w:
			found = append(found, fmt.Sprintf("%s: %s %s, want %s %s", w.id, g.verdict, g.noteKind, w.verdict, w.noteKind))
		}
	}
	for i, g := range got {
		if _, ok := find(want, g.id); !ok {
			found = append(found, fmt.Sprintf("%s: %s %s, but it is not expected at all", g.id, g.verdict, g.noteKind))
		}
		if _, ok := find(got[:i], g.id); ok {
			found = append(found, fmt.Sprintf("%s: graded twice", g.id))
		}
	}
	return found
}

// exitCode is what checkcell grade exits with for these verdicts; see design.md
// section 5.
func exitCode(all []example) int {
	code := 0
	for _, e := range all {
		switch e.verdict {
		case "verified":
		case "contradicted":
			return 1
		default:
			code = 3
		}
	}
	return code
}
