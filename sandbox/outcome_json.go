package sandbox

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// outcomeJSON is the wire form of an Outcome. Pointers tell an absent field
// from a zero one, so that mixed fields can be refused.
type outcomeJSON struct {
	Kind     string  `json:"kind"`
	ExitCode *int    `json:"exit_code,omitempty"`
	Signal   *int    `json:"signal,omitempty"`
	AfterNS  *int64  `json:"after_ns,omitempty"`
	Resource *string `json:"resource,omitempty"`
	Detail   *string `json:"detail,omitempty"`
}

// MarshalJSON writes the kind's word and the one field that goes with it.
func (o Outcome) MarshalJSON() ([]byte, error) {
	w := outcomeJSON{Kind: o.kind.String()}
	switch o.kind {
	case KindExited:
		n := int(o.code)
		w.ExitCode = &n
	case KindSignaled:
		n := int(o.signal)
		w.Signal = &n
	case KindTimedOut:
		n := o.after.Nanoseconds()
		w.AfterNS = &n
	case KindLimitExceeded:
		s := o.resource.String()
		w.Resource = &s
	case KindUnknown, KindCanceled, KindStartFailed:
		w.Detail = &o.detail
	}
	return json.Marshal(w)
}

// UnmarshalJSON reads what MarshalJSON writes. It refuses a word outside the
// closed set, a field that does not go with the kind, and a missing one.
func (o *Outcome) UnmarshalJSON(data []byte) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	var w outcomeJSON
	if err := dec.Decode(&w); err != nil {
		return fmt.Errorf("read outcome: %w", err)
	}
	got, err := w.outcome()
	if err != nil {
		return fmt.Errorf("read outcome: %w", err)
	}
	*o = got
	return nil
}

func (w outcomeJSON) outcome() (Outcome, error) {
	i := slices.Index(kindWords[:], w.Kind)
	if i < 0 {
		return Outcome{}, fmt.Errorf("kind %q is none of %v", w.Kind, kindWords)
	}
	kind := Kind(i)
	if err := w.onlyFieldsOf(kind); err != nil {
		return Outcome{}, err
	}
	switch kind {
	case KindExited:
		if *w.ExitCode < 0 || *w.ExitCode > 255 {
			return Outcome{}, fmt.Errorf("exit_code %d is outside 0..255", *w.ExitCode)
		}
		return Exited(uint8(*w.ExitCode)), nil
	case KindSignaled:
		if *w.Signal < 1 || *w.Signal > 64 {
			return Outcome{}, fmt.Errorf("signal %d is outside 1..64", *w.Signal)
		}
		return Signaled(uint8(*w.Signal)), nil
	case KindTimedOut:
		if *w.AfterNS < 0 {
			return Outcome{}, fmt.Errorf("after_ns %d is negative", *w.AfterNS)
		}
		return TimedOut(time.Duration(*w.AfterNS)), nil
	case KindLimitExceeded:
		r := slices.Index(resourceWords[:], *w.Resource)
		if r <= 0 {
			return Outcome{}, fmt.Errorf("resource %q is none of %v", *w.Resource, resourceWords[1:])
		}
		return LimitExceeded(Resource(r)), nil
	case KindUnknown, KindCanceled, KindStartFailed:
		detail := ""
		if w.Detail != nil {
			detail = *w.Detail
		}
		return Outcome{kind: kind, detail: detail}, nil
	}
	return Outcome{}, nil
}

// onlyFieldsOf checks that the fields present are those that kind carries.
// Only detail may be left out.
func (w outcomeJSON) onlyFieldsOf(kind Kind) error {
	fields := []struct {
		name  string
		has   bool
		owner []Kind
	}{
		{"exit_code", w.ExitCode != nil, []Kind{KindExited}},
		{"signal", w.Signal != nil, []Kind{KindSignaled}},
		{"after_ns", w.AfterNS != nil, []Kind{KindTimedOut}},
		{"resource", w.Resource != nil, []Kind{KindLimitExceeded}},
		{"detail", w.Detail != nil, []Kind{KindUnknown, KindCanceled, KindStartFailed}},
	}
	for _, f := range fields {
		owns := slices.Contains(f.owner, kind)
		if f.has && !owns {
			return fmt.Errorf("%s does not go with kind %s", f.name, kind)
		}
		if !f.has && owns && f.name != "detail" {
			return fmt.Errorf("kind %s needs %s", kind, f.name)
		}
	}
	return nil
}
