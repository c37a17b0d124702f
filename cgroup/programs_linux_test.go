package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"time"
)

// chain is a tree of $DEPTH processes, each in a session of its own. The last
// one says ready.
func chain() error {
	awaitGo()
	depth, err := strconv.Atoi(os.Getenv("DEPTH"))
	if err != nil || depth <= 1 {
		return announce("ready")
	}
	cmd := programCommand("chain", "DEPTH="+strconv.Itoa(depth-1))
	cmd.Stdout = os.Stdout
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd.Start()
}

// burn uses a CPU for 100 ms.
func burn() error {
	awaitGo()
	for start := time.Now(); time.Since(start) < 100*time.Millisecond; {
	}
	return nil
}

// eat takes memory until it is killed.
func eat() error {
	awaitGo()
	var kept [][]byte
	for {
		block := make([]byte, 1<<20)
		for i := 0; i < len(block); i += 4096 {
			block[i] = 1
		}
		kept = append(kept, block)
		if len(kept) > 4096 {
			return fmt.Errorf("ate %d MiB and was not stopped", len(kept))
		}
	}
}

// zombie has a child that has ended and isn't reaped, and says its id.
func zombie() error {
	awaitGo()
	cmd := programCommand("exit")
	if err := cmd.Start(); err != nil {
		return err
	}
	for {
		p, ok, err := readProcess(cmd.Process.Pid)
		if err != nil || !ok {
			return fmt.Errorf("look at child: %v, %v", ok, err)
		}
		if p.dead() {
			return announce(p.PID)
		}
		time.Sleep(time.Millisecond)
	}
}

// headless ends the first thread of its process and goes on in another.
func headless() error {
	awaitGo()
	done := make(chan bool)
	for range 1000 {
		go func() {
			runtime.LockOSThread()
			if syscall.Gettid() == os.Getpid() {
				close(done)
				syscall.Syscall(syscall.SYS_EXIT, 0, 0, 0) // ends this thread only
			}
			<-done
		}()
	}
	<-done
	for {
		p, ok, err := readProcess(os.Getpid())
		if err != nil || !ok {
			return fmt.Errorf("look at myself: %v, %v", ok, err)
		}
		if p.State == 'Z' {
			return announce("ready")
		}
		time.Sleep(time.Millisecond)
	}
}

// owner owns a Host with a group in which a process sleeps, and says the name of
// the Host and the id of the process.
func owner() error {
	h, err := Open(config())
	if err != nil {
		return err
	}
	g, err := h.Create("run", nil)
	if err != nil {
		return err
	}
	cmd, err := sleeper(g)
	if err != nil {
		return err
	}
	return announce(h.name, cmd.Process.Pid)
}

// sleeper starts a process that sleeps in g.
func sleeper(g *Group) (*exec.Cmd, error) {
	cmd := programCommand("sleep")
	if fd, ok := g.FD(); ok {
		cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: fd}
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return cmd, g.Add(cmd.Process.Pid)
}

// churn owns Hosts, runs and sweeps, one after the other, beside others that do
// the same. A run that is disturbed is an error.
func churn() error {
	for i := range 15 {
		if err := churnOnce(); err != nil {
			return fmt.Errorf("round %d: %w", i, err)
		}
	}
	return nil
}

func churnOnce() error {
	h, err := Open(config())
	if err != nil {
		return err
	}
	if err := runOnce(h); err != nil {
		return err
	}
	return h.Close()
}

// runOnce runs something in a group of h, sweeps meanwhile, and ends it.
func runOnce(h *Host) error {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	g, err := h.Create("run", limit(64<<20, 100))
	if err != nil {
		return err
	}
	cmd, err := sleeper(g)
	if err != nil {
		return err
	}
	if _, err := h.Sweep(ctx); err != nil {
		return err
	}
	pids, err := g.Members()
	if err != nil || len(pids) != 1 || pids[0] != cmd.Process.Pid {
		return fmt.Errorf("Members() = %v, %v, want [%d]", pids, err, cmd.Process.Pid)
	}
	if err := g.Kill(ctx); err != nil {
		return err
	}
	if err := cmd.Wait(); cmd.ProcessState == nil {
		return err
	}
	return g.Remove(ctx)
}

// sweeper sweeps once from a PID namespace of its own, and says what it swept.
func sweeper() error {
	if err := syscall.Mount("none", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return err
	}
	if h, err := Open(config()); err == nil {
		return errors.Join(errors.New("Open with the /proc of another PID namespace = nil, want an error"), h.Close())
	}
	if err := syscall.Mount("none", "/proc", "proc", 0, ""); err != nil {
		return err
	}
	h, err := Open(config())
	if err != nil {
		return err
	}
	patience, err := time.ParseDuration(os.Getenv("PATIENCE"))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	swept, sweepErr := h.Sweep(ctx)
	if err := h.Close(); err != nil {
		return err
	}
	return announce("swept", swept.Runs, swept.Processes, sweepErr)
}

// hidden looks at its parent, which its /proc doesn't show.
func hidden() error {
	if err := syscall.Mount("none", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return err
	}
	parent := os.Getppid()
	if err := syscall.Mount("none", "/proc", "tmpfs", 0, ""); err != nil {
		return err
	}
	p, ok, err := readProcess(parent)
	return announce(p.PID == parent, string(p.State), p.dead(), ok, err)
}

// settler opens a Host where it was put, runs something in a group of it, closes
// it, and says where it was itself meanwhile.
func settler() error {
	awaitGo()
	if err := remount(os.Getenv("REMOUNT"), os.Getenv("READONLY")); err != nil {
		return err
	}
	h, err := Open(config())
	if err != nil {
		var missing *MissingError
		return announce("failed", errors.As(err, &missing), err)
	}
	own, err := position()
	if err != nil {
		return err
	}
	if err := announce("open", own, h.all[0].parent.path()); err != nil {
		return err
	}
	second, err := Open(config()) // from where the first one moved us
	if err != nil {
		return err
	}
	if err := errors.Join(runOnce(h), runOnce(second), second.Close(), h.Close()); err != nil {
		return err
	}
	if own, err = position(); err != nil {
		return err
	}
	return announce("closed", own)
}

// remount sets the mounts up as in a container: cgroup2 at own made anew, so that
// our own group is seen as the root, or that at readOnly not to be written to.
func remount(own, readOnly string) error {
	if own == "" && readOnly == "" {
		return nil
	}
	if err := syscall.Mount("none", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return err
	}
	if own != "" {
		if err := syscall.Unmount(own, syscall.MNT_DETACH); err != nil {
			return err
		}
		return syscall.Mount("none", own, "cgroup2", 0, "")
	}
	return syscall.Mount("none", readOnly, "", syscall.MS_REMOUNT|syscall.MS_BIND|syscall.MS_RDONLY, "")
}

// position is our own group on cgroup2.
func position() (string, error) {
	f, err := os.Open("/proc/self/cgroup")
	if err != nil {
		return "", err
	}
	defer f.Close()
	self, err := parsePositions(f)
	return self.v2, err
}
