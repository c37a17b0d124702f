package cgroup

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/checkcell/checkcell/internal/host"
)

func TestRemainingError(t *testing.T) {
	broken := errors.New("broken")
	for _, tt := range []struct {
		err  RemainingError
		want string
	}{
		{RemainingError{"run", []Process{{7, 'D', "cat", 1}, {9, '?', "", 1}}, broken}, `group run still has processes: 7 ("cat") D, 9 ("") ?: broken`},
		{RemainingError{"run", nil, broken}, "group run still has processes that can't be seen from here: broken"},
	} {
		if got := tt.err.Error(); got != tt.want {
			t.Errorf("Error() = %q, want %q", got, tt.want)
		}
		if !errors.Is(&tt.err, broken) {
			t.Errorf("errors.Is(%v, broken) = false, want true", &tt.err)
		}
	}
}

func TestPause(t *testing.T) {
	var p pause
	total, last := time.Duration(0), time.Duration(0)
	for range 40 {
		if err := p.sleep(t.Context(), nil); err != nil {
			t.Fatalf("sleep() = %v, want nil", err)
		}
		if p.last < last || p.last > longPause {
			t.Errorf("wait of %v after %v, want them to grow to %v", p.last, last, longPause)
		}
		last = p.last
		total += last
	}
	if !p.long() || total < 100*time.Millisecond {
		t.Errorf("after 40 waits long() = %v, total %v, want the longest reached", p.long(), total)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	cancel(enough)
	if err := p.sleep(ctx, nil); err != enough {
		t.Errorf("sleep() of a canceled context = %v, want its cause", err)
	}
}

func TestReadProcess(t *testing.T) {
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p, ok, err := readProcess(cmd.Process.Pid)
	if p.PID != cmd.Process.Pid || p.dead() || !ok || err != nil {
		t.Errorf("readProcess(%d) = %v, %v, %v, want it alive", cmd.Process.Pid, p, ok, err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	reap(t, cmd)
	if p, ok, err := readProcess(cmd.Process.Pid); ok || err != nil {
		t.Errorf("readProcess(%d) of a reaped process = %v, %v, %v, want false, nil", cmd.Process.Pid, p, ok, err)
	}
}

// TestReadProcessHidden has a process that /proc doesn't show: it is there.
func TestReadProcessHidden(t *testing.T) {
	host.Need(t, host.Root)
	cmd := programCommand("hidden")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	got, err := cmd.Output()
	if want := "true ? false true <nil>\n"; string(got) != want || err != nil {
		t.Errorf("readProcess of a hidden process: %q, %v, want %q", got, err, want)
	}
}

func TestSignalByNumber(t *testing.T) {
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := signalByNumber([]int{1 << 30, cmd.Process.Pid}); err != nil { // the first doesn't exist
		t.Errorf("signalByNumber() = %v, want nil", err)
	}
	reap(t, cmd)
}

// An id that is in use, but not as that of a process, is what a kernel sees of
// one that is being reaped.
func TestPin(t *testing.T) {
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	fd, ok, err := pin(cmd.Process.Pid)
	if err != nil || !ok {
		t.Fatalf("pin(%d) = %d, %v, %v, want a descriptor", cmd.Process.Pid, fd, ok, err)
	}
	defer unix.Close(fd)
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil {
		t.Fatal(err)
	}
	reap(t, cmd)
	thread, done := make(chan int), make(chan struct{})
	go func() { // ends with done
		runtime.LockOSThread()
		thread <- unix.Gettid()
		<-done
	}()
	defer close(done)
	other := <-thread
	if other == os.Getpid() { // the first thread is the process; take this one
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		other = unix.Gettid()
	}
	for _, id := range []int{cmd.Process.Pid, other} {
		if fd, ok, err := pin(id); ok || err != nil {
			t.Errorf("pin(%d) = %d, %v, %v, want false, nil", id, fd, ok, err)
		}
	}
}
