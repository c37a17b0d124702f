package claims

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"go.yaml.in/yaml/v3"
)

func TestSniff(t *testing.T) {
	for _, tt := range []struct {
		head string
		want format
	}{
		{"", formatUnknown},
		{" \r\n\t", formatUnknown},
		{"[", formatJSON},
		{"\n [{}]", formatJSON},
		{"{}", formatLines},
		{"{}\n", formatLines},
		{"{\"a\":1}\r\n{", formatLines},
		{"{\n\"a\":1}", formatJSON},
		{"{\"a\":\n", formatJSON},
		{"{\"a\":\"" + strings.Repeat("x", 64<<10), formatLines}, // the line's end is out of sight
		{"rung: 1", formatUnknown},
		{"---\n", formatUnknown},
	} {
		if got := sniff([]byte(tt.head)); got != tt.want {
			t.Errorf("sniff(%.30q) = %d, want %d", tt.head, got, tt.want)
		}
	}
}

func TestFormatOf(t *testing.T) {
	for name, want := range map[string]format{
		"a.jsonl": formatLines, "d/a.NDJSON": formatLines, "a.json": formatJSON, "a.yaml": formatYAML, "a.YML": formatYAML,
		"a.md": formatPages, "a.b.markdown": formatPages, "a.txt": formatUnknown, "jsonl": formatUnknown, "": formatUnknown, "a.json.gz": formatUnknown,
	} {
		if got := formatOf(name); got != want {
			t.Errorf("formatOf(%q) = %d, want %d", name, got, want)
		}
	}
}

func TestCheckUTF8(t *testing.T) {
	for _, tt := range []struct {
		text  string
		first int
		want  string
	}{
		{"", 1, ""},
		{"aé\n\uFFFD", 1, ""},
		{"\xff", 1, "line 1, byte 1 is 0xff"},
		{"é\xfe", 7, "line 7, byte 3 is 0xfe"},
		{"a\nb\n\nc\xc3", 2, "line 5, byte 2 is 0xc3"},
		{"\xed\xa0\x80", 1, "line 1, byte 1 is 0xed"}, // a surrogate
	} {
		got := ""
		if err := checkUTF8([]byte(tt.text), tt.first); err != nil {
			got = err.Error()
		}
		if !strings.HasPrefix(got, tt.want) || (got == "") != (tt.want == "") {
			t.Errorf("checkUTF8(%q, %d) = %q, want it to begin %q", tt.text, tt.first, got, tt.want)
		}
	}
}

func TestInputLine(t *testing.T) {
	const most = 64
	long := strings.Repeat("x", most)
	type line struct {
		text  string
		ended bool
		err   error
	}
	for _, tt := range []struct {
		text string
		want []line
	}{
		{"", nil},
		{"a", []line{{"a", false, nil}}},
		{"a\n", []line{{"a\n", true, nil}}},
		{"\n\r\nb", []line{{"\n", true, nil}, {"\r\n", true, nil}, {"b", false, nil}}},
		{long[1:] + "\n" + long, []line{{long[1:] + "\n", true, nil}, {long, false, nil}}},
		{long + "\na\n", []line{{"", true, errTooLong}, {"a\n", true, nil}}},
		{"a\n" + strings.Repeat(long, 9), []line{{"a\n", true, nil}, {"", false, errTooLong}}},
	} {
		// A small buffer and a reader of single bytes put every line together
		// from many parts.
		in := &input{Reader: bufio.NewReaderSize(iotest.OneByteReader(strings.NewReader(tt.text)), 16), most: most}
		var got []line
		for {
			text, ended, err := in.line()
			if err == io.EOF {
				break
			}
			got = append(got, line{string(text), ended, err})
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("lines of %q = %v, want %v", tt.text, got, tt.want)
		}
	}
}

func TestNewlines(t *testing.T) {
	const text = "a\nbb\n\n\ncc"
	n := &newlines{from: strings.NewReader(text), most: len(text)}
	n.makeRoom()
	if got, err := io.ReadAll(n); string(got) != text || !errors.Is(err, errTooLong) {
		t.Fatalf("ReadAll = %q, %v, want the text and then that there is no room", got, err)
	}
	for _, tt := range []struct {
		offset int64
		want   int
	}{{0, 1}, {1, 1}, {2, 2}, {3, 2}, {4, 2}, {5, 3}, {7, 5}, {8, 5}} {
		if got := n.line(tt.offset); got != tt.want {
			t.Errorf("line(%d) of %q = %d, want %d", tt.offset, text, got, tt.want)
		}
	}
	if len(n.pending) > 0 {
		t.Errorf("%d newlines are kept though all were passed", len(n.pending))
	}
}

// Elements and their lines come out alike however the bytes come in.
func TestJSONBySingleBytes(t *testing.T) {
	const text = "\n\n [ {\"rung\":1},\n\n{\"rung\":\n2} , {\"rung\":3}\n,{\"rung\":4}]\n"
	want := []string{"c.json:3", "c.json:5", "c.json:6", "c.json:7"}
	for name, wrap := range map[string]func(io.Reader) io.Reader{
		"single bytes": iotest.OneByteReader, "halves": iotest.HalfReader, "data with the end": iotest.DataErrReader,
	} {
		s := textSource("c.json", "")
		s.open = func() (io.ReadCloser, error) { return io.NopCloser(wrap(strings.NewReader(text))), nil }
		got, errs := collect(s)
		if ids := idsOf(got); !slices.Equal(ids, want) || len(errs) > 0 {
			t.Errorf("Read(%q in %s) = %v, %v, want %v", text, name, ids, errs, want)
		}
	}
}

func TestCheckKeys(t *testing.T) {
	for raw, want := range map[string]string{
		`{}`:                              "",
		`1`:                               "",
		`{"a":1,"A":2}`:                   "",
		`{"a":{"a":{"a":["a","a"]}}}`:     "",
		`[{"a":1},{"a":1}]`:               "",
		`{"a":"b","b":"a"}`:               "",
		`{"a":[],"b":{},"a":null}`:        "a",
		`{"":1,"":2}`:                     "",
		`{"x":[0,{"b":1},{"c":1,"c":2}]}`: "c",
		`{"x":{"y":[]},"z":1,"z":1}`:      "z",
		`{"é":1,"\u00e9":1}`:              "é",
	} {
		err := checkKeys([]byte(raw))
		var e *Error
		switch found := errors.As(err, &e); {
		case raw == `{"":1,"":2}`:
			if !found || e.Key != "" {
				t.Errorf("checkKeys(%s) = %v, want the empty key found", raw, err)
			}
		case want == "" && err != nil, want != "" && (!found || e.Key != want):
			t.Errorf("checkKeys(%s) = %v, want the key %q", raw, err, want)
		}
	}
}

func TestKindOf(t *testing.T) {
	for raw, want := range map[string]string{
		`"x"`: "a string", ` {}`: "an object", `[1]`: "an array", `true`: "a boolean", `false`: "a boolean", `null`: "null",
		`-1.5`: "the number -1.5", ``: "nothing", strings.Repeat("9", 99): "the number " + strings.Repeat("9", 40),
	} {
		if got := kindOf([]byte(raw)); got != want {
			t.Errorf("kindOf(%q) = %q, want %q", raw, got, want)
		}
	}
}

func TestFileContent(t *testing.T) {
	for _, tt := range []struct{ raw, want, wrong string }{
		{`""`, "", ""},
		{`"a\né\u0000"`, "a\né\x00", ""},
		{`{"base64":""}`, "", ""},
		{`{"base64":"AP8K"}`, "\x00\xff\n", ""},
		{`{"base64":"AP8"}`, "", "base64: illegal"},
		{`{"base64":"_w=="}`, "", "base64: illegal"}, // the alphabet for URLs
		{`{"base64":null}`, "", "want text"},
		{`{}`, "", "want text"},
		{`null`, "", "got null"},
		{`["a"]`, "", "got an array"},
	} {
		got, err := fileContent(json.RawMessage(tt.raw))
		if tt.wrong == "" && (err != nil || string(got) != tt.want) {
			t.Errorf("fileContent(%s) = %q, %v, want %q", tt.raw, got, err, tt.want)
		}
		if tt.wrong != "" && (err == nil || !strings.Contains(err.Error(), tt.wrong)) {
			t.Errorf("fileContent(%s) = %q, %v, want an error with %q", tt.raw, got, err, tt.wrong)
		}
	}
}

func TestYAMLValues(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{`x`, `"x"`},
		{`"2"`, `"2"`},
		{`'a''b'`, `"a'b"`},
		{`yes`, `"yes"`}, // YAML 1.1 had it a boolean
		{`true`, `true`},
		{`False`, `false`},
		{`~`, `null`},
		{``, `null`},
		{`17`, `17`},
		{`-3`, `-3`},
		{`0x1F`, `31`},
		{`0o17`, `15`},
		{`1_000`, `1000`},
		{`1.50`, `1.50`},
		{`1e3`, `1e3`},
		{`.5`, `0.5`},
		{`18446744073709551616`, `18446744073709551616`},
		{`2020-01-02`, `"2020-01-02"`},
		{`!!str 7`, `"7"`},
		{"|\n  a\n  b\n", `"a\nb\n"`},
		{"- 1\n- [a, {b: c}]", `[1,["a",{"b":"c"}]]`},
		{"{a: &x [1], b: *x}", `{"a":[1],"b":[1]}`},
		{`{"a\u0000<": 1}`, `{"a\u0000\u003c":1}`},
		{`.inf`, ``},
		{`.nan`, ``},
		{`!!binary aGk=`, ``},
		{`!x y`, ``},
		{`{1: a}`, ``},
		{`{null: a}`, ``},
		{`{[a]: b}`, ``},
		{`!!set {a, b}`, ``},
		{"a: &a {b: 1}\nc:\n  <<: *a\n", ``},
	} {
		var doc yaml.Node
		w := jsonWriter{most: 1000}
		err := yaml.Unmarshal([]byte(tt.text), &doc)
		if err == nil && len(doc.Content) > 0 {
			err = w.value(doc.Content[0], 0)
		} else if err == nil {
			w.out.WriteString("null") // an empty document
		}
		if tt.want == "" && err == nil || tt.want != "" && (err != nil || w.out.String() != tt.want) {
			t.Errorf("value(%q) = %s, %v, want %s", tt.text, w.out.String(), err, tt.want)
		}
	}
}

func TestBlocks(t *testing.T) {
	for line, want := range map[string]bool{
		"---FILE: a.md---": true, "---FILE:a---": true, "---FILE: a b/c---d.md---": true,
		"---FILE: ---": false, "---FILE: a": false, " ---FILE: a---": false, "---file: a---": false, "---END FILE---": false, "---": false, "": false,
	} {
		if got := blockStart(line); got != want {
			t.Errorf("blockStart(%q) = %v, want %v", line, got, want)
		}
	}
	for text, want := range map[string]bool{
		"": false, "x\n---FILE: a---  \r\n": true, "---END FILE---": true, "---\nx\n---\n": false,
	} {
		if got := hasBlocks(text); got != want {
			t.Errorf("hasBlocks(%q) = %v, want %v", text, got, want)
		}
	}
}

func TestPlaceAndError(t *testing.T) {
	cause := errors.New("why")
	for _, tt := range []struct {
		err  Error
		want string
	}{
		{Error{Place{"d/c.jsonl", 3}, "rung", cause}, "d/c.jsonl:3: rung: why"},
		{Error{Place{"d/c.jsonl", 3}, "", cause}, "d/c.jsonl:3: why"},
		{Error{Place{"c.md", 0}, "", cause}, "c.md: why"},
	} {
		if got := tt.err.Error(); got != tt.want || !errors.Is(&tt.err, cause) {
			t.Errorf("%+v.Error() = %q, want %q, and the cause in it", tt.err, got, tt.want)
		}
	}
}

func TestSplit(t *testing.T) {
	a, b, c := errors.New("a"), errors.New("b"), errors.New("c")
	got := split(errors.Join(a, errors.Join(b, nil, c)))
	if !slices.Equal(got, []error{a, b, c}) {
		t.Errorf("split(a, (b, c)) = %v, want [a b c]", got)
	}
	wrapped := fmt.Errorf("x: %w", a)
	if got := split(wrapped); len(got) != 1 || got[0] != wrapped {
		t.Errorf("split(%v) = %v, want it whole", wrapped, got)
	}
}
