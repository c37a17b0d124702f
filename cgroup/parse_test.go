package cgroup

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

const statTail = " 1 42 42 0 -1 4194560 100 0 0 0 1 2 0 0 20 0 3 0 9000 1 2 3 4 5"

func TestParseStat(t *testing.T) {
	for _, tt := range []struct {
		text string
		want Process
	}{
		{"42 (bash) S" + statTail, Process{42, 'S', "bash", 3}},
		{"42 (a b) Z" + statTail, Process{42, 'Z', "a b", 3}},
		{"42 () R (x) D) D" + statTail, Process{42, 'D', ") R (x) D", 3}},
		{"42 () X" + statTail, Process{42, 'X', "", 3}},
		{"42 (a\nb) S" + statTail + "\n", Process{42, 'S', "a\nb", 3}},
	} {
		if got, err := parseStat([]byte(tt.text)); got != tt.want || err != nil {
			t.Errorf("parseStat(%q) = %v, %v, want %v", tt.text, got, err, tt.want)
		}
	}
}

func TestParseStatRefuses(t *testing.T) {
	for _, text := range []string{
		"", "42", "42 (bash", "42 (bash)", "42 (bash) S", "42 (bash) S 1 2 3", "x (bash) S" + statTail, "0 (bash) S" + statTail,
		"-1 (bash) S" + statTail, ") (bash S" + statTail, "42 (bash) SS" + statTail, "42 (bash) S" + strings.Replace(statTail, " 3 ", " x ", 1),
	} {
		if got, err := parseStat([]byte(text)); err == nil {
			t.Errorf("parseStat(%q) = %v, nil, want an error", text, got)
		}
	}
}

func TestProcessDead(t *testing.T) {
	for _, tt := range []struct {
		state   byte
		threads int
		want    bool
	}{
		{'S', 1, false}, {'D', 1, false}, {'Z', 1, true}, {'Z', 0, true}, {'X', 0, true},
		{'Z', 2, false}, // its first thread has ended, others run
		{0, 0, false},
	} {
		if got := (Process{State: tt.state, threads: tt.threads}).dead(); got != tt.want {
			t.Errorf("Process{%c, %d threads}.dead() = %v, want %v", tt.state, tt.threads, got, tt.want)
		}
	}
}

func TestProcessString(t *testing.T) {
	if got, want := (Process{42, 'D', "a\x1bb", 1}).String(), `42 ("a\x1bb") D`; got != want {
		t.Errorf("String() = %s, want %s", got, want)
	}
}

func TestParsePIDs(t *testing.T) {
	for text, want := range map[string][]int{"": nil, "1\n": {1}, "7\n3\n7\n": {7, 3, 7}} {
		if got, err := parsePIDs([]byte(text)); !slices.Equal(got, want) || err != nil {
			t.Errorf("parsePIDs(%q) = %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"x\n", "-1\n", "\n", "1 2\n", "99999999999999999999\n"} {
		if got, err := parsePIDs([]byte(text)); err == nil {
			t.Errorf("parsePIDs(%q) = %v, nil, want an error", text, got)
		}
	}
	if got, err := parsePIDs([]byte("0\n5\n")); !errors.Is(err, errInvisible) || !slices.Equal(got, []int{5}) {
		t.Errorf("parsePIDs of a process that can't be seen = %v, %v, want [5], errInvisible", got, err)
	}
}

func TestParseKey(t *testing.T) {
	const text = "populated 0\nfrozen 12\noom_kill 3\noom_kill_disable 0\nbad x\nminus -1\nempty \nalone\n"
	for key, want := range map[string]int64{"populated": 0, "frozen": 12, "oom_kill": 3} {
		if got, err := parseKey([]byte(text), key); got != want || err != nil {
			t.Errorf("parseKey(%q) = %d, %v, want %d", key, got, err, want)
		}
	}
	for _, key := range []string{"absent", "bad", "minus", "empty", "alone", "", "popul"} {
		if got, err := parseKey([]byte(text), key); err == nil {
			t.Errorf("parseKey(%q) = %d, nil, want an error, never 0", key, got)
		}
	}
}

func TestParseNumber(t *testing.T) {
	for text, want := range map[string]int64{"0\n": 0, "42": 42, "9223372036854775807\n": 1<<63 - 1} {
		if got, err := parseNumber([]byte(text)); got != want || err != nil {
			t.Errorf("parseNumber(%q) = %d, %v, want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "\n", "max\n", "-1\n", "1 2\n", "9223372036854775808\n"} {
		if got, err := parseNumber([]byte(text)); err == nil {
			t.Errorf("parseNumber(%q) = %d, nil, want an error", text, got)
		}
	}
}

func TestIsWord(t *testing.T) {
	for _, tt := range []struct {
		text, word string
		want       bool
	}{
		{"cpuset cpu io memory\n", "cpu", true}, {"cpuset io\n", "cpu", false}, {"", "cpu", false}, {"memory", "memory", true},
	} {
		if got := isWord([]byte(tt.text), tt.word); got != tt.want {
			t.Errorf("isWord(%q, %q) = %v, want %v", tt.text, tt.word, got, tt.want)
		}
	}
}

func TestValidName(t *testing.T) {
	for name, want := range map[string]bool{
		"a": true, "run-7f": true, "0.A_b-c": true, strings.Repeat("a", 128): true,
		"": false, ".": false, "..": false, ".a": false, "-a": false, "_a": false, "a/b": false, "a b": false, "a\n": false, "ä": false,
		strings.Repeat("a", 129): false,
	} {
		if got := validName(name); got != want {
			t.Errorf("validName(%q) = %v, want %v", name, got, want)
		}
	}
}

// FuzzParse checks that the parsers of files don't panic and that what they
// accept is sane.
func FuzzParse(f *testing.F) {
	for _, text := range []string{"42 (bash) S" + statTail, "1\n2\n", "0\n", "populated 1\nfrozen 0\n", "max\n", "42 () R (x) D) D" + statTail, "42 () \x00" + statTail} {
		f.Add([]byte(text), "populated")
	}
	f.Fuzz(func(t *testing.T, text []byte, key string) {
		if p, err := parseStat(text); err == nil && (p.PID <= 0 || !isLetter(p.State)) {
			t.Errorf("parseStat(%q) = %+v, nil", text, p)
		}
		if pids, err := parsePIDs(text); err == nil && slices.ContainsFunc(pids, func(pid int) bool { return pid <= 0 }) {
			t.Errorf("parsePIDs(%q) = %v, nil", text, pids)
		}
		if n, err := parseKey(text, key); n < 0 || err != nil && n != 0 {
			t.Errorf("parseKey(%q, %q) = %d, %v", text, key, n, err)
		}
	})
}
