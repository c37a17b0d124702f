package grade

import (
	"fmt"
	"slices"
)

// Verdict is what grading concludes. The set is closed.
type Verdict uint8

// The verdicts. The zero value says nothing on the claim.
const (
	Unrunnable   Verdict = iota // the check did not test the claim: environment, budget or caller
	Uncheckable                 // the recorded evidence can't decide the claim at its rung
	Contradicted                // the check ran to its end and refuted the claim
	SilentCheck                 // exit 0 and an expectation, but nothing was printed
	Verified                    // exit 0, and the expectation, if any, is in the output
)

var verdictWords = [...]string{"unrunnable", "uncheckable", "contradicted", "silent-check", "verified"}

// String returns the word that stands for v in JSON.
func (v Verdict) String() string { return word(verdictWords[:], uint8(v), "Verdict") }

// MarshalText writes the verdict's word.
func (v Verdict) MarshalText() ([]byte, error) { return marshal(verdictWords[:], uint8(v), "verdict") }

// UnmarshalText reads the verdict's word and refuses any other.
func (v *Verdict) UnmarshalText(text []byte) error {
	i, err := unmarshal(verdictWords[:], text, "verdict")
	if err == nil {
		*v = Verdict(i)
	}
	return err
}

// NoteKind is the reason behind a verdict that says nothing on the claim. The
// set is closed.
type NoteKind uint8

// The kinds of note. The zero value is no note.
const (
	NoNote NoteKind = iota
	NoCheck
	ConstantEmitter
	LongFirstWord
	SelfCertifying
	NoExpectation
	MultilineExpectation
	InvalidShellSyntax
	Deadline
	Aborted
	TruncatedOutput
	Limit
	NotStarted
	CleanupFailed
	Signaled
	UnknownStatus
	UnreachedInput
)

var noteWords = [...]string{"", "NO_CHECK", "CONSTANT_EMITTER", "LONG_FIRST_WORD", "SELF_CERTIFYING",
	"NO_EXPECTATION", "MULTILINE_EXPECTATION", "INVALID_SHELL_SYNTAX", "DEADLINE", "ABORTED",
	"TRUNCATED_OUTPUT", "LIMIT", "NOT_STARTED", "CLEANUP_FAILED", "SIGNALED", "UNKNOWN_STATUS",
	"UNREACHED_INPUT"}

// String returns the word that stands for k in JSON; "" for no note.
func (k NoteKind) String() string { return word(noteWords[:], uint8(k), "NoteKind") }

// MarshalText writes the kind's word; nothing for no note.
func (k NoteKind) MarshalText() ([]byte, error) { return marshal(noteWords[:], uint8(k), "note kind") }

// UnmarshalText reads the kind's word and refuses any other. Nothing is no note.
func (k *NoteKind) UnmarshalText(text []byte) error {
	i, err := unmarshal(noteWords[:], text, "note kind")
	if err == nil {
		*k = NoteKind(i)
	}
	return err
}

// Grade is a verdict with its reason. The zero value is unrunnable without a
// note, which is the grade of a claim that was never executed.
type Grade struct {
	Verdict  Verdict
	NoteKind NoteKind
	// Note says the reason to people, naming the limit, the signal or the text
	// at fault. It can quote what the check printed, line feeds and control
	// characters too: whoever shows it on a terminal escapes it.
	Note string
}

func word(words []string, i uint8, set string) string {
	if int(i) < len(words) {
		return words[i]
	}
	return fmt.Sprintf("%s(%d)", set, i)
}

func marshal(words []string, i uint8, set string) ([]byte, error) {
	if int(i) < len(words) {
		return []byte(words[i]), nil
	}
	return nil, fmt.Errorf("write %s: %d is outside the set", set, i)
}

func unmarshal(words []string, text []byte, set string) (int, error) {
	i := slices.Index(words, string(text))
	if i < 0 {
		return 0, fmt.Errorf("read %s: %q is none of %q", set, text, words)
	}
	return i, nil
}
