package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"
)

// hostileRun is one case on its way.
type hostileRun struct {
	c         hostileCase
	host      *surroundings
	user      *delegate // who starts checkcell; nil is ourselves
	slow      float64
	workspace string
	sources   map[string]string // fingerprints of the workspace's files
	tmp       string            // checkcell's directory for temporary files, and its own
	ran       []*process        // every checkcell that was started
	users     []string          // the cells' user ids on the host, from the receipts, where nobody else has them
}

// TestHostile runs every case by itself: what it comes to, and what the host
// is like afterwards.
func TestHostile(t *testing.T) {
	needCells(t)
	leavesNothing(t)
	hostileCasesBy(t, nil, (*hostileRun).do)
}

// hostileCasesBy has the user start checkcell for every case, and do look at
// what comes of it.
func hostileCasesBy(t *testing.T, user *delegate, do func(r *hostileRun, t *testing.T)) {
	t.Helper()
	slow := slowness(t)
	cases := rows[hostileCase](t, hostileTable, hostileCases)
	around := newSurroundings(t, user)
	turns := make(chan struct{}, 4)
	var held atomic.Int64
	t.Run("cases", func(t *testing.T) { // ends when all its cases have
		for _, c := range cases {
			t.Run(c.Name, func(t *testing.T) {
				t.Parallel()
				turns <- struct{}{}
				defer func() { <-turns }()
				do(newHostileRun(t, c, around, user, slow), t)
				if !t.Failed() {
					held.Add(1)
				}
			})
		}
	})
	t.Logf("%d of %d cases held", held.Load(), len(cases))
}

func newHostileRun(t testing.TB, c hostileCase, around *surroundings, user *delegate, slow float64) *hostileRun {
	t.Helper()
	c.need(t)
	for path, text := range c.Host.Files {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644) // what is there is the host's
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.Remove(path) })
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	r := &hostileRun{c: c, host: around, user: user, slow: slow, workspace: c.workspace(t), tmp: t.TempDir(), sources: map[string]string{}}
	user.give(t, r.workspace)
	user.give(t, r.tmp)
	for name := range c.Files {
		r.sources[name] = fingerprint(filepath.Join(r.workspace, name))
	}
	return r
}

// do runs the case and what goes with it, and looks at what is left.
func (r *hostileRun) do(t *testing.T) {
	call := r.call(t, r.c.script())
	var peer *process
	if r.c.Peer != nil {
		peer = r.start(t, r.call(t, r.c.Peer.Check))
	}
	began := time.Now()
	first := r.act(t, call)
	if took, most := time.Since(began), r.most(); took > most {
		t.Errorf("checkcell %q took %v to its own end, want at most %v\n%s", call.args, took, most, first.stderr)
	}
	if err := matchAny(r.c.wants(), first, r.slow); err != nil {
		t.Errorf("checkcell %q: %v\nwhich %s\n%s", call.args, err, r.c.Why, first.stderr)
	}
	if peer != nil {
		r.second(t, "peer", r.c.Peer, first, peer.wait(t))
	}
	if next := r.c.Next; next != nil {
		r.second(t, "next", next, first, r.start(t, r.call(t, next.Check)).wait(t))
	}
	for _, p := range r.ran {
		if r.user == nil { // a user's cells all have the user's own id
			r.users = append(r.users, userOf(p.stdout.String())...)
		}
	}
	for _, condition := range r.c.After {
		if err := r.after(t, condition); err != nil {
			t.Errorf("%s: %v", condition, err)
		}
	}
}

// most is how long checkcell itself may take, set-up and teardown included.
func (r *hostileRun) most() time.Duration {
	const around = 20_000
	return stretched(max(r.c.Limits["wall_ms"], 10_000)+around, r.slow)
}

// second looks at what the peer or the next run came to.
func (r *hostileRun) second(t *testing.T, what string, s *hostileSecond, first, got ended) {
	t.Helper()
	if err := s.Want.match(got, r.slow); err != nil {
		t.Errorf("the %s run: %v\n%s", what, err, got.stderr)
		return
	}
	if one, other := stdoutOf(t, first), stdoutOf(t, got); s.SameStdout && one != other {
		t.Errorf("the first run printed\n%s, the %s one\n%s, want the same", one, what, other)
	}
}

func stdoutOf(t *testing.T, e ended) string {
	t.Helper()
	text, err := decode[result](t, e.stdout).Stdout.content()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// call is how checkcell is called for a check.
func (r *hostileRun) call(t testing.TB, check string) command {
	t.Helper()
	limits, err := r.c.allLimits(r.slow)
	if err != nil {
		t.Fatal(err)
	}
	args := append([]string{"run", "--json", "--check", "-"}, limits.flags()...)
	if r.workspace != "" {
		args = append(args, "--workspace", r.workspace)
	}
	env := []string{canaryEnv, "TMPDIR=" + r.tmp}
	for name, value := range r.c.Host.Env {
		env = append(env, name+"="+value)
	}
	return command{args: args, stdin: check, env: env, dir: r.tmp}.as(r.user)
}

func (r *hostileRun) start(t testing.TB, c command) *process {
	t.Helper()
	p := c.start(t)
	r.ran = append(r.ran, p)
	return p
}

// act runs the call and does to checkcell what the case says.
func (r *hostileRun) act(t *testing.T, call command) ended {
	t.Helper()
	do := r.c.Action
	var p *process
	switch {
	case do.CancelBeforeStart:
		p = startWithdrawn(t, call)
		r.ran = append(r.ran, p)
	case do.CancelAfterMS > 0:
		p = r.start(t, call)
		r.afterStart(t, p, do.CancelAfterMS)
		p.signal(t, syscall.SIGINT)
	case do.CrashRunnerAfterMS > 0:
		p = r.start(t, call)
		r.afterStart(t, p, do.CrashRunnerAfterMS)
		p.signal(t, syscall.SIGKILL)
		got := p.wait(t)
		// The cell sees the end of checkcell, and ends; what is left of its groups
		// goes to whoever starts next, here or in another case.
		waitFor(t, "the cell has ended", func() bool { return inGroups(r.pids()) == nil })
		r.echo(t)
		waitFor(t, "the groups are swept", func() bool { return groupsOf(r.pids()) == nil })
		return got
	default:
		p = r.start(t, call)
	}
	return p.wait(t)
}

// afterStart returns that long after the check was seen to run.
func (r *hostileRun) afterStart(t *testing.T, p *process, ms int64) {
	t.Helper()
	waitFor(t, "the check runs", func() bool {
		for _, line := range below(t, p.cmd.Process.Pid) {
			if !strings.HasPrefix(line, "checkcell") { // those of ours are
				return true
			}
		}
		return false
	})
	time.Sleep(stretched(ms, r.slow)) // the case says when
}

// echo is a run that any host after any case can make.
func (r *hostileRun) echo(t *testing.T) {
	t.Helper()
	got := r.start(t, command{args: []string{"run", "--json", "--check", "-"}, stdin: "echo next", dir: r.tmp, env: []string{"TMPDIR=" + r.tmp}}.as(r.user)).wait(t)
	zero, next := 0, "next\n"
	if err := (hostileWant{Kind: "exited", ExitCode: &zero, Stdout: &next}).match(got, r.slow); err != nil {
		t.Errorf("the next run: %v\n%s", err, got.stderr)
	}
}

// startWithdrawn starts the call and interrupts it while it reads the check,
// so that nothing of it has run.
func startWithdrawn(t *testing.T, c command) *process {
	t.Helper()
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	p := &process{cmd: c.make(t), stdout: &buffer{}, stderr: &buffer{}}
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = in, p.stdout, p.stderr
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.cmd.Process.Kill() }) // it was waited for, unless the test failed
	if _, err := out.WriteString(c.stdin); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "checkcell reads the check", func() bool { return unread(t, in) == 0 })
	in.Close()
	p.signal(t, syscall.SIGINT)
	waitFor(t, "the interrupt has come", func() bool { return pending(t, p.cmd.Process.Pid) == 0 })
	return p
}

// unread is how many bytes lie in a pipe.
func unread(t *testing.T, pipe *os.File) int {
	t.Helper()
	const fionread = 0x541b // asm-generic/ioctls.h; package syscall lacks it
	var n int32
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, pipe.Fd(), fionread, uintptr(unsafe.Pointer(&n))); errno != 0 {
		t.Fatalf("ask a pipe: %v", errno)
	}
	runtime.KeepAlive(pipe)
	return int(n)
}

// pending is how many signals a process has not yet been handed; see SigQ of
// proc_pid_status(5), which counts those of its user, and ShdPnd, its own.
func pending(t *testing.T, pid int) (signals int) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if set, ok := strings.CutPrefix(line, "ShdPnd:"); ok && strings.Trim(set, "0\t\n") != "" {
			signals++
		}
	}
	return signals
}
