package cgroup

import (
	"context"
	"errors"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/checkcell/checkcell/internal/host"
	"golang.org/x/sys/unix"
)

// What a thread that entered starts is a member from its birth. While the thread is
// there the kill does not take our own process for one, and proves nothing.
func TestEnter(t *testing.T) {
	host.Need(t, host.Root, host.CgroupWritable, host.CgroupV1, host.MemoryCgroup, host.PidsCgroup)
	each(t, func(t *testing.T, h *Host) {
		g := create(t, h, "run", nil)
		if h.Mode() == ModeV2 {
			return // nothing is entered there
		}
		started, leave, left := make(chan *exec.Cmd, 1), make(chan struct{}), make(chan int, 1)
		var enter func()
		enter = func() {
			runtime.LockOSThread() // and never unlocked, so the thread ends
			if unix.Gettid() == unix.Getpid() {
				go enter() // the main thread can't end
				<-leave
				runtime.UnlockOSThread()
				return
			}
			cmd := exec.Command("sleep", "600")
			if fd, ok := g.FD(); ok {
				cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: fd}
			}
			if err := errors.Join(g.Enter(), cmd.Start()); err != nil {
				t.Error(err)
			}
			started <- cmd
			<-leave
			left <- unix.Gettid()
		}
		go enter()
		cmd := <-started
		if cmd == nil || cmd.Process == nil {
			t.Fatal("nothing was started")
		}
		if members, err := g.Members(); err != nil || !slices.Contains(members, cmd.Process.Pid) {
			t.Errorf("members %v, %v, want %d among them", members, err, cmd.Process.Pid)
		}
		short, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		var remaining *RemainingError
		if err := g.Kill(short); !errors.As(err, &remaining) {
			t.Errorf("Kill with a thread of ours in the group = %v, want that somebody remains", err)
		}
		if err := cmd.Wait(); err == nil {
			t.Error("what the thread started was not killed")
		}
		close(leave)
		tid := <-left
		for unix.Access("/proc/self/task/"+strconv.Itoa(tid), unix.F_OK) == nil {
			time.Sleep(time.Millisecond)
		}
		if err := g.Kill(t.Context()); err != nil {
			t.Errorf("Kill = %v", err)
		}
	})
}
