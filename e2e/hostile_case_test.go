package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/checkcell/checkcell/internal/host"
)

const (
	hostileTable = "testdata/hostile.jsonl"
	hostileCases = 129
)

// slowVar is the factor by which the times of the hostile corpus are stretched.
// Where it is not set, the machine is measured.
const slowVar = "CHECKCELL_SLOW"

// hostileCase is a script that tries to get out of its cell, to outlive it, to
// starve its neighbours or to forge what is said of it, and what must come of it.
type hostileCase struct {
	Name         string              `json:"name"`
	Family       string              `json:"family"`
	Check        string              `json:"check"`
	PadTo        int                 `json:"pad_to"`
	Needs        []string            `json:"needs"`
	Files        map[string]string   `json:"files"` // in the workspace
	Limits       map[string]int64    `json:"limits"`
	Action       hostileAction       `json:"action"`
	Host         hostileSurroundings `json:"host"`
	Collect      []string            `json:"collect"` // nothing collects yet
	Want         *hostileWant        `json:"want"`
	WantAny      []hostileWant       `json:"want_any"`
	Next         *hostileSecond      `json:"next"` // directly after
	Peer         *hostileSecond      `json:"peer"` // at the same time
	After        []string            `json:"after"`
	Fault        string              `json:"fault"`
	Why          string              `json:"why"`
	Source       []string            `json:"source"`
	Validated    bool                `json:"validated"`
	ValidatedHow string              `json:"validated_how"`
}

// hostileAction is what happens to checkcell meanwhile. Times count from the
// start of the check.
type hostileAction struct {
	CancelAfterMS      int64 `json:"cancel_after_ms"`
	CancelBeforeStart  bool  `json:"cancel_before_start"`
	CrashRunnerAfterMS int64 `json:"crash_runner_after_ms"`
}

// hostileSurroundings is what checkcell is started with, and what lies on the
// host then.
type hostileSurroundings struct {
	Env   map[string]string `json:"env"`
	Files map[string]string `json:"files"`
}

// hostileSecond is another run with the same files and limits.
type hostileSecond struct {
	Check      string       `json:"check"`
	Want       *hostileWant `json:"want"`
	SameStdout bool         `json:"same_stdout"`
}

// UnmarshalJSON refuses keys that it does not know: what nobody looks at is
// not tested.
func (c *hostileCase) UnmarshalJSON(b []byte) error {
	type plain hostileCase
	d := json.NewDecoder(strings.NewReader(string(b)))
	d.DisallowUnknownFields()
	if err := d.Decode((*plain)(c)); err != nil {
		return err
	}
	if (c.Want != nil) == (len(c.WantAny) > 0) {
		return fmt.Errorf("case %q wants want or want_any", c.Name)
	}
	for _, second := range []*hostileSecond{c.Next, c.Peer} {
		if second != nil && second.Want == nil {
			return fmt.Errorf("case %q has a second run that nothing is wanted of", c.Name)
		}
	}
	return nil
}

// wants are the answers that are right; the first is the preferred one.
func (c hostileCase) wants() []hostileWant {
	if c.Want != nil {
		return []hostileWant{*c.Want}
	}
	return c.WantAny
}

// script is the check, padded in front to its size where it has one.
func (c hostileCase) script() string {
	if c.PadTo == 0 {
		return c.Check
	}
	return "#" + strings.Repeat("x", max(0, c.PadTo-len(c.Check)-2)) + "\n" + c.Check
}

// need ends the test where the machine lacks a program of the script.
func (c hostileCase) need(t testing.TB) {
	t.Helper()
	for _, program := range c.Needs {
		if program != "python3" {
			t.Fatalf("case %q needs %q, for which there is no capability", c.Name, program)
		}
		host.Need(t, host.Python3)
	}
}

// allLimits are the limits, those included that the case does not name, its
// times stretched.
func (c hostileCase) allLimits(slow float64) (hostileLimits, error) {
	limits := map[string]int64{
		"wall_ms": 10000, "memory_mib": 256, "pids": 64,
		"stdout_bytes": 1 << 20, "stderr_bytes": 1 << 20, "disk_mib": 64, "inodes": 4096,
	}
	for name, n := range c.Limits {
		if _, ok := limits[name]; !ok && name != "cpu_ms" {
			return hostileLimits{}, fmt.Errorf("case %q has an unknown limit %q", c.Name, name)
		}
		limits[name] = n
	}
	l := hostileLimits{
		Timeout: stretched(limits["wall_ms"], slow).String(),
		Memory:  fmt.Sprintf("%dMiB", limits["memory_mib"]), PIDs: limits["pids"],
		StdoutCap: limits["stdout_bytes"], StderrCap: limits["stderr_bytes"],
		Disk: fmt.Sprintf("%dMiB", limits["disk_mib"]), Inodes: limits["inodes"],
	}
	if cpu, ok := limits["cpu_ms"]; ok {
		l.CPUTime = fmt.Sprintf("%dms", cpu)
	}
	return l, nil
}

// hostileLimits are limits as the keys of a claim.
type hostileLimits struct {
	Timeout   string `json:"timeout,omitempty"`
	CPUTime   string `json:"cpu-time,omitempty"`
	Memory    string `json:"memory,omitempty"`
	PIDs      int64  `json:"pids,omitempty"`
	StdoutCap int64  `json:"stdout-cap,omitempty"`
	StderrCap int64  `json:"stderr-cap,omitempty"`
	Disk      string `json:"disk,omitempty"`
	Inodes    int64  `json:"inodes,omitempty"`
}

// flags say the limits to checkcell run.
func (l hostileLimits) flags() []string {
	flags := []string{
		"--timeout", l.Timeout, "--memory", l.Memory, "--pids", fmt.Sprint(l.PIDs),
		"--stdout-cap", fmt.Sprint(l.StdoutCap), "--stderr-cap", fmt.Sprint(l.StderrCap),
		"--disk", l.Disk, "--inodes", fmt.Sprint(l.Inodes),
	}
	if l.CPUTime != "" {
		flags = append(flags, "--cpu-time", l.CPUTime)
	}
	return flags
}

// workspace lays out the case's files in a directory of the test's own. It is
// "" where there are none.
func (c hostileCase) workspace(t testing.TB) (dir string) {
	t.Helper()
	if len(c.Files) == 0 {
		return ""
	}
	dir = t.TempDir()
	for name, text := range c.Files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func stretched(ms int64, slow float64) time.Duration {
	return time.Duration(float64(ms) * slow * float64(time.Millisecond)).Round(time.Millisecond)
}

// slowness is the factor by which this machine is slow, or as slow as others
// make it at the moment.
func slowness(t testing.TB) float64 {
	t.Helper()
	if text := os.Getenv(slowVar); text != "" {
		factor, err := strconv.ParseFloat(text, 64)
		if err != nil || !(factor >= 1 && factor <= 100) {
			t.Fatalf("%s is %q, want a factor from 1 to 100", slowVar, text)
		}
		return factor
	}
	const programs = 50
	began := time.Now()
	if err := exec.Command("bash", "--norc", "-c", fmt.Sprintf("for ((i = 0; i < %d; i++)); do /bin/true; done", programs)).Run(); err != nil {
		t.Fatal(err)
	}
	factor := slowFactor(time.Since(began) / programs)
	t.Logf("times are stretched by %.1f; %s says otherwise", factor, slowVar)
	return factor
}

// slowFactor is the factor for a machine on which a program takes so long to
// start and end; an idle one needs 1 to 1.5ms. The whole has to come to an end:
// beyond a factor of 3 the machine has to be said to be slow.
func slowFactor(program time.Duration) float64 {
	return min(max(float64(program)/float64(1500*time.Microsecond), 1), 3)
}

func TestSlowFactor(t *testing.T) {
	for _, tt := range []struct {
		program time.Duration
		want    float64
	}{{0, 1}, {time.Millisecond, 1}, {1500 * time.Microsecond, 1}, {3 * time.Millisecond, 2}, {time.Minute, 3}} {
		if got := slowFactor(tt.program); got != tt.want {
			t.Errorf("slowFactor(%v) = %v, want %v", tt.program, got, tt.want)
		}
	}
}

func TestHostileCase(t *testing.T) {
	refused := []struct{ line, want string }{
		{`{"name":"a","want":{"kind":"exited"},"surprise":1}`, "surprise"},
		{`{"name":"a","want":{"kind":"exited","surprise":1}}`, "surprise"},
		{`{"name":"a","want":{"kind":"exited"},"action":{"surprise":1}}`, "surprise"},
		{`{"name":"a"}`, "wants want or want_any"},
		{`{"name":"a","want":{"kind":"exited"},"want_any":[{"kind":"exited"}]}`, "wants want or want_any"},
		{`{"name":"a","want":{"kind":"exited"},"next":{"check":"true"}}`, "nothing is wanted of"},
		{`{"name":"a","want":{"kind":"exited"},"peer":{"check":"true"}}`, "nothing is wanted of"},
		{`{"name":"a","want":{"kind":"exited","stdout_contains":7}}`, "neither a text nor a list"},
	}
	for _, tt := range refused {
		var c hostileCase
		if err := json.Unmarshal([]byte(tt.line), &c); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("Unmarshal(%s) = %v, want an error with %q", tt.line, err, tt.want)
		}
	}
	c := hostileCase{Check: "echo", PadTo: 9}
	if got, want := c.script(), "#xxx\necho"; got != want {
		t.Errorf("script of %+v = %q, want %q", c, got, want)
	}
	c = hostileCase{Limits: map[string]int64{"wall_ms": 700, "cpu_ms": 300, "pids": 7}}
	limits, err := c.allLimits(2)
	want := "--timeout 1.4s --memory 256MiB --pids 7 --stdout-cap 1048576 --stderr-cap 1048576 --disk 64MiB --inodes 4096 --cpu-time 300ms"
	if got := limits.flags(); err != nil || strings.Join(got, " ") != want {
		t.Errorf("flags of %v = %q, %v, want %q", c.Limits, got, err, want)
	}
	c = hostileCase{Limits: map[string]int64{"nofile": 3}}
	if got, err := c.allLimits(1); err == nil {
		t.Errorf("limits of %v = %+v, want an error", c.Limits, got)
	}
}
