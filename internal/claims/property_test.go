package claims

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/checkcell/checkcell/grade"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// drawn is a claim with the text of its object.
type drawn struct {
	id, title string
	ev        grade.Evidence
	files     map[string][]byte
	extra     map[string]any
	object    map[string]any
}

func drawClaim(t *rapid.T, n int) drawn {
	text := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"", "true", "17", "~", "a: b", "- x", "# y", "---", "a\nb\n", "\u2028", "'", `"`, "\\n"}))
	d := drawn{id: fmt.Sprint("id-", n), title: text.Draw(t, "title"), files: map[string][]byte{}, extra: map[string]any{}}
	d.ev = grade.Evidence{Rung: rapid.IntRange(1, 5).Draw(t, "rung"), Check: text.Draw(t, "check"), Expect: text.Draw(t, "expect"), EvidencePath: text.Draw(t, "path")}
	d.object = map[string]any{"id": d.id, "title": d.title, "rung": d.ev.Rung, "check": d.ev.Check, "expect": d.ev.Expect}
	d.object[rapid.SampledFrom([]string{"evidence_path", "evidencePath"}).Draw(t, "spelling")] = d.ev.EvidencePath
	files := map[string]any{}
	for _, name := range rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z]{1,3}/[a-z]{1,3}`), 0, 3, rapid.ID).Draw(t, "files") {
		content := rapid.SliceOf(rapid.Byte()).Draw(t, "content")
		d.files[name] = content
		files[name] = map[string]any{"base64": base64.StdEncoding.EncodeToString(content)}
	}
	if len(files) > 0 {
		d.object["files"] = files
	}
	for _, key := range rapid.SliceOfNDistinct(rapid.StringMatching(`x[a-z]{0,3}`), 0, 2, rapid.ID).Draw(t, "extra") {
		value := text.Draw(t, "extra value")
		d.extra[key], d.object[key] = value, value
	}
	return d
}

func (d drawn) json(t *rapid.T) []byte {
	raw, err := json.Marshal(d.object)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// yamlOf writes a mapping as YAML, its lines after indent. Go's escapes in ASCII
// are YAML's too.
func yamlOf(o map[string]any, indent string) string {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(o)) {
		b.WriteString(indent + strconv.QuoteToASCII(key) + ":")
		switch v := o[key].(type) {
		case string:
			b.WriteString(" " + strconv.QuoteToASCII(v) + "\n")
		case map[string]any:
			b.WriteString("\n" + yamlOf(v, indent+"  "))
		default:
			fmt.Fprintf(&b, " %v\n", v)
		}
	}
	return b.String()
}

// A set of claims is the same however it is written.
func TestFormatsAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var claims []drawn
		var objects []map[string]any
		var lines [][]byte
		for n := range rapid.IntRange(1, 4).Draw(t, "claims") {
			d := drawClaim(t, n)
			claims, objects, lines = append(claims, d), append(objects, d.object), append(lines, d.json(t))
		}
		var list, documents strings.Builder
		for _, o := range objects {
			list.WriteString("-\n" + yamlOf(o, "  "))
			documents.WriteString("---\n" + yamlOf(o, ""))
		}
		array := append(append([]byte("["), bytes.Join(lines, []byte(",\n"))...), ']')
		end := rapid.SampledFrom([]string{"\n", "\r\n", "\n\n"}).Draw(t, "line end")
		for name, text := range map[string]string{
			"c.jsonl": string(bytes.Join(lines, []byte(end))), "c.json": string(array), "c.yaml": list.String(),
			"documents.yaml": documents.String(), "stdin": string(bytes.Join(lines, []byte(end))) + end,
		} {
			got, errs := readText(name, text)
			if len(errs) > 0 || len(got) != len(claims) {
				t.Fatalf("Read(%s, %q) = %d claims, %q, want %d", name, text, len(got), errorTexts(errs), len(claims))
			}
			for i, c := range got {
				claims[i].compare(t, name, c)
			}
		}
	})
}

func (d drawn) compare(t *rapid.T, name string, c Claim) {
	if c.ID != d.id || c.Title != d.title || c.Evidence != d.ev {
		t.Errorf("Read(%s) = %q %q %+v, want %q %q %+v", name, c.ID, c.Title, c.Evidence, d.id, d.title, d.ev)
	}
	var paths []string
	for _, f := range c.Files {
		paths = append(paths, f.Path)
		if !bytes.Equal(f.Content, d.files[f.Path]) {
			t.Errorf("Read(%s) file %s = %q, want %q", name, f.Path, f.Content, d.files[f.Path])
		}
	}
	if want := slices.Sorted(maps.Keys(d.files)); !slices.Equal(paths, want) {
		t.Errorf("Read(%s) files %v, want %v", name, paths, want)
	}
	extra := map[string]any{}
	for key, raw := range c.Extra {
		var v any
		if err := json.Unmarshal(raw, &v); err != nil {
			t.Errorf("Read(%s) extra %s = %s: %v", name, key, raw, err)
		}
		extra[key] = v
	}
	if diff := cmp.Diff(d.extra, extra); diff != "" {
		t.Errorf("Read(%s) extra (-want +got):\n%s", name, diff)
	}
	var raw, want any
	if err := json.Unmarshal(c.Raw, &raw); err != nil {
		t.Errorf("Read(%s) raw = %s: %v", name, c.Raw, err)
	}
	if err := json.Unmarshal(d.json(t), &want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, raw); diff != "" {
		t.Errorf("Read(%s) raw (-want +got):\n%s", name, diff)
	}
}

// However a file of lines is cut, each line before the cut is still read and
// the cut is reported.
func TestEveryCut(t *testing.T) {
	const line = `{"rung":1,"check":"é","x":[1,{"y":"\\n"}]}`
	text := line + "\n" + line + "\n" + line
	for cut := 1; cut < len(text); cut++ {
		got, errs := readText("c.jsonl", text[:cut])
		whole := strings.Count(text[:cut], line)
		partial := strings.TrimSpace(strings.ReplaceAll(text[:cut], line, "")) != ""
		if len(got) != whole || (len(errs) > 0) != partial {
			t.Errorf("Read(cut at %d) = %d claims, %q, want %d and an error: %v", cut, len(got), errorTexts(errs), whole, partial)
		}
	}
	array := "[" + line + ",\n" + line + "]"
	for cut := 1; cut < len(array); cut++ {
		got, errs := readText("c.json", array[:cut])
		if len(got) != strings.Count(array[:cut], line) || len(errs) != 1 {
			t.Errorf("Read(array cut at %d) = %d claims, %q, want one error", cut, len(got), errorTexts(errs))
		}
	}
}
