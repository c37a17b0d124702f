package e2e

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// keys lists the keys of a JSON value in the order in which they stand, those
// of objects inside it with the path to them, down to depth.
func keys(t testing.TB, text []byte, depth int) []string {
	t.Helper()
	var all []string
	var members map[string]json.RawMessage
	if len(text) == 0 || text[0] != '{' || depth == 0 {
		return nil
	}
	if err := json.Unmarshal(text, &members); err != nil {
		t.Fatalf("decode %.100q: %v", text, err)
	}
	d := json.NewDecoder(strings.NewReader(string(text)))
	if _, err := d.Token(); err != nil {
		t.Fatal(err)
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, key.(string))
		for _, below := range keys(t, members[key.(string)], depth-1) {
			all = append(all, key.(string)+"."+below)
		}
		var skipped json.RawMessage
		if err := d.Decode(&skipped); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// resultKeys are the keys of a result in the order of design.md, section 3,
// those of the outcome aside.
func resultKeys() []string {
	return strings.Fields(`schema id backend outcome terminal success
		stdout stdout.text stdout.bytes stdout.kept stdout.truncated stdout.sha256
		stderr stderr.text stderr.bytes stderr.kept stderr.truncated stderr.sha256
		usage usage.wall_ns usage.cpu_ns usage.peak_memory_bytes usage.peak_pids usage.oom_kills usage.pids_max_hits
		leftovers killed cleanup cleanup.state cleanup.detail receipt receipt.cgroup receipt.controls receipt.missing
		missing_evidence spec_digest image_digest started ended`)
}

func TestRunJSON(t *testing.T) {
	needCells(t)
	leavesNothing(t)
	began := time.Now()
	got := checkcell(t, "run", "--json", "--", "bash", "-c", `echo out; printf 'e\xffr' >&2`)
	if got.code != 0 || got.stderr != "" {
		t.Errorf("run --json = %d with stderr %q, want 0 and none", got.code, got.stderr)
	}
	if strings.Count(got.stdout, "\n") != 1 {
		t.Errorf("run --json printed %q, want one line", got.stdout)
	}
	r := decode[result](t, got.stdout)
	order := slices.DeleteFunc(keys(t, []byte(got.stdout), 2), func(k string) bool { return strings.HasPrefix(k, "outcome.") })
	want := slices.Insert(resultKeys(), slices.Index(resultKeys(), "stderr.bytes"), "stderr.base64") // its bytes are no UTF-8
	if diff := cmp.Diff(want, order); diff != "" {
		t.Errorf("keys of run --json, - want, + got:\n%s", diff)
	}
	base64 := "Zf9y"
	wantOut := capture{Text: "out\n", Bytes: 4, Kept: 4, SHA256: fmt.Sprintf("%x", sha256.Sum256([]byte("out\n")))}
	wantErr := capture{Text: "e\ufffdr", Base64: &base64, Bytes: 3, Kept: 3, SHA256: fmt.Sprintf("%x", sha256.Sum256([]byte("e\xffr")))}
	if diff := cmp.Diff([]capture{wantOut, wantErr}, []capture{r.Stdout, r.Stderr}); diff != "" {
		t.Errorf("streams of run --json, - want, + got:\n%s", diff)
	}
	if r.Schema != "checkcell.result/v1" || r.Backend != "native" || r.Terminal != "exited" || !r.Success || string(r.Outcome) != `{"kind":"exited","exit_code":0}` {
		t.Errorf("run --json = %s", got.stdout)
	}
	if r.Started.Before(began) || r.Ended.Before(r.Started) || r.Ended.After(time.Now()) {
		t.Errorf("run --json started %v and ended %v, want both in order after %v", r.Started, r.Ended, began)
	}
	if !regexp.MustCompile(`^sha256:[0-9a-f]{64}$`).MatchString(r.SpecDigest) {
		t.Errorf("run --json: spec_digest = %q, want sha256:…", r.SpecDigest)
	}
	for _, key := range []string{"wall_ns", "cpu_ns", "peak_memory_bytes", "peak_pids"} {
		if r.Usage[key] <= 0 {
			t.Errorf("run --json: usage.%s = %d, want more than 0", key, r.Usage[key])
		}
	}
	for _, control := range []string{"cgroup", "memory", "pids", "cpu", "disk", "nofile", "network", "root", "pid-ns", "ipc-ns", "uts-ns", "cgroup-ns", "user", "caps", "no-new-privs", "seccomp"} {
		if r.Receipt.Controls[control] == "" {
			t.Errorf("run --json: receipt.controls has no %q: %v", control, r.Receipt.Controls)
		}
	}
	if len(r.Receipt.Missing) != 0 || len(r.MissingEvidence) != 0 || r.Leftovers == nil || *r.Leftovers != 0 || r.Killed {
		t.Errorf("run --json: missing %q, missing_evidence %q, leftovers %v, killed %v, want none", r.Receipt.Missing, r.MissingEvidence, r.Leftovers, r.Killed)
	}
}

// bash is the arguments of a run of a script.
func bash(script string, flags ...string) []string {
	return slices.Concat([]string{"run", "--json"}, flags, []string{"--", "bash", "-c", script})
}

// Every kind of outcome that a command can bring about, its exit code and its
// own words in the result.
func TestRunOutcomes(t *testing.T) {
	needCells(t)
	leavesNothing(t)
	const mib = 1 << 20
	tests := []struct {
		name          string
		args          []string
		code          int
		outcome       string // as it is written, or how that begins
		leftovers     int64  // -1: how many is a matter of chance
		killed        bool
		kept, atLeast int64 // of stdout: bytes kept, bytes written
	}{
		{"exit 0", bash("exit 0"), 0, `{"kind":"exited","exit_code":0}`, 0, false, 0, 0},
		{"exit 1", bash("exit 1"), 1, `{"kind":"exited","exit_code":1}`, 0, false, 0, 0},
		{"exit 2", bash("exit 2"), 2, `{"kind":"exited","exit_code":2}`, 0, false, 0, 0},
		{"exit 4", bash("exit 4"), 4, `{"kind":"exited","exit_code":4}`, 0, false, 0, 0},
		{"exit 124", bash("exit 124"), 124, `{"kind":"exited","exit_code":124}`, 0, false, 0, 0},
		{"exit 130", bash("exit 130"), 130, `{"kind":"exited","exit_code":130}`, 0, false, 0, 0},
		{"exit 255", bash("exit 255"), 255, `{"kind":"exited","exit_code":255}`, 0, false, 0, 0},
		{"signal 9", bash("kill -9 $$"), 137, `{"kind":"signaled","signal":9}`, 0, false, 0, 0},
		{"signal 15", bash("kill $$"), 143, `{"kind":"signaled","signal":15}`, 0, false, 0, 0},
		{"signal 11", bash("kill -SEGV $$"), 139, `{"kind":"signaled","signal":11}`, 0, false, 0, 0},
		{"deadline", bash("sleep 60", "--timeout", "200ms"), 124, `{"kind":"timed_out","after_ns":2`, 0, true, 0, 0},
		{"CPU time", bash("while :; do :; done", "--cpu-time", "100ms"), 137, `{"kind":"limit_exceeded","resource":"cpu"}`, 0, true, 0, 0},
		{"leftovers", bash("sleep 600 & sleep 601 & echo x"), 0, `{"kind":"exited","exit_code":0}`, 2, false, 2, 2},
		{"a leftover that holds the pipe", bash("(sleep 1; echo late) & echo x"), 0, `{"kind":"exited","exit_code":0}`, -1, false, 2, 2},
		{"yes", []string{"run", "--json", "--", "yes"}, 137, `{"kind":"limit_exceeded","resource":"stdout"}`, 0, true, mib, mib + 1},
		{"at the cap", bash("head -c 1048576 /dev/zero | tr '\\0' x"), 0, `{"kind":"exited","exit_code":0}`, 0, false, mib, mib},
		{"one more", bash("head -c 1048577 /dev/zero | tr '\\0' x; sleep 60"), 137, `{"kind":"limit_exceeded","resource":"stdout"}`, -1, true, mib, mib + 1},
		{"stderr", bash("yes >&2", "--stderr-cap", "10"), 137, `{"kind":"limit_exceeded","resource":"stderr"}`, -1, true, 0, 0},
		{"memory, the shell", bash("x=$(head -c 200M /dev/zero | tr '\\0' x); echo $x", "--memory", "32MiB"), 137, `{"kind":"limit_exceeded","resource":"memory"}`, -1, false, 0, 0},
		{"memory, a child", bash("head -c 200M /dev/zero | tail; exit 3", "--memory", "32MiB"), 3, `{"kind":"exited","exit_code":3}`, 0, false, 0, 0},
		{"not started", []string{"run", "--json", "--", "/no/such/program"}, 125, `{"kind":"start_failed","detail":"start /no/such/program: `, 0, false, 0, 0},
		{"no cell", []string{"run", "--json", "--cgroup-parent", "/no/such/group", "--", "true"}, 125, `{"kind":"start_failed","detail":"`, 0, false, 0, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := checkcell(t, tt.args...)
			r := decode[result](t, got.stdout)
			if got.code != tt.code || !strings.HasPrefix(string(r.Outcome), tt.outcome) {
				t.Errorf("checkcell %q = %d with outcome %s, want %d, %s", tt.args, got.code, r.Outcome, tt.code, tt.outcome)
			}
			if tt.leftovers >= 0 && (r.Leftovers == nil || *r.Leftovers != tt.leftovers) || r.Killed != tt.killed {
				t.Errorf("checkcell %q: leftovers %s, killed %v, want %d, %v", tt.args, orNull(r.Leftovers), r.Killed, tt.leftovers, tt.killed)
			}
			if r.Stdout.Kept != tt.kept || r.Stdout.Bytes < tt.atLeast || r.Stdout.Truncated != (tt.atLeast > tt.kept) || int64(len(r.Stdout.Text)) != tt.kept {
				t.Errorf("checkcell %q: stdout %d of %d bytes kept, truncated %v, want %d of at least %d", tt.args, r.Stdout.Kept, r.Stdout.Bytes, r.Stdout.Truncated, tt.kept, tt.atLeast)
			}
			if want := tt.code == 0; r.Success != want || r.Cleanup.State != "done" || got.stderr != "" {
				t.Errorf("checkcell %q: success %v, cleanup %q, stderr %q, want %v, done and none", tt.args, r.Success, r.Cleanup.State, got.stderr, want)
			}
			if oom := strings.HasPrefix(tt.name, "memory"); (r.Usage["oom_kills"] > 0) != oom {
				t.Errorf("checkcell %q: %d oom_kills, want some: %v", tt.args, r.Usage["oom_kills"], oom)
			}
		})
	}
}

func orNull(n *int64) string {
	if n == nil {
		return "null"
	}
	return fmt.Sprint(*n)
}

// A cell whose groups can't be removed takes success away: its own exit code
// stands in the result, ours is 125. The next start removes what was left.
func TestRunCleanupFailed(t *testing.T) {
	needCells(t)
	leavesNothing(t)
	p := command{under: []string{"unshare", "--mount"}, args: bash("sleep 605; exit 0")}.start(t)
	sleep := waitForProcess(t, p, "sleep 605")
	// In a mount namespace of its own every hierarchy becomes read-only before
	// the command ends.
	readOnly := `awk '$3 ~ /^cgroup2?$/ {print $2}' /proc/self/mounts | while read -r m; do mount -o remount,bind,ro "$m" || exit; done`
	nsenter := exec.CommandContext(t.Context(), "nsenter", "--mount", "--target", strconv.Itoa(p.cmd.Process.Pid), "sh", "-c", readOnly)
	if out, err := nsenter.CombinedOutput(); err != nil {
		t.Fatalf("make the groups read-only: %v\n%s", err, out)
	}
	if err := syscall.Kill(sleep, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	got := p.wait(t)
	if got.code != 125 {
		t.Errorf("run with groups that can't be removed = %d, want 125\n%s", got.code, got.stderr)
	}
	r := decode[result](t, got.stdout)
	if r.Terminal != "cleanup_failed" || r.Success || r.Cleanup.State != "failed" || !strings.Contains(r.Cleanup.Detail, "read-only file system") {
		t.Errorf("run with groups that can't be removed: terminal %q, success %v, cleanup %+v, want cleanup_failed, false and the reason", r.Terminal, r.Success, r.Cleanup)
	}
	if string(r.Outcome) != `{"kind":"exited","exit_code":0}` {
		t.Errorf("run with groups that can't be removed: outcome %s, want exited 0", r.Outcome)
	}
	sweeps(t)
}

// sweeps starts checkcell once more and wants it to say that it removed what
// a crashed run left.
func sweeps(t *testing.T) {
	t.Helper()
	got := checkcell(t, "run", "--", "true")
	if got.code != 0 || !strings.Contains(got.stderr, "removed what a crashed run left") {
		t.Errorf("the next run = %d with stderr %q, want 0 and that it removed what a crashed run left", got.code, got.stderr)
	}
}

// What a command or a check is given reaches it byte for byte.
func TestRunKeepsBytes(t *testing.T) {
	needCells(t)
	leavesNothing(t)
	const odd = "\xff\xfe caf\xe9 \u00e9"
	check := write(t, "check.sh", "printf %s '"+odd+"'")
	tests := [][]string{
		{"run", "--", "printf", "%s", odd},
		{"run", "--env", "ODD=" + odd, "--", "sh", "-c", `printf %s "$ODD"`},
		{"run", "--check", check},
	}
	for _, args := range tests {
		if got := checkcell(t, args...); got.code != 0 || got.stdout != odd {
			t.Errorf("checkcell %q = %d with stdout %q and stderr %q, want 0 and %q", args, got.code, got.stdout, got.stderr, odd)
		}
	}
}
