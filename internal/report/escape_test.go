package report

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

var escapes = []struct {
	name, in, want string
	stream         string // of EscapeStream, where it is another
}{
	{name: "plain", in: "rows=17, 100% of naïve 日本 \U0001F600 \\ \" '"},
	{name: "empty"},
	{name: "line feed", in: "a\nb", want: `a\nb`, stream: "a\nb"},
	{name: "tab", in: "a\tb", want: `a\tb`, stream: "a\tb"},
	{name: "carriage return", in: "ok\rno", want: `ok\rno`},
	{name: "NUL and backspace", in: "\x00\b", want: `\x00\x08`},
	{name: "DEL", in: "\x7f", want: `\x7f`},
	{name: "colour", in: "\x1b[31mred\x1b[0m", want: `\x1b[31mred\x1b[0m`},
	{name: "window title", in: "\x1b]0;x\a", want: `\x1b]0;x\x07`},
	{name: "C1, which some terminals take for ESC [", in: "\u009b31m\u0085", want: `\x9b31m\x85`},
	{name: "C1 as a byte", in: "\x9b31m", want: `\x9b31m`},
	{name: "half a rune", in: "a\xe2\x82", want: `a\xe2\x82`},
	{name: "overlong", in: "\xc0\x8a", want: `\xc0\x8a`},
	{name: "a surrogate", in: "\xed\xa0\x80", want: `\xed\xa0\x80`},
	{name: "the replacement character itself", in: "a\uFFFDb"},
	{name: "replacement beside a bad byte", in: "\uFFFD\xff\uFFFD", want: "\uFFFD" + `\xff` + "\uFFFD"},
	{name: "right-to-left override", in: "\u202Egnp.exe", want: `\u{202e}gnp.exe`},
	{name: "isolates", in: "\u2066a\u2069", want: `\u{2066}a\u{2069}`},
	{name: "marks", in: "\u200E\u200F\u061C", want: `\u{200e}\u{200f}\u{61c}`},
	{name: "zero width", in: "a\u200Bb\uFEFFc", want: `a\u{200b}b\u{feff}c`},
	{name: "separators", in: "a\u2028b\u2029c", want: `a\u{2028}b\u{2029}c`},
	{name: "tags", in: "\U000E0041", want: `\u{e0041}`},
	{name: "private use", in: "\uE000\U0010FFFD", want: `\u{e000}\u{10fffd}`},
	{name: "right-to-left letters", in: "שלום"},
}

func TestEscape(t *testing.T) {
	for _, tt := range escapes {
		want := tt.want
		if want == "" {
			want = tt.in
		}
		if got := Escape(tt.in); got != want {
			t.Errorf("%s: Escape(%q) = %q, want %q", tt.name, tt.in, got, want)
		}
		if tt.stream != "" {
			want = tt.stream
		}
		if got := EscapeStream(tt.in); got != want {
			t.Errorf("%s: EscapeStream(%q) = %q, want %q", tt.name, tt.in, got, want)
		}
	}
}

// harmful reports whether a terminal could do anything with r but show it.
func harmful(r rune) bool {
	return unicode.IsControl(r) || unicode.In(r, unicode.Bidi_Control, unicode.Zl, unicode.Zp)
}

func FuzzEscape(f *testing.F) {
	for _, tt := range escapes {
		f.Add(tt.in)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for name, got := range map[string]string{
			"Escape":       Escape(s),
			"EscapeStream": strings.NewReplacer("\n", "", "\t", "").Replace(EscapeStream(s)),
		} {
			if !utf8.ValidString(got) || strings.ContainsFunc(got, harmful) {
				t.Errorf("%s(%q) = %q, want valid UTF-8 without control characters", name, s, got)
			}
		}
		if again := Escape(Escape(s)); again != Escape(s) {
			t.Errorf("Escape(Escape(%q)) = %q, want %q", s, again, Escape(s))
		}
		printable := !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) || unicode.Is(unicode.Co, r) })
		if got := Escape(s); printable && utf8.ValidString(s) && got != s {
			t.Errorf("Escape(%q) = %q, want plain text as it is", s, got)
		}
	})
}

func TestCut(t *testing.T) {
	tests := []struct {
		in   string
		n    int
		want string
	}{{"abc", 3, "abc"}, {"abcd", 3, "ab…"}, {"äöüß", 4, "äöüß"}, {"äöüßx", 4, "äöü…"}, {"", 1, ""}, {"ab", 1, "…"}}
	for _, tt := range tests {
		if got := cut(tt.in, tt.n); got != tt.want {
			t.Errorf("cut(%q, %d) = %q, want %q", tt.in, tt.n, got, tt.want)
		}
	}
}
