package e2e

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/checkcell/checkcell/internal/host"
)

// patience bounds every wait of a test for something that must happen.
const patience = 60 * time.Second

// command is one call of checkcell.
type command struct {
	program string   // "" is the checkcell on PATH
	under   []string // a program that executes it, and that one's arguments
	args    []string
	stdin   string
	env     []string             // added to our own
	dir     string               // "" is the package's
	attr    *syscall.SysProcAttr // nil is our own user, in our own group
	files   []*os.File           // its descriptors from 3 on
}

// ended is what a call came to. The code is -1 where a signal ended it.
type ended struct {
	code           int
	stdout, stderr string
}

// process is a call that runs. Its streams may be read meanwhile.
type process struct {
	cmd            *exec.Cmd
	stdout, stderr *buffer
}

// buffer is a bytes.Buffer that is read while it is written to.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// make readies the call, which does not outlive the test.
func (c command) make(t testing.TB) *exec.Cmd {
	t.Helper()
	call := slices.Concat(c.under, []string{cmp.Or(c.program, "checkcell")}, c.args)
	cmd := exec.CommandContext(t.Context(), call[0], call[1:]...)
	cmd.Stdin = strings.NewReader(c.stdin)
	cmd.Env = append(os.Environ(), c.env...)
	cmd.Dir, cmd.SysProcAttr, cmd.ExtraFiles = c.dir, c.attr, c.files
	return cmd
}

// start starts the call. The test must wait for it.
func (c command) start(t testing.TB) *process {
	t.Helper()
	p := &process{cmd: c.make(t), stdout: &buffer{}, stderr: &buffer{}}
	p.cmd.Stdout, p.cmd.Stderr = p.stdout, p.stderr
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("start checkcell %q: %v", c.args, err)
	}
	t.Cleanup(func() { _ = p.cmd.Process.Kill() }) // it was waited for, unless the test failed
	return p
}

func (p *process) wait(t testing.TB) ended {
	t.Helper()
	err := p.cmd.Wait()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatalf("wait for %q: %v", p.cmd.Args, err)
	}
	return ended{p.cmd.ProcessState.ExitCode(), p.stdout.String(), p.stderr.String()}
}

func (p *process) signal(t testing.TB, s syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatalf("send %v to checkcell: %v", s, err)
	}
}

func (c command) run(t testing.TB) ended {
	t.Helper()
	return c.start(t).wait(t)
}

// checkcell calls the program with nothing on its standard input.
func checkcell(t testing.TB, args ...string) ended {
	t.Helper()
	return command{args: args}.run(t)
}

// result is checkcell.result/v1 as a reader sees it who knows design.md.
type result struct {
	Schema  string          `json:"schema"`
	ID      string          `json:"id"`
	Backend string          `json:"backend"`
	Outcome json.RawMessage `json:"outcome"` // compared as text: each kind has its own keys

	Terminal  string           `json:"terminal"`
	Success   bool             `json:"success"`
	Stdout    capture          `json:"stdout"`
	Stderr    capture          `json:"stderr"`
	Usage     map[string]int64 `json:"usage"`
	Leftovers *int64           `json:"leftovers"`
	Killed    bool             `json:"killed"`
	Cleanup   struct {
		State  string `json:"state"`
		Detail string `json:"detail"`
	} `json:"cleanup"`
	Receipt struct {
		Cgroup   string            `json:"cgroup"`
		Controls map[string]string `json:"controls"`
		Missing  []string          `json:"missing"`
	} `json:"receipt"`
	MissingEvidence []string  `json:"missing_evidence"`
	SpecDigest      string    `json:"spec_digest"`
	ImageDigest     string    `json:"image_digest"`
	Started         time.Time `json:"started"`
	Ended           time.Time `json:"ended"`
}

type capture struct {
	Text      string  `json:"text"`
	Base64    *string `json:"base64"`
	Bytes     int64   `json:"bytes"`
	Kept      int64   `json:"kept"`
	Truncated bool    `json:"truncated"`
	SHA256    string  `json:"sha256"`
}

// gradeLine is checkcell.grade/v1.
type gradeLine struct {
	Schema           string                     `json:"schema"`
	ID               string                     `json:"id"`
	Title            string                     `json:"title"`
	Rung             int                        `json:"rung"`
	Verdict          string                     `json:"verdict"`
	NoteKind         *string                    `json:"note_kind"`
	Note             *string                    `json:"note"`
	DuplicateOf      *string                    `json:"duplicate_of"`
	SharedCheck      []string                   `json:"shared_check"`
	SharedCheckCount int                        `json:"shared_check_count"`
	Claim            json.RawMessage            `json:"claim"`
	Result           json.RawMessage            `json:"result"`
	Parse            json.RawMessage            `json:"parse"`
	Extra            map[string]json.RawMessage `json:"extra"`
	Clamped          []string                   `json:"clamped"`
}

// decode reads one JSON value with no key that T does not know.
func decode[T any](t testing.TB, text string) T {
	t.Helper()
	var v T
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("decode %.300q: %v", text, err)
	}
	if d.More() {
		t.Fatalf("decode %.300q: there is more behind the value", text)
	}
	return v
}

// decodeLines reads JSON Lines, the last of which must be whole too.
func decodeLines[T any](t testing.TB, text string) []T {
	t.Helper()
	if text != "" && !strings.HasSuffix(text, "\n") {
		t.Fatalf("the last line is not whole: …%q", text[max(0, len(text)-80):])
	}
	var all []T
	for line := range strings.Lines(text) {
		all = append(all, decode[T](t, line))
	}
	return all
}

// rows reads a table and fails unless it has as many rows as it is known to.
func rows[T any](t testing.TB, path string, want int) []T {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var all []T
	for line := range strings.Lines(string(text)) {
		var row T
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			t.Fatalf("%s, row %d: %v", path, len(all)+1, err)
		}
		all = append(all, row)
	}
	if len(all) != want {
		t.Fatalf("%s has %d rows, want %d", path, len(all), want)
	}
	return all
}

// write puts text into a new file of a directory of the test's own.
func write(t testing.TB, name, text string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// jsonLines writes values as JSON Lines.
func jsonLines[T any](t testing.TB, values []T) string {
	t.Helper()
	var b strings.Builder
	enc := json.NewEncoder(&b)
	for _, v := range values {
		if err := enc.Encode(v); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

// leavesNothing fails the test if something is left at its end that was not
// there when it began.
func leavesNothing(t *testing.T) {
	t.Helper()
	before := look(t)
	t.Cleanup(func() {
		if err := look(t).Since(before); err != nil {
			t.Error(err)
		}
	})
}

func look(t testing.TB) host.Traces {
	t.Helper()
	now, err := host.Look()
	if err != nil {
		t.Fatal(err)
	}
	return now
}

// waitFor waits until what is so.
func waitFor(t testing.TB, what string, isSo func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !isSo() {
		if time.Now().After(deadline) {
			t.Fatalf("waited %v in vain: %s", patience, what)
		}
		time.Sleep(2 * time.Millisecond) // between two looks; nothing tells us
	}
}

// deref is the string behind p, and "null" where there is none.
func deref(p *string) string {
	if p == nil {
		return "null"
	}
	return *p
}
