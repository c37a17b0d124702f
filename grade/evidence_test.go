package grade

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestRefuseNotes(t *testing.T) {
	for _, tt := range []struct {
		ev    Evidence
		kind  NoteKind
		names string
	}{
		{Evidence{Rung: 4}, NoCheck, "at rung 4 "},
		{Evidence{Rung: 5}, NoCheck, "at rung 5 "},
		{Evidence{Rung: 4, Check: "echo 18 "}, ConstantEmitter, `"echo 18"`},
		{Evidence{Rung: 4, Check: strings.Repeat("é", 201)}, LongFirstWord, "201 UTF-16 units"},
		{Evidence{Rung: 4, Check: "grep a=1 f", Expect: " a=1 "}, SelfCertifying, `"a=1"`},
		{Evidence{Rung: 4, Check: "./m", Expect: "\u2003"}, NoExpectation, "no expectation"},
		{Evidence{Rung: 4, Check: "./m", Expect: "a\rb"}, MultilineExpectation, `"a\rb"`},
	} {
		got, refused := AtRecord(tt.ev)
		if !refused || got.Verdict != Uncheckable || got.NoteKind != tt.kind || !strings.Contains(got.Note, tt.names) {
			t.Errorf("AtRecord(%+v) = %+v, %v, want uncheckable %v naming %s", tt.ev, got, refused, tt.kind, tt.names)
		}
	}
	huge := Evidence{Rung: 4, Check: "echo " + strings.Repeat("x", 1<<20)}
	if got, _ := Refuse(huge); len(got.Note) > 700 {
		t.Errorf("Refuse(a check of 1 MiB).Note has %d bytes, want at most 700", len(got.Note))
	}
}

func TestRefuseLeavesExpectations(t *testing.T) {
	for _, expect := range []string{"", " ", "a\nb"} {
		ev := Evidence{Rung: 4, Check: "./m", Expect: expect}
		if got, refused := Refuse(ev); refused {
			t.Errorf("Refuse(%+v) = %+v, want it left to grading", ev, got)
		}
		if _, refused := AtRecord(ev); !refused {
			t.Errorf("AtRecord(%+v) is not refused", ev)
		}
		ev.Rung = 3
		if got, refused := AtRecord(ev); refused {
			t.Errorf("AtRecord(%+v) = %+v, want nothing refused below rung 4", ev, got)
		}
	}
}

func TestConstant(t *testing.T) {
	for check, want := range map[string]bool{
		"true": true, ":": true, "true ": false, "TRUE": false, "false": false, "": false,
		"echo": true, "echo a": true, "echoa": false, "Echo a": false, "printf": true, "printf a": true,
		"echo\u00a0a": true, "echo\tcat f": true, "echo\n\ncat f": false, "echo\u0085a": false,
		"echo $'a'": true, `echo $"a"`: true, "echo $": false, "echo $x": false, "echo $'a'$": false,
		"echo a|b": false, "echo a;b": false, "echo a&b": false, "echo a<b": false, "echo a`b": false, "echo a>b": true,
	} {
		if got := constant(check); got != want {
			t.Errorf("constant(%q) = %v, want %v", check, got, want)
		}
	}
}

func TestFirstWordUnits(t *testing.T) {
	for check, want := range map[string]int{
		"": 0, "  ": 0, "ab c": 2, "\n\ufeff ab": 2, "é": 1, "😀x y": 3, "a\u0085b c": 3, "a\u2028b": 1, "\xff\xfe ": 2,
	} {
		if got := firstWordUnits(decode(check)); got != want {
			t.Errorf("firstWordUnits(%q) = %d, want %d", check, got, want)
		}
	}
	for n, want := range map[int]bool{200: false, 201: true} {
		ev := Evidence{Rung: 4, Check: " " + strings.Repeat("x", n) + " y"}
		if got, refused := Refuse(ev); refused != want {
			t.Errorf("Refuse(first word of %d) = %v, %v, want refused %v", n, got, refused, want)
		}
	}
}

func TestCertifies(t *testing.T) {
	for _, tt := range []struct {
		check, expect string
		want          bool
	}{
		{"x", "", false},
		{"", "x", false},
		{"x", "x", true},
		{"xx", "x", false},
		{"xx x", "x", true},
		{"aaa_aa", "aa", false},
		{"a-a-a-ab", "a-a", true},
		{"ba-a-ab", "a-a", false}, // both occurrences are glued, each at another end
		{"b-a-a-ab", "a-a", true}, // the second one overlaps the first
		{"é6é", "6", true},
		{"(17)b", "17)", true},
		{"a(17)", "(17", true},
		{"a(171)", "(17", false},
	} {
		if got := certifies(tt.check, tt.expect); got != tt.want {
			t.Errorf("certifies(%q, %q) = %v, want %v", tt.check, tt.expect, got, tt.want)
		}
	}
}

// A search that starts anew at each occurrence needs some 10^12 steps here.
func TestCertifiesInLinearTime(t *testing.T) {
	check := "x " + strings.Repeat("ab ", 1<<20) + "abc"
	expect := strings.Repeat("b ab ", 1<<18) + "b"
	ev := Evidence{Rung: 4, Check: check, Expect: expect}
	if got, refused := Refuse(ev); refused {
		t.Errorf("Refuse(every occurrence glued) = %v, want it not refused", got.NoteKind)
	}
}

func TestOccurrences(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOfN(rapid.RuneFrom([]rune("ab")), 0, 40, -1).Draw(t, "text")
		part := rapid.StringOfN(rapid.RuneFrom([]rune("ab")), 1, 6, -1).Draw(t, "part")
		var want []int
		for i := range len(text) {
			if strings.HasPrefix(text[i:], part) {
				want = append(want, i)
			}
		}
		if got := slices.Collect(occurrences(text, part)); !slices.Equal(got, want) {
			t.Errorf("occurrences(%q, %q) = %v, want %v", text, part, got, want)
		}
	})
}
