package claims

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/checkcell/checkcell/grade"
)

// Page is what a Markdown page says in its frontmatter. A page without a rung
// carries no claim.
type Page struct {
	ID, Title string
	HasClaim  bool // a valid rung is there
	Evidence  grade.Evidence
	Fields    map[string]json.RawMessage // all keys as read; nil without frontmatter
	Findings  []Finding
}

// Rule is what a finding on evidence is about. The set is closed.
type Rule uint8

// The rules of the grading rules, section 7. The first is an error, the others
// are warnings.
const (
	UngradeableEvidence Rule = iota
	MissingEvidencePath
	NonportableEvidence
)

var ruleWords = [...]string{"ungradeable-evidence", "missing-evidence-path", "nonportable-evidence"}

// String returns the rule's name.
func (r Rule) String() string {
	if int(r) < len(ruleWords) {
		return ruleWords[r]
	}
	return fmt.Sprintf("Rule(%d)", uint8(r))
}

// Finding is something to mend in a claim's evidence.
type Finding struct {
	Rule   Rule
	Detail string // the kind of the refusal, or the field; "" where there is only one way
}

// String writes rule:detail.
func (f Finding) String() string {
	if f.Detail == "" {
		return f.Rule.String()
	}
	return f.Rule.String() + ":" + f.Detail
}

// Findings says what is to mend in evidence whose rung is valid.
func Findings(ev grade.Evidence) []Finding {
	var found []Finding
	if g, refused := grade.AtRecord(ev); refused {
		found = append(found, Finding{UngradeableEvidence, g.NoteKind.String()})
	}
	if ev.Rung >= 4 && ev.EvidencePath == "" {
		found = append(found, Finding{Rule: MissingEvidencePath})
	}
	if !portable(ev.Check) {
		found = append(found, Finding{NonportableEvidence, "check"})
	}
	if !portable(ev.EvidencePath) {
		found = append(found, Finding{NonportableEvidence, "evidencePath"})
	}
	return found
}

// portable reports whether text names no place of one machine alone: no
// absolute path but /dev/null and no drive, where one may begin.
func portable(text string) bool {
	begins := true
	for i, r := range text {
		if begins && (drive(text[i:]) || foreignPath(text[i:])) {
			return false
		}
		begins = strings.ContainsRune("\"'`=(", r) || grade.Trim(string(r)) == ""
	}
	return true
}

func drive(s string) bool {
	return len(s) > 2 && (s[0]|0x20 >= 'a' && s[0]|0x20 <= 'z') && s[1] == ':' && (s[2] == '\\' || s[2] == '/')
}

// foreignPath reports whether s begins with an absolute path of more than a
// slash, which is as often a division.
func foreignPath(s string) bool {
	if s[0] != '/' {
		return false
	}
	if end := strings.IndexAny(s, " \t\r\n\"'`()<>|;&"); end >= 0 {
		s = s[:end]
	}
	return len(s) > 1 && s[1] != '/' && s != "/dev/null"
}

// ReadPage reads the frontmatter of a Markdown page. It is pure and knows every
// page: one without frontmatter is the zero Page, and an invalid rung is a
// finding of the kind RUNG.
func ReadPage(data []byte) Page {
	lines, ok := frontmatter(string(data))
	if !ok {
		return Page{}
	}
	fields := parseFrontmatter(lines)
	p := Page{Fields: fields, ID: label(fields["id"]), Title: label(fields["title"])}
	if _, ok := fields["rung"]; !ok {
		return p
	}
	rung, err := pageRung(fields["rung"])
	if err != nil {
		p.Findings = []Finding{{UngradeableEvidence, "RUNG"}}
		return p
	}
	p.HasClaim = true
	p.Evidence = grade.Evidence{Rung: rung, Check: words(fields["check"]), Expect: words(fields["expect"]), EvidencePath: words(fields["evidencePath"])}
	if p.Evidence.EvidencePath == "" {
		p.Evidence.EvidencePath = words(fields["evidence_path"])
	}
	p.Findings = Findings(p.Evidence)
	return p
}

// claim makes a claim of a page that has a rung, valid or not.
func (p Page) claim() (Claim, []error) {
	var errs []error
	if !p.HasClaim {
		_, err := pageRung(p.Fields["rung"])
		errs = append(errs, keyed("rung", err))
	}
	o := object(maps.Clone(p.Fields))
	for _, key := range []string{"id", "title", "rung", "check", "expect", "evidencePath", "evidence_path"} {
		delete(o, key)
	}
	c := Claim{ID: p.ID, Title: p.Title, Evidence: p.Evidence}
	raw, err := json.Marshal(p.Fields)
	if err == nil {
		err = checkKeys(raw)
	}
	if err != nil {
		errs = append(errs, err)
	}
	c.Raw = raw
	return c, append(errs, o.rest(&c)...)
}

// frontmatter returns the lines between the fences.
func frontmatter(page string) (lines []string, ok bool) {
	all := strings.Split(strings.ReplaceAll(page, "\r\n", "\n"), "\n")
	if all[0] != "---" {
		return nil, false
	}
	end := slices.IndexFunc(all[1:], func(line string) bool { return strings.HasPrefix(line, "---") })
	if end < 0 {
		return nil, false
	}
	return all[1 : 1+end], true
}

// parseFrontmatter reads `key: value` lines; the last of a key counts.
func parseFrontmatter(lines []string) map[string]json.RawMessage {
	fields := make(map[string]json.RawMessage)
	listed := "" // the key without a value that `- item` lines belong to
	var items []json.RawMessage
	for _, line := range lines {
		if item, ok := strings.CutPrefix(grade.Trim(line), "- "); ok && listed != "" {
			items = append(items, scalarValue(grade.Trim(item)))
			fields[listed] = encode(items)
			continue
		}
		key, value, ok := strings.Cut(line, ":")
		if !ok || !isKey(key) {
			continue
		}
		listed, items = "", nil
		if value = grade.Trim(value); value == "" {
			listed = key
		}
		fields[key] = scalarValue(value)
	}
	return fields
}

func isKey(s string) bool {
	return s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == ""
}

// scalarValue is the JSON value of what stands behind a key's colon.
func scalarValue(s string) json.RawMessage {
	if s == "" {
		return encode("")
	}
	first, last := s[0], s[len(s)-1]
	quoted := len(s) >= 2 && first == last && (first == '"' || first == '\'')
	framed := quoted && first == '"' || first == '[' && last == ']' || first == '{' && last == '}'
	switch {
	case framed && json.Valid([]byte(s)):
		return json.RawMessage(s)
	case quoted:
		return encode(s[1 : len(s)-1])
	case s == "true", s == "false":
		return json.RawMessage(s)
	case isDecimal(s) && json.Valid([]byte(s)):
		return json.RawMessage(s)
	}
	return encode(s)
}

// isDecimal reports whether s is a plain decimal: digits, perhaps a sign and a
// fraction.
func isDecimal(s string) bool {
	whole, fraction, dotted := strings.Cut(strings.TrimPrefix(s, "-"), ".")
	digits := func(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }
	return digits(whole) && (!dotted || digits(fraction))
}

// encode is for values that always have a JSON form.
func encode(v any) json.RawMessage {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err) // strings and lists of valid JSON only
	}
	return raw
}

func pageRung(raw json.RawMessage) (int, error) {
	text := string(raw)
	var quoted string
	if json.Unmarshal(raw, &quoted) == nil {
		text = quoted
		if strings.Trim(text, "0123456789") != "" {
			text = ""
		}
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || f != math.Trunc(f) || f < 1 || f > 5 {
		return 0, fmt.Errorf("want an integer from 1 to 5, got %s", raw)
	}
	return int(f), nil
}

// words returns a string that is not blank. Anything else is no text, and "".
func words(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) != nil || grade.Trim(s) == "" {
		return ""
	}
	return s
}

// label is words, but a number or boolean counts as its text.
func label(raw json.RawMessage) string {
	if len(raw) > 0 && !strings.ContainsRune("\"[{n", rune(raw[0])) {
		return string(raw)
	}
	return words(raw)
}
