package e2e

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"unicode"
	"unsafe"

	"github.com/google/go-cmp/cmp"
)

// openTerminal returns both sides of a new pseudo-terminal of 100 columns; see
// pty(7) and ioctl_tty(2).
func openTerminal(t testing.TB) (ours, theirs *os.File) {
	t.Helper()
	ours, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ours.Close() }) // nothing was written through it
	var unlock, number int32
	size := struct{ rows, columns, x, y uint16 }{rows: 40, columns: 100}
	for _, call := range []struct {
		request uintptr
		arg     unsafe.Pointer
	}{{syscall.TIOCSPTLCK, unsafe.Pointer(&unlock)}, {syscall.TIOCGPTN, unsafe.Pointer(&number)}, {syscall.TIOCSWINSZ, unsafe.Pointer(&size)}} {
		if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, ours.Fd(), call.request, uintptr(call.arg)); errno != 0 {
			t.Fatalf("make a terminal: request %#x: %v", call.request, errno)
		}
	}
	theirs, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return ours, theirs
}

// onTerminal makes the call with all its streams on a terminal, and returns
// what appeared there.
func (c command) onTerminal(t testing.TB) (code int, shown string) {
	t.Helper()
	ours, theirs := openTerminal(t)
	cmd := c.make(t)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs, theirs, theirs
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatalf("start checkcell %q: %v", c.args, err)
	}
	if err := theirs.Close(); err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	buf := make([]byte, 4096)
	for {
		n, err := ours.Read(buf)
		all.Write(buf[:n])
		if errors.Is(err, syscall.EIO) { // the last one on the other side has closed it
			break
		}
		if err != nil {
			t.Fatalf("read the terminal: %v", err)
		}
	}
	if err := cmd.Wait(); err != nil && cmd.ProcessState.ExitCode() < 0 {
		t.Fatalf("wait for checkcell %q: %v", c.args, err)
	}
	return cmd.ProcessState.ExitCode(), all.String()
}

// The sequences that we write ourselves: colours, and those that draw the
// progress line again.
var (
	colour   = regexp.MustCompile(`\x1b\[(3[123]|0)m`)
	progress = regexp.MustCompile(`\x1b\[(\d+A|\d*J|\d*K|\?25[lh])`)
)

// control finds the first character that could do something to a terminal but
// move to the next line.
func control(text string) string {
	for i, r := range text {
		if r == '\n' || r == '\r' {
			continue
		}
		if unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp) || r == unicode.ReplacementChar {
			return fmt.Sprintf("%U in %q", r, text[max(0, i-20):min(len(text), i+20)])
		}
	}
	return ""
}

func threeClaims(t testing.TB) string {
	t.Helper()
	return write(t, "claims.jsonl", jsonLines(t, []claim{
		{ID: "met", Rung: 4, Check: "sleep 1; expr 6 \\* 7", Expect: "42"},
		{ID: "refuted", Rung: 4, Check: "expr 6 \\* 8", Expect: "42"},
		{ID: "absent", Rung: 4, Check: "cat none | wc -l", Expect: "12"},
	}))
}

// On a terminal there is a line of progress while checks run, and then a table
// of what is not verified, in colours unless NO_COLOR asks for none.
func TestGradeOnTerminal(t *testing.T) {
	needCells(t)
	leavesNothing(t)
	path := threeClaims(t)
	tests := []struct {
		env  []string
		want []string
	}{
		{[]string{"TERM=xterm", "NO_COLOR="}, []string{"\x1b[31m", "\x1b[0m", "\x1b[33m", "\x1b[0m"}},
		{[]string{"TERM=xterm", "NO_COLOR=1"}, nil},
		{[]string{"TERM=dumb", "NO_COLOR="}, nil},
	}
	for _, tt := range tests {
		code, shown := command{args: []string{"grade", path}, env: tt.env}.onTerminal(t)
		if code != 1 {
			t.Errorf("%q: grade on a terminal = %d, want 1", tt.env, code)
		}
		if got := colour.FindAllString(shown, -1); cmp.Diff(tt.want, got) != "" {
			t.Errorf("%q: grade on a terminal shows the colours %q, want %q", tt.env, got, tt.want)
		}
		bare := progress.ReplaceAllString(colour.ReplaceAllString(shown, ""), "")
		if bad := control(bare); bad != "" {
			t.Errorf("%q: grade on a terminal shows %s", tt.env, bad)
		}
		if !regexp.MustCompile(`\d of 3 done.* running `).MatchString(bare) {
			t.Errorf("%q: grade on a terminal shows no progress: %q", tt.env, shown)
		}
		for _, want := range []string{`VERDICT +CLAIM +TIME +MEMORY +WHY`, `contradicted +refuted `, `unrunnable +absent .*UNREACHED_INPUT`, `3 claims: 1 verified, 1 contradicted`} {
			if !regexp.MustCompile(want).MatchString(bare) {
				t.Errorf("%q: grade on a terminal does not show %q:\n%s", tt.env, want, bare)
			}
		}
		if regexp.MustCompile(`verified +met`).MatchString(bare) {
			t.Errorf("%q: the table lists a verified claim:\n%s", tt.env, bare)
		}
		for line := range strings.Lines(bare) {
			if n := len([]rune(strings.TrimRight(line, "\r\n"))); strings.Contains(line, "absent") && n > 100 {
				t.Errorf("%q: a row of %d columns on a terminal of 100: %q", tt.env, n, line)
			}
		}
	}
}

// Elsewhere there is a plain line a claim and nothing else.
func TestGradeWithoutTerminal(t *testing.T) {
	needCells(t)
	leavesNothing(t)
	got := command{args: []string{"grade", threeClaims(t)}, env: []string{"TERM=xterm"}}.run(t)
	if got.code != 1 || got.stderr != "" || strings.Count(got.stdout, "\n") != 4 {
		t.Errorf("grade = %d with stderr %q and %d lines, want 1, none and 4", got.code, got.stderr, strings.Count(got.stdout, "\n"))
	}
	if bad := control(got.stdout); bad != "" {
		t.Errorf("grade shows %s", bad)
	}
}

// hostile is text that tries to be more than text: it sets a title, clears the
// screen, hides, rings, goes back, turns the direction round.
const hostile = "\x1b]0;owned\x07\x1b[2J\x1b[8mhidden\u009b31m\rgone\b\u202egnp.exe\u2066\u200b\u2028end"

// What strangers wrote is harmless wherever people read it.
func TestHostileTextIsEscaped(t *testing.T) {
	needCells(t)
	leavesNothing(t)
	claims := write(t, "claims.jsonl", jsonLines(t, []claim{
		{ID: "id" + hostile, Title: hostile, Rung: 4, Check: "expr 1", Expect: "expect" + strings.ReplaceAll(hostile, "\r", "")},
		{ID: "note", Rung: 4, Check: "if " + hostile + "; then (", Expect: "x"},
		{ID: "needed", Rung: 4, Check: `cat "` + hostile + `"`, Expect: "x"},
		{ID: "printed", Rung: 4, Check: `printf '%s: No such file\n' "$(cat text)"; exit 1`, Expect: "x"},
	}))
	twice := write(t, "twice.jsonl", jsonLines(t, []claim{{ID: hostile, Rung: 1}, {ID: hostile, Rung: 1}}))
	tests := []struct {
		name string
		args []string
		code int
	}{
		{"grade", []string{"grade", claims}, 1},
		{"claims that are refused", []string{"grade", twice}, 2},
		{"a flag", []string{"grade", "--allow-missing", hostile, claims}, 2},
		{"a file", []string{"grade", "/no/such/" + hostile}, 2},
		{"streams", []string{"run", "--", "printf", "%s", hostile}, 0},
		{"a program", []string{"run", "--", "/" + hostile}, 125},
	}
	for _, tt := range tests {
		code, shown := command{args: tt.args, env: []string{"TERM=xterm", "NO_COLOR=1"}}.onTerminal(t)
		if bad := control(progress.ReplaceAllString(shown, "")); bad != "" || code != tt.code {
			t.Errorf("%s: %q on a terminal = %d and shows %s, want %d and nothing but text", tt.name, tt.args, code, bad, tt.code)
		}
		if !strings.Contains(shown, `\x1b]0;owned`) {
			t.Errorf("%s: %q on a terminal shows %q, want the text written out", tt.name, tt.args, shown)
		}
	}
	// Where nobody's terminal is in the way the plain lines are as harmless, for
	// they may be read on one later.
	got := checkcell(t, "grade", claims)
	if bad := control(got.stdout + got.stderr); bad != "" {
		t.Errorf("grade shows %s, want nothing but text", bad)
	}
}

// What is text stays as it is, however the stream is cut into pieces; --raw
// and a stream that is no terminal let everything through.
func TestStreamsOnTerminal(t *testing.T) {
	needCells(t)
	leavesNothing(t)
	long := []string{"run", "--", "bash", "-c", "yes 中 | head -n 100000 | tr -d '\\n'"}
	if code, shown := (command{args: long}).onTerminal(t); code != 0 || shown != strings.Repeat("中", 100000) {
		at := strings.IndexFunc(shown, func(r rune) bool { return r != '中' })
		t.Errorf("%q on a terminal = %d with %d bytes, want 0 with 100,000 characters as they are; the first other one at byte %d", long, code, len(shown), at)
	}
	raw := []string{"run", "--raw", "--", "printf", "%s", hostile}
	if code, shown := (command{args: raw}).onTerminal(t); code != 0 || shown != hostile {
		t.Errorf("%q on a terminal = %d and shows %q, want 0 and %q", raw, code, shown, hostile)
	}
	plain := []string{"run", "--", "printf", "%s", hostile}
	if got := checkcell(t, plain...); got.code != 0 || got.stdout != hostile {
		t.Errorf("%q = %d with stdout %q, want 0 and %q", plain, got.code, got.stdout, hostile)
	}
}
