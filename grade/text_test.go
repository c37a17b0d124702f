package grade

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/checkcell/checkcell/sandbox"
)

func TestBlank(t *testing.T) {
	want := map[rune]bool{'\uFEFF': true, '\u2028': true, '\u2029': true, '\t': true, '\n': true, '\v': true, '\f': true, '\r': true}
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if got, want := blank(r), want[r] || unicode.Is(unicode.Zs, r); got != want {
			t.Errorf("blank(%U) = %v, want %v", r, got, want)
		}
	}
	for _, r := range []rune{'\u0085', '\u200b', '\u180e', 0, '\u001c'} {
		if blank(r) {
			t.Errorf("blank(%U) = true, want false", r)
		}
	}
	for _, r := range []rune{' ', '\u00a0', '\u1680', '\u2003', '\u202f', '\u205f', '\u3000'} {
		if !blank(r) {
			t.Errorf("blank(%U) = false, want true", r)
		}
	}
}

func TestLower(t *testing.T) {
	for in, want := range map[string]string{
		"":               "",
		"AbC":            "abc",
		"İ":              "i\u0307",
		"Iı":             "iı",
		"Σ":              "σ",
		"ΣΑΣ":            "σας",
		"ΟΔΥΣΣΕΥΣ Α":     "οδυσσευς α",
		"ΑΣ.":            "ας.",
		"ΑΣ.Α":           "ασ.α", // a full stop may be ignored, so the word goes on
		"ΑΣ'Α":           "ασ'α",
		"Α'Σ":            "α'ς",
		"'Σ":             "'σ",
		"ΑΣ\u0301":       "ας\u0301",
		"Α\u00ADΣ\u00AD": "α\u00ADς\u00AD",
		"ΑΣ-Α":           "ας-α",
		"ΑΣ1":            "ας1",
		"1Σ":             "1σ",
		"ⒶΣ":             "ⓐς", // cased by Other_Uppercase
		"ǅ":              "ǆ",
		"ẞ":              "ß",
		"ᾈ":              "ᾀ",
		"\u212A":         "k",
	} {
		if got := lower(in); got != want {
			t.Errorf("lower(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestLowerASCII(t *testing.T) {
	in := "AZ[@`az ſK\u212A İΣ\xff"
	if got, want := lowerASCII(in), "az[@`az ſk\u212A İΣ\xff"; got != want {
		t.Errorf("lowerASCII(%q) = %q, want %q", in, got, want)
	}
}

func TestFoldingTraps(t *testing.T) {
	for _, tt := range []struct{ output, why string }{
		{"no \u017Fuch file", "U+017F is not s"},
		{"\u212Aan", "U+212A is not k"},
		{"PERM\u0130SSION DENIED", "U+0130 is not i"},
		{"t\u0131med out", "U+0131 is not i"},
	} {
		if m, found := findSignature(tt.output); found {
			t.Errorf("findSignature(%q) = %q, want none: %s", tt.output, m.text, tt.why)
		}
	}
}

func TestFindSignature(t *testing.T) {
	for _, s := range signatures {
		if s != lowerASCII(s) || strings.ContainsAny(s, "\n\r") {
			t.Errorf("signature %q is not one line in lower case", s)
		}
		m, found := findSignature("İa\nxx" + strings.ToUpper(s) + "yy\nb")
		if want := (match{strings.ToUpper(s), "xx" + strings.ToUpper(s) + "yy"}); !found || m != want {
			t.Errorf("findSignature(%q in upper case) = %+v, %v, want %+v", s, m, found, want)
		}
		if m, found := findSignature(s[:len(s)-1] + "\n" + s[len(s)-1:]); found {
			t.Errorf("findSignature(%q over two lines) = %q, want none", s, m.text)
		}
	}
}

func TestDecode(t *testing.T) {
	for in, want := range map[string]string{"aé": "aé", "a\xe2\x82b": "a\uFFFD\uFFFDb", "\xff": "\uFFFD", "": ""} {
		if got := decode(in); got != want {
			t.Errorf("decode(%q) = %q, want %q", in, got, want)
		}
		c := sandbox.Capture{Kept: []byte(in)}
		if got := c.Text(); got != decode(in) {
			t.Errorf("decode(%q) = %q, but a capture's text is %q", in, decode(in), got)
		}
	}
	ev := Evidence{Rung: 4, Check: "./m", Expect: "v=\uFFFD"}
	e := &Execution{Outcome: sandbox.Exited(0), Stdout: "v=\xff"}
	if got := For(ev, e); got.Verdict != Verified {
		t.Errorf("For(invalid byte in the output, U+FFFD expected) = %v, want verified", got.Verdict)
	}
}

func TestCut(t *testing.T) {
	for _, tt := range []struct {
		in    string
		runes int
		ends  string
	}{
		{" a \n", 1, "a"},
		{strings.Repeat("é", 500), 500, "é"},
		{strings.Repeat("é", 501), 501, "é…"},
		{strings.Repeat("é", 99999), 501, "é…"},
	} {
		got := cut(tt.in)
		if n := utf8.RuneCountInString(got); n != tt.runes || !strings.HasSuffix(got, tt.ends) {
			t.Errorf("cut(%d bytes) has %d runes and ends %q, want %d and %q", len(tt.in), n, got[max(0, len(got)-6):], tt.runes, tt.ends)
		}
	}
}
