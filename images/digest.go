package images

import (
	"encoding/hex"
	"fmt"
	"strings"
)

// Digest is the SHA-256 of a content: it names the content and nothing else.
// The zero value is no digest; it is the only one besides those that
// ParseDigest and NewDigest return.
type Digest struct {
	hex string
}

const digestPrefix = "sha256:"

// ParseDigest reads "sha256:" and 64 lower-case hexadecimal digits.
func ParseDigest(s string) (Digest, error) {
	digits, ok := strings.CutPrefix(s, digestPrefix)
	if !ok || !isHex(digits) {
		return Digest{}, fmt.Errorf("digest %q: want sha256: and 64 lower-case hexadecimal digits", s)
	}
	return Digest{digits}, nil
}

// NewDigest is the digest whose bytes are sum.
func NewDigest(sum [32]byte) Digest { return Digest{hex.EncodeToString(sum[:])} }

func isHex(s string) bool {
	return len(s) == 64 && strings.Trim(s, "0123456789abcdef") == ""
}

// IsZero reports whether d is no digest.
func (d Digest) IsZero() bool { return d.hex == "" }

// Hex is the digits alone, "" for no digest.
func (d Digest) Hex() string { return d.hex }

// String is d as ParseDigest reads it, "" for no digest.
func (d Digest) String() string {
	if d.IsZero() {
		return ""
	}
	return digestPrefix + d.hex
}

// MarshalText is String, for JSON and the like.
func (d Digest) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText is ParseDigest. An empty text is no digest.
func (d *Digest) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*d = Digest{}
		return nil
	}
	got, err := ParseDigest(string(text))
	if err == nil {
		*d = got
	}
	return err
}
