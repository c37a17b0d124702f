package claims

import (
	"bufio"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/checkcell/checkcell/grade"
	"github.com/google/go-cmp/cmp"
)

const pageRows = 20

type pageRow struct {
	Name     string `json:"name"`
	Page     string `json:"page"`
	Evidence *struct {
		Rung         int    `json:"rung"`
		Check        string `json:"check"`
		Expect       string `json:"expect"`
		EvidencePath string `json:"evidencePath"`
	} `json:"evidence"`
	Findings []string `json:"findings"`
	Why      string   `json:"why"`
}

func pageTable(t testing.TB) []pageRow {
	t.Helper()
	f, err := os.Open("testdata/page-cases.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var rows []pageRow
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var row pageRow
		if err := json.Unmarshal(lines.Bytes(), &row); err != nil {
			t.Fatalf("row %d: %v", len(rows)+1, err)
		}
		rows = append(rows, row)
	}
	if len(rows) != pageRows {
		t.Fatalf("page-cases.jsonl has %d rows, want %d", len(rows), pageRows)
	}
	return rows
}

func findingWords(found []Finding) []string {
	words := []string{}
	for _, f := range found {
		words = append(words, f.String())
	}
	return words
}

func TestPageTable(t *testing.T) {
	for _, row := range pageTable(t) {
		got := ReadPage([]byte(row.Page))
		var want grade.Evidence
		if row.Evidence != nil {
			want = grade.Evidence(*row.Evidence)
		}
		if got.HasClaim != (row.Evidence != nil) || got.Evidence != want {
			t.Errorf("%s: ReadPage(%q) = %v, %+v, want %v, %+v (%s)", row.Name, row.Page, got.HasClaim, got.Evidence, row.Evidence != nil, want, row.Why)
		}
		if diff := cmp.Diff(row.Findings, findingWords(got.Findings)); diff != "" {
			t.Errorf("%s: ReadPage(%q).Findings (-want +got):\n%s", row.Name, row.Page, diff)
		}
		if _, stated := got.Fields["id"]; stated && (got.ID != "p1" || got.Title != "T") {
			t.Errorf("%s: ReadPage(%q) has id %q and title %q, want p1 and T", row.Name, row.Page, got.ID, got.Title)
		}
	}
}

func TestFrontmatterValues(t *testing.T) {
	for _, tt := range []struct{ line, want string }{
		{`k: a`, `"a"`},
		{`k:a`, `"a"`},
		{`k: a: b`, `"a: b"`},
		{"k: \u00a0a\ufeff ", `"a"`},
		{`k: "a\tb"`, `"a\tb"`},
		{`k: "a\qb"`, `"a\\qb"`}, // not JSON, but balanced
		{`k: "a" "b"`, `"a\" \"b"`},
		{`k: 'a"b'`, `"a\"b"`},
		{`k: 'a`, `"'a"`},
		{`k: a"`, `"a\""`},
		{`k: '`, `"'"`},
		{`k: ""`, `""`},
		{`k: [1, "a"]`, `[1, "a"]`},
		{`k: [a, b]`, `"[a, b]"`},
		{`k: {"a": 1}`, `{"a": 1}`},
		{`k: true`, `true`},
		{`k: false`, `false`},
		{`k: True`, `"True"`},
		{`k: null`, `"null"`},
		{`k: 17`, `17`},
		{`k: -1.50`, `-1.50`},
		{`k: 1e3`, `"1e3"`},
		{`k: 1.`, `"1."`},
		{`k: .5`, `".5"`},
		{`k: 007`, `"007"`},
		{`k: +1`, `"+1"`},
		{`k: |`, `"|"`},
		{`k:`, `""`},
		{"k:\n- a\n  - 2\n- \"x\\ny\"", `["a",2,"x\ny"]`},
		{"k: v\n- a", `"v"`},
		{"k: 1\nother stuff\nk: 2", `2`},
		{"k: 1\nk k: 2\n k: 3\nk.k: 4", `1`},
	} {
		got := string(ReadPage([]byte("---\n" + tt.line + "\n---\n")).Fields["k"])
		if got != tt.want {
			t.Errorf("ReadPage(%q).Fields[k] = %s, want %s", tt.line, got, tt.want)
		}
	}
}

func TestFences(t *testing.T) {
	for page, want := range map[string]bool{
		"---\nrung: 1\n---":         true,
		"---\nrung: 1\n----- x":     true,
		"---\r\nrung: 1\r\n---\r\n": true,
		"--- \nrung: 1\n---":        false,
		"\n---\nrung: 1\n---":       false,
		"---\nrung: 1\n --- ":       false,
		"---":                       false,
		"":                          false,
		"---\n---\nrung: 1\n":       false,
	} {
		if got := ReadPage([]byte(page)).HasClaim; got != want {
			t.Errorf("ReadPage(%q).HasClaim = %v, want %v", page, got, want)
		}
	}
}

func TestPageRung(t *testing.T) {
	for value, want := range map[string]int{
		"1": 1, "5": 5, `"3"`: 3, "'2'": 2, "4.0": 4,
		"0": 0, "6": 0, "-1": 0, "4.5": 0, "": 0, "true": 0, "four": 0, `"4.5"`: 0, `" 4"`: 0, "[4]": 0, "99999999999999999999999": 0,
	} {
		got := ReadPage([]byte("---\nrung: " + value + "\n---\n"))
		if got.Evidence.Rung != want || got.HasClaim != (want > 0) {
			t.Errorf("ReadPage(rung: %s) = rung %d, claim %v, want %d", value, got.Evidence.Rung, got.HasClaim, want)
		}
		if bad := len(got.Findings) == 1 && got.Findings[0] == (Finding{UngradeableEvidence, "RUNG"}); bad != (want == 0) {
			t.Errorf("ReadPage(rung: %s).Findings = %v, want RUNG alone to be found: %v", value, got.Findings, want == 0)
		}
	}
}

func TestPortable(t *testing.T) {
	for text, want := range map[string]bool{
		"":                           true,
		"cat data/x.csv":             true,
		"cat ./x ../y ~/z":           true,
		"curl http://h:80/x":         true,
		"cat x > /dev/null":          true,
		"cat x 2>/dev/null":          true,
		"cat '/dev/null'; x":         true,
		"cat /dev/nullx":             false,
		"cat /dev/null/x":            false,
		"/usr/bin/env python":        false,
		"cat /etc/passwd":            false,
		"cat\t/etc/passwd":           false,
		`cat "/etc/passwd"`:          false,
		"cat `/bin/x`":               false,
		"X=/etc/y cmd":               false,
		"(/bin/true)":                false,
		"expr 6 / 2":                 true,
		"a//b // c":                  true,
		`type C:\x`:                  false,
		"type c:/x":                  false,
		"k:v a:b":                    true,
		`abc:\x`:                     true,
		"cat x >/dev/null /dev/null": true,
		"a\u00a0/etc":                false,
	} {
		if got := portable(text); got != want {
			t.Errorf("portable(%q) = %v, want %v", text, got, want)
		}
	}
}

func TestFindingsOfAll(t *testing.T) {
	ev := grade.Evidence{Rung: 5, Check: "cat /etc/x", Expect: "a\nb"}
	want := []string{"ungradeable-evidence:MULTILINE_EXPECTATION", "missing-evidence-path", "nonportable-evidence:check"}
	if diff := cmp.Diff(want, findingWords(Findings(ev))); diff != "" {
		t.Errorf("Findings(%+v) (-want +got):\n%s", ev, diff)
	}
	ev.Rung = 3
	if diff := cmp.Diff(want[2:], findingWords(Findings(ev))); diff != "" {
		t.Errorf("Findings(%+v) (-want +got):\n%s", ev, diff)
	}
	if got := Rule(9).String(); got != "Rule(9)" {
		t.Errorf("Rule(9).String() = %q", got)
	}
}

func TestPageClaim(t *testing.T) {
	const page = "---\nrung: '4'\ncheck: ./m\nexpect: a=1\nevidence_path: out\nid: 7\ntitle: 2024\ntimeout: 2m\nmemory: 64MiB\ntags:\n- a\nfiles: {\"x/y\": \"z\"}\n---\nbody\n"
	got, errs := readText("p.md", page)
	if len(errs) != 0 || len(got) != 1 {
		t.Fatalf("Read(%q) = %d claims, %v", page, len(got), errs)
	}
	c := got[0]
	want := grade.Evidence{Rung: 4, Check: "./m", Expect: "a=1", EvidencePath: "out"}
	if c.Evidence != want || c.ID != "7" || c.Title != "2024" {
		t.Errorf("Read(page) = %q %q %+v, want 7, 2024, %+v", c.ID, c.Title, c.Evidence, want)
	}
	if timeout, _ := c.Settings.Timeout.Value(); timeout.String() != "2m0s" {
		t.Errorf("Read(page) timeout = %v, want 2m", timeout)
	}
	if len(c.Files) != 1 || c.Files[0].Path != "x/y" || string(c.Files[0].Content) != "z" {
		t.Errorf("Read(page).Files = %v, want x/y with z", c.Files)
	}
	if len(c.Extra) != 1 || string(c.Extra["tags"]) != `["a"]` {
		t.Errorf("Read(page).Extra = %s, want tags alone", c.Extra)
	}
	if !json.Valid(c.Raw) || !strings.Contains(string(c.Raw), `"check":"./m"`) {
		t.Errorf("Read(page).Raw = %s, want the frontmatter as an object", c.Raw)
	}
}
