package grade

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
)

func TestNormalTitle(t *testing.T) {
	for in, want := range map[string]string{
		"":                     "",
		" \u2003":              "",
		"T  One\t\n x":         "t one x",
		" t ONE.md ":           "t one",
		"t.MD":                 "t",
		"t.md.md":              "t.md",
		".md":                  "",
		"\ufeffA\u00a0\u3000b": "a b",
		"a\u0085b":             "a\u0085b",
		"ΟΔΟΣ":                 "οδος",
		"İ":                    "i\u0307",
		"a\xff":                "a\uFFFD",
	} {
		if got := normalTitle(in); got != want {
			t.Errorf("normalTitle(%q) = %q, want %q", in, got, want)
		}
	}
}

type claim struct {
	id, title string
	ev        Evidence
	verdict   Verdict
}

func TestBatchNeverFlags(t *testing.T) {
	ev := Evidence{Rung: 4, Check: "./m", Expect: "a"}
	for _, tt := range []struct {
		name string
		a, b claim
	}{
		{"no title", claim{"a", "", ev, Verified}, claim{"b", "", ev, Verified}},
		{"blank title", claim{"a", " ", ev, Verified}, claim{"b", "\u2003", ev, Verified}},
		{"one without a title", claim{"a", "t", ev, Verified}, claim{"b", "", ev, Contradicted}},
		{"blank check", claim{"a", "t", Evidence{Check: " "}, Verified}, claim{"b", "t", Evidence{Check: "\t"}, Verified}},
		{"other expectation", claim{"a", "t", ev, Verified}, claim{"b", "u", Evidence{Check: "./m", Expect: "A"}, Verified}},
	} {
		var b Batch
		for _, c := range []claim{tt.a, tt.b} {
			b.Add(c.id, c.title, c.ev)
		}
		for _, c := range []claim{tt.a, tt.b} {
			if of, ok := b.Duplicate(c.id, c.title, c.ev, c.verdict); ok {
				t.Errorf("%s: Duplicate(%s) = %q, want none", tt.name, c.id, of)
			}
		}
		for _, c := range []claim{tt.a, tt.b} {
			if ids, n, final := b.Shared(c.title, c.ev); ids != nil || n != 0 || !final {
				t.Errorf("%s: Shared(%s) = %v, %d, %v, want nil, 0, true", tt.name, c.id, ids, n, final)
			}
		}
	}
}

func TestBatchTrims(t *testing.T) {
	var b Batch
	x, y := Evidence{Rung: 4, Check: " ./m\n", Expect: "a "}, Evidence{Rung: 5, Check: "./m", Expect: "\ufeffa"}
	b.Add("x", "t", x)
	b.Add("y", "T", y)
	b.Duplicate("x", "t", x, Unrunnable)
	if of, ok := b.Duplicate("y", "T", y, Unrunnable); of != "x" || !ok {
		t.Errorf("Duplicate(blanks around check and expectation) = %q, %v, want x, true", of, ok)
	}
}

// Titles that differ decide at once; verdicts only when the last one is in.
func TestSharedIsFinal(t *testing.T) {
	ev := Evidence{Rung: 4, Check: "./m", Expect: "a"}
	var b Batch
	for _, id := range []string{"a", "b", "c"} {
		b.Add(id, "t", ev)
	}
	expect := func(when string, wantIDs []string, wantFinal bool) {
		t.Helper()
		ids, n, final := b.Shared("t", ev)
		if !slices.Equal(ids, wantIDs) || n != len(wantIDs) || final != wantFinal {
			t.Errorf("%s: Shared = %v, %d, %v, want %v, %d, %v", when, ids, n, final, wantIDs, len(wantIDs), wantFinal)
		}
	}
	expect("before any verdict", nil, false)
	b.Duplicate("a", "t", ev, Verified)
	expect("one verdict", nil, false)
	b.Duplicate("b", "t", ev, Unrunnable)
	expect("two that differ", []string{"a", "b", "c"}, true)

	var same Batch
	same.Add("a", "t", ev)
	same.Add("b", "t", ev)
	same.Duplicate("a", "t", ev, Verified)
	same.Duplicate("b", "t", ev, Verified)
	if ids, n, final := same.Shared("t", ev); ids != nil || n != 0 || !final {
		t.Errorf("all verdicts in and equal: Shared = %v, %d, %v, want nil, 0, true", ids, n, final)
	}
	var titles Batch
	titles.Add("a", "t", ev)
	titles.Add("b", "u", ev)
	if ids, n, final := titles.Shared("u", ev); !slices.Equal(ids, []string{"a", "b"}) || n != 2 || !final {
		t.Errorf("titles differ, no verdict yet: Shared = %v, %d, %v, want [a b], 2, true", ids, n, final)
	}
}

func TestSharedNamesTwenty(t *testing.T) {
	ev := Evidence{Rung: 4, Check: "./m", Expect: "a"}
	var b Batch
	var want []string
	for i := range 1000 {
		id := fmt.Sprint("c", i)
		b.Add(id, fmt.Sprint("title ", i), ev)
		if i < 20 {
			want = append(want, id)
		}
	}
	ids, n, _ := b.Shared("title 999", ev)
	if !slices.Equal(ids, want) || n != 1000 {
		t.Errorf("Shared of 1000 = %v, %d, want the first 20 and 1000", ids, n)
	}
}

func TestBatchMemory(t *testing.T) {
	const claims, most = 100_000, 250 // bytes a claim
	text := make([]byte, 1000)
	var b Batch
	before := heap()
	for i := range claims {
		b.Add(fmt.Sprintf("claim-%06d", i), fmt.Sprint("title ", i), Evidence{Rung: 4, Check: fmt.Sprint("./m ", i, string(text)), Expect: "a"})
	}
	got := (heap() - before) / claims
	if len(b.groups) != claims || got > most {
		t.Errorf("a batch of %d claims holds %d groups and %d bytes a claim, want at most %d", claims, len(b.groups), got, most)
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
