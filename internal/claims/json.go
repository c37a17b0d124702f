package claims

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
)

// parseJSON reads one JSON array of claims, an element at a time, or a single
// claim.
func parseJSON(in *input, yield func(item) bool) {
	lines := &newlines{from: in, most: in.most}
	lines.makeRoom()
	dec := json.NewDecoder(lines)
	first, skipped, err := firstByte(in)
	lines.passed = skipped
	switch {
	case err == io.EOF:
		return
	case err != nil:
		yield(item{err: err})
		return
	case first == '{':
		it, ok := element(dec, lines)
		if yield(it) && ok {
			trailing(dec, lines, yield, "the claim; name the file .jsonl if it holds a claim a line")
		}
		return
	case first != '[':
		yield(item{line: 1, err: fmt.Errorf("want an array of claims or a claim, found %q", first)})
		return
	}
	_, _ = dec.Token() // the bracket that was seen
	for dec.More() {
		it, ok := element(dec, lines)
		if !yield(it) || !ok {
			return
		}
	}
	if _, err := dec.Token(); err != nil {
		yield(item{line: lines.fault(dec, err), err: cutOff(err)})
		return
	}
	trailing(dec, lines, yield, "the array's end; remove it")
}

// element reads the next value; ok is false where no other can be found after.
func element(dec *json.Decoder, lines *newlines) (it item, ok bool) {
	var raw json.RawMessage
	lines.makeRoom()
	if err := dec.Decode(&raw); err != nil {
		return item{line: lines.fault(dec, err), err: cutOff(err)}, false
	}
	it = item{line: lines.line(dec.InputOffset() - int64(len(raw))), raw: raw}
	if err := checkUTF8(raw, it.line); err != nil {
		it.err = err
	}
	return it, true
}

// trailing yields an error if anything but blanks is left.
func trailing(dec *json.Decoder, lines *newlines, yield func(item) bool, after string) {
	lines.makeRoom()
	if _, err := dec.Token(); err != io.EOF {
		yield(item{line: lines.line(dec.InputOffset()), err: fmt.Errorf("there is more after %s", after)})
	}
}

func cutOff(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) || err == io.EOF {
		return errors.New("the file is cut off before its end, as when it is written only in part")
	}
	return err
}

// firstByte returns the first byte that is no blank, which stays to be read,
// and how many lines were skipped before it.
func firstByte(in *input) (first byte, skipped int, err error) {
	for {
		head, err := in.Peek(1)
		if err != nil {
			return 0, skipped, err
		}
		switch head[0] {
		case '\n':
			skipped++
		case ' ', '\t', '\r':
		default:
			return head[0], skipped, nil
		}
		if _, err := in.Discard(1); err != nil {
			return 0, skipped, err
		}
	}
}

// newlines finds lines by offset in a stream, keeping only what lies ahead.
type newlines struct {
	from    io.Reader
	most    int   // how much may be read ahead after makeRoom
	left    int64 // of it
	read    int64
	passed  int // newlines before offset
	pending []int64
}

// errTooLong says what a claim is; its size limit follows.
var errTooLong = errors.New("longer than the limit")

func (n *newlines) makeRoom() { n.left = int64(n.most) }

func (n *newlines) Read(p []byte) (int, error) {
	if n.left <= 0 {
		return 0, fmt.Errorf("the claim is %w of %d bytes", errTooLong, n.most)
	}
	got, err := n.from.Read(p[:min(int64(len(p)), n.left)])
	for i, c := range p[:got] {
		if c == '\n' {
			n.pending = append(n.pending, n.read+int64(i))
		}
	}
	n.read += int64(got)
	n.left -= int64(got)
	return got, err
}

// fault returns the line of what dec could not read: where the input ends, if
// it was cut off, else the place that the error names.
func (n *newlines) fault(dec *json.Decoder, err error) int {
	var syntax *json.SyntaxError
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF) || err == io.EOF:
		return n.line(n.read)
	case errors.As(err, &syntax):
		return n.line(max(syntax.Offset, dec.InputOffset()))
	}
	return n.line(dec.InputOffset())
}

// line returns the line, from 1, of an offset that is not before the last one.
func (n *newlines) line(offset int64) int {
	i, _ := slices.BinarySearch(n.pending, offset)
	n.passed += i
	n.pending = slices.Delete(n.pending, 0, i)
	return n.passed + 1
}
