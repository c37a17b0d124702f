package claims

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// parseText reads what is not JSON: a Markdown page, several in one text, or
// YAML. A page and a YAML stream can begin alike. Where only the content can
// tell, and can't, that is an error rather than a guess, because the other
// reading would lose claims.
func parseText(in *input, yield func(item) bool) {
	data, err := in.readAll()
	if err != nil {
		yield(item{err: err})
		return
	}
	text := string(data)
	_, isPage := frontmatter(text)
	switch {
	case in.kind == formatYAML:
		parseYAML(data, in.most, yield)
	case isPage && !in.named && claimAfterFence(text):
		yield(item{err: errors.New("this can be read as a Markdown page and as YAML; put it in a file whose name ends in .md or .yaml")})
	case isPage:
		in.kind = formatPages
		parsePage(data, 1, yield)
	case hasBlocks(text):
		in.kind = formatPages
		parseBlocks(text, yield)
	case in.kind == formatUnknown:
		parseYAML(data, in.most, yield)
	}
}

// claimAfterFence reports whether a line behind the frontmatter reads as the
// rung of another YAML document.
func claimAfterFence(text string) bool {
	lines, _ := frontmatter(text)
	rest := strings.Split(text, "\n")[len(lines)+2:]
	rung := regexp.MustCompile(`^(- )?\s*rung:`)
	for _, line := range rest {
		if rung.MatchString(line) {
			return true
		}
	}
	return false
}

// parsePage yields the claim of a page that has a rung.
func parsePage(data []byte, line int, yield func(item) bool) bool {
	p := ReadPage(data)
	if _, ok := p.Fields["rung"]; !ok {
		return true
	}
	return yield(item{line: line, page: &p})
}

const blockEnd = "---END FILE---"

// blockStart reports whether line begins a page of a text that holds several.
func blockStart(line string) bool {
	name, ok := strings.CutPrefix(line, "---FILE:")
	name, closed := strings.CutSuffix(name, "---")
	return ok && closed && strings.TrimSpace(name) != ""
}

func hasBlocks(text string) bool {
	for line := range strings.Lines(text) {
		if line = strings.TrimRight(line, " \t\r\n"); blockStart(line) || line == blockEnd {
			return true
		}
	}
	return false
}

// parseBlocks yields the claims of the pages between `---FILE: path---` and
// `---END FILE---`. What stands outside is no page.
func parseBlocks(text string, yield func(item) bool) {
	var page strings.Builder
	start, n := 0, 0 // the lines of the open block and of the text; 0 is none
	unclosed := func() bool {
		return start == 0 || yield(item{line: start, err: fmt.Errorf("the page that begins here has no %s", blockEnd)})
	}
	for line := range strings.Lines(text) {
		n++
		bare := strings.TrimRight(line, " \t\r\n")
		switch {
		case blockStart(bare):
			if !unclosed() {
				return
			}
			start = n
			page.Reset()
		case bare != blockEnd:
			page.WriteString(line)
		case start == 0:
			if !yield(item{line: n, err: fmt.Errorf("%s without a ---FILE: path--- before it", blockEnd)}) {
				return
			}
		default:
			if !parsePage([]byte(page.String()), start+1, yield) {
				return
			}
			start = 0
		}
	}
	unclosed()
}
