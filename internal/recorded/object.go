package recorded

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// object is the members of a JSON object, by their exact keys. Decoding into a
// struct would take a key in any case, and of two the last one.
type object map[string]json.RawMessage

// parseObject reads raw, which must be one JSON object that nowhere has a key
// twice.
func parseObject(raw []byte) (object, error) {
	var o object
	if err := json.Unmarshal(raw, &o); err != nil {
		var wrong *json.UnmarshalTypeError
		if errors.As(err, &wrong) {
			return nil, fmt.Errorf("want an object, got %s", kindOf(raw))
		}
		return nil, err
	}
	if o == nil {
		return nil, errors.New("want an object, got null")
	}
	return o, twice(raw, func(key string) string { return key })
}

// twice finds two keys of one object that are the same after fold. raw must be
// valid JSON.
func twice(raw []byte, fold func(string) string) error {
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
		if tok == json.Delim('}') || tok == json.Delim(']') {
			stack = stack[:len(stack)-1]
			continue
		}
		if n := len(stack); n > 0 && stack[n-1].keys != nil {
			top := &stack[n-1]
			if top.wantKey {
				key, _ := tok.(string)
				if top.keys[fold(key)] {
					return fmt.Errorf("%s: the key is there twice in one object; remove one", key)
				}
				top.keys[fold(key)] = true
			}
			top.wantKey = !top.wantKey
		}
		switch tok {
		case json.Delim('{'):
			stack = append(stack, level{map[string]bool{}, true})
		case json.Delim('['):
			stack = append(stack, level{})
		}
	}
}

// foldCase makes keys the same that encoding/json takes for the same.
func foldCase(key string) string { return strings.ToLower(strings.ToUpper(key)) }

// fields reads the members of an object and keeps what is wrong with them.
type fields struct {
	of   object
	errs []error
}

// err is all that was wrong, on one line.
func (f *fields) err() error {
	var all error
	for _, err := range f.errs {
		if all != nil {
			err = fmt.Errorf("%w; %w", all, err)
		}
		all = err
	}
	return all
}

// read puts the member called key into into, which stays as it is where the
// member is missing or null.
func (f *fields) read(key string, into any, want string) {
	raw, ok := f.of[key]
	if !ok || isNull(raw) {
		return
	}
	if json.Unmarshal(raw, into) != nil {
		f.errs = append(f.errs, fmt.Errorf("%s: want %s, got %s", key, want, kindOf(raw)))
	}
}

// rung reads an integer from 1 to 5, or, as pages may have it, its digit as a
// string.
func (f *fields) rung() int {
	raw, ok := f.of["rung"]
	if !ok || isNull(raw) {
		f.errs = append(f.errs, errors.New("rung: it is missing; want an integer from 1 to 5"))
		return 0
	}
	text := string(raw)
	var quoted string
	if json.Unmarshal(raw, &quoted) == nil {
		if text = quoted; strings.Trim(text, "0123456789") != "" {
			text = ""
		}
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || n != math.Trunc(n) || n < 1 || n > 5 {
		f.errs = append(f.errs, fmt.Errorf("rung: want an integer from 1 to 5, got %s", cut(raw)))
		return 0
	}
	return int(n)
}

func isNull(raw json.RawMessage) bool { return string(raw) == "null" }

// kindOf names the kind of a JSON value for people, and a number itself.
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
	return "the number " + cut(raw)
}

func cut(raw []byte) string { return string(raw[:min(len(raw), 40)]) }
