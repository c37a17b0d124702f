package claims

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/checkcell/checkcell/grade"
	"github.com/google/go-cmp/cmp"
)

// textSource is a source of the given name with text for its content.
func textSource(name, text string) Source {
	open := func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil }
	return Source{name: name, label: name, kind: formatOf(name), most: maxClaim, open: open}
}

func collect(sources ...Source) (got []Claim, errs []error) {
	for c, err := range Read(context.Background(), sources) {
		if err != nil {
			errs = append(errs, err)
			continue
		}
		got = append(got, c)
	}
	return got, errs
}

func readText(name, text string) ([]Claim, []error) { return collect(textSource(name, text)) }

func errorTexts(errs []error) []string {
	var texts []string
	for _, err := range errs {
		texts = append(texts, err.Error())
	}
	return texts
}

// summary is a claim's id, place and evidence in a line.
func summary(got []Claim) (out []string) {
	for _, c := range got {
		out = append(out, fmt.Sprintf("%s@%d %d %q %q %q %q", c.ID, c.Place.Line, c.Evidence.Rung, c.Evidence.Check, c.Evidence.Expect, c.Evidence.EvidencePath, c.Title))
	}
	return out
}

func TestFormats(t *testing.T) {
	const a, b = `a@%d 4 "./m" "x=1" "out" "T"`, `%s:%d@%d 2 "" "" "" ""`
	const objA = `{"id":"a","title":"T","rung":4,"check":"./m","expect":"x=1","evidence_path":"out"}`
	const yamlA = "id: a\ntitle: T\nrung: 4\ncheck: ./m\nexpect: x=1\nevidencePath: out\n"
	both := func(name string, lineA, lineB int) []string {
		return []string{fmt.Sprintf(a, lineA), fmt.Sprintf(b, name, lineB, lineB)}
	}
	for _, tt := range []struct {
		why, name, text string
		want            []string
	}{
		{"lines", "c.jsonl", objA + "\n\n" + `{"rung":2}`, both("c.jsonl", 1, 3)},
		{"lines, CRLF, BOM, other name", "c.NDJSON", "\ufeff" + objA + "\r\n \r\n" + ` {"rung":2} ` + "\r\n", both("c.NDJSON", 1, 3)},
		{"array", "c.json", "\n[\n" + objA + ",\n  {\"rung\":\n2}\n]\n", both("c.json", 3, 4)},
		{"array in a line", "c.json", "[" + objA + `, {"rung":2}]`, []string{fmt.Sprintf(a, 1), `c.json:1.2@1 2 "" "" "" ""`}},
		{"array in a line, no ids", "c.json", `[{"rung":2},{"rung":3},` + "\n" + `{"rung":2}]`, []string{`c.json:1@1 2 "" "" "" ""`, `c.json:1.2@1 3 "" "" "" ""`, `c.json:2@2 2 "" "" "" ""`}},
		{"one object", "c.json", "\n {\n\"rung\" : 2 }\n", []string{fmt.Sprintf(b, "c.json", 2, 2)}},
		{"YAML list", "c.yaml", "- " + strings.ReplaceAll(strings.TrimSpace(yamlA), "\n", "\n  ") + "\n# x\n- rung: 2\n", both("c.yaml", 1, 8)},
		{"YAML mapping, CRLF", "c.yml", strings.ReplaceAll(yamlA, "\n", "\r\n"), []string{fmt.Sprintf(a, 1)}},
		{"YAML documents", "c.yaml", "---\n" + yamlA + "---\nrung: 2\n...\n---\n", both("c.yaml", 2, 9)},
		{"page", "c.md", "---\n" + yamlA + "---\nrung: 9\n", []string{fmt.Sprintf(a, 1)}},
		{"page without id", "c.markdown", "\ufeff---\r\nrung: 2\r\n---\r\n", []string{fmt.Sprintf(b, "c.markdown", 1, 1)}},
		{"pages", "c.md", "intro\n---FILE: p/a.md---\n---\n" + yamlA + "---\nx\n---END FILE---\n\n---FILE: b.md---\n---\nrung: 2\n---\n---END FILE---\n", both("c.md", 3, 15)},
		{"pages, one without a claim", "c.txt", "---FILE: a.md---\r\n# no claim\r\n---END FILE---\r\n---FILE: b.md---\r\n---\r\nrung: 2\r\n---\r\n---END FILE---\r\n", []string{fmt.Sprintf(b, "c.txt", 5, 5)}},
		{"lines, unnamed", "stdin", objA + "\n" + `{"rung":2}`, both("stdin", 1, 2)},
		{"array, unnamed", "stdin", " \n[" + objA + ",\n" + `{"rung":2}]`, both("stdin", 2, 3)},
		{"object over lines, unnamed", "stdin", "{\n\"rung\":2}", []string{fmt.Sprintf(b, "stdin", 1, 1)}},
		{"YAML, unnamed", "stdin", "rung: 2", []string{fmt.Sprintf(b, "stdin", 1, 1)}},
		{"YAML behind a line, unnamed", "stdin", "---\nrung: 2\n", []string{fmt.Sprintf(b, "stdin", 2, 2)}},
		{"page, unnamed", "stdin", "---\nrung: 2\n---\nText\n", []string{fmt.Sprintf(b, "stdin", 1, 1)}},
	} {
		got, errs := readText(tt.name, tt.text)
		if diff := cmp.Diff(tt.want, summary(got)); diff != "" || len(errs) > 0 {
			t.Errorf("%s: Read(%q) errors %v (-want +got):\n%s", tt.why, tt.text, errs, diff)
		}
		for _, c := range got {
			if !json.Valid(c.Raw) || c.Raw[0] != '{' || c.Place.File != tt.name {
				t.Errorf("%s: Read(%q) gives raw %s in %s, want an object in %s", tt.why, tt.text, c.Raw, c.Place.File, tt.name)
			}
		}
	}
}

type badInputRow struct {
	why, name, text string
	claims          int      // what is read in spite of it
	errs            []string // the beginning of each error, "…" stands for anything, then a part
}

func badInputRows() []badInputRow {
	good := `{"id":"g","rung":1}`
	return []badInputRow{
		{"empty", "c.jsonl", "", 0, []string{"c.jsonl: …it is empty"}},
		{"blank", "c.json", " \n\n", 0, []string{"c.json: …it is empty"}},
		{"empty list", "c.json", "[]", 0, []string{"c.json: …no claim"}},
		{"empty YAML", "c.yaml", "# nothing\n", 0, []string{"c.yaml: …it is empty"}},
		{"empty, unnamed", "stdin", "", 0, []string{"stdin: …it is empty"}},
		{"page without a claim", "c.md", "# T\n", 0, []string{"c.md: …frontmatter"}},
		{"cut off", "c.jsonl", good + "\n" + `{"rung":1,"che`, 1, []string{"c.jsonl:2: …the last line is cut off after 14 bytes"}},
		{"syntax, and reading goes on", "c.jsonl", "{x}\n" + good + "\n{]\n", 1, []string{"c.jsonl:1: byte 2: …invalid character 'x'", "c.jsonl:3: byte 2: …invalid"}},
		{"trailing garbage", "c.jsonl", good + "x\n", 0, []string{"c.jsonl:1: byte 20: …after top-level value"}},
		{"two in a line", "c.jsonl", good + good, 0, []string{"c.jsonl:1: byte 20: …after top-level"}},
		{"array in lines", "c.jsonl", "[\n" + good + "\n]", 0, []string{"c.jsonl:1: …name the file .json"}},
		{"array later", "c.jsonl", good + "\n[]\n3\nnull\n\"x\"", 1, []string{"c.jsonl:2: …got an array", "c.jsonl:3: …the number 3", "c.jsonl:4: …got null", "c.jsonl:5: …a string"}},
		{"not UTF-8", "c.jsonl", good + "\n{\"rung\":1,\"x\":\"\xff\"}\n", 1, []string{"c.jsonl:2: …line 2, byte 16 is 0xff, which is not UTF-8"}},
		{"not UTF-8 in an array", "c.json", "[" + good + ",\n{\"rung\":1,\n\"x\":\"\xfe\"}]", 1, []string{"c.json:2: …line 3, byte 6 is 0xfe"}},
		{"not UTF-8 in YAML", "c.yaml", "rung: 1\ntitle: a\xffb\n", 0, []string{"c.yaml: …line 2, byte 9 is 0xff"}},
		{"not UTF-8 in a page", "c.md", "---\nrung: 1\n---\n\xc3\n", 0, []string{"c.md: …line 4, byte 1 is 0xc3"}},
		{"UTF-16", "c.jsonl", "\xff\xfe{\x00}\x00", 0, []string{"c.jsonl:1: …not UTF-8"}},
		{"array cut off in a claim", "c.json", "[" + good + ",\n{\"rung\":", 1, []string{"c.json:…cut off"}},
		{"array cut off after a claim", "c.json", "[" + good + ",\n" + `{"rung":1}`, 2, []string{"c.json:2: …cut off"}},
		{"array with a comma less", "c.json", "[" + good + "\n" + good + "]", 1, []string{"c.json:2: …expected comma"}},
		{"array, then more", "c.json", "[" + good + "]\n[]", 1, []string{"c.json:2: …more after the array's end"}},
		{"array with other things", "c.json", "[1,\n" + good + ",\n[]]", 1, []string{"c.json:1: …the number 1", "c.json:3: …an array"}},
		{"object, then more", "c.json", good + "\n" + good, 1, []string{"c.json:2: …name the file .jsonl"}},
		{"a string for a file", "c.json", `"x"`, 0, []string{"c.json:1: …found '\"'"}},
		{"YAML syntax", "c.yaml", "rung: 1\n\tx: [\n", 0, []string{"c.yaml: yaml: line 2…nothing after it"}},
		{"YAML scalar", "c.yaml", "hello", 0, []string{"c.yaml:1: …an object, got a string"}},
		{"plain text, unnamed", "stdin", "hello\nworld", 0, []string{"stdin:1: …an object, got a string"}},
		{"YAML list of others", "c.yaml", "- 1\n- rung: 2\n- [a]\n", 1, []string{"c.yaml:1: …the number 1", "c.yaml:3: …an array"}},
		{"YAML keys", "c.yaml", "- rung: 1\n  rung: 2\n- 1: x\n- ? [a]\n  : x\n- <<: {a: b}\n", 0, []string{"c.yaml:1: rung: …twice", "c.yaml:3: line 3: …the key \"1\"", "c.yaml:4: …is not a string", "c.yaml:6: …the key \"<<\""}},
		{"YAML values", "c.yaml", "- rung: 1\n  x: !foo a\n- rung: 1\n  y: .nan\n- rung: 4\n  expect: 2983\n- rung: 1\n  check: [a]\n", 0, []string{"c.yaml:1: line 2: …!foo", "c.yaml:3: line 4: …finite", "c.yaml:5: expect: …quote it", "c.yaml:7: check: …an array"}},
		{"YAML alias of itself", "c.yaml", "rung: 1\nx: &a [*a]\n", 0, []string{"c.yaml:…line 2: …deeper than 1000"}},
		{"page rung", "c.md", "---\nrung: 9\n---\n", 0, []string{"c.md:1: rung: want an integer from 1 to 5, got 9"}},
		{"page settings", "c.md", "---\nrung: 1\ntimeout: soon\n---\n", 0, []string{"c.md:1: timeout: …30s"}},
		{"page with a key twice in a value", "c.md", "---\nrung: 1\nx: {\"a\":1,\"a\":2}\n---\n", 0, []string{"c.md:1: a: …twice"}},
		{"page or YAML", "stdin", "---\nrung: 1\n---\nrung: 2\n", 0, []string{"stdin: …a Markdown page and as YAML"}},
		{"blocks", "c.md", "---END FILE---\n---FILE: a---\n---FILE: b---\n---\nrung: 1\n---\n---END FILE---\n---FILE: c---\n", 1, []string{"c.md:1: …without a ---FILE", "c.md:2: …has no ---END FILE---", "c.md:8: …has no ---END FILE---"}},
		{"ids", "c.jsonl", good + "\n{\"rung\":1}\n" + good + "\n{\"rung\":1,\"id\":\"c.jsonl:2\"}", 2, []string{"c.jsonl:3: id: \"g\" is the id of the claim at c.jsonl:1", "c.jsonl:4: id: …at c.jsonl:2"}},
	}
}

func TestBadInput(t *testing.T) {
	for _, tt := range badInputRows() {
		got, errs := readText(tt.name, tt.text)
		if len(got) != tt.claims {
			t.Errorf("%s: Read(%q) = %v, want %d claims", tt.why, tt.text, summary(got), tt.claims)
		}
		matchErrors(t, tt.why, errs, tt.errs)
	}
}

// matchErrors compares errors in order with patterns, in which "…" stands for
// anything.
func matchErrors(t *testing.T, why string, errs []error, want []string) {
	t.Helper()
	if len(errs) != len(want) {
		t.Errorf("%s: errors %q, want %d like %q", why, errorTexts(errs), len(want), want)
		return
	}
	for i, err := range errs {
		begins, holds, _ := strings.Cut(want[i], "…")
		rest, ok := strings.CutPrefix(err.Error(), begins)
		for part := range strings.SplitSeq(holds, "…") {
			ok = ok && strings.Contains(rest, part)
		}
		if !ok {
			t.Errorf("%s: error %q, want it like %q", why, err, want[i])
		}
	}
}

type badKeyRow struct{ object, want string }

func badKeyRows() []badKeyRow {
	return []badKeyRow{
		{`{}`, "rung: it is missing"},
		{`{"rung":null}`, "rung: it is missing"},
		{`{"rung":0}`, "rung: …from 1 to 5, got 0"},
		{`{"rung":6}`, "rung: …got 6"},
		{`{"rung":-1}`, "rung: …got -1"},
		{`{"rung":1e99}`, "rung: …got 1e99"},
		{`{"rung":4.5}`, "rung: …the number 4.5"},
		{`{"rung":"4"}`, "rung: …got a string"},
		{`{"rung":true}`, "rung: …a boolean"},
		{`{"rung":[4]}`, "rung: …an array"},
		{`{"rung":1,"id":7}`, "id: want a string, got the number 7"},
		{`{"rung":1,"id":""}`, "id: it is blank"},
		{`{"rung":1,"id":" "}`, "id: it is blank"},
		{`{"rung":1,"title":{}}`, "title: want a string, got an object"},
		{`{"rung":1,"check":false}`, "check: …a boolean"},
		{`{"rung":1,"expect":3}`, "expect: …the number 3; quote it"},
		{`{"rung":1,"evidence_path":[]}`, "evidence_path: …an array"},
		{`{"rung":1,"evidence_path":"a","evidencePath":"b"}`, "evidencePath: …remove one"},
		{`{"rung":1,"rung":1}`, "rung: the key is there twice"},
		{`{"rung":1,"r\u0075ng":1}`, "rung: the key is there twice"},
		{`{"rung":1,"x":[{"a":{"b":1,"b":1}}]}`, "b: …twice"},
		{`{"rung":1,"files":[]}`, "files: …an array"},
		{`{"rung":1,"files":{"/a":""}}`, `files: file "/a": …absolute`},
		{`{"rung":1,"files":{"a/../b":""}}`, "files: …'..'"},
		{`{"rung":1,"files":{"../b":""}}`, "files: …'..'"},
		{`{"rung":1,"files":{"":""}}`, "files: …empty"},
		{`{"rung":1,"files":{"a\u0000b":""}}`, "files: …NUL"},
		{`{"rung":1,"files":{"a":"","a/b":""}}`, `files: file "a/b": "a" is a file`},
		{`{"rung":1,"files":{"a":"","a":""}}`, "a: …twice"},
		{`{"rung":1,"files":{"a":1}}`, `files: file "a": want text or {"base64": "…the number 1`},
		{`{"rung":1,"files":{"a":{"base64":"!"}}}`, `files: file "a": base64: illegal`},
		{`{"rung":1,"files":{"a":{"base64":7}}}`, `files: file "a": want…base64`},
		{`{"rung":1,"files":{"a":{"base64":"","mode":1}}}`, `files: file "a": want…mode`},
		{`{"rung":1,"files":{"a":{"text":""}}}`, `files: file "a": want…text`},
		{`{"rung":1,"timeout":"0"}`, "limit wall: 0s is not positive"},
		{`{"rung":1,"timeout":-1}`, "limit wall: -1s is not positive"},
		{`{"rung":1,"timeout":"30"}`, "timeout: …30s"},
		{`{"rung":1,"timeout":1e300}`, "timeout: …out of range"},
		{`{"rung":1,"timeout":"unlimited"}`, "timeout: …not a time"},
		{`{"rung":1,"timeout":true}`, "timeout: …a boolean"},
		{`{"rung":1,"memory":0}`, "limit memory: …not positive"},
		{`{"rung":1,"memory":"lots"}`, "memory: …not a number with a unit"},
		{`{"rung":1,"memory":1.5}`, "memory: …whole"},
		{`{"rung":1,"disk":"unlimited"}`, "disk: …"},
		{`{"rung":1,"stdout_cap":"2GiB"}`, "limit stdout-cap: …outside"},
		{`{"rung":1,"pids":"many"}`, "pids: …whole number"},
		{`{"rung":1,"cpus":"NaN"}`, "cpus: …processors"},
		{`{"rung":1,"nofile":1}`, "limit nofile: …outside"},
		{`{"rung":1,"image":7}`, "image: …the name"},
		{`{"rung":1,"image":" "}`, "image: …the name"},
		{`{"rung":1,"cpu-time":"1s","cpu_time":"1s"}`, "cpu_time: cpu-time is there too"},
	}
}

func TestBadKeys(t *testing.T) {
	for _, tt := range badKeyRows() {
		_, errs := readText("c.jsonl", tt.object)
		matchErrors(t, tt.object, errs, []string{"c.jsonl:1: " + tt.want})
	}
}

func TestAllProblemsAtOnce(t *testing.T) {
	_, errs := readText("c.jsonl", `{"rung":9,"check":1,"timeout":"x","files":{"/a":"","b/..":3}}`)
	matchErrors(t, "many problems", errs, []string{"c.jsonl:1: check: …", "c.jsonl:1: rung: …", "c.jsonl:1: files: …\"b/..\": want text", "c.jsonl:1: files: …absolute", "c.jsonl:1: files: …'..'", "c.jsonl:1: timeout: …"})
	var e *Error
	if !errors.As(errs[1], &e) || e.Key != "rung" || e.Place != (Place{"c.jsonl", 1}) {
		t.Errorf("errors.As(%v) = %+v, want an *Error of the key rung at c.jsonl:1", errs[1], e)
	}
}

func TestGoodOddities(t *testing.T) {
	big := strings.Repeat("x ", 5<<19)
	deep := strings.Repeat("[", 900) + strings.Repeat("]", 900)
	raw := `{"rung":4.0,"check":"a\u0000b` + big + `","expect":null,"x":` + deep + `,"x2":null,"files":{"b":{"base64":"/w=="},"a":"t"}}`
	got, errs := readText("c.jsonl", raw)
	if len(errs) > 0 || len(got) != 1 {
		t.Fatalf("Read(odd but good) = %d claims, %v", len(got), errs)
	}
	c := got[0]
	want := grade.Evidence{Rung: 4, Check: "a\x00b" + big}
	if c.Evidence != want {
		t.Errorf("Read(a NUL and 5 MB in the check) = rung %d, %d bytes of check, want them kept", c.Evidence.Rung, len(c.Evidence.Check))
	}
	if string(c.Raw) != raw || len(c.Extra) != 2 || string(c.Extra["x"]) != deep || string(c.Extra["x2"]) != "null" {
		t.Errorf("Read: extra %v and %d bytes raw, want both unknown keys and the line as it was", len(c.Extra), len(c.Raw))
	}
	if len(c.Files) != 2 || c.Files[0].Path != "a" || string(c.Files[1].Content) != "\xff" {
		t.Errorf("Read: files %q, want a and b in order, b with the byte 0xff", c.Files)
	}
	for _, depth := range []int{1001, 20_000} {
		text := `{"rung":1,"x":` + strings.Repeat("[", depth) + strings.Repeat("]", depth) + "}"
		if _, errs := readText("c.jsonl", text); len(errs) != 1 {
			t.Errorf("Read(%d levels) = %v, want one error", depth, errs)
		}
	}
}

func TestReadStops(t *testing.T) {
	s := textSource("c.jsonl", strings.Repeat("{\"rung\":1}\n{}\n", 50))
	n := 0
	for range Read(t.Context(), []Source{s, s}) {
		if n++; n == 3 {
			break
		}
	}
	if n != 3 {
		t.Errorf("Read went on to item %d after the loop had ended at 3", n)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	why := errors.New("interrupted")
	var last error
	n = 0
	for _, last = range Read(ctx, []Source{s, s}) {
		if n++; n == 5 {
			cancel(why)
		}
	}
	if n != 6 || !errors.Is(last, why) {
		t.Errorf("Read with a context done at item 5 yielded %d items, the last with %v, want 6 and %v", n, last, why)
	}
}

func TestReadErrorsOfSources(t *testing.T) {
	broken := errors.New("disk on fire")
	for _, name := range []string{"c.jsonl", "c.json", "c.yaml", "c.md", "c"} {
		s := textSource(name, "")
		s.open = func() (io.ReadCloser, error) { return io.NopCloser(failing{broken}), nil }
		got, errs := collect(s, textSource("d.jsonl", `{"rung":1}`))
		if len(errs) != 1 || !errors.Is(errs[0], broken) || !strings.HasPrefix(errs[0].Error(), name) || len(got) != 1 {
			t.Errorf("Read(%s that fails) = %v, %q, want the failure and then the next source", name, summary(got), errorTexts(errs))
		}
		s.open = func() (io.ReadCloser, error) { return nil, broken }
		if _, errs := collect(s); len(errs) != 1 || !errors.Is(errs[0], broken) {
			t.Errorf("Read(%s that can't be opened) = %q, want the failure", name, errorTexts(errs))
		}
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
