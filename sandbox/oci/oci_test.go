//go:build linux

package oci_test

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/checkcell/checkcell/internal/host"
	"github.com/checkcell/checkcell/sandbox"
	"github.com/checkcell/checkcell/sandbox/oci"
	"github.com/checkcell/checkcell/sandbox/sandboxtest"
)

func TestMain(m *testing.M) { os.Exit(host.Main(m)) }

// open returns a backend that the test's end closes.
func open(t testing.TB, runtime string) *oci.Backend {
	t.Helper()
	return openIn(t, oci.Config{Runtime: runtime})
}

func openIn(t testing.TB, cfg oci.Config) *oci.Backend {
	t.Helper()
	b, err := oci.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return b
}

func TestContractRunc(t *testing.T) {
	host.Need(t, host.Root, host.CgroupWritable, host.MemoryCgroup, host.PidsCgroup, host.UserNS, host.Bash, host.Runc)
	sandboxtest.Contract(t, open(t, "runc"))
}

func TestContractRunsc(t *testing.T) {
	host.Need(t, host.Root, host.CgroupWritable, host.MemoryCgroup, host.Bash, host.Runsc)
	sandboxtest.Contract(t, open(t, "runsc"), sandbox.ControlPIDs)
}

func TestContractCrun(t *testing.T) {
	host.Need(t, host.Root, host.CgroupWritable, host.CgroupPureV2, host.MemoryCgroup, host.PidsCgroup, host.UserNS, host.Bash, host.Crun)
	sandboxtest.Contract(t, open(t, "crun"))
}

// crun says of a hybrid host only in mid-run that it can't, so that is known before.
func TestCrunOnHybrid(t *testing.T) {
	host.Need(t, host.Root, host.CgroupV1, host.CgroupV2, host.Crun)
	if b, err := oci.Open(t.Context(), oci.Config{Runtime: "crun"}); err == nil || !strings.Contains(err.Error(), "use runc") {
		t.Errorf("Open = %v, %v, want an error that names runc", b, err)
	}
}

// What a runtime can't do is refused before anything is run, with its words.
func TestRefused(t *testing.T) {
	host.Need(t, host.Root, host.Runc)
	for _, tt := range []struct{ runtime, want string }{
		{"no-such-runtime", "--runtime"},
		{"/bin/true", "want NAME version VERSION"},
		{"/bin/false", "--version: exit status 1"},
	} {
		if b, err := oci.Open(t.Context(), oci.Config{Runtime: tt.runtime}); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("Open with %s = %v, %v, want an error with %q", tt.runtime, b, err, tt.want)
		}
	}
}

// The runtime's own failure is start_failed with its words, and leaves nothing.
func TestRuntimeFails(t *testing.T) {
	host.Need(t, host.Root, host.CgroupWritable, host.MemoryCgroup, host.PidsCgroup, host.UserNS, host.Bash, host.Runc)
	runtime := filepath.Join(t.TempDir(), "failing")
	script := "#!/bin/bash\ncase $1 in --version) exec runc --version ;; esac\n[ \"$3\" = run ] && { echo 'time=\"x\" level=error msg=\"no \\\"such\\\" thing\"' >&2; exit 1; }\nexec runc \"$@\"\n"
	if err := os.WriteFile(runtime, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	b := open(t, runtime)
	res := (&sandbox.Runner{Backend: b}).Run(t.Context(), sandboxtest.Spec("echo ran")).Last()
	if res.Outcome.Kind() != sandbox.KindStartFailed || !strings.HasSuffix(res.Outcome.Detail(), `: no "such" thing`) || res.Cleanup.State != sandbox.CleanupDone {
		t.Errorf("outcome = %v, cleanup %v; want start_failed with the runtime's words, done", res.Outcome, res.Cleanup)
	}
}

// The init of a container ends with its supervisor, and the next start removes what
// the runtime could not. Numbers of processes in its records may be others' by then.
func TestSweepRunc(t *testing.T) {
	host.Need(t, host.Root, host.CgroupWritable, host.MemoryCgroup, host.PidsCgroup, host.UserNS, host.Bash, host.Runc)
	crashAndSweep(t, "runc", "init_process_pid")
}

func TestSweepRunsc(t *testing.T) {
	host.Need(t, host.Root, host.CgroupWritable, host.MemoryCgroup, host.Bash, host.Runsc)
	crashAndSweep(t, "runsc", "pid")
}

// crashAndSweep has a copy of this test kill itself, with its runtime, in mid-run,
// writes the number of an innocent process over each member of the runtime's records
// that is called pidName, and sweeps.
func crashAndSweep(t *testing.T, runtime, pidName string) {
	if dir := os.Getenv(host.InnerVar); dir != "" {
		crash(t, runtime, dir)
	}
	dir := t.TempDir()                                         // not where a living checkcell may have its own
	if err := os.Chmod(filepath.Dir(dir), 0o711); err != nil { // containers' users are mapped
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), host.InnerVar+"="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(err.Error(), "signal: killed") {
		t.Fatalf("a supervisor that kills itself: %v: %s", err, out)
	}
	innocent := exec.Command("cat")
	stdin, err := innocent.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := innocent.Start(); err != nil {
		t.Fatal(err)
	}
	if n := renumber(t, dir, pidName, innocent.Process.Pid); n == 0 {
		t.Errorf("no record of %s has a member %s", runtime, pidName)
	}
	b := openIn(t, oci.Config{Dir: dir})
	if _, err := b.Sweep(t.Context()); err != nil {
		t.Errorf("Sweep: %v", err)
	}
	left, err := filepath.Glob(dir + "/oci-*")
	if err != nil || len(left) != 1 {
		t.Errorf("after the sweep there are %v, %v, want the living one's", left, err)
	}
	stdin.Close() // a pipe of ours
	if err := innocent.Wait(); err != nil {
		t.Errorf("a process that is none of the container's: %v, want exit status 0", err)
	}
}

func crash(t *testing.T, runtime, dir string) {
	b, err := oci.Open(t.Context(), oci.Config{Runtime: runtime, Dir: dir, AllowMissing: []sandbox.Control{sandbox.ControlPIDs}})
	if err != nil {
		t.Fatal(err)
	}
	box, err := b.Create(t.Context(), sandboxtest.Spec("sleep 600 & sleep 601"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := box.Start(t.Context(), sandbox.StepCheck); err != nil {
		t.Fatal(err)
	}
	_ = syscall.Kill(0, syscall.SIGKILL)
}

// renumber writes pid over each member called name in the records of crashed
// supervisors' runtimes, and returns how many there were.
func renumber(t *testing.T, dir, name string, pid int) int {
	member := regexp.MustCompile(`"` + name + `":\d+`)
	count := 0
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() || !strings.Contains(path, "/state/") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		count += len(member.FindAll(text, -1))
		return os.WriteFile(path, member.ReplaceAll(text, fmt.Appendf(nil, `"%s":%d`, name, pid)), 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
	return count
}
