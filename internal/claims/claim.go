package claims

import (
	"encoding/json"
	"fmt"

	"github.com/checkcell/checkcell/grade"
	"github.com/checkcell/checkcell/sandbox"
)

// Claim is one claim as its author wrote it.
type Claim struct {
	ID       string // name:line where the author gave none, name:line.2 for a second one on the line
	Title    string // "" where there is none
	Evidence grade.Evidence
	Files    []sandbox.File // by path
	Settings Settings
	Raw      json.RawMessage            // the claim as read, as a JSON object
	Extra    map[string]json.RawMessage // the keys that have no meaning here; nil without any
	Place    Place
}

// Place is where a claim or an error is in the sources.
type Place struct {
	File string // as it was named to Open, or found below a directory
	Line int    // from 1; 0 is the file as a whole
}

// String writes the place as compilers do.
func (p Place) String() string {
	if p.Line == 0 {
		return p.File
	}
	return fmt.Sprintf("%s:%d", p.File, p.Line)
}

// Error is a problem with a claim or with a source.
type Error struct {
	Place Place
	Key   string // the claim's key that is at fault; "" if none is
	Err   error
}

// Error names the place, the key and the problem.
func (e *Error) Error() string {
	if e.Key == "" {
		return fmt.Sprintf("%v: %v", e.Place, e.Err)
	}
	return fmt.Sprintf("%v: %s: %v", e.Place, e.Key, e.Err)
}

// Unwrap returns the problem itself.
func (e *Error) Unwrap() error { return e.Err }

// keyed is a problem with one key, before its place is known.
func keyed(key string, err error) error { return &Error{Key: key, Err: err} }

// at puts a place to errs.
func at(p Place, errs []error) []error {
	for i, err := range errs {
		if e, ok := err.(*Error); ok {
			e.Place = p
		} else {
			errs[i] = &Error{Place: p, Err: err}
		}
	}
	return errs
}
