package claims

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"unicode/utf8"
)

// maxClaim is the most bytes of a claim that sources are opened with.
const maxClaim = 64 << 20

// item is one claim as a parser finds it, or the error in its place.
type item struct {
	line int
	raw  json.RawMessage // a JSON object; or
	page *Page           // a page with a rung; or
	err  error
}

// Read streams the claims of sources in order. In the place of what is not a
// claim it yields an error, mostly an *Error, beside the zero Claim, and goes
// on where the next claim can still be found. It stops when ctx is done. Every
// call reads the sources from their beginnings; for all claims it keeps a hash
// of the id and its place, to find ids that are there twice.
func Read(ctx context.Context, sources []Source) iter.Seq2[Claim, error] {
	return func(yield func(Claim, error) bool) {
		r := reading{ctx: ctx, sources: sources, ids: make(map[[16]byte]spot), yield: yield}
		for i := range sources {
			if !r.source(i) {
				return
			}
		}
	}
}

// spot is a Place in little memory.
type spot struct{ source, line int32 }

// reading is the state of one pass.
type reading struct {
	ctx     context.Context
	sources []Source
	ids     map[[16]byte]spot
	yield   func(Claim, error) bool
	inDir   int // items of the current directory so far
	line    int // of the current source's last item
	nth     int // how many items began on that line
}

// source yields one source's items; it returns false when reading is to stop.
func (r *reading) source(i int) bool {
	s := r.sources[i]
	if i == 0 || r.sources[i-1].dir != s.dir {
		r.inDir = 0
	}
	in, err := openInput(s)
	if err != nil {
		r.inDir++
		return r.yield(Claim{}, &Error{Place: Place{File: s.name}, Err: err})
	}
	defer in.close()
	r.line, r.nth = 0, 0
	found, more := 0, true
	in.parse(func(it item) bool {
		found++
		more = r.item(i, it)
		return more
	})
	r.inDir += found
	last := i+1 == len(r.sources) || r.sources[i+1].dir != s.dir
	switch {
	case !more:
		return false
	case found == 0 && (s.dir == "" || in.kind != formatPages):
		r.inDir++
		return r.yield(Claim{}, &Error{Place: Place{File: s.name}, Err: in.nothing()})
	case s.dir != "" && last && r.inDir == 0:
		return r.yield(Claim{}, &Error{Place: Place{File: s.dir}, Err: errors.New("no page in the directory carries a claim; a claim's frontmatter has a rung")})
	}
	return true
}

// item yields what one item comes to.
func (r *reading) item(source int, it item) bool {
	s := r.sources[source]
	place := Place{s.name, it.line}
	if r.ctx.Err() != nil {
		r.yield(Claim{}, fmt.Errorf("read claims: %w", context.Cause(r.ctx)))
		return false
	}
	c, errs := it.claim()
	if it.line != r.line {
		r.line, r.nth = it.line, 0
	}
	r.nth++
	if c.ID == "" {
		c.ID = defaultID(s.label, it.line, r.nth)
	}
	c.Place = place
	if len(errs) == 0 {
		if first, twice := r.seen(c.ID, spot{int32(source), int32(it.line)}); twice {
			errs = []error{keyed("id", fmt.Errorf("%q is the id of the claim at %v already; give each its own", c.ID, first))}
		}
	}
	for _, err := range at(place, errs) {
		if !r.yield(Claim{}, err) {
			return false
		}
	}
	return len(errs) > 0 || r.yield(c, nil)
}

// defaultID is the id of the nth claim that begins on a line.
func defaultID(label string, line, nth int) string {
	if nth == 1 {
		return fmt.Sprintf("%s:%d", label, line)
	}
	return fmt.Sprintf("%s:%d.%d", label, line, nth)
}

func (it item) claim() (Claim, []error) {
	switch {
	case it.err != nil:
		return Claim{}, []error{it.err}
	case it.page != nil:
		return it.page.claim()
	}
	o, err := parseObject(it.raw)
	if err != nil {
		return Claim{}, []error{err}
	}
	c, errs := o.claim()
	c.Raw = it.raw
	return c, errs
}

// seen notes that id is at here, and says where it was before.
func (r *reading) seen(id string, here spot) (first Place, twice bool) {
	var key [16]byte
	sum := sha256.Sum256([]byte(id))
	copy(key[:], sum[:])
	if was, ok := r.ids[key]; ok {
		return Place{r.sources[was.source].name, int(was.line)}, true
	}
	r.ids[key] = here
	return Place{}, false
}

// input is a source that is open for one pass.
type input struct {
	*bufio.Reader
	kind  format
	named bool // kind was told by the name
	most  int  // see Source
	file  io.Closer
}

// openInput opens s, skips a byte order mark and tells the format.
func openInput(s Source) (*input, error) {
	f, err := s.open()
	if err != nil {
		return nil, err
	}
	in := &input{Reader: bufio.NewReaderSize(f, 64<<10), kind: s.kind, named: s.kind != formatUnknown, most: s.most, file: f}
	head, err := in.Peek(3)
	if string(head) == "\xef\xbb\xbf" {
		_, err = in.Discard(3)
	}
	if err != nil && err != io.EOF {
		in.close()
		return nil, err
	}
	if !in.named {
		head, _ := in.Peek(in.Size()) // an error comes again when it is read
		in.kind = sniff(head)
	}
	return in, nil
}

// close closes a file that was only read, which can't lose anything.
func (in *input) close() { _ = in.file.Close() }

// parse hands the items to yield.
func (in *input) parse(yield func(item) bool) {
	switch in.kind {
	case formatLines:
		parseLines(in, yield)
	case formatJSON:
		parseJSON(in, yield)
	case formatYAML, formatPages, formatUnknown:
		parseText(in, yield)
	}
}

// nothing is the error of a source without items.
func (in *input) nothing() error {
	if in.kind == formatPages {
		return errors.New("the page carries no claim; a claim's frontmatter, which begins on the first line with ---, has a rung")
	}
	return errors.New("there is no claim in the file; it is empty")
}

// sniff tells JSON from the rest by the beginning of a content. A line that is
// a whole object, or too long to see, is a line of many.
func sniff(head []byte) format {
	text := bytes.TrimLeft(head, " \t\r\n")
	switch {
	case len(text) == 0:
		return formatUnknown
	case text[0] == '[':
		return formatJSON
	case text[0] != '{':
		return formatUnknown
	}
	line, _, whole := bytes.Cut(text, []byte("\n"))
	if !whole || json.Valid(line) {
		return formatLines
	}
	return formatJSON
}

// checkUTF8 finds the first byte of text that is not UTF-8; firstLine is the
// number of the text's first line.
func checkUTF8(text []byte, firstLine int) error {
	if utf8.Valid(text) {
		return nil
	}
	line, column := firstLine, 1
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		if r == utf8.RuneError && size == 1 {
			return fmt.Errorf("line %d, byte %d is %#x, which is not UTF-8; save the file as UTF-8", line, column, text[0])
		}
		column += size
		if r == '\n' {
			line, column = line+1, 1
		}
		text = text[size:]
	}
	return nil
}

// readAll reads the whole of a source that can't be streamed.
func (in *input) readAll() ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(in, int64(in.most)+1))
	if err != nil {
		return nil, err
	}
	if len(data) > in.most {
		return nil, fmt.Errorf("larger than %d bytes; write the claims as JSON Lines, which are not held in memory", in.most)
	}
	return data, checkUTF8(data, 1)
}
