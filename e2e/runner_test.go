package e2e

import (
	"fmt"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// runnerRow is a case that another runner was observed with. What it did is in
// the table; what we do is in runnerWants.
type runnerRow struct {
	Name      string `json:"name"`
	Script    string `json:"script"`
	TimeoutMS int    `json:"timeout_ms"`
	Cap       *int   `json:"cap"`
	AbortMS   *int   `json:"abort_ms"`
}

// runnerWant is what a run of a row comes to. Digits in stdout stand for pids.
type runnerWant struct {
	code           int
	outcome        string // how it begins
	stdout, stderr string
	why            string // where it is not what was observed with the other runner
}

// runnerWants holds every row by name.
func runnerWants() map[string]runnerWant {
	const exited0 = `{"kind":"exited","exit_code":0}`
	return map[string]runnerWant{
		"deadline-descendant":           {124, `{"kind":"timed_out",`, "pid=N\npid=N\n", "", ""},
		"abort-descendant":              {130, `{"kind":"canceled",`, "pid=N\npid=N\n", "", "130 for an interrupt"},
		"background-holds-pipe":         {0, exited0, "pid=N\n", "", "the run ends with its first process, and the cell is killed"},
		"background-detached-output":    {0, exited0, "pid=N\n", "", ""},
		"setsid-escape-detached-output": {124, `{"kind":"timed_out",`, "pid=N\n", "", ""},
		"self-kill":                     {137, `{"kind":"signaled","signal":9}`, "hi\n", "", "a signal is told from an exit code"},
		"self-segv":                     {139, `{"kind":"signaled","signal":11}`, "", "", "a signal is told from an exit code"},
		"own-124":                       {124, `{"kind":"exited","exit_code":124}`, "", "", ""},
		"cap-exact":                     {0, exited0, "0000000000", "", ""},
		"cap-combined":                  {0, exited0, "000000", "000000", "each stream has a cap of its own"},
		"cap-flood-not-killed":          {137, `{"kind":"limit_exceeded","resource":"stdout"}`, strings.Repeat("x", 100), "", "reaching the cap kills"},
		"cap-multibyte":                 {137, `{"kind":"limit_exceeded","resource":"stdout"}`, "中\ufffd", "", "the cap counts bytes"},
		"invalid-utf8":                  {0, exited0, "a\ufffdb", "", ""},
		"stdin-eof":                     {0, exited0, "eof\n", "", ""},
		"stdin-payload":                 {0, exited0, "", "", "standard input is always empty"},
		"missing-program":               {125, `{"kind":"start_failed","detail":"start /no/such/bin: `, "", "", "125, as container tools"},
		"nul-argument":                  {125, `{"kind":"start_failed","detail":"the check holds a NUL byte at offset 1;`, "", "", "125, as container tools"},
		"env-replace":                   {0, exited0, "[/work][C.UTF-8]\n", "", "the environment is that of the cell"},
		"missing-cwd":                   {125, "", "", "/no/such/directory: no such file or directory", "the directory is named, and nothing runs"},
	}
}

// args are the call for a row and what goes to its standard input.
func (r runnerRow) args(t testing.TB) ([]string, string) {
	t.Helper()
	flags := []string{"--timeout", fmt.Sprintf("%dms", r.TimeoutMS)}
	if r.AbortMS != nil {
		flags = []string{"--timeout", "50s"} // the interrupt is ours, when the check is seen to run
	}
	if r.Cap != nil {
		limit := fmt.Sprint(*r.Cap)
		flags = append(flags, "--stdout-cap", limit, "--stderr-cap", limit)
	}
	switch r.Name {
	case "missing-program":
		return []string{"run", "--json", "--", "/no/such/bin"}, ""
	case "nul-argument": // an argument of ours can't hold one either
		return []string{"run", "--json", "--check", write(t, "check.sh", r.Script)}, ""
	case "missing-cwd":
		flags = append(flags, "--workspace", "/no/such/directory")
	case "stdin-payload":
		return bash(r.Script, flags...), "x\x00y\n"
	}
	return bash(r.Script, flags...), ""
}

func TestRunnerTable(t *testing.T) {
	needCells(t)
	leavesNothing(t)
	table := rows[runnerRow](t, "testdata/runner-cases.jsonl", 19)
	wants := runnerWants()
	pids := regexp.MustCompile(`pid=\d+`)
	for _, row := range table {
		t.Run(row.Name, func(t *testing.T) {
			want, ok := wants[row.Name]
			if !ok {
				t.Fatalf("runnerWants has no %q", row.Name)
			}
			args, stdin := row.args(t)
			p := command{args: args, stdin: stdin}.start(t)
			if row.AbortMS != nil {
				waitForProcess(t, p, "sleep 60")
				p.signal(t, syscall.SIGINT)
			}
			got := p.wait(t)
			if got.code != want.code {
				t.Errorf("checkcell %q = %d, want %d\n%s", args, got.code, want.code, got.stderr)
			}
			if want.outcome == "" {
				if got.stdout != "" || !strings.Contains(got.stderr, want.stderr) {
					t.Errorf("checkcell %q: stdout %q, stderr %q, want none and %q", args, got.stdout, got.stderr, want.stderr)
				}
				return
			}
			r := decode[result](t, got.stdout)
			out := pids.ReplaceAllString(r.Stdout.Text, "pid=N")
			if !strings.HasPrefix(string(r.Outcome), want.outcome) || out != want.stdout || r.Stderr.Text != want.stderr {
				t.Errorf("checkcell %q: outcome %s, stdout %q, stderr %q, want %s, %q, %q (%s)", args, r.Outcome, out, r.Stderr.Text, want.outcome, want.stdout, want.stderr, want.why)
			}
		})
		delete(wants, row.Name)
	}
	for name := range wants {
		t.Errorf("runnerWants has %q, which is no row of the table", name)
	}
}
