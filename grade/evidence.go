package grade

import (
	"fmt"
	"iter"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Evidence is what a claim stands on. A missing text is "".
type Evidence struct {
	Rung         int    // 1 to 5; from 4 on the claim must be machine-checkable
	Check        string // the bash command that re-establishes the claim
	Expect       string // one line of literal text that must appear in the output
	EvidencePath string // where the artifact lies; grading does not look at it
}

// checkable reports whether the claim must be machine-checkable.
func (ev Evidence) checkable() bool { return ev.Rung >= 4 }

// Refuse decides what needs no run: at rung 4 and above, a check that can't
// establish anything and one that carries its own expectation. For gives the
// same grade whatever the execution was.
func Refuse(ev Evidence) (g Grade, refused bool) {
	if !ev.checkable() {
		return Grade{}, false
	}
	if g, refused := refuseCheck(ev); refused {
		return g, true
	}
	if expect := Trim(decode(ev.Expect)); certifies(decode(ev.Check), expect) {
		return refuse(SelfCertifying, "the check carries its own expectation %q, so it can print it without establishing the claim; at rung %d it must be found, not given", cut(expect), ev.Rung)
	}
	return Grade{}, false
}

// AtRecord is Refuse for the moment when a claim is recorded: it refuses an
// expectation too, which grading looks at only after exit 0. The notes are
// those of grading.
func AtRecord(ev Evidence) (g Grade, refused bool) {
	if g, refused := Refuse(ev); refused {
		return g, true
	}
	return refuseExpectation(ev)
}

// refuseCheck is section 3.1 of the grading rules; ev must be checkable.
func refuseCheck(ev Evidence) (Grade, bool) {
	const longest = 200
	check := decode(ev.Check)
	if check == "" {
		return refuse(NoCheck, "there is no check; at rung %d a claim needs a command that re-establishes it", ev.Rung)
	}
	if constant(Trim(check)) {
		return refuse(ConstantEmitter, "the check %q comes out the same whatever is true; at rung %d it must measure something", cut(check), ev.Rung)
	}
	if n := firstWordUnits(check); n > longest {
		return refuse(LongFirstWord, "the check's first word is %d UTF-16 units long, more than %d, as when line breaks were recorded as a backslash and an n; at rung %d the check must be a command", n, longest, ev.Rung)
	}
	return Grade{}, false
}

// refuseExpectation is section 3.3 of the grading rules.
func refuseExpectation(ev Evidence) (Grade, bool) {
	switch {
	case !ev.checkable():
		return Grade{}, false
	case Trim(decode(ev.Expect)) == "":
		return refuse(NoExpectation, "there is no expectation; at rung %d a claim needs one line of text that its check must print", ev.Rung)
	case strings.ContainsAny(ev.Expect, "\n\r"):
		return refuse(MultilineExpectation, "the expectation %q holds a line break; at rung %d it must be one line", cut(ev.Expect), ev.Rung)
	}
	return Grade{}, false
}

func refuse(kind NoteKind, format string, args ...any) (Grade, bool) {
	return Grade{Uncheckable, kind, fmt.Sprintf(format, args...)}, true
}

// constant reports whether a trimmed check succeeds or prints fixed text
// whatever is true. Any sign that echo or printf is handed something, quoted or
// not, speaks for the check; a redirection of output does not.
func constant(check string) bool {
	if check == "true" || check == ":" {
		return true
	}
	word, rest := check, ""
	if i := strings.IndexFunc(check, blank); i >= 0 {
		word = check[:i]
		// The one blank behind the word is no part of the rest, not even as a
		// line feed.
		_, size := utf8.DecodeRuneInString(check[i:])
		rest = check[i+size:]
	}
	if word != "echo" && word != "printf" {
		return false
	}
	for i := range len(rest) {
		switch rest[i] {
		case '|', ';', '&', '\n', '<', '`':
			return false
		case '$':
			if i+1 == len(rest) || rest[i+1] != '\'' && rest[i+1] != '"' {
				return false
			}
		}
	}
	return true
}

// firstWordUnits is the length of the first word in UTF-16 units.
func firstWordUnits(check string) int {
	n := 0
	for _, r := range strings.TrimLeftFunc(check, blank) {
		if blank(r) {
			break
		}
		n += utf16.RuneLen(r)
	}
	return n
}

// certifies reports whether check holds the trimmed expectation as a text of
// its own: not glued to a word character at an edge that is one itself.
func certifies(check, expect string) bool {
	if expect == "" {
		return false
	}
	gluesLeft, gluesRight := wordByte(expect[0]), wordByte(expect[len(expect)-1])
	for start := range occurrences(check, expect) {
		end := start + len(expect)
		left := gluesLeft && start > 0 && wordByte(check[start-1])
		right := gluesRight && end < len(check) && wordByte(check[end])
		if !left && !right {
			return true
		}
	}
	return false
}

// occurrences yields where part, which is not empty, occurs in text, overlaps
// too. It takes linear time (Knuth, Morris, Pratt): both texts are the author's,
// and a search that starts again at every occurrence can be made to take hours.
func occurrences(text, part string) iter.Seq[int] {
	return func(yield func(start int) bool) {
		border := make([]int, len(part)+1) // of part[:i], how much of its beginning it ends with
		n := 0
		for i := 1; i < len(part); i++ {
			for n > 0 && part[i] != part[n] {
				n = border[n]
			}
			if part[i] == part[n] {
				n++
			}
			border[i+1] = n
		}
		n = 0
		for i := range len(text) {
			for n > 0 && text[i] != part[n] {
				n = border[n]
			}
			if text[i] == part[n] {
				n++
			}
			if n == len(part) {
				if !yield(i + 1 - n) {
					return
				}
				n = border[n]
			}
		}
	}
}

func wordByte(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}
