package attack

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/checkcell/checkcell/sandbox"
)

// The corpus is taken line by line from the one that the program is tested
// with, so that a user sees what the tests see.
func TestCorpusIsOfTheTests(t *testing.T) {
	text, err := os.ReadFile("../../e2e/testdata/hostile.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	known := slices.Collect(strings.Lines(string(text)))
	at := 0
	for line := range strings.Lines(corpus) {
		i := slices.Index(known[at:], line)
		if i < 0 {
			t.Fatalf("%.60q is no line of the tests' corpus behind the line before", line)
		}
		at += i + 1
	}
}

func TestCorpus(t *testing.T) {
	all, err := Corpus()
	if err != nil || len(all) != 63 {
		t.Fatalf("Corpus() = %d cases, %v, want 63", len(all), err)
	}
	families := map[string]int{}
	for _, c := range all {
		families[c.Family]++
		if c.Why == "" {
			t.Errorf("case %s does not say why", c.Name)
		}
		if _, short, err := c.limits(sandbox.DefaultLimits()); short != "" || err != nil {
			t.Errorf("case %s under the default limits: %q, %v, want it to be tried", c.Name, short, err)
		}
		spec := sandbox.Spec{ID: c.Name, Check: c.Check, Files: c.files(), Limits: sandbox.DefaultLimits()}
		if err := spec.Validate(); err != nil {
			t.Errorf("case %s: %v", c.Name, err)
		}
	}
	for family, least := range map[string]int{"kill-cleanup": 17, "forged-evidence": 6, "resources": 15, "isolation": 8, "escape": 11, "crash": 2} {
		if families[family] < least {
			t.Errorf("the corpus has %d cases of %s, want at least %d", families[family], family, least)
		}
	}
}

func TestReadCasesRefuses(t *testing.T) {
	const good = `{"name":"a","family":"f","check":"true","want":{"kind":"exited"}}`
	if all, err := readCases(good + "\n" + good); err != nil || len(all) != 2 {
		t.Errorf("readCases(two good lines) = %d cases, %v, want 2", len(all), err)
	}
	tests := []struct{ line, want string }{
		{`{`, "case 2"},
		{`{"name":"b","check":"true","want":{"kind":"exited"},"surprise":1}`, "surprise"},
		{`{"name":"b","check":"true","want":{"kind":"exited"},"action":{"cancel_after_ms":1}}`, "action"},
		{`{"name":"b","check":"true","want":{"kind":"exited","surprise":1}}`, "surprise"},
		{`{"name":"b","check":"true","want":{"kind":"exited","stdout_contains":1}}`, "neither a text nor a list"},
		{`{"check":"true","want":{"kind":"exited"}}`, "want a name"},
		{`{"name":"b","want":{"kind":"exited"}}`, `"b": want a name and a check`},
		{`{"name":"b","check":"true"}`, "want or want_any"},
		{`{"name":"b","check":"true","want":{"kind":"exited"},"want_any":[{"kind":"exited"}]}`, "want or want_any"},
		{`{"name":"b","check":"true","want":{"kind":"exited"},"next":{"check":"true"}}`, "want of the next run"},
		{`{"name":"b","check":"true","want":{"kind":"exited"},"limits":{"surprise":1}}`, `limit "surprise"`},
	}
	for _, tt := range tests {
		if all, err := readCases(good + "\n" + tt.line); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("readCases(%s) = %d cases, %v, want an error with %q", tt.line, len(all), err, tt.want)
		}
	}
}

// The limits are never above the user's, and a case is not tried with less
// than it needs.
func TestLimits(t *testing.T) {
	user := func(set func(*sandbox.Limits)) sandbox.Limits {
		l := sandbox.DefaultLimits()
		set(&l)
		return l
	}
	same := user(func(*sandbox.Limits) {})
	tests := []struct {
		name  string
		n     int64
		user  sandbox.Limits
		want  sandbox.Limits
		short bool
	}{
		{"wall_ms", 700, same, user(func(l *sandbox.Limits) { l.Wall = 1400 * time.Millisecond }), false},
		{"wall_ms", 20000, same, same, false},
		{"cpu_ms", 700, same, user(func(l *sandbox.Limits) { l.CPUTime = sandbox.At(700 * time.Millisecond) }), false},
		{"memory_mib", 64, same, user(func(l *sandbox.Limits) { l.Memory = sandbox.At(64 * sandbox.MiB) }), false},
		{"memory_mib", 513, same, same, true},
		{"pids", 40, same, user(func(l *sandbox.Limits) { l.Processes = sandbox.At[int64](40) }), false},
		{"pids", 128, same, same, false},
		{"pids", 129, same, same, true},
		{"pids", 129, user(func(l *sandbox.Limits) { l.Processes = sandbox.Unlimited[int64]() }), user(func(l *sandbox.Limits) { l.Processes = sandbox.At[int64](129) }), false},
		{"stdout_bytes", 9, same, user(func(l *sandbox.Limits) { l.Stdout = 9 }), false},
		{"stdout_bytes", 1 << 20, same, same, false},
		{"stdout_bytes", 2 << 20, same, same, true},
		{"stderr_bytes", 9, same, user(func(l *sandbox.Limits) { l.Stderr = 9 }), false},
		{"stderr_bytes", 2 << 20, same, same, true},
		{"disk_mib", 16, same, user(func(l *sandbox.Limits) { l.Disk = 16 * sandbox.MiB }), false},
		{"disk_mib", 257, same, same, true},
		{"inodes", 99, same, user(func(l *sandbox.Limits) { l.Inodes = 99 }), false},
		{"inodes", 99999, same, same, true},
	}
	for _, tt := range tests {
		got, short, err := Case{Limits: map[string]int64{tt.name: tt.n}}.limits(tt.user)
		if got != tt.want || (short != "") != tt.short || err != nil || tt.short && !strings.Contains(short, tt.name) {
			t.Errorf("limits with %s %d = %+v, %q, %v, want %+v, short %v", tt.name, tt.n, got, short, err, tt.want, tt.short)
		}
	}
}

func TestFiles(t *testing.T) {
	got := Case{Files: map[string]string{"b/c": "2", "a": "1"}}.files()
	want := `[{"Path":"a","Content":"MQ=="},{"Path":"b/c","Content":"Mg=="}]`
	if b, err := json.Marshal(got); err != nil || string(b) != want {
		t.Errorf("files = %s, %v, want %s", b, err, want)
	}
}
