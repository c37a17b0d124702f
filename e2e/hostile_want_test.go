package e2e

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// kindNone is wanted of a run whose checkcell was killed: no result may exist.
const kindNone = "none"

// hostileWant is what one run may come to. A field that is not there is not
// looked at.
type hostileWant struct {
	Kind     string `json:"kind"`
	ExitCode *int   `json:"exit_code"`
	Signal   *int   `json:"signal"`
	Resource string `json:"resource"`

	Stdout            *string         `json:"stdout"`
	Stderr            *string         `json:"stderr"`
	StdoutBase64      *string         `json:"stdout_base64"`
	StdoutContains    texts           `json:"stdout_contains"`
	StderrContains    texts           `json:"stderr_contains"`
	StdoutNotContains texts           `json:"stdout_not_contains"`
	StderrNotContains texts           `json:"stderr_not_contains"`
	StdoutBytes       *int64          `json:"stdout_bytes"` // that were kept
	StderrBytes       *int64          `json:"stderr_bytes"`
	Truncated         map[string]bool `json:"truncated"` // by stream

	LeftoversAtLeast *int64           `json:"leftovers_at_least"`
	LeftoversAtMost  *int64           `json:"leftovers_at_most"`
	UsageAtLeast     map[string]int64 `json:"usage_at_least"`
	UsageAtMost      map[string]int64 `json:"usage_at_most"`
	MinWallMS        *int64           `json:"min_wall_ms"`
	MaxWallMS        *int64           `json:"max_wall_ms"`

	Collected map[string]string `json:"collected"` // nothing collects yet
}

// texts is one text or a list of them.
type texts []string

func (x *texts) UnmarshalJSON(b []byte) error {
	var one string
	if json.Unmarshal(b, &one) == nil {
		*x = texts{one}
		return nil
	}
	if err := json.Unmarshal(b, (*[]string)(x)); err != nil {
		return fmt.Errorf("%s is neither a text nor a list of texts: %w", b, err)
	}
	return nil
}

// outcome is how a run ended; each kind has its own keys.
type outcome struct {
	Kind     string  `json:"kind"`
	ExitCode *int    `json:"exit_code"`
	Signal   *int    `json:"signal"`
	Resource string  `json:"resource"`
	AfterNS  *int64  `json:"after_ns"`
	Detail   *string `json:"detail"`
}

// measured is a result whose usage tells 0 from null.
type measured struct {
	result
	Usage map[string]*int64 `json:"usage"`
}

// show is the value behind p, and "null" where there is none.
func show[T any](p *T) string {
	if p == nil {
		return "null"
	}
	return fmt.Sprint(*p)
}

// wrong collects what is wrong.
type wrong []error

func (f *wrong) add(format string, args ...any) { *f = append(*f, fmt.Errorf(format, args...)) }

// matchAny returns nil if one of wants is met, or why none is.
func matchAny(wants []hostileWant, got ended, slow float64) error {
	var all []error
	for _, want := range wants {
		err := want.match(got, slow)
		if err == nil {
			return nil
		}
		all = append(all, err)
	}
	return errors.Join(all...)
}

// match names everything in which got is not what is wanted. The most that a
// run may take is stretched by slow.
func (w hostileWant) match(got ended, slow float64) error {
	if w.Kind == kindNone {
		if got.code != -1 || got.stdout != "" {
			return fmt.Errorf("run = %d with stdout %q, want a death by signal and no result", got.code, got.stdout)
		}
		return nil
	}
	var r measured
	if err := json.Unmarshal([]byte(got.stdout), &r); err != nil {
		return fmt.Errorf("run = %d with stdout %.300q, want a result: %w", got.code, got.stdout, err)
	}
	var o outcome
	if err := json.Unmarshal(r.Outcome, &o); err != nil {
		return fmt.Errorf("outcome %s: %w", r.Outcome, err)
	}
	return errors.Join(w.matchOutcome(o), consistent(got.code, r, o), w.matchStreams(r), w.matchFigures(r, slow))
}

func (w hostileWant) matchOutcome(o outcome) error {
	var f wrong
	if o.Kind != w.Kind {
		f.add("kind is %s, want %s", o.Kind, w.Kind)
	}
	if w.ExitCode != nil && (o.ExitCode == nil || *o.ExitCode != *w.ExitCode) {
		f.add("exit_code is %s, want %d", show(o.ExitCode), *w.ExitCode)
	}
	if w.Signal != nil && (o.Signal == nil || *o.Signal != *w.Signal) {
		f.add("signal is %s, want %d", show(o.Signal), *w.Signal)
	}
	if w.Resource != "" && o.Resource != w.Resource {
		f.add("resource is %q, want %q", o.Resource, w.Resource)
	}
	return errors.Join(f...)
}

// consistent holds of every result: the program's exit code is that of the
// outcome, the cell is gone, and success is exit 0 and nothing else.
func consistent(code int, r measured, o outcome) error {
	var f wrong
	if want := exitCodeOf(o); code != want {
		f.add("run = %d for outcome %s, want %d", code, r.Outcome, want)
	}
	if r.Cleanup.State != "done" || r.Terminal != o.Kind {
		f.add("cleanup is %q (%s) and terminal %q, want done and %q", r.Cleanup.State, r.Cleanup.Detail, r.Terminal, o.Kind)
	}
	if want := o.Kind == "exited" && o.ExitCode != nil && *o.ExitCode == 0; r.Success != want {
		f.add("success is %v for outcome %s, want %v", r.Success, r.Outcome, want)
	}
	if (o.Kind == "exited") != (o.ExitCode != nil) {
		f.add("outcome %s has exit_code %s, want one for exited only", r.Outcome, show(o.ExitCode))
	}
	return errors.Join(f...)
}

// exitCodeOf is the table of design.md, section 5, for a clean run; 125 is
// that of every kind that says nothing of the check.
func exitCodeOf(o outcome) int {
	switch {
	case o.Kind == "exited" && o.ExitCode != nil:
		return *o.ExitCode
	case o.Kind == "signaled" && o.Signal != nil:
		return 128 + *o.Signal
	case o.Kind == "timed_out":
		return 124
	case o.Kind == "limit_exceeded":
		return 137
	case o.Kind == "canceled":
		return 130
	}
	return 125
}

// content is the bytes of a stream.
func (c capture) content() (string, error) {
	if c.Base64 == nil {
		return c.Text, nil
	}
	b, err := base64.StdEncoding.DecodeString(*c.Base64)
	return string(b), err
}

func (w hostileWant) matchStreams(r measured) error {
	var f wrong
	for _, s := range []struct {
		name               string
		have               capture
		whole              *string
		contains, excludes texts
		kept               *int64
	}{
		{"stdout", r.Stdout, w.Stdout, w.StdoutContains, w.StdoutNotContains, w.StdoutBytes},
		{"stderr", r.Stderr, w.Stderr, w.StderrContains, w.StderrNotContains, w.StderrBytes},
	} {
		text, err := s.have.content()
		if err != nil {
			f.add("%s: %w", s.name, err)
		}
		if s.whole != nil && text != *s.whole {
			f.add("%s is %.600q, want %.600q", s.name, text, *s.whole)
		}
		for _, part := range s.contains {
			if !strings.Contains(text, part) {
				f.add("%s is %.600q, want %q in it", s.name, text, part)
			}
		}
		for _, part := range s.excludes {
			if strings.Contains(text, part) {
				f.add("%s is %.600q, want no %q in it", s.name, text, part)
			}
		}
		if s.kept != nil && (s.have.Kept != *s.kept || int64(len(text)) != *s.kept) {
			f.add("%s has %d bytes and kept says %d, want %d", s.name, len(text), s.have.Kept, *s.kept)
		}
		if want, ok := w.Truncated[s.name]; ok && s.have.Truncated != want {
			f.add("%s truncated is %v, want %v", s.name, s.have.Truncated, want)
		}
		if s.name == "stdout" && w.StdoutBase64 != nil {
			if got := base64.StdEncoding.EncodeToString([]byte(text)); got != *w.StdoutBase64 {
				f.add("stdout in base64 is %s, want %s", got, *w.StdoutBase64)
			}
		}
	}
	return errors.Join(f...)
}

func (w hostileWant) matchFigures(r measured, slow float64) error {
	var f wrong
	if n := w.LeftoversAtLeast; n != nil && (r.Leftovers == nil || *r.Leftovers < *n) {
		f.add("leftovers is %s, want at least %d", show(r.Leftovers), *n)
	}
	if n := w.LeftoversAtMost; n != nil && (r.Leftovers == nil || *r.Leftovers > *n) {
		f.add("leftovers is %s, want at most %d", show(r.Leftovers), *n)
	}
	for name, least := range w.UsageAtLeast {
		if n, ok := r.Usage[name]; !ok || n == nil || *n < least {
			f.add("usage.%s is %s, want at least %d", name, show(n), least)
		}
	}
	for name, most := range w.UsageAtMost {
		if n, ok := r.Usage[name]; !ok || n == nil || *n > most {
			f.add("usage.%s is %s, want at most %d", name, show(n), most)
		}
	}
	took := r.Ended.Sub(r.Started).Round(time.Millisecond)
	if w.MinWallMS != nil && took < stretched(*w.MinWallMS, 1) { // the script sleeps as long on any machine
		f.add("it took %v, want at least %v", took, stretched(*w.MinWallMS, 1))
	}
	if w.MaxWallMS != nil && took > stretched(*w.MaxWallMS, slow) {
		f.add("it took %v, want at most %v", took, stretched(*w.MaxWallMS, slow))
	}
	return errors.Join(f...)
}
