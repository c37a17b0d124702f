//go:build linux

package cellhost

import (
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestDoomed(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	if doomed(pid) {
		t.Error("doomed(a process that sleeps) = true, want false")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	// From the kill to the zombie there is no moment in which it lives.
	for deadline := time.Now().Add(50 * time.Millisecond); time.Now().Before(deadline); {
		if !doomed(pid) {
			t.Fatal("doomed(a process that was killed) = false, want true")
		}
	}
	if err := cmd.Wait(); err == nil || cmd.ProcessState.Sys().(interface{ Signal() unix.Signal }).Signal() != unix.SIGKILL {
		t.Fatalf("Wait = %v, want a death by signal 9", err)
	}
	if !doomed(pid) {
		t.Error("doomed(a process that is gone) = false, want true")
	}
}
