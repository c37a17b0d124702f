package e2e

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// claim is a claim as an author writes it.
type claim struct {
	ID     string `json:"id"`
	Title  string `json:"title,omitempty"`
	Rung   int    `json:"rung"`
	Check  string `json:"check,omitempty"`
	Expect string `json:"expect,omitempty"`
}

// gradeClaims grades claims with --json and returns the lines.
func gradeClaims(t testing.TB, claims []claim, flags ...string) (ended, []gradeLine) {
	t.Helper()
	path := write(t, "claims.jsonl", jsonLines(t, claims))
	got := checkcell(t, slices.Concat([]string{"grade", "--json"}, flags, []string{path})...)
	return got, decodeLines[gradeLine](t, got.stdout)
}

// verdicts are the ids, verdicts and kinds of note of lines.
func verdicts(lines []gradeLine) []string {
	var all []string
	for _, l := range lines {
		all = append(all, fmt.Sprintf("%s %s %s", l.ID, l.Verdict, deref(l.NoteKind)))
	}
	return all
}

func TestGradeLine(t *testing.T) {
	needCells(t)
	leavesNothing(t)
	path := write(t, "claims.jsonl", `{"title":"T","rung":4,"check":"expr 6 \\* 7","expect":"42","timeout":"1h","mine":[1, 2]}
{"id":"b","title":"U","rung":4,"check":"expr 6 \\* 7","expect":"42"}
{"id":"c","title":"t.md","rung":4,"check":"expr 6 \\* 7","expect":"42"}
{"id":"d","rung":4,"check":"true","expect":"42"}
{"id":"e","rung":1,"check":"if"}
`)
	got := checkcell(t, "grade", "--json", path)
	lines := decodeLines[gradeLine](t, got.stdout)
	if got.code != 3 || len(lines) != 5 {
		t.Fatalf("grade = %d with %d lines, want 3 with 5\n%s", got.code, len(lines), got.stderr)
	}
	head := strings.Fields("schema id title rung verdict note_kind note duplicate_of shared_check")
	tail := strings.Fields("claim result parse extra")
	text := strings.Split(got.stdout, "\n")
	for i, want := range [][]string{
		slices.Concat(head, []string{"shared_check_count"}, tail, []string{"clamped"}),
		slices.Concat(head, []string{"shared_check_count"}, tail),
		slices.Concat(head, []string{"shared_check_count"}, tail),
		slices.Concat(head, tail),
		slices.Concat(head, tail),
	} {
		if diff := cmp.Diff(want, keys(t, []byte(text[i]), 1)); diff != "" {
			t.Errorf("keys of line %d, - want, + got:\n%s", i+1, diff)
		}
	}
	wantVerdicts := []string{"claims.jsonl:1 verified null", "b verified null", "c verified null", "d uncheckable CONSTANT_EMITTER", "e uncheckable INVALID_SHELL_SYNTAX"}
	if diff := cmp.Diff(wantVerdicts, verdicts(lines)); diff != "" {
		t.Errorf("verdicts, - want, + got:\n%s", diff)
	}
	if of := deref(lines[2].DuplicateOf); of != "claims.jsonl:1" || lines[0].DuplicateOf != nil || lines[1].DuplicateOf != nil {
		t.Errorf("duplicate_of of the third line = %s, want claims.jsonl:1, and none before", of)
	}
	if want := []string{"claims.jsonl:1", "b", "c"}; !slices.Equal(lines[0].SharedCheck, want) || lines[0].SharedCheckCount != 3 {
		t.Errorf("shared_check of the first line = %q, %d, want %q, 3", lines[0].SharedCheck, lines[0].SharedCheckCount, want)
	}
	if got := string(lines[0].Extra["mine"]); got != "[1,2]" && got != "[1, 2]" || !slices.Equal(lines[0].Clamped, []string{"timeout"}) {
		t.Errorf("the first line has extra %v and clamped %q, want mine and timeout", lines[0].Extra, lines[0].Clamped)
	}
	for i, want := range []struct{ result, parse bool }{{true, true}, {true, true}, {true, true}, {false, false}, {false, true}} {
		hasResult, hasParse := string(lines[i].Result) != "null", string(lines[i].Parse) != "null"
		if hasResult != want.result || hasParse != want.parse {
			t.Errorf("line %d has a result: %v, a parse: %v, want %v, %v", i+1, hasResult, hasParse, want.result, want.parse)
		}
	}
	r := decode[result](t, string(lines[0].Result))
	if r.ID != lines[0].ID || r.Stdout.Text != "42\n" {
		t.Errorf("the first result has id %q and stdout %q, want that of its line and 42", r.ID, r.Stdout.Text)
	}
}

// A check that failed after the kernel killed one of its processes says
// nothing of its claim; grading.md, R7 (b2).
func TestGradeOutOfMemory(t *testing.T) {
	needCells(t)
	leavesNothing(t)
	got, lines := gradeClaims(t, []claim{
		{ID: "child", Rung: 4, Check: `head -c 200M /dev/zero | tail >/dev/null; exit 3`, Expect: "done"},
		{ID: "shell", Rung: 4, Check: `x=$(head -c 200M /dev/zero | tr '\0' x); expr length "$x"`, Expect: "200000000"},
		{ID: "forks", Rung: 1, Check: `ulimit -u unlimited 2>/dev/null; for i in 1 2 3 4 5 6 7 8 9; do sleep 9 & done 2>/dev/null; exit 1`},
		{ID: "enough", Rung: 4, Check: `head -c 2M /dev/zero | tail -c 3 | wc -c; exit 1`, Expect: "done"},
		{ID: "met", Rung: 4, Check: `head -c 200M /dev/zero | tail >/dev/null; expr 41 + 1`, Expect: "42"},
	}, "--memory", "32MiB", "--pids", "6")
	want := []string{"child unrunnable LIMIT", "shell unrunnable LIMIT", "forks unrunnable LIMIT", "enough contradicted null", "met verified null"}
	if diff := cmp.Diff(want, verdicts(lines)); diff != "" {
		t.Errorf("verdicts at a limit, - want, + got:\n%s", diff)
	}
	if got.code != 1 {
		t.Errorf("grade = %d, want 1", got.code)
	}
	for i, resource := range []string{"memory", "memory", "pids|process"} {
		if note := deref(lines[i].Note); !regexp.MustCompile(resource).MatchString(note) {
			t.Errorf("the note of %s is %q, want it to name %s", lines[i].ID, note, resource)
		}
	}
}

// Lines come in the order of the file, whichever check is done first.
func TestGradeKeepsOrder(t *testing.T) {
	needCells(t)
	leavesNothing(t)
	var claims []claim
	var want []string
	for i := range 24 {
		c := claim{ID: fmt.Sprintf("c%02d", i), Rung: 1, Check: fmt.Sprintf("sleep 0.%d", (i*7)%10*(i%4)%5)}
		claims = append(claims, c)
		want = append(want, c.ID+" verified null")
	}
	got, lines := gradeClaims(t, claims, "--jobs", "4")
	if diff := cmp.Diff(want, verdicts(lines)); diff != "" || got.code != 0 {
		t.Errorf("grade --jobs 4 = %d, order, - want, + got:\n%s", got.code, diff)
	}
}

// An interrupt ends what runs, writes what is known, in whole lines, and does
// not begin the rest.
func TestGradeIsInterrupted(t *testing.T) {
	needCells(t)
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		leavesNothing(t)
		var claims []claim
		for i := range 3 {
			claims = append(claims, claim{ID: fmt.Sprintf("fast%d", i), Rung: 1, Check: "test 1 = 1"})
		}
		for i := range 40 {
			claims = append(claims, claim{ID: fmt.Sprintf("slow%d", i), Rung: 1, Check: fmt.Sprintf("sleep %d", 700+i)})
		}
		path := write(t, "claims.jsonl", jsonLines(t, claims))
		p := command{args: []string{"grade", "--json", "--jobs", "2", "--timeout", "50s", path}}.start(t)
		waitFor(t, "three lines are written", func() bool { return strings.Count(p.stdout.String(), "\n") == 3 })
		waitForProcess(t, p, "sleep 700")
		waitForProcess(t, p, "sleep 701")
		p.signal(t, sig)
		got := p.wait(t)
		want := []string{"fast0 verified null", "fast1 verified null", "fast2 verified null", "slow0 unrunnable ABORTED", "slow1 unrunnable ABORTED"}
		if diff := cmp.Diff(want, verdicts(decodeLines[gradeLine](t, got.stdout))); diff != "" {
			t.Errorf("lines after %v, - want, + got:\n%s", sig, diff)
		}
		if got.code != 130 || !strings.Contains(got.stderr, "5 claims: 3 verified, 0 contradicted, 0 silent-check, 2 unrunnable, 0 uncheckable; interrupted, the rest was not run") {
			t.Errorf("grade after %v = %d with stderr %q, want 130 and a summary", sig, got.code, got.stderr)
		}
	}
}

// kill -9 while claims are graded leaves only whole lines in the file, and no
// process.
func TestGradeIsKilled(t *testing.T) {
	needCells(t)
	leavesNothing(t)
	before := look(t).Processes
	path := write(t, "claims.jsonl", jsonLines(t, []claim{{ID: "fast", Rung: 1, Check: "test 1 = 1"}, {ID: "slow", Rung: 1, Check: stray}}))
	p := command{args: []string{"grade", "--json", path}}.start(t)
	waitForProcess(t, p, "sleep 603")
	waitFor(t, "a line is written", func() bool { return strings.Count(p.stdout.String(), "\n") == 1 })
	p.signal(t, syscall.SIGKILL)
	got := p.wait(t)
	if diff := cmp.Diff([]string{"fast verified null"}, verdicts(decodeLines[gradeLine](t, got.stdout))); diff != "" {
		t.Errorf("lines after kill -9, - want, + got:\n%s", diff)
	}
	waitFor(t, "nothing of the cells runs any more", func() bool { return slices.Equal(look(t).Processes, before) })
	sweeps(t)
}

// The syntax pass against a table of what bash parses. What parses is run;
// what does not is uncheckable, with bash's own words.
func TestSyntaxTable(t *testing.T) {
	needCells(t)
	leavesNothing(t)
	type row struct {
		Name   string `json:"name"`
		Check  string `json:"check"`
		Parses bool   `json:"parses"`
		Status int    `json:"status"`
		Says   bool   `json:"stderr_nonempty"`
	}
	table := rows[row](t, "testdata/parse-cases.jsonl", 23)
	var claims []claim
	for _, r := range table {
		claims = append(claims, claim{ID: r.Name, Rung: 1, Check: r.Check})
	}
	_, lines := gradeClaims(t, claims, "--timeout", "5s")
	if len(lines) != len(table) {
		t.Fatalf("grade wrote %d lines, want %d", len(lines), len(table))
	}
	for i, r := range table {
		l := lines[i]
		if strings.TrimSpace(r.Check) == "" { // nothing to run, whatever bash thinks of it
			if l.Verdict != "unrunnable" || l.NoteKind != nil || string(l.Parse) != "null" {
				t.Errorf("%s: grade(%q) = %s %s, want unrunnable without a note", r.Name, r.Check, l.Verdict, deref(l.NoteKind))
			}
			continue
		}
		parse := decode[result](t, string(l.Parse))
		if want := fmt.Sprintf(`{"kind":"exited","exit_code":%d}`, r.Status); string(parse.Outcome) != want || parse.Stderr.Text != "" != r.Says {
			t.Errorf("%s: parse of %q: outcome %s, stderr %q, want %s, some: %v", r.Name, r.Check, parse.Outcome, parse.Stderr.Text, want, r.Says)
		}
		if ran := string(l.Result) != "null"; ran != r.Parses || (deref(l.NoteKind) == "INVALID_SHELL_SYNTAX") == r.Parses {
			t.Errorf("%s: grade(%q) = %s %s, ran: %v, want it to run: %v", r.Name, r.Check, l.Verdict, deref(l.NoteKind), ran, r.Parses)
		}
		first, _, _ := strings.Cut(strings.TrimSpace(parse.Stderr.Text), "\n")
		if !r.Parses && (l.Verdict != "uncheckable" || !strings.Contains(deref(l.Note), first)) {
			t.Errorf("%s: grade(%q) = %s with note %q, want uncheckable with bash's %q", r.Name, r.Check, l.Verdict, deref(l.Note), first)
		}
	}
}

// What a grade recorded gives the same verdicts when it is graded again.
func TestRegradeOfGrade(t *testing.T) {
	needCells(t)
	leavesNothing(t)
	got, lines := gradeClaims(t, []claim{
		{ID: "met", Title: "a", Rung: 4, Check: "expr 6 \\* 7", Expect: "42"},
		{ID: "refuted", Title: "b", Rung: 4, Check: "expr 6 \\* 8", Expect: "42"},
		{ID: "failed", Title: "c", Rung: 3, Check: "exit 3"},
		{ID: "silent", Title: "d", Rung: 4, Check: "test 1 = 1", Expect: "yes"},
		{ID: "absent", Title: "e", Rung: 4, Check: "cat none | wc -l", Expect: "12"},
		{ID: "slow", Title: "f", Rung: 1, Check: "sleep 60"},
		{ID: "loud", Title: "g", Rung: 1, Check: "yes"},
		{ID: "greedy", Title: "h", Rung: 4, Check: `head -c 200M /dev/zero | tail >/dev/null; exit 3`, Expect: "done"},
		{ID: "dead", Title: "i", Rung: 1, Check: "kill -9 $$"},
		{ID: "nul", Title: "j", Rung: 1, Check: "a\x00b"},
		{ID: "constant", Title: "k", Rung: 4, Check: "echo 42", Expect: "42"},
		{ID: "bytes", Title: "l", Rung: 4, Check: `printf '\xff'; expr 6 \* 7`, Expect: "\ufffd42"},
		{ID: "again", Title: "A.md", Rung: 4, Check: "expr 6 \\* 7", Expect: "42"},
	}, "--timeout", "1s", "--memory", "32MiB", "--stdout-cap", "1KiB")
	type recorded struct {
		ID        string          `json:"id"`
		Title     string          `json:"title"`
		Evidence  json.RawMessage `json:"evidence"`
		Execution json.RawMessage `json:"execution"`
	}
	var records []recorded
	for _, l := range lines {
		records = append(records, recorded{l.ID, l.Title, l.Claim, l.Result})
	}
	again := command{args: []string{"regrade", "-"}, stdin: jsonLines(t, records)}.run(t)
	want := append(verdicts(lines), fmt.Sprint(got.code), deref(lines[12].DuplicateOf))
	regraded := decodeLines[regradeLine](t, again.stdout)
	var is []string
	for _, l := range regraded {
		is = append(is, fmt.Sprintf("%s %s %s", deref(l.ID), l.Verdict, deref(l.NoteKind)))
	}
	if len(regraded) != len(lines) {
		t.Fatalf("regrade wrote %d lines, want %d\n%s", len(regraded), len(lines), again.stderr)
	}
	is = append(is, fmt.Sprint(again.code), deref(regraded[12].DuplicateOf))
	if diff := cmp.Diff(want, is); diff != "" {
		t.Errorf("regrade of what grade recorded, - grade, + regrade:\n%s", diff)
	}
	kinds := map[string]bool{}
	for _, l := range lines {
		kinds[l.Verdict] = true
	}
	if len(kinds) != 5 {
		t.Errorf("the claims show the verdicts %v, want all five", kinds)
	}
}
