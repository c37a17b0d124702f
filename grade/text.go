package grade

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// blank reports whether r is trimmed and separates words: TAB LF VT FF CR, Zs,
// U+FEFF, U+2028 and U+2029. Unlike unicode.IsSpace it takes in U+FEFF and
// leaves out U+0085.
func blank(r rune) bool {
	switch r {
	case '\t', '\n', '\v', '\f', '\r', '\uFEFF', '\u2028', '\u2029':
		return true
	}
	return unicode.Is(unicode.Zs, r)
}

// Trim returns s without the blanks at its ends, by the trim set of the grading
// rules, section 8, which is not that of strings.TrimSpace.
func Trim(s string) string { return strings.TrimFunc(s, blank) }

// decode returns s as UTF-8, with U+FFFD for each byte that is none.
func decode(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return string([]rune(s))
}

// cut returns s trimmed, and where it is longer than a reader of a note can
// use, its beginning with an ellipsis.
func cut(s string) string {
	const most = 500
	s = Trim(s)
	runes := 0
	for i := range s {
		if runes == most {
			return s[:i] + "…"
		}
		runes++
	}
	return s
}

// lowerASCII lowers A to Z and nothing else, byte for byte, so that an offset
// in the result is an offset in s. Folding by Unicode would take U+017F for s
// and U+212A for k.
func lowerASCII(s string) string {
	b := []byte(s)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}

// lower is the full Unicode lower-case mapping without a language, which
// strings.ToLower is not: U+0130 becomes two code points, and a sigma that ends
// a word its final form. SpecialCasing.txt has no other such mapping to lower.
func lower(s string) string {
	rs := []rune(s)
	var b strings.Builder
	b.Grow(len(s) + 8)
	for i, r := range rs {
		switch {
		case r == 'İ':
			b.WriteString("i\u0307")
		case r == 'Σ' && finalSigma(rs, i):
			b.WriteRune('ς')
		default:
			b.WriteRune(unicode.ToLower(r))
		}
	}
	return b.String()
}

// finalSigma is the condition Final_Sigma of the Unicode standard, table 3-17:
// a cased letter before and none after, whatever may be ignored in between.
func finalSigma(rs []rune, i int) bool {
	before, after := i-1, i+1
	for before >= 0 && caseIgnorable(rs[before]) {
		before--
	}
	for after < len(rs) && caseIgnorable(rs[after]) {
		after++
	}
	return before >= 0 && cased(rs[before]) && (after == len(rs) || !cased(rs[after]))
}

func cased(r rune) bool {
	return unicode.In(r, unicode.Lu, unicode.Ll, unicode.Lt, unicode.Other_Uppercase, unicode.Other_Lowercase)
}

// caseIgnorable is the property Case_Ignorable: definition D136, where the
// listed characters are those of the word-break classes MidLetter, MidNumLet
// and Single_Quote (WordBreakProperty.txt).
func caseIgnorable(r rune) bool {
	return unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf, unicode.Lm, unicode.Sk) ||
		strings.ContainsRune("':.\u00B7\u0387\u055F\u05F4\u2018\u2019\u2024\u2027\uFE13\uFE52\uFE55\uFF07\uFF0E\uFF1A", r)
}
