package sandboxtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/checkcell/checkcell/sandbox"
)

// Contract tests that a backend keeps the contract of design.md, section 3,
// with real checks. The backend must have bash and coreutils in the host view. What
// it may lack is named; a case that is about that is left out.
func Contract(t *testing.T, backend sandbox.Backend, lacks ...sandbox.Control) {
	backend = lenient{backend, lacks}
	t.Run("cases", func(t *testing.T) {
		for _, c := range contractCases() {
			if c.about != "" && slices.Contains(lacks, c.about) {
				continue
			}
			if c.guest != "" && slices.Contains(lacks, sandbox.ControlPIDs) {
				c.stdout = c.guest
			}
			t.Run(c.name, func(t *testing.T) {
				t.Parallel() // some wait for long
				c.run(t, backend)
			})
		}
	})
	t.Run("cancel", func(t *testing.T) { contractCancel(t, backend) })
	t.Run("calls may be repeated", func(t *testing.T) { contractRepeats(t, backend) })
	t.Run("syntax pass", func(t *testing.T) { contractSyntax(t, backend) })
	t.Run("many at once", func(t *testing.T) { contractMany(t, backend) })
}

// lenient is a backend whose cells may lack some controls.
type lenient struct {
	sandbox.Backend
	lacks []sandbox.Control
}

// Create is that of the backend.
func (l lenient) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Box, error) {
	spec.AllowMissing = l.lacks
	return l.Backend.Create(ctx, spec)
}

// excused reports whether evidence is missing because a control is, which the
// receipt then says.
func excused(res sandbox.Result) bool {
	return slices.Contains(res.Evidence.Receipt.Missing, sandbox.ControlPIDs) &&
		!slices.ContainsFunc(res.Evidence.Missing, func(m string) bool { return !strings.Contains(m, "pids") })
}

// Spec is a spec with the default limits.
func Spec(check string, change ...func(*sandbox.Spec)) sandbox.Spec {
	s := sandbox.Spec{ID: "contract", Check: check, Limits: sandbox.DefaultLimits()}
	for _, c := range change {
		c(&s)
	}
	return s
}

type contractCase struct {
	name    string
	check   string
	set     func(*sandbox.Spec)
	want    sandbox.Outcome
	stdout  string
	guest   string // stdout in a kernel of its own, gVisor's, where it shows less; "" for the same
	stderr  string
	left    int64
	about   sandbox.Control            // the one that it tests; "" for the contract
	atLeast func(sandbox.Result) error // what else has to hold
}

func contractCases() []contractCase {
	limits := func(set func(*sandbox.Limits)) func(*sandbox.Spec) {
		return func(s *sandbox.Spec) { set(&s.Limits) }
	}
	short := limits(func(l *sandbox.Limits) { l.Wall = 1500 * time.Millisecond }) // a slow kernel has to have come so far
	caps := limits(func(l *sandbox.Limits) { l.Stdout, l.Stderr = 10, 10 })
	memory := limits(func(l *sandbox.Limits) { l.Memory = sandbox.At(64 * sandbox.MiB) })
	const hog = `x=xxxxxxxx; while :; do x=$x$x; done`
	return []contractCase{
		{name: "exit 0", check: "echo out; echo err >&2", want: sandbox.Exited(0), stdout: "out\n", stderr: "err\n"},
		{name: "exit 255", check: "exit 255", want: sandbox.Exited(255)},
		{name: "exit 124", check: "exit 124", want: sandbox.Exited(124)},
		{name: "signal", check: "kill -SEGV $$", want: sandbox.Signaled(11)},
		{name: "SIGKILL by itself", check: "kill -9 $$", want: sandbox.Signaled(9)},
		{name: "deadline keeps partial output", check: "echo early; sleep 100", set: short, want: sandbox.TimedOut(0), stdout: "early\n"},
		{name: "deadline, all kinds of children", check: `setsid sleep 600 & (sleep 601 &) ; nohup sleep 602 >/dev/null 2>&1 & trap "" TERM; sleep 603`,
			set: short, want: sandbox.TimedOut(0), left: 3},
		{name: "leftover holds the streams", check: "sleep 600 & echo done", want: sandbox.Exited(0), stdout: "done\n", left: 1},
		{name: "leftover without streams", check: "setsid sleep 600 </dev/null >/dev/null 2>&1 & exit 7", want: sandbox.Exited(7), left: 1},
		{name: "stdout at the cap", check: "printf 0123456789", set: caps, want: sandbox.Exited(0), stdout: "0123456789"},
		{name: "stdout over the cap", check: "printf 0123456789x; sleep 600", set: caps, want: sandbox.LimitExceeded(sandbox.ResourceStdout), stdout: "0123456789"},
		{name: "stdout over the cap at the end", check: "printf 0123456789x", set: caps, want: sandbox.LimitExceeded(sandbox.ResourceStdout), stdout: "0123456789"},
		{name: "stderr over the cap", check: "printf 0123456789x >&2; sleep 600", set: caps, want: sandbox.LimitExceeded(sandbox.ResourceStderr), stderr: "0123456789"},
		{name: "streams have caps of their own", check: "printf 012345678; printf 012345678 >&2", set: caps, want: sandbox.Exited(0), stdout: "012345678", stderr: "012345678"},
		{name: "memory, first process", check: hog, set: memory, want: sandbox.LimitExceeded(sandbox.ResourceMemory), atLeast: usage("oom_kills", func(u sandbox.Usage) sandbox.Reading { return u.OOMKills })},
		{name: "cpu budget", check: "while :; do :; done", set: limits(func(l *sandbox.Limits) { l.CPUTime = sandbox.At(200 * time.Millisecond) }),
			want: sandbox.LimitExceeded(sandbox.ResourceCPU), atLeast: usage("cpu_ns", func(u sandbox.Usage) sandbox.Reading { return u.CPU })},
		{name: "process limit", about: sandbox.ControlPIDs, check: "for i in {1..20}; do sleep 600 & done 2>/dev/null; exit 3", set: limits(func(l *sandbox.Limits) { l.Processes = sandbox.At[int64](8) }),
			want: sandbox.Exited(254), atLeast: usage("pids_max_hits", func(u sandbox.Usage) sandbox.Reading { return u.PIDsMaxHits })},
		{name: "disk limit", about: sandbox.ControlDisk, check: "head -c 2M /dev/zero > f; head -c 2M /dev/zero > /dev/shm/g; echo $(( $(wc -c <f) + $(wc -c </dev/shm/g) <= 1048576 ))",
			set: limits(func(l *sandbox.Limits) { l.Disk = sandbox.MiB }), want: sandbox.Exited(0), stdout: "1\n", stderr: "any"},
		{name: "surroundings", check: `pwd; umask; echo "$HOME $TMPDIR $LANG $LC_ALL $TZ $PATH"; uname -n; [ $$ -ne 1 ] && ulimit -n; cat; : </dev/tty`,
			want:   sandbox.Exited(1),
			stdout: "/work\n0022\n/work /tmp C.UTF-8 C.UTF-8 UTC /usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\ncell\n1024\n", stderr: "any"},
		{name: "environment is added to", check: "echo $A", set: func(s *sandbox.Spec) { s.Env = map[string]string{"A": "b c"} }, want: sandbox.Exited(0), stdout: "b c\n"},
		{name: "files", check: "cat d/e/f; rm -r d; ls", set: func(s *sandbox.Spec) {
			s.Files = []sandbox.File{{Path: "d/e/f", Content: []byte("a\x00b\n")}, {Path: "d/g"}, {Path: "h"}}
		}, want: sandbox.Exited(0), stdout: "a\x00b\nh\n"},
		{name: "bytes that are no text", check: `printf 'a\xffb'`, want: sandbox.Exited(0), stdout: "a\xffb"},
		{name: "reopened streams", check: "echo a > /dev/stdout; echo b > /proc/self/fd/2", want: sandbox.Exited(0), stdout: "a\n", stderr: "b\n"},
		{name: "long check", check: "echo start\n" + strings.Repeat("#"+strings.Repeat("x", 1000)+"\n", 300) + "echo end", want: sandbox.Exited(0), stdout: "start\nend\n"},
		{name: "NUL in the check", check: "echo a\x00", want: sandbox.StartFailed("the check holds a NUL byte at offset 6; bash can't be given one")},
		{name: "no privileges", check: `grep -E '^(Cap(Inh|Prm|Eff|Bnd|Amb)|NoNewPrivs)' /proc/self/status | tr -d '\t\n '; id -u`, want: sandbox.Exited(0),
			stdout: "CapInh:0000000000000000CapPrm:0000000000000000CapEff:0000000000000000CapBnd:0000000000000000CapAmb:0000000000000000NoNewPrivs:11000\n",
			guest:  "CapInh:0000000000000000CapPrm:0000000000000000CapEff:0000000000000000CapBnd:00000000000000001000\n"},
		{name: "nothing of the host can be written", check: `for d in / /usr /usr/bin /etc /dev /proc/sys/kernel; do (: > $d/x) 2>/dev/null && echo "wrote $d"; done; ls /root /home /run 2>/dev/null; exit 0`, want: sandbox.Exited(0)},
		{name: "no network", check: `(exec 3<>/dev/tcp/192.0.2.1/80) 2>/dev/null && echo reached; grep -c : /proc/net/dev`, want: sandbox.Exited(0), stdout: "1\n"},
		{name: "few processes are seen", check: `n=0; for p in /proc/[0-9]*; do n=$((n+1)); done; echo $n`, want: sandbox.Exited(0), stdout: "2\n"},
	}
}

func usage(name string, of func(sandbox.Usage) sandbox.Reading) func(sandbox.Result) error {
	return func(r sandbox.Result) error {
		if !of(r.Evidence.Usage).Positive() {
			return fmt.Errorf("usage.%s = %v, want more than 0", name, of(r.Evidence.Usage))
		}
		return nil
	}
}

func (c contractCase) run(t *testing.T, backend sandbox.Backend) {
	spec := Spec(c.check)
	if c.set != nil {
		c.set(&spec)
	}
	r := &sandbox.Runner{Backend: backend}
	res := r.Run(t.Context(), spec).Last()
	if !sameOutcome(res.Outcome, c.want) {
		t.Errorf("outcome = %v, want %v (stderr %q)", res.Outcome, c.want, cutTo(res.Stderr.Kept, 400))
	}
	if got := string(res.Stdout.Kept); got != c.stdout {
		t.Errorf("stdout = %q, want %q", cutTo([]byte(got), 400), c.stdout)
	}
	if got := string(res.Stderr.Kept); c.stderr != "any" && got != c.stderr && c.want.Kind() == sandbox.KindExited && c.name != "process limit" {
		t.Errorf("stderr = %q, want %q", got, c.stderr)
	}
	if n, known := res.Leftovers.Value(); c.name != "process limit" && (!known || n != c.left) {
		t.Errorf("leftovers = %v, want %d", res.Leftovers, c.left)
	}
	if res.Cleanup.State != sandbox.CleanupDone || len(res.Evidence.Missing) > 0 && !excused(res) {
		t.Errorf("cleanup %v, missing evidence %v; want done, none", res.Cleanup, res.Evidence.Missing)
	}
	if c.want.Kind() != sandbox.KindStartFailed && len(res.Evidence.Receipt.Controls) == 0 {
		t.Error("the receipt names no control")
	}
	if c.atLeast != nil {
		if err := c.atLeast(res); err != nil {
			t.Error(err)
		}
	}
}

// sameOutcome compares outcomes but for the time of a timed_out.
func sameOutcome(got, want sandbox.Outcome) bool {
	if want.Kind() == sandbox.KindTimedOut {
		return got.Kind() == want.Kind()
	}
	return got == want
}

func cutTo(b []byte, n int) []byte { return b[:min(len(b), n)] }

func contractCancel(t *testing.T, backend sandbox.Backend) {
	why := errors.New("no longer wanted")
	for _, after := range []time.Duration{-1, 0, time.Millisecond, 3 * time.Millisecond, 10 * time.Millisecond, 200 * time.Millisecond} {
		ctx, cancel := context.WithCancelCause(t.Context())
		if after < 0 {
			cancel(why)
		}
		timer := time.AfterFunc(max(after, 0), func() { cancel(why) })
		res := (&sandbox.Runner{Backend: backend}).Run(ctx, Spec("sleep 600 & sleep 600")).Last()
		timer.Stop()
		cancel(nil)
		if want := sandbox.Canceled(why.Error()); res.Outcome != want {
			t.Errorf("canceled after %v: outcome = %v, want %v", after, res.Outcome, want)
		}
		if res.Cleanup.State != sandbox.CleanupDone {
			t.Errorf("canceled after %v: cleanup %v", after, res.Cleanup)
		}
	}
}

func contractRepeats(t *testing.T, backend sandbox.Backend) {
	box, err := backend.Create(t.Context(), Spec("for i in {1..100}; do sleep 600 & done; echo up; wait"))
	if err != nil {
		t.Fatal(err)
	}
	p, err := box.Start(t.Context(), sandbox.StepCheck)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Stdout.Read(make([]byte, 3)); err != nil {
		t.Errorf("read stdout: %v", err)
	}
	for i := range 2 {
		n, err := box.Kill(t.Context())
		if err != nil {
			t.Errorf("Kill, call %d: %v", i, err)
		}
		if got, _ := n.Value(); i == 0 && got != 100 {
			t.Errorf("Kill counts %d leftovers, want 100", got)
		}
	}
	if end := <-p.Ended; end == sandbox.EndExited(0) {
		t.Errorf("the end of a killed process = %v", end)
	}
	for i := range 2 {
		if err := box.Destroy(t.Context()); err != nil {
			t.Errorf("Destroy, call %d: %v", i, err)
		}
	}
}

func contractSyntax(t *testing.T, backend sandbox.Backend) {
	r := &sandbox.Runner{Backend: backend}
	syntax := func(s *sandbox.Spec) { s.SyntaxPass = true }
	good := r.Run(t.Context(), Spec("echo $BASH_EXECUTION_STRING | wc -l; exit 4", syntax))
	if good.Parse == nil || good.Parse.Outcome != sandbox.Exited(0) || good.Check == nil || good.Check.Outcome != sandbox.Exited(4) {
		t.Errorf("a check that parses: %+v, %+v; want exited 0, exited 4", good.Parse, good.Check)
	}
	bad := r.Run(t.Context(), Spec("echo ran; if", syntax))
	if bad.Check != nil || bad.Parse == nil || bad.Parse.Outcome != sandbox.Exited(2) || !bytes.Contains(bad.Parse.Stderr.Kept, []byte("syntax error")) || len(bad.Parse.Stdout.Kept) > 0 {
		t.Errorf("a check that doesn't parse: %+v, %+v; want exited 2 with bash's words and nothing run", bad.Parse, bad.Check)
	}
	long := r.Run(t.Context(), Spec(strings.Repeat("# "+strings.Repeat("y", 1000)+"\n", 200)+"if", syntax))
	if long.Check != nil || long.Parse.Outcome != sandbox.Exited(2) {
		t.Errorf("a long check that doesn't parse: %+v, %+v; want exited 2", long.Parse, long.Check)
	}
}

func contractMany(t *testing.T, backend sandbox.Backend) {
	results := make(chan sandbox.Result, 24)
	for i := range cap(results) {
		go func() {
			check := fmt.Sprintf("echo %d; exit %d", i, i)
			// So many at once take their time on a small machine.
			r := &sandbox.Runner{Backend: backend, SetupBudget: 5 * time.Minute}
			results <- r.Run(t.Context(), Spec(check)).Last()
		}()
	}
	var got []int
	for range cap(results) {
		res := <-results
		code, ok := res.Outcome.ExitCode()
		if !ok || string(res.Stdout.Kept) != fmt.Sprintln(code) || res.Cleanup.State != sandbox.CleanupDone {
			t.Errorf("one of many = %v, stdout %q, cleanup %v", res.Outcome, res.Stdout.Kept, res.Cleanup)
		}
		got = append(got, code)
	}
	slices.Sort(got)
	for i, code := range got {
		if i != code {
			t.Errorf("exit codes of many = %v, want 0 to %d", got, len(got)-1)
			break
		}
	}
}
