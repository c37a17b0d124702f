package claims

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// checkInvariants reads data as a file called name, twice, and holds what is
// true of every input.
func checkInvariants(t *testing.T, name string, data []byte) {
	t.Helper()
	got, errs := readText(name, string(data))
	if len(got)+len(errs) == 0 {
		t.Errorf("Read(%s, %q) yields nothing at all", name, data)
	}
	again, errsAgain := readText(name, string(data))
	if diff := cmp.Diff(summary(got), summary(again)); diff != "" || len(errs) != len(errsAgain) {
		t.Errorf("Read(%s, %q) differs the second time:\n%s", name, data, diff)
	}
	ids := map[string]bool{}
	for _, c := range got {
		if c.ID == "" || ids[c.ID] || c.Place.Line < 1 || c.Evidence.Rung < 1 || c.Evidence.Rung > 5 {
			t.Errorf("Read(%s, %q) gives the claim %+v", name, data, c)
		}
		if !json.Valid(c.Raw) || c.Raw[0] != '{' {
			t.Errorf("Read(%s, %q) gives the raw claim %q", name, data, c.Raw)
		}
		ids[c.ID] = true
	}
	for _, err := range errs {
		if !strings.HasPrefix(err.Error(), name) {
			t.Errorf("Read(%s, %q) gives an error without a place: %v", name, data, err)
		}
	}
}

func FuzzReadPage(f *testing.F) {
	for _, row := range pageTable(f) {
		f.Add([]byte(row.Page))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p := ReadPage(data)
		if p.HasClaim != (p.Evidence.Rung != 0) || p.Evidence.Rung < 0 || p.Evidence.Rung > 5 {
			t.Errorf("ReadPage(%q) has claim %v at rung %d", data, p.HasClaim, p.Evidence.Rung)
		}
		if _, err := json.Marshal(p.Fields); err != nil {
			t.Errorf("ReadPage(%q).Fields can't be written: %v", data, err)
		}
		checkInvariants(t, "p.md", data)
	})
}

func FuzzLines(f *testing.F) {
	for _, row := range badKeyRows() {
		f.Add([]byte(row.object))
	}
	for _, row := range badInputRows() {
		f.Add([]byte(row.text))
	}
	f.Add([]byte("{\"rung\":1,\"files\":{\"a\":{\"base64\":\"eA==\"}}}\r\n{\"rung\":2}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		checkInvariants(t, "c.jsonl", data)
		// A line is read alone as it is read among others.
		whole, _ := readText("c.jsonl", string(data))
		apart := 0
		for line := range strings.Lines(string(data)) {
			got, _ := readText("c.jsonl", line)
			apart += len(got)
		}
		if first := strings.TrimLeft(string(data), " \t\r\n\ufeff"); len(whole) > apart && !strings.HasPrefix(first, "[") {
			t.Errorf("Read(%q) = %d claims, but its lines apart hold %d", data, len(whole), apart)
		}
	})
}

func FuzzJSON(f *testing.F) {
	for _, row := range badKeyRows() {
		f.Add([]byte(row.object))
		f.Add([]byte("[" + row.object + "]"))
	}
	for _, row := range badInputRows() {
		f.Add([]byte(row.text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		checkInvariants(t, "c.json", data)
		_, errs := readText("c.json", string(data))
		if text := strings.TrimPrefix(string(data), "\ufeff"); len(errs) == 0 && !json.Valid([]byte(text)) {
			t.Errorf("Read(%q) finds no error in what is not JSON", data)
		}
	})
}

func FuzzYAML(f *testing.F) {
	for _, row := range badInputRows() {
		f.Add([]byte(row.text))
	}
	for _, seed := range []string{"- rung: 1\n  check: a\n- rung: 2\n", "a: &a [1]\nrung: 1\nb: *a\n", "rung: 0x2\nx: 1.5\ny: 2020-01-01\nz: ~\n", "rung: 1\n---\nrung: 2\n...\n"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) { checkInvariants(t, "c.yaml", data) })
}

// FuzzUnnamed is for what has to be told from the content.
func FuzzUnnamed(f *testing.F) {
	for _, row := range badInputRows() {
		f.Add([]byte(row.text))
	}
	for _, row := range pageTable(f) {
		f.Add([]byte(row.Page))
		f.Add([]byte("---FILE: p.md---\n" + row.Page + "\n---END FILE---\n"))
	}
	f.Fuzz(func(t *testing.T, data []byte) { checkInvariants(t, "stdin", data) })
}
