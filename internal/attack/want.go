package attack

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/checkcell/checkcell/sandbox"
)

// Want is what a run may come to. A field that is not there is not looked at.
type Want struct {
	Kind     string `json:"kind"`
	ExitCode *int   `json:"exit_code"`
	Signal   *int   `json:"signal"`
	Resource string `json:"resource"`

	Stdout            *string         `json:"stdout"`
	Stderr            *string         `json:"stderr"`
	StdoutBase64      *string         `json:"stdout_base64"`
	StdoutContains    Texts           `json:"stdout_contains"`
	StderrContains    Texts           `json:"stderr_contains"`
	StdoutNotContains Texts           `json:"stdout_not_contains"`
	StderrNotContains Texts           `json:"stderr_not_contains"`
	StdoutBytes       *int64          `json:"stdout_bytes"` // that were kept
	StderrBytes       *int64          `json:"stderr_bytes"`
	Truncated         map[string]bool `json:"truncated"` // by stream

	LeftoversAtLeast *int64           `json:"leftovers_at_least"`
	LeftoversAtMost  *int64           `json:"leftovers_at_most"`
	UsageAtLeast     map[string]int64 `json:"usage_at_least"`
	UsageAtMost      map[string]int64 `json:"usage_at_most"`
	MinWallMS        *int64           `json:"min_wall_ms"`
	MaxWallMS        *int64           `json:"max_wall_ms"`
}

// Texts is one text or a list of them.
type Texts []string

// UnmarshalJSON reads either.
func (x *Texts) UnmarshalJSON(b []byte) error {
	var one string
	if json.Unmarshal(b, &one) == nil {
		*x = Texts{one}
		return nil
	}
	if err := json.Unmarshal(b, (*[]string)(x)); err != nil {
		return fmt.Errorf("%s is neither a text nor a list of texts: %w", b, err)
	}
	return nil
}

// mismatch collects in what a result is not what is wanted.
type mismatch []error

func (m *mismatch) add(format string, args ...any) { *m = append(*m, fmt.Errorf(format, args...)) }

// match names everything in which r is not what is wanted, joined.
func (w Want) match(r sandbox.Result) error {
	return errors.Join(w.matchOutcome(r.Outcome), w.matchStreams(r), w.matchFigures(r))
}

func (w Want) matchOutcome(o sandbox.Outcome) error {
	var m mismatch
	if got := o.Kind().String(); got != w.Kind {
		m.add("it ended as %v, want %s", o, w.Kind)
	}
	if got, ok := o.ExitCode(); w.ExitCode != nil && (!ok || got != *w.ExitCode) {
		m.add("it ended as %v, want exit code %d", o, *w.ExitCode)
	}
	if got, ok := o.Signal(); w.Signal != nil && (!ok || got != *w.Signal) {
		m.add("it ended as %v, want signal %d", o, *w.Signal)
	}
	if got, ok := o.Resource(); w.Resource != "" && (!ok || got.String() != w.Resource) {
		m.add("it ended as %v, want limit %s", o, w.Resource)
	}
	return errors.Join(m...)
}

func (w Want) matchStreams(r sandbox.Result) error {
	var m mismatch
	for _, s := range []struct {
		name               string
		have               sandbox.Capture
		whole              *string
		contains, excludes Texts
		kept               *int64
	}{
		{"stdout", r.Stdout, w.Stdout, w.StdoutContains, w.StdoutNotContains, w.StdoutBytes},
		{"stderr", r.Stderr, w.Stderr, w.StderrContains, w.StderrNotContains, w.StderrBytes},
	} {
		text := string(s.have.Kept)
		if s.whole != nil && text != *s.whole {
			m.add("%s is %.300q, want %.300q", s.name, text, *s.whole)
		}
		for _, part := range s.contains {
			if !strings.Contains(text, part) {
				m.add("%s is %.300q, want %q in it", s.name, text, part)
			}
		}
		for _, part := range s.excludes {
			if strings.Contains(text, part) {
				m.add("%s is %.300q, want no %q in it", s.name, text, part)
			}
		}
		if s.kept != nil && int64(len(text)) != *s.kept {
			m.add("%s has %d bytes, want %d", s.name, len(text), *s.kept)
		}
		if want, ok := w.Truncated[s.name]; ok && s.have.Truncated() != want {
			m.add("%s truncated is %v, want %v", s.name, s.have.Truncated(), want)
		}
	}
	if w.StdoutBase64 != nil {
		if got := base64.StdEncoding.EncodeToString(r.Stdout.Kept); got != *w.StdoutBase64 {
			m.add("stdout in base64 is %.300s, want %.300s", got, *w.StdoutBase64)
		}
	}
	return errors.Join(m...)
}

func (w Want) matchFigures(r sandbox.Result) error {
	var m mismatch
	bounds := func(name string, have sandbox.Reading, least, most *int64) {
		n, ok := have.Value()
		if least != nil && (!ok || n < *least) {
			m.add("%s is %s, want at least %d", name, words(have), *least)
		}
		if most != nil && (!ok || n > *most) {
			m.add("%s is %s, want at most %d", name, words(have), *most)
		}
	}
	bounds("leftovers", r.Leftovers, w.LeftoversAtLeast, w.LeftoversAtMost)
	for _, name := range slices.Sorted(maps.Keys(w.UsageAtLeast)) {
		least := w.UsageAtLeast[name]
		bounds(name, reading(r, name), &least, nil)
	}
	for _, name := range slices.Sorted(maps.Keys(w.UsageAtMost)) {
		most := w.UsageAtMost[name]
		bounds(name, reading(r, name), nil, &most)
	}
	took := r.Ended.Sub(r.Started)
	if ms := w.MinWallMS; ms != nil && took < time.Duration(*ms)*time.Millisecond {
		m.add("it took %v, want at least %dms", took, *ms)
	}
	if ms := w.MaxWallMS; ms != nil && took > time.Duration(*ms)*time.Millisecond*patience {
		m.add("it took %v, want at most %dms", took, *ms*patience)
	}
	return errors.Join(m...)
}

// reading is the counter called name, and not known for every other name.
func reading(r sandbox.Result, name string) sandbox.Reading {
	switch name {
	case "oom_kills":
		return r.Evidence.Usage.OOMKills
	case "pids_max_hits":
		return r.Evidence.Usage.PIDsMaxHits
	}
	return sandbox.Reading{}
}

func words(r sandbox.Reading) string {
	if n, ok := r.Value(); ok {
		return fmt.Sprint(n)
	}
	return "not known"
}
