package claims

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// parseLines reads JSON Lines: an object a line, blank lines between.
func parseLines(in *input, yield func(item) bool) {
	for n, first := 1, true; ; n++ {
		line, ended, err := in.line()
		if err == io.EOF {
			return
		}
		text := bytes.TrimSpace(line)
		switch {
		case errors.Is(err, errTooLong):
			if !yield(item{line: n, err: fmt.Errorf("line %d is %w of %d bytes", n, err, in.most)}) {
				return
			}
			continue
		case err != nil:
			yield(item{line: n, err: err})
			return
		case len(text) == 0:
			continue
		case first && text[0] == '[':
			yield(item{line: n, err: errors.New("want a claim a line, found an array; name the file .json if it is one array")})
			return
		}
		first = false
		if !yield(lineItem(n, line, text, ended)) {
			return
		}
	}
}

// lineItem makes an item of a line that is not blank.
func lineItem(n int, line, text []byte, ended bool) item {
	if err := checkUTF8(line, n); err != nil {
		return item{line: n, err: err}
	}
	if json.Valid(text) {
		return item{line: n, raw: text}
	}
	var syntax *json.SyntaxError
	err := json.Unmarshal(text, &json.RawMessage{})
	if errors.As(err, &syntax) {
		err = fmt.Errorf("byte %d: %w", syntax.Offset, err)
		if !ended && int(syntax.Offset) >= len(text) {
			err = fmt.Errorf("the last line is cut off after %d bytes, as when a file is written only in part: %w", len(line), err)
		}
	}
	return item{line: n, err: err}
}

// line reads up to and with the next line feed into memory of its own; ended
// is false for a last line without one. A line that is too long is skipped
// with errTooLong and never held in whole.
func (in *input) line() (line []byte, ended bool, err error) {
	tooLong := false
	for {
		part, err := in.ReadSlice('\n')
		if tooLong = tooLong || len(line)+len(part) > in.most; tooLong {
			line = nil
		} else {
			line = append(line, part...)
		}
		switch err {
		case bufio.ErrBufferFull:
			continue
		case nil, io.EOF:
			if tooLong {
				return nil, err == nil, errTooLong
			}
			if err == io.EOF && len(line) == 0 {
				return nil, false, io.EOF
			}
			return line, err == nil, nil
		}
		return nil, false, err
	}
}
