package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/checkcell/checkcell/sandbox"
)

// ended is a result with an outcome, its cell gone.
func ended(o sandbox.Outcome) sandbox.Result {
	return sandbox.Result{Outcome: o, Cleanup: sandbox.Cleanup{State: sandbox.CleanupDone}, Leftovers: sandbox.Read(0)}
}

func TestExitCode(t *testing.T) {
	unclean := func(o sandbox.Outcome, s sandbox.CleanupState) sandbox.Result {
		r := ended(o)
		r.Cleanup.State = s
		return r
	}
	tests := []struct {
		name   string
		result sandbox.Result
		want   int
	}{
		{"exited 0", ended(sandbox.Exited(0)), 0},
		{"exited 1", ended(sandbox.Exited(1)), 1},
		{"exited 125", ended(sandbox.Exited(125)), 125},
		{"exited 255", ended(sandbox.Exited(255)), 255},
		{"timed out", ended(sandbox.TimedOut(time.Second)), 124},
		{"cpu", ended(sandbox.LimitExceeded(sandbox.ResourceCPU)), 137},
		{"memory", ended(sandbox.LimitExceeded(sandbox.ResourceMemory)), 137},
		{"stdout", ended(sandbox.LimitExceeded(sandbox.ResourceStdout)), 137},
		{"stderr", ended(sandbox.LimitExceeded(sandbox.ResourceStderr)), 137},
		{"disk", ended(sandbox.LimitExceeded(sandbox.ResourceDisk)), 137},
		{"SIGHUP", ended(sandbox.Signaled(1)), 129},
		{"SIGKILL", ended(sandbox.Signaled(9)), 137},
		{"SIGSEGV", ended(sandbox.Signaled(11)), 139},
		{"SIGRTMAX", ended(sandbox.Signaled(64)), 192},
		{"canceled", ended(sandbox.Canceled("interrupted")), 130},
		{"not started", ended(sandbox.StartFailed("no cgroup")), 125},
		{"unknown", ended(sandbox.Unknown("lost")), 125},
		{"zero", sandbox.Result{}, 125},
		{"exited 0, cleanup failed", unclean(sandbox.Exited(0), sandbox.CleanupFailed), 125},
		{"exited 0, cleanup unknown", unclean(sandbox.Exited(0), sandbox.CleanupUnknown), 125},
		{"exited 3, cleanup failed", unclean(sandbox.Exited(3), sandbox.CleanupFailed), 125},
		{"timed out, cleanup failed", unclean(sandbox.TimedOut(1), sandbox.CleanupFailed), 124},
	}
	for _, tt := range tests {
		if got := exitCode(tt.result); got != tt.want {
			t.Errorf("%s: exitCode(%v) = %d, want %d", tt.name, tt.result.Outcome, got, tt.want)
		}
	}
}

func TestExplain(t *testing.T) {
	with := func(o sandbox.Outcome, set func(*sandbox.Result)) sandbox.Result {
		r := ended(o)
		set(&r)
		return r
	}
	usage := func(oom, pids sandbox.Reading) func(*sandbox.Result) {
		return func(r *sandbox.Result) { r.Evidence.Usage.OOMKills, r.Evidence.Usage.PIDsMaxHits = oom, pids }
	}
	tests := []struct {
		name   string
		result sandbox.Result
		want   string
	}{
		{"exited 0", ended(sandbox.Exited(0)), ""},
		{"exited 1", ended(sandbox.Exited(1)), ""},
		{"timed out", ended(sandbox.TimedOut(2 * time.Second)), "timed_out after 2s"},
		{"canceled", ended(sandbox.Canceled("interrupted")), "canceled: interrupted"},
		{"not started", ended(sandbox.StartFailed("no cgroup")), "start_failed: no cgroup"},
		{"signaled", ended(sandbox.Signaled(11)), "signaled 11"},
		{"one leftover", with(sandbox.Exited(0), func(r *sandbox.Result) { r.Leftovers = sandbox.Read(1) }), "killed 1 process that the command left behind"},
		{"leftovers", with(sandbox.Exited(0), func(r *sandbox.Result) { r.Leftovers = sandbox.Read(2) }), "killed 2 processes that the command left behind"},
		{"leftovers not known", with(sandbox.Exited(0), func(r *sandbox.Result) { r.Leftovers = sandbox.Reading{} }), ""},
		{"leftovers of what we killed", with(sandbox.TimedOut(time.Second), func(r *sandbox.Result) { r.Leftovers, r.Killed = sandbox.Read(2), true }), "timed_out after 1s"},
		{"one kill", with(sandbox.Exited(1), usage(sandbox.Read(1), sandbox.Reading{})), "the kernel killed 1 process for the memory limit"},
		{"kills", with(sandbox.LimitExceeded(sandbox.ResourceMemory), usage(sandbox.Read(3), sandbox.Read(0))),
			"limit_exceeded memory\nthe kernel killed 3 processes for the memory limit"},
		{"one fork", with(sandbox.Exited(0), usage(sandbox.Read(0), sandbox.Read(1))), "1 fork was refused for the process limit"},
		{"forks", with(sandbox.Exited(0), usage(sandbox.Reading{}, sandbox.Read(70))), "70 forks were refused for the process limit"},
		{"cleanup failed", with(sandbox.Exited(0), func(r *sandbox.Result) { r.Cleanup = sandbox.Cleanup{State: sandbox.CleanupFailed, Detail: "busy"} }), "cleanup failed: busy"},
		{"cleanup unknown", with(sandbox.Exited(0), func(r *sandbox.Result) { r.Cleanup = sandbox.Cleanup{} }), "cleanup unknown: no reason is known"},
		{"all at once", with(sandbox.Signaled(9), func(r *sandbox.Result) {
			r.Leftovers, r.Cleanup = sandbox.Read(1), sandbox.Cleanup{State: sandbox.CleanupFailed, Detail: "busy"}
		}), "signaled 9\nkilled 1 process that the command left behind\ncleanup failed: busy"},
	}
	for _, tt := range tests {
		if got := explain(tt.result); got != tt.want {
			t.Errorf("%s: explain = %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestReadCheck(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"check.sh": "echo a\x00b\n", "empty": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tests := []struct{ name, stdin, want, fault string }{
		{filepath.Join(dir, "check.sh"), "", "echo a\x00b\n", ""},
		{"-", "echo from stdin", "echo from stdin", ""},
		{"-", "", "", ""},
		{filepath.Join(dir, "empty"), "", "", ""},
		{filepath.Join(dir, "none"), "", "", "--check: open"},
		{dir, "", "", "--check: read"},
	}
	for _, tt := range tests {
		got, err := readCheck(tt.name, strings.NewReader(tt.stdin))
		if got != tt.want || (err != nil) != (tt.fault != "") || err != nil && !strings.Contains(err.Error(), tt.fault) {
			t.Errorf("readCheck(%s) = %q, %v, want %q, %q", tt.name, got, err, tt.want, tt.fault)
		}
	}
	if _, err := readCheck("-", iotest.ErrReader(os.ErrDeadlineExceeded)); err == nil {
		t.Error("readCheck(stdin that fails) has no error")
	}
}

// Whatever is wrong with its use, run ends with 125: any other code could be
// the command's own.
func TestRunRefuses(t *testing.T) {
	tests := []struct {
		name string
		args []string
		want string
	}{
		{"nothing to run", []string{"run"}, "want a command after --, or --check FILE"},
		{"both", []string{"run", "--check=-", "--", "ls"}, "want a command after --, or --check FILE"},
		{"a flag that can't be read", []string{"run", "--memory=lots", "--", "ls"}, "--memory"},
		{"a flag out of range", []string{"run", "--memory=0", "--", "ls"}, "--memory"},
		{"an unknown flag", []string{"run", "--frobnicate", "--", "ls"}, "--frobnicate"},
		{"a check that is not there", []string{"run", "--check=/no/such/file"}, "--check"},
		{"an empty check", []string{"run", "--check=-"}, "the check is empty"},
	}
	for _, tt := range tests {
		var out, errs bytes.Buffer
		code := run(t.Context(), tt.args, streams{strings.NewReader(""), &out, &errs})
		if code != exitNotRun || !strings.Contains(errs.String(), tt.want) || out.Len() != 0 {
			t.Errorf("%s: run(%q) = %d with stderr %q, stdout %q, want %d, %q, nothing", tt.name, tt.args, code, errs.String(), out.String(), exitNotRun, tt.want)
		}
	}
}
