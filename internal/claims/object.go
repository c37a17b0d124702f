package claims

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/checkcell/checkcell/grade"
	"github.com/checkcell/checkcell/sandbox"
)

// object is the members of a JSON object that has no key twice.
type object map[string]json.RawMessage

// parseObject reads raw, which must be one JSON object in UTF-8.
func parseObject(raw []byte) (object, error) {
	var o object
	if err := json.Unmarshal(raw, &o); err != nil {
		var wrong *json.UnmarshalTypeError
		if errors.As(err, &wrong) {
			return nil, fmt.Errorf("want a claim, which is an object, got %s", kindOf(raw))
		}
		return nil, err
	}
	if o == nil {
		return nil, errors.New("want a claim, which is an object, got null")
	}
	return o, checkKeys(raw)
}

// maxDepth is how deep a claim may nest. Claims need two levels.
const maxDepth = 1000

// checkKeys finds a key that one object has twice: readers differ on which of
// the two counts, so neither does. raw must be valid JSON.
func checkKeys(raw []byte) error {
	type level struct {
		keys    map[string]bool // nil in an array
		wantKey bool
	}
	var stack []level
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	for {
		tok, err := dec.Token()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if delim, ok := tok.(json.Delim); ok && (delim == '}' || delim == ']') {
			stack = stack[:len(stack)-1]
			continue
		}
		if n := len(stack); n > 0 && stack[n-1].keys != nil {
			top := &stack[n-1]
			if top.wantKey {
				key, _ := tok.(string)
				if top.keys[key] {
					return keyed(key, errors.New("the key is there twice in one object; remove one"))
				}
				top.keys[key] = true
			}
			top.wantKey = !top.wantKey
		}
		switch tok {
		case json.Delim('{'):
			stack = append(stack, level{map[string]bool{}, true})
		case json.Delim('['):
			stack = append(stack, level{})
		}
		if len(stack) > maxDepth {
			return fmt.Errorf("nested deeper than %d levels", maxDepth)
		}
	}
}

// claim makes a claim of the object. It takes out of o the keys that it knows.
func (o object) claim() (Claim, []error) {
	var c Claim
	var errs []error
	take := func(key string, into *string) {
		if err := o.takeString(key, into); err != nil {
			errs = append(errs, keyed(key, err))
		}
	}
	id, named := o["id"]
	take("id", &c.ID)
	if named && !isNull(id) && len(errs) == 0 && grade.Trim(c.ID) == "" {
		errs = append(errs, keyed("id", errors.New("it is blank; leave the key out to have one made of the file and line")))
	}
	take("title", &c.Title)
	take("check", &c.Evidence.Check)
	take("expect", &c.Evidence.Expect)
	if _, both := o["evidencePath"]; both {
		if _, both = o["evidence_path"]; both {
			errs = append(errs, keyed("evidencePath", errors.New("evidence_path is there too; remove one")))
		}
		take("evidencePath", &c.Evidence.EvidencePath)
	}
	take("evidence_path", &c.Evidence.EvidencePath)
	rung, err := o.takeRung()
	if err != nil {
		errs = append(errs, keyed("rung", err))
	}
	c.Evidence.Rung = rung
	return c, append(errs, o.rest(&c)...)
}

// rest takes files and settings out of o into c, and what is left as extra.
func (o object) rest(c *Claim) (errs []error) {
	var err error
	if c.Files, err = o.takeFiles(); err != nil {
		for _, e := range split(err) {
			errs = append(errs, keyed("files", e))
		}
	}
	errs = append(errs, o.takeSettings(&c.Settings)...)
	if len(o) > 0 {
		c.Extra = o
	}
	return errs
}

func (o object) takeString(key string, into *string) error {
	raw, ok := o[key]
	delete(o, key)
	if !ok || isNull(raw) {
		return nil
	}
	if raw[0] != '"' {
		return fmt.Errorf("want a string, got %s; quote it", kindOf(raw))
	}
	return json.Unmarshal(raw, into)
}

func (o object) takeRung() (int, error) {
	raw, ok := o["rung"]
	delete(o, "rung")
	if !ok || isNull(raw) {
		return 0, errors.New("it is missing; say which of 1 to 5 the claim is at")
	}
	f, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || f != math.Trunc(f) {
		return 0, fmt.Errorf("want an integer from 1 to 5, got %s", kindOf(raw))
	}
	if f < 1 || f > 5 {
		return 0, fmt.Errorf("want an integer from 1 to 5, got %s", raw)
	}
	return int(f), nil
}

// takeFiles reads {path: text} and {path: {"base64": …}}.
func (o object) takeFiles() ([]sandbox.File, error) {
	raw, ok := o["files"]
	delete(o, "files")
	if !ok || isNull(raw) {
		return nil, nil
	}
	var contents object
	if err := json.Unmarshal(raw, &contents); err != nil {
		return nil, fmt.Errorf("want an object of paths and contents, got %s", kindOf(raw))
	}
	var files []sandbox.File
	var errs []error
	for _, path := range slices.Sorted(maps.Keys(contents)) {
		content, err := fileContent(contents[path])
		if err != nil {
			errs = append(errs, fmt.Errorf("file %q: %w", path, err))
		}
		files = append(files, sandbox.File{Path: path, Content: content})
	}
	return files, errors.Join(append(errs, sandbox.ValidateFiles(files))...)
}

func fileContent(raw json.RawMessage) ([]byte, error) {
	const want = `want text or {"base64": "…"}`
	var text string
	if raw[0] == '"' {
		err := json.Unmarshal(raw, &text)
		return []byte(text), err
	}
	var coded object
	if raw[0] != '{' {
		return nil, fmt.Errorf(want+", got %s", kindOf(raw))
	}
	if err := json.Unmarshal(raw, &coded); err != nil {
		return nil, err
	}
	in, ok := coded["base64"]
	if !ok || len(coded) != 1 || in[0] != '"' {
		return nil, fmt.Errorf(want+", got the keys %q", slices.Sorted(maps.Keys(coded)))
	}
	if err := json.Unmarshal(in, &text); err != nil {
		return nil, err
	}
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, fmt.Errorf("base64: %w", err)
	}
	return b, nil
}

// split returns the errors that were joined to err.
func split(err error) []error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var errs []error
	for _, e := range joined.Unwrap() {
		errs = append(errs, split(e)...)
	}
	return errs
}

func isNull(raw json.RawMessage) bool { return string(raw) == "null" }

// kindOf names the kind of a JSON value for people.
func kindOf(raw []byte) string {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 {
		return "nothing"
	}
	switch raw[0] {
	case '"':
		return "a string"
	case '{':
		return "an object"
	case '[':
		return "an array"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	}
	return "the number " + string(raw[:min(len(raw), 40)])
}
