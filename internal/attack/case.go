// Package attack tries on a host, in cells of the user's own kind, what hostile
// checks do: get out, outlive the cell, starve the neighbours, forge evidence.
// The cases are those of the hostile corpus (e2e/testdata/hostile.jsonl) that
// ask nothing of the host and do no harm outside a cell that does not hold.
package attack

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/checkcell/checkcell/sandbox"
)

//go:embed corpus.jsonl
var corpus string

// Case is one hostile check and what may come of it.
type Case struct {
	Name   string            `json:"name"`
	Family string            `json:"family"`
	Check  string            `json:"check"`
	Needs  []string          `json:"needs"` // programs besides bash, coreutils and util-linux
	Files  map[string]string `json:"files"` // laid out in the working directory
	Limits map[string]int64  `json:"limits"`

	Want    *Want  `json:"want"` // or
	WantAny []Want `json:"want_any"`

	// Next is a second run directly after, which must see nothing of the first.
	Next *Second `json:"next"`

	Why string `json:"why"` // the wanted answer is right
}

// Second is a run after a Case, with the same files and limits.
type Second struct {
	Check string `json:"check"`
	Want  *Want  `json:"want"`
}

// line is a Case as the corpus has it, with what only the tests of the program
// look at.
type line struct {
	Case
	After        []string `json:"after"`
	Fault        string   `json:"fault"`
	Source       []string `json:"source"`
	Validated    bool     `json:"validated"`
	ValidatedHow string   `json:"validated_how"`
}

// Corpus returns the cases in their order. An error means that the program was
// built wrong.
func Corpus() ([]Case, error) { return readCases(corpus) }

func readCases(text string) ([]Case, error) {
	var all []Case
	for row := range strings.Lines(text) {
		var l line
		d := json.NewDecoder(strings.NewReader(row))
		d.DisallowUnknownFields() // a key that nobody looks at would be a rule that nobody keeps
		if err := d.Decode(&l); err != nil {
			return nil, fmt.Errorf("read case %d: %w", len(all)+1, err)
		}
		if err := l.validate(); err != nil {
			return nil, fmt.Errorf("read case %d, %q: %w", len(all)+1, l.Name, err)
		}
		all = append(all, l.Case)
	}
	return all, nil
}

func (c Case) validate() error {
	if c.Name == "" || c.Check == "" {
		return errors.New("want a name and a check")
	}
	if (c.Want != nil) == (len(c.WantAny) > 0) || c.Next != nil && c.Next.Want == nil {
		return errors.New("want either want or want_any, and want of the next run")
	}
	_, _, err := c.limits(sandbox.DefaultLimits())
	return err
}

// wants are the answers that are right.
func (c Case) wants() []Want {
	if c.Want != nil {
		return []Want{*c.Want}
	}
	return c.WantAny
}

// patience stretches the times of the corpus, which were measured on an idle
// machine; the user's host may have other work.
const patience = 2

// limits are the user's, with the case's in the place of those that are wider.
// Where the user's are narrower than the case needs, short says which.
func (c Case) limits(user sandbox.Limits) (l sandbox.Limits, short string, err error) {
	l = user
	for _, name := range slices.Sorted(maps.Keys(c.Limits)) {
		n := c.Limits[name]
		enough := true
		switch name {
		case "wall_ms":
			l.Wall = min(l.Wall, time.Duration(n)*time.Millisecond*patience)
		case "cpu_ms":
			enough = narrow(&l.CPUTime, time.Duration(n)*time.Millisecond)
		case "memory_mib":
			enough = narrow(&l.Memory, sandbox.Bytes(n)*sandbox.MiB)
		case "pids":
			enough = narrow(&l.Processes, n)
		case "stdout_bytes":
			enough = lower(&l.Stdout, sandbox.Bytes(n))
		case "stderr_bytes":
			enough = lower(&l.Stderr, sandbox.Bytes(n))
		case "disk_mib":
			enough = lower(&l.Disk, sandbox.Bytes(n)*sandbox.MiB)
		case "inodes":
			enough = lower(&l.Inodes, n)
		default:
			return l, "", fmt.Errorf("limit %q is unknown", name)
		}
		if !enough && short == "" {
			short = fmt.Sprintf("the case needs %s of at least %d", name, n)
		}
	}
	return l, short, nil
}

// lower lowers v to n. It returns false where v is below already.
func lower[T ~int64](v *T, n T) bool {
	if *v < n {
		return false
	}
	*v = n
	return true
}

func narrow[T ~int64](l *sandbox.Limit[T], n T) bool {
	if v, ok := l.Value(); ok && v < n {
		return false
	}
	*l = sandbox.At(n)
	return true
}

// files are the case's, sorted by path.
func (c Case) files() []sandbox.File {
	var all []sandbox.File
	for _, path := range slices.Sorted(maps.Keys(c.Files)) {
		all = append(all, sandbox.File{Path: path, Content: []byte(c.Files[path])})
	}
	return all
}
