package images

import (
	"crypto/sha256"
	"encoding/json"
	"strings"
	"testing"
)

func TestDigest(t *testing.T) {
	const empty = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	d, err := ParseDigest(empty)
	if err != nil || d != NewDigest(sha256.Sum256(nil)) || d.String() != empty || d.IsZero() || d.Hex() != empty[7:] {
		t.Errorf("ParseDigest(%q) = %v, %v, want that of nothing", empty, d, err)
	}
	for _, s := range []string{"", "sha256:", empty[7:], empty + "0", strings.ToUpper(empty), "sha512:" + empty[7:], empty[:70] + "g", " " + empty} {
		if got, err := ParseDigest(s); err == nil || !got.IsZero() {
			t.Errorf("ParseDigest(%q) = %v, %v, want no digest and an error", s, got, err)
		}
	}
	if (Digest{}).String() != "" {
		t.Errorf("the zero digest is written %q, want nothing", Digest{})
	}
}

func TestDigestJSON(t *testing.T) {
	type pair struct{ A, B Digest }
	in := pair{A: sum}
	text, err := json.Marshal(in)
	if err != nil || string(text) != `{"A":"`+sumText+`","B":""}` {
		t.Errorf("Marshal(%v) = %s, %v", in, text, err)
	}
	var out pair
	if err := json.Unmarshal(text, &out); err != nil || out != in {
		t.Errorf("Unmarshal(%s) = %v, %v, want %v", text, out, err, in)
	}
	if err := json.Unmarshal([]byte(`{"A":"sha256:1"}`), &out); err == nil || out != in {
		t.Errorf("Unmarshal of a bad digest = %v, %v, want an error and %v unchanged", out, err, in)
	}
}
