package sandbox

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"
)

// ResultSchema names the JSON form of a Result.
const ResultSchema = "checkcell.result/v1"

// The wire form, in the order of design.md, section 3.
type resultJSON struct {
	Schema          string      `json:"schema"`
	ID              string      `json:"id"`
	Backend         string      `json:"backend"`
	Outcome         Outcome     `json:"outcome"`
	Terminal        string      `json:"terminal"`
	Success         bool        `json:"success"`
	Stdout          Capture     `json:"stdout"`
	Stderr          Capture     `json:"stderr"`
	Usage           usageJSON   `json:"usage"`
	Leftovers       Reading     `json:"leftovers"`
	Killed          bool        `json:"killed"`
	Cleanup         Cleanup     `json:"cleanup"`
	Receipt         receiptJSON `json:"receipt"`
	MissingEvidence []string    `json:"missing_evidence"`
	SpecDigest      string      `json:"spec_digest"`
	ImageDigest     string      `json:"image_digest"`
	Started         time.Time   `json:"started"`
	Ended           time.Time   `json:"ended"`
}

type usageJSON struct {
	WallNS          int64   `json:"wall_ns"`
	CPUNS           Reading `json:"cpu_ns"`
	PeakMemoryBytes Reading `json:"peak_memory_bytes"`
	PeakPIDs        Reading `json:"peak_pids"`
	OOMKills        Reading `json:"oom_kills"`
	PIDsMaxHits     Reading `json:"pids_max_hits"`
}

type receiptJSON struct {
	Cgroup   string             `json:"cgroup"`
	Controls map[Control]string `json:"controls"`
	Missing  []Control          `json:"missing"`
}

// MarshalJSON writes checkcell.result/v1. A reading that is not known is null.
func (r Result) MarshalJSON() ([]byte, error) {
	u, rec := r.Evidence.Usage, r.Evidence.Receipt
	w := resultJSON{
		Schema: ResultSchema, ID: r.ID, Backend: r.Backend,
		Outcome: r.Outcome, Terminal: r.Terminal(), Success: r.Success(),
		Stdout: r.Stdout, Stderr: r.Stderr,
		Usage:     usageJSON{u.Wall.Nanoseconds(), u.CPU, u.PeakMemory, u.PeakPIDs, u.OOMKills, u.PIDsMaxHits},
		Leftovers: r.Leftovers, Killed: r.Killed, Cleanup: r.Cleanup,
		Receipt:         receiptJSON(rec),
		MissingEvidence: r.Evidence.Missing,
		SpecDigest:      r.Evidence.SpecDigest, ImageDigest: r.Evidence.ImageDigest,
		Started: r.Started.UTC(), Ended: r.Ended.UTC(),
	}
	if w.Receipt.Cgroup == "" {
		w.Receipt.Cgroup = "none"
	}
	if w.Receipt.Controls == nil {
		w.Receipt.Controls = map[Control]string{}
	}
	if w.Receipt.Missing == nil {
		w.Receipt.Missing = []Control{}
	}
	if w.MissingEvidence == nil {
		w.MissingEvidence = []string{}
	}
	return marshalPlain(w)
}

// UnmarshalJSON reads checkcell.result/v1. Unknown keys are let be; another
// schema, a missing outcome, and a terminal or success that the outcome and
// the cleanup don't give are refused, so that a forged summary can't stand
// beside honest facts.
func (r *Result) UnmarshalJSON(data []byte) error {
	var has struct {
		Outcome json.RawMessage `json:"outcome"`
		Success *bool           `json:"success"`
	}
	var w resultJSON
	if err := errors.Join(json.Unmarshal(data, &has), json.Unmarshal(data, &w)); err != nil {
		return fmt.Errorf("read result: %w", err)
	}
	if w.Schema != ResultSchema {
		return fmt.Errorf("read result: schema %q is not %s", w.Schema, ResultSchema)
	}
	if has.Outcome == nil {
		return errors.New("read result: there is no outcome")
	}
	got := Result{
		ID: w.ID, Backend: w.Backend, Outcome: w.Outcome, Stdout: w.Stdout, Stderr: w.Stderr,
		Leftovers: w.Leftovers, Killed: w.Killed, Cleanup: w.Cleanup,
		Evidence: Evidence{
			Usage: Usage{time.Duration(w.Usage.WallNS), w.Usage.CPUNS, w.Usage.PeakMemoryBytes,
				w.Usage.PeakPIDs, w.Usage.OOMKills, w.Usage.PIDsMaxHits},
			Receipt:    Receipt(w.Receipt),
			SpecDigest: w.SpecDigest, ImageDigest: w.ImageDigest, Missing: w.MissingEvidence,
		},
		Started: w.Started, Ended: w.Ended,
	}
	if w.Terminal != "" && w.Terminal != got.Terminal() {
		return fmt.Errorf("read result: terminal %q, but outcome and cleanup say %q", w.Terminal, got.Terminal())
	}
	if has.Success != nil && *has.Success != got.Success() {
		return fmt.Errorf("read result: success %v, but outcome and cleanup say %v", *has.Success, got.Success())
	}
	*r = got
	return nil
}

type captureJSON struct {
	Text      string  `json:"text"`
	Base64    *string `json:"base64,omitempty"`
	Bytes     int64   `json:"bytes"`
	Kept      int64   `json:"kept"`
	Truncated bool    `json:"truncated"`
	SHA256    string  `json:"sha256"`
}

// Text returns the kept bytes as UTF-8, each undecodable byte as U+FFFD.
func (c Capture) Text() string { return decode(c.Kept) }

// MarshalJSON writes the text, and the bytes themselves as base64 only where
// they are not valid UTF-8.
func (c Capture) MarshalJSON() ([]byte, error) {
	w := captureJSON{Text: c.Text(), Bytes: c.Total, Kept: int64(len(c.Kept)),
		Truncated: c.Truncated(), SHA256: hex.EncodeToString(c.SHA256[:])}
	if !utf8.Valid(c.Kept) {
		b := base64.StdEncoding.EncodeToString(c.Kept)
		w.Base64 = &b
	}
	return marshalPlain(w)
}

// UnmarshalJSON reads what MarshalJSON writes.
func (c *Capture) UnmarshalJSON(data []byte) error {
	var w captureJSON
	if err := json.Unmarshal(data, &w); err != nil {
		return fmt.Errorf("read stream: %w", err)
	}
	got := Capture{Kept: []byte(w.Text), Total: w.Bytes}
	if w.Base64 != nil {
		b, err := base64.StdEncoding.DecodeString(*w.Base64)
		if err != nil {
			return fmt.Errorf("read stream: base64: %w", err)
		}
		got.Kept = b
	}
	if w.SHA256 != "" {
		sum, err := hex.DecodeString(w.SHA256)
		if err != nil || len(sum) != len(got.SHA256) {
			return fmt.Errorf("read stream: sha256 %q is not 64 hexadecimal digits", w.SHA256)
		}
		copy(got.SHA256[:], sum)
	}
	if int64(len(got.Kept)) != w.Kept || got.Truncated() != w.Truncated || w.Bytes < w.Kept {
		return fmt.Errorf("read stream: %d bytes are there, but bytes %d, kept %d, truncated %v", len(got.Kept), w.Bytes, w.Kept, w.Truncated)
	}
	*c = got
	return nil
}

// MarshalJSON writes the number, or null where it is not known.
func (r Reading) MarshalJSON() ([]byte, error) {
	if !r.known {
		return []byte("null"), nil
	}
	return json.Marshal(r.n)
}

// UnmarshalJSON reads what MarshalJSON writes.
func (r *Reading) UnmarshalJSON(data []byte) error {
	if bytes.Equal(data, []byte("null")) {
		*r = Reading{}
		return nil
	}
	var n int64
	if err := json.Unmarshal(data, &n); err != nil {
		return err
	}
	*r = Read(n)
	return nil
}

type cleanupJSON struct {
	State  string `json:"state"`
	Detail string `json:"detail"`
}

// MarshalJSON writes the state's word and the detail.
func (c Cleanup) MarshalJSON() ([]byte, error) {
	return marshalPlain(cleanupJSON{State: c.State.String(), Detail: c.Detail})
}

// UnmarshalJSON reads what MarshalJSON writes and refuses any other word.
func (c *Cleanup) UnmarshalJSON(data []byte) error {
	var w cleanupJSON
	if err := json.Unmarshal(data, &w); err != nil {
		return fmt.Errorf("read cleanup: %w", err)
	}
	i := slices.Index(cleanupWords[:], w.State)
	if i < 0 {
		return fmt.Errorf("read cleanup: state %q is none of %v", w.State, cleanupWords)
	}
	*c = Cleanup{State: CleanupState(i), Detail: w.Detail}
	return nil
}

// marshalPlain is json.Marshal without the escapes that only HTML needs.
func marshalPlain(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
