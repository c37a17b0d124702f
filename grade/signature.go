package grade

import "strings"

// signatures are what programs print when they could not reach an input, in
// ASCII lower case. None begins another and none holds a line feed, so the
// leftmost match is one match, within one line of one stream.
var signatures = [...]string{
	"no such file",
	"filenotfounderror",
	"modulenotfounderror",
	"command not found",
	"enoent",
	"aborterror",
	"timed out",
	"err_child_process_stdio_maxbuffer",
	"permission denied",
	"eacces",
	"cannot create directory",
	"cannot open",
	"syntaxerror",
	"unexpected eof while looking for matching",
	"syntax error near unexpected token",
}

// match is a signature found in a text: itself as printed, and its line.
type match struct{ text, line string }

// findSignature finds the leftmost signature in text, in any ASCII case.
func findSignature(text string) (m match, found bool) {
	lowered := lowerASCII(text)
	start, end := len(text), len(text)
	for _, s := range signatures {
		if i := strings.Index(lowered[:end], s); i >= 0 && i < start {
			start, end, found = i, i+len(s), true
		}
	}
	if !found {
		return match{}, false
	}
	line := text[strings.LastIndexByte(text[:start], '\n')+1:]
	line, _, _ = strings.Cut(line, "\n")
	return match{text[start:end], line}, true
}
