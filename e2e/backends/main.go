// Command backends runs the same claims and the same attacks in cells of every
// backend that this host has, and prints what they came to side by side.
//
//	go run ./e2e/backends bin/checkcell CLAIMS…
//
// A case that came to something else than in native cells is marked ≠, or ≈ where
// explained.tsv, beside this program, says why.
package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

//go:embed explained.tsv
var explained string

func main() { os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr)) }

// run returns the status to exit with: 0 if nothing differs without an
// explanation, 1 if something does, 2 for wrong usage or where nothing could be
// compared.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) < 2 {
		fmt.Fprintln(stderr, "usage: backends CHECKCELL CLAIMS…")
		return 2
	}
	reasons, err := readReasons(explained)
	if err != nil {
		fmt.Fprintf(stderr, "backends: explained.tsv: %v\n", err)
		return 2
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
	defer stop()
	t := table{reasons: reasons}
	for _, b := range backends {
		if err := t.try(ctx, args[0], b, args[1:], stderr); err != nil {
			fmt.Fprintf(stderr, "backends: %s: %v\n", b.name, err)
			return 2
		}
	}
	if len(t.columns) < 2 {
		fmt.Fprintln(stderr, "backends: fewer than two backends could be had, so there is nothing to compare")
		return 2
	}
	if t.print(stdout) > 0 {
		return 1
	}
	return 0
}

// backend is one way of making cells.
type backend struct {
	name  string
	flags []string
}

var backends = []backend{
	{"native", []string{"--backend=native"}},
	{"oci/runc", []string{"--backend=oci", "--runtime=runc"}},
	{"oci/crun", []string{"--backend=oci", "--runtime=crun"}},
	{"oci/runsc", []string{"--backend=oci", "--runtime=runsc", "--allow-missing=pids"}},
	{"docker", []string{"--backend=docker"}},
	{"docker/runsc", []string{"--backend=docker", "--runtime=runsc", "--allow-missing=pids,disk"}},
}

// column is what the cases came to in cells of one backend, by their names.
type column struct {
	name string
	came map[string]string
	took time.Duration
}

type table struct {
	reasons []reason
	columns []column
	cases   []string
}

// try adds the column of b, or says why this host lacks it.
func (t *table) try(ctx context.Context, checkcell string, b backend, claims []string, stderr io.Writer) error {
	first := exec.CommandContext(ctx, checkcell, append(append([]string{"run"}, b.flags...), "--", "true")...)
	if out, err := first.CombinedOutput(); err != nil {
		fmt.Fprintf(stderr, "backends: no %s here: %v: %s\n", b.name, err, strings.ReplaceAll(strings.TrimSpace(string(out)), "\n", "; "))
		return ctx.Err()
	}
	c := column{name: b.name, came: map[string]string{}}
	began := time.Now()
	grade := append([]string{"grade", "--json"}, b.flags...)
	if err := t.take(ctx, &c, checkcell, append(grade, claims...), "", graded); err != nil {
		return err
	}
	c.took = time.Since(began)
	attack := append([]string{"doctor", "--attack", "--json"}, b.flags...)
	if err := t.take(ctx, &c, checkcell, attack, "attack ", attacked); err != nil {
		return err
	}
	fmt.Fprintf(stderr, "backends: %s: %d cases, the claims in %.1f s\n", b.name, len(c.came), c.took.Seconds())
	t.columns = append(t.columns, c)
	return nil
}

// take runs a command whose every line is one case.
func (t *table) take(ctx context.Context, c *column, checkcell string, args []string, prefix string, read func([]byte) (name, came string, err error)) error {
	cmd := exec.CommandContext(ctx, checkcell, args...)
	var out, words bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &words
	var exit *exec.ExitError
	// Codes up to 4 say what the claims or attacks came to; the lines say more.
	if err := cmd.Run(); err != nil && (!errors.As(err, &exit) || exit.ExitCode() == 2 || exit.ExitCode() > 4) {
		return fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, lastLine(words.Bytes()))
	}
	for lines := bufio.NewReader(&out); ; {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			name, came, err := read(line)
			if err != nil {
				return fmt.Errorf("%s: %w", strings.Join(args, " "), err)
			}
			if name == "" {
				continue
			}
			if _, twice := c.came[prefix+name]; twice {
				return fmt.Errorf("%s: %s is there twice", strings.Join(args, " "), name)
			}
			c.came[prefix+name] = came
			if !slices.Contains(t.cases, prefix+name) {
				t.cases = append(t.cases, prefix+name)
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
	}
}

// graded reads a grade line: the verdict, and how the check ended.
func graded(line []byte) (name, came string, err error) {
	var l struct {
		ID      string `json:"id"`
		Verdict string `json:"verdict"`
		Result  *struct {
			Outcome struct {
				Kind     string `json:"kind"`
				ExitCode *int   `json:"exit_code"`
				Signal   int    `json:"signal"`
				Resource string `json:"resource"`
			} `json:"outcome"`
			Stdout struct {
				SHA256 string `json:"sha256"`
			} `json:"stdout"`
		} `json:"result"`
	}
	if err := json.Unmarshal(line, &l); err != nil {
		return "", "", fmt.Errorf("read a grade: %w", err)
	}
	came = l.Verdict
	if l.Result != nil {
		o := l.Result.Outcome
		came += " " + o.Kind + o.Resource
		if o.ExitCode != nil {
			came += fmt.Sprintf(" %d", *o.ExitCode)
		}
		if o.Signal != 0 {
			came += fmt.Sprintf(" %d", o.Signal)
		}
		sum := l.Result.Stdout.SHA256
		if len(sum) < 8 {
			return "", "", fmt.Errorf("read a grade: %s has stdout.sha256 %q, so nothing could be compared", l.ID, sum)
		}
		if o.Kind == "exited" {
			came += " stdout " + sum[:8]
		}
	}
	return l.ID, came, nil
}

// chance is what no two runs have in common: how long one took, and how much of
// what never ends on its own was there when it was stopped. Doctor has compared
// those numbers with what is right for each attack.
var chance = regexp.MustCompile(` after [0-9.]+[a-zµ]*s\b|(refused forks|processes left and killed|OOM kills): [0-9]+\b`)

// attacked reads a line of doctor --attack; the summary has no name.
func attacked(line []byte) (name, came string, err error) {
	var l struct{ Name, Standing, Detail string }
	if err := json.Unmarshal(line, &l); err != nil {
		return "", "", fmt.Errorf("read an attack: %w", err)
	}
	return l.Name, strings.TrimSpace(l.Standing + " " + chance.ReplaceAllString(l.Detail, "$1")), nil
}

// print prints the table, and returns how many cases differ without a reason.
func (t *table) print(stdout io.Writer) int {
	w := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "\tCASE")
	for _, c := range t.columns {
		fmt.Fprint(w, "\t"+strings.ToUpper(c.name))
	}
	fmt.Fprintln(w)
	unexplained, differing := 0, 0
	var notes []string
	for _, name := range t.cases {
		mark := ""
		for _, c := range t.columns[1:] {
			if c.came[name] == t.columns[0].came[name] {
				continue
			}
			if why, ok := t.explain(name, c); ok {
				notes = append(notes, fmt.Sprintf("%s in %s: %s", name, c.name, why))
				mark = cmp.Or(mark, "≈")
				continue
			}
			mark = "≠"
		}
		if mark != "" {
			differing++
		}
		if mark == "≠" {
			unexplained++
		}
		fmt.Fprintf(w, "%s\t%s", mark, name)
		for _, c := range t.columns {
			came, ok := c.came[name]
			if !ok {
				came = "(none)"
			}
			fmt.Fprint(w, "\t"+cut(came))
		}
		fmt.Fprintln(w)
	}
	_ = w.Flush() // standard output
	for _, note := range notes {
		fmt.Fprintln(stdout, "≈", note)
	}
	fmt.Fprintf(stdout, "%d cases in %d backends: %d differ, %d of them without an explanation\n", len(t.cases), len(t.columns), differing, unexplained)
	return unexplained
}

// explain says why the case called name came in c to something else than in native.
func (t *table) explain(name string, c column) (why string, ok bool) {
	for _, r := range t.reasons {
		if r.name == name && slices.Contains(r.backends, c.name) && strings.HasPrefix(c.came[name], r.came) {
			return r.why, true
		}
	}
	return "", false
}

// cut keeps a cell of the table to a width that can be read.
func cut(s string) string {
	const most = 60
	if r := []rune(s); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return s
}

func lastLine(b []byte) string {
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return lines[len(lines)-1]
}

// reason is why a case comes to something else in cells of some backends. It
// holds for what begins like came.
type reason struct {
	name     string
	backends []string
	came     string
	why      string
}

// readReasons reads lines of a case, backends, what it comes to there, and why.
func readReasons(text string) ([]reason, error) {
	var reasons []reason
	for i, line := range strings.Split(strings.TrimSpace(text), "\n") {
		if i == 0 {
			if want := "case\tbackends\tcomes to\twhy"; line != want {
				return nil, fmt.Errorf("line 1 is %q, want %q", line, want)
			}
			continue
		}
		f := strings.Split(line, "\t")
		if len(f) != 4 || slices.Contains(f, "") {
			return nil, fmt.Errorf("line %d is %q, want four fields", i+1, line)
		}
		r := reason{name: f[0], backends: strings.Split(f[1], ","), came: f[2], why: f[3]}
		for _, name := range r.backends {
			if !slices.ContainsFunc(backends[1:], func(b backend) bool { return b.name == name }) {
				return nil, fmt.Errorf("line %d: there is no backend %q to compare with native", i+1, name)
			}
		}
		reasons = append(reasons, r)
	}
	return reasons, nil
}
