//go:build linux

package oci

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/checkcell/checkcell/sandbox"
	"github.com/checkcell/checkcell/sandbox/cellhost"
	"github.com/checkcell/checkcell/sandbox/cellspec"
	"github.com/checkcell/checkcell/sandbox/container"
	"golang.org/x/sys/unix"
)

// running is a container that the runtime runs in the foreground.
type running struct {
	backend *Backend
	id      string
	who     ids
	bundle  bundle
	group   *cellhost.Group
	cmd     *exec.Cmd
	stdin   *os.File // our ends
	stdout  *os.File
	words   *cellhost.Words
	ended   chan struct{} // closed when the runtime has ended
}

// Make makes a container. See container.Maker.
func (b *Backend) Make(ctx context.Context, o container.Order) (container.Container, error) {
	r := &running{backend: b, id: fmt.Sprintf("%s-%d", filepath.Base(b.home.Dir), b.count.Add(1)), words: &cellhost.Words{}, ended: make(chan struct{})}
	err := r.make(ctx, o)
	if err == nil {
		return r, nil
	}
	if undoErr := r.Remove(ctx); undoErr != nil {
		err = errors.Join(err, fmt.Errorf("%w: %w", sandbox.ErrLeftBehind, undoErr))
	}
	return nil, err
}

func (r *running) make(ctx context.Context, o container.Order) error {
	b := r.backend
	var err error
	if r.who.root, err = b.uids.Take(); err != nil {
		return err
	}
	if r.who.user, err = b.uids.Take(); err != nil {
		return err
	}
	r.group = o.Group
	r.bundle.dir = filepath.Join(b.home.Dir, cellsName, r.id)
	if err := os.Mkdir(r.bundle.dir, 0o711); err != nil {
		return fmt.Errorf("lay out the container: %w", err)
	}
	r.cmd = b.runtime.run(filepath.Join(b.home.Dir, stateName), r.bundle.dir, r.id)
	r.cmd.Env, r.cmd.Dir, r.cmd.Stderr = []string{"PATH=" + cellspec.Path}, "/", r.words
	r.cmd.WaitDelay = lastWords // what it has started may hold its stderr
	theirs := [2]*os.File{}
	if theirs[0], r.stdin, err = os.Pipe(); err != nil {
		return fmt.Errorf("make a pipe: %w", err)
	}
	defer theirs[0].Close() // the runtime has its own copies
	if r.stdout, theirs[1], err = os.Pipe(); err != nil {
		return fmt.Errorf("make a pipe: %w", err)
	}
	defer theirs[1].Close()
	r.cmd.Stdin, r.cmd.Stdout = theirs[0], theirs[1]
	if err := onOwnThread(func() error { return r.start(o) }); err != nil {
		r.cmd.Process = nil
		return err
	}
	go func() { // until the container's end
		_ = r.cmd.Wait() // how the runtime ended is told by its words
		close(r.ended)
	}()
	return nil
}

// onOwnThread runs do on a thread that ends with it, and returns when it has ended,
// so that nobody finds it where it went. The main thread can't end, and is what
// /proc/self shows, so it is not the one.
func onOwnThread(do func() error) error {
	type end struct {
		thread int
		err    error
	}
	result := make(chan end, 1)
	var lock func()
	lock = func() {
		runtime.LockOSThread()
		if unix.Gettid() != unix.Getpid() {
			result <- end{unix.Gettid(), do()}
			return // locked, so the thread ends
		}
		done := make(chan struct{})
		go func() { // on another thread, while this one is held
			defer close(done)
			lock()
		}()
		<-done
		runtime.UnlockOSThread()
	}
	go lock()
	e := <-result
	for pause := 10 * time.Microsecond; ; pause = min(2*pause, time.Millisecond) {
		if _, err := os.Lstat(fmt.Sprintf("/proc/self/task/%d", e.thread)); err != nil {
			return e.err
		}
		time.Sleep(pause)
	}
}

// start starts the runtime in a mount namespace of its own, which has the writable
// places, and the bundle, in tmpfs: they go with the container, and are nowhere to
// be swept, or to be removed one by one from a disk. It must be called on a thread
// that nothing else will use.
func (r *running) start(o container.Order) error {
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("make a mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("keep mounts to ourselves: %w", err)
	}
	const flags = unix.MS_NOSUID | unix.MS_NODEV
	ownsKernel := r.backend.runtime.ownsKernel()
	if !ownsKernel { // runsc of December 2022 does not start from there
		if err := unix.Mount("checkcell", r.bundle.dir, "tmpfs", flags, "size=4m,mode=711"); err != nil {
			return fmt.Errorf("mount the bundle's tmpfs: %w", err)
		}
	}
	if err := r.bundle.write(o, r.backend.home.Init(), o.Group.RuntimePath(r.id), r.who, ownsKernel); err != nil {
		return fmt.Errorf("lay out the container: %w", err)
	}
	scratch := filepath.Join(r.bundle.dir, scratchName)
	data := fmt.Sprintf("size=%d,nr_inodes=%d,mode=755", cellspec.Disk(o.Limits), o.Limits.Inodes)
	if err := unix.Mount("checkcell", scratch, "tmpfs", flags, data); err != nil {
		return fmt.Errorf("mount the cell's tmpfs: %w", err)
	}
	for _, p := range r.bundle.root.Writable {
		mode, err := strconv.ParseUint(p.Mode, 8, 32)
		if err != nil {
			return fmt.Errorf("mode of %s: %w", p.Path, err)
		}
		dir := r.bundle.scratch(p)
		// By system calls, since os.FileMode has the sticky bit elsewhere.
		if err := errors.Join(unix.Mkdir(dir, 0o700), unix.Chmod(dir, uint32(mode)), os.Chown(dir, r.who.user, r.who.user)); err != nil {
			return fmt.Errorf("make %s in the cell's tmpfs: %w", p.Path, err)
		}
	}
	if err := o.Group.Enter(!ownsKernel); err != nil {
		return err
	}
	if fd, ok := o.Group.FD(); ok && ownsKernel {
		r.cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: fd}
	}
	if err := r.cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", r.backend.runtime.path, err)
	}
	return nil
}

// Stdin is that of the container's process 1.
func (r *running) Stdin() io.WriteCloser { return r.stdin }

// Stdout is that of the container's process 1.
func (r *running) Stdout() io.Reader { return r.stdout }

// Process finds the container's process 1: the one child of the runtime that is
// process 1 of a PID namespace (NSpid of proc_pid_status(5)).
func (r *running) Process(context.Context) (container.Process, error) {
	if r.backend.runtime.ownsKernel() {
		return r.kernel()
	}
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", r.cmd.Process.Pid))
	if err != nil {
		return container.Process{}, err
	}
	for _, task := range tasks {
		list, err := os.ReadFile(task)
		if err != nil {
			continue // the thread has ended
		}
		for _, child := range strings.Fields(string(list)) {
			pid, err := strconv.Atoi(child)
			if err == nil && firstOfNamespace(pid) {
				return container.Process{PID: pid, UID: r.who.user, UserNS: true}, nil
			}
		}
	}
	return container.Process{}, fmt.Errorf("find the container's first process: none of the children of %s is one", r.backend.runtime.name)
}

// kernel finds the process of gVisor's kernel, in our group.
func (r *running) kernel() (container.Process, error) {
	members, err := r.group.Members()
	if err != nil {
		return container.Process{}, fmt.Errorf("find the container's kernel: %w", err)
	}
	for _, pid := range members {
		args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err == nil && strings.HasPrefix(string(args), "runsc-sandbox\x00") {
			return container.Process{PID: pid, Guest: &cellhost.Guest{
				Kernel: "gVisor (" + r.backend.runtime.String() + ")", Scratch: fmt.Sprintf("/proc/%d/root%s", r.cmd.Process.Pid, filepath.Join(r.bundle.dir, scratchName)),
			}}, nil
		}
	}
	return container.Process{}, errors.New("find the container's kernel: no process of our group is runsc-sandbox")
}

// firstOfNamespace reports whether a process is number 1 of a PID namespace below ours.
func firstOfNamespace(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(text)) {
		if ids, ok := strings.CutPrefix(line, "NSpid:"); ok {
			f := strings.Fields(ids)
			return len(f) > 1 && f[len(f)-1] == "1"
		}
	}
	return false
}

// lastWords is how long a runtime that failed may take to end.
const lastWords = 2 * time.Second

// Words waits for the runtime's end, and returns what it said.
func (r *running) Words(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, lastWords)
	defer cancel()
	select {
	case <-r.ended:
	case <-ctx.Done():
	}
	return said(r.words.String())
}

// removeBudget is how long the runtime may take to remove what it left.
const removeBudget = 10 * time.Second

// Remove waits for the runtime, which ends when the container has and is removed,
// and removes what we made. See container.Container.
func (r *running) Remove(ctx context.Context) error {
	b := r.backend
	if r.cmd != nil && r.cmd.Process != nil {
		select {
		case <-r.ended:
		case <-ctx.Done():
			_ = r.cmd.Process.Kill() // it does not end by itself
			<-r.ended
		}
	}
	for _, f := range []*os.File{r.stdin, r.stdout} {
		if f != nil {
			f.Close() // closed before, or nobody reads it any more
		}
	}
	state := filepath.Join(b.home.Dir, stateName)
	if _, err := os.Lstat(filepath.Join(state, r.id)); !errors.Is(err, fs.ErrNotExist) {
		own, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), removeBudget, fmt.Errorf("it took longer than %v", removeBudget))
		defer cancel()
		if err := b.runtime.remove(own, state, r.id); err != nil {
			return err
		}
	}
	if r.bundle.dir != "" {
		if err := os.RemoveAll(r.bundle.dir); err != nil {
			return err
		}
	}
	for _, id := range []int{r.who.root, r.who.user} {
		if id != 0 {
			b.uids.Give(id)
		}
	}
	r.who = ids{}
	return nil
}
