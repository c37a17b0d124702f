package native

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"runtime"
	"strings"
	"sync"

	"github.com/checkcell/checkcell/sandbox/cellspec"
	"golang.org/x/sys/unix"
)

// The launcher is this program, executed once more by a Backend under the name
// launcherName. It clones the init of every cell from itself: a small process
// that holds no secret and no descriptor of its parent, whose copy costs a
// tenth of executing a Go program. It ends when its supervisor does.

const (
	launcherName = "checkcell-launcher"
	launcherSock = 3
)

// RunLauncher makes this process a launcher if a Backend started it as one,
// and returns when it is done: was is true, and the caller exits with code.
// Programs that use this package call it first thing in main, before they read
// flags or start goroutines:
//
//	if code, was := native.RunLauncher(); was {
//		os.Exit(code)
//	}
func RunLauncher() (code int, was bool) {
	if len(os.Args) != 1 || os.Args[0] != launcherName {
		return 0, false
	}
	l := &launcher{sock: launcherSock, inits: map[uint64]int{}}
	if err := l.serve(); err != nil {
		fmt.Fprintln(os.Stderr, "launcher:", err)
		return 1, true
	}
	return 0, true
}

type launcher struct {
	sock int

	mu    sync.Mutex
	inits map[uint64]int // the pidfd of each cell's init that was not reaped
}

// serve takes orders until the supervisor is gone. The goroutines that it
// starts end with the process.
func (l *launcher) serve() error {
	for {
		var o order
		fds, err := receivePacket(l.sock, &o)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if o.Kill {
			l.kill(o.ID)
			continue
		}
		go l.launch(o.ID, fds)
	}
}

func (l *launcher) kill(id uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if pidfd, ok := l.inits[id]; ok {
		_ = unix.PidfdSendSignal(pidfd, unix.SIGKILL, nil, 0) // ESRCH: it has ended, which is what is wanted
	}
}

func (l *launcher) send(m message) {
	_ = sendPacket(l.sock, m) // fails only when the supervisor is gone, and then serve ends us
}

// launch clones one cell's init, says so, waits for its end and says that too.
func (l *launcher) launch(id uint64, fds []int) {
	pid, err := l.clone(id, fds)
	closeAll(fds)
	if err != nil {
		l.send(message{ID: id, Err: err.Error()})
		return
	}
	l.send(message{ID: id, PID: pid})
	for {
		_, err = unix.Wait4(pid, nil, 0, nil)
		if err != unix.EINTR {
			break
		}
	}
	l.mu.Lock()
	_ = unix.Close(l.inits[id]) // a pidfd holds nothing that could be lost
	delete(l.inits, id)
	l.mu.Unlock()
	l.send(message{ID: id, Gone: true})
}

func (l *launcher) clone(id uint64, fds []int) (int, error) {
	req, err := readRequest(fds)
	if err != nil {
		return 0, err
	}
	trees, err := openTrees(req)
	if err != nil {
		return 0, err
	}
	defer func() {
		for _, fd := range trees {
			_ = unix.Close(fd) // the init has its own copy
		}
	}()
	prog, err := plan(req, opened{keep: fds[fdControl:fdContent], content: fds[fdContent], trees: trees})
	if err != nil {
		return 0, err
	}
	a := newInitArgs(req, prog, fds)
	clone := &cloneArgs{
		flags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC |
			unix.CLONE_NEWUTS | unix.CLONE_NEWNET | unix.CLONE_PIDFD,
		exitSignal: uint64(unix.SIGCHLD),
	}
	if req.InGroup {
		clone.flags |= unix.CLONE_INTO_CGROUP
		clone.cgroup = uint64(fds[fdCount])
	}
	runtime.LockOSThread()
	pid, errno := forkInit(clone, a)
	runtime.UnlockOSThread()
	runtime.KeepAlive(prog)
	runtime.KeepAlive(a)
	if errno != 0 {
		return 0, fmt.Errorf("clone the cell's init into its namespaces: %w", errno)
	}
	l.mu.Lock()
	l.inits[id] = int(a.pidfd)
	l.mu.Unlock()
	if err := mapIDs(int(pid), req); err != nil {
		l.kill(id)
		_, _ = unix.Wait4(int(pid), nil, 0, nil) // killed just now; it had no children
		return 0, err
	}
	return int(pid), nil
}

func readRequest(fds []int) (request, error) {
	if len(fds) < fdCount {
		return request{}, fmt.Errorf("a request came with %d descriptors of %d", len(fds), fdCount)
	}
	var req request
	f := os.NewFile(uintptr(fds[fdRequest]), "request")
	fds[fdRequest] = -1 // closed here
	defer f.Close()
	if err := json.NewDecoder(f).Decode(&req); err != nil {
		return request{}, fmt.Errorf("read request: %w", err)
	}
	return req, nil
}

// treePaths lists those host paths that the cell's user, who has no rights on
// the host, may not be able to reach, so that a privileged launcher has to
// take their mounts.
func treePaths(req request) ([]string, error) {
	if !req.Privileged {
		return nil, nil
	}
	var paths []string
	if dir := req.Spec.Root.Path; dir != cellspec.HostRoot {
		names, err := imageEntries(dir)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			full := path.Join(dir, name)
			if info, err := os.Lstat(full); err == nil && (info.IsDir() || info.Mode().IsRegular()) {
				paths = append(paths, full)
			}
		}
	}
	if dir, ok := workspaceOf(req); ok {
		paths = append(paths, dir)
	}
	return paths, nil
}

// workspaceOf returns the directory that is shown as the workspace; ok is
// false where none is, or a copy.
func workspaceOf(req request) (dir string, ok bool) {
	for _, m := range req.Spec.Mounts {
		if dir, ok := cellspec.Workspace(m); ok {
			return dir, req.Overlay
		}
	}
	return "", false
}

// openTrees takes the mounts of treePaths.
func openTrees(req request) (map[string]int, error) {
	paths, err := treePaths(req)
	if err != nil {
		return nil, err
	}
	trees := map[string]int{}
	workspace, _ := workspaceOf(req)
	for _, path := range paths {
		fd, err := unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
		if err == nil {
			trees[path] = fd
			if path == workspace {
				err = idmap(fd, req)
			}
		}
		if err != nil {
			for _, fd := range trees {
				_ = unix.Close(fd) // given up
			}
			return nil, fmt.Errorf("take %s: %w", path, err)
		}
	}
	return trees, nil
}

// idmap makes what the workspace's owner owns belong to the cell's user in
// the detached mount tree (mount_setattr(2), MOUNT_ATTR_IDMAP). The mapping
// is that of a user namespace, which a process has to have been in for a moment.
func idmap(tree int, req request) error {
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		return err
	}
	defer closeAll(pipe[:])
	a := &initArgs{control: uintptr(pipe[0])} // waits for an order until it is killed
	runtime.LockOSThread()
	pid, errno := forkInit(&cloneArgs{flags: unix.CLONE_NEWUSER | unix.CLONE_PIDFD, exitSignal: uint64(unix.SIGCHLD)}, a)
	runtime.UnlockOSThread()
	runtime.KeepAlive(a)
	if errno != 0 {
		return fmt.Errorf("make a user namespace: %w", errno)
	}
	defer func() {
		_ = unix.PidfdSendSignal(int(a.pidfd), unix.SIGKILL, nil, 0) // it is our child, and it waits
		_, _ = unix.Wait4(int(pid), nil, 0, nil)
		_ = unix.Close(int(a.pidfd))
	}()
	err := writeMaps(int(pid), idPair{req.OwnerUID, req.HostUID}, idPair{req.OwnerGID, req.HostGID}, true)
	if err != nil {
		return err
	}
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/user", pid))
	if err != nil {
		return err
	}
	defer ns.Close()
	err = unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &unix.MountAttr{
		Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(ns.Fd()),
	})
	if err != nil {
		return fmt.Errorf("map its owner: %w", err)
	}
	return nil
}

// idPair is one line of a mapping: an id inside, and what it is outside.
type idPair struct{ inside, outside int }

// mapIDs maps the cell's user and group to those outside.
func mapIDs(pid int, req request) error {
	user := req.Spec.Process.User
	err := writeMaps(pid, idPair{int(user.UID), req.HostUID}, idPair{int(user.GID), req.HostGID}, req.Privileged)
	if err != nil {
		return fmt.Errorf("map the cell's user: %w", err)
	}
	return nil
}

// writeMaps maps one user and one group in the user namespace of process pid
// (user_namespaces(7)). Without privileges the kernel wants setgroups(2)
// denied first.
func writeMaps(pid int, uid, gid idPair, privileged bool) error {
	write := func(file, text string) error {
		return os.WriteFile(fmt.Sprintf("/proc/%d/%s", pid, file), []byte(text), 0)
	}
	if !privileged {
		if err := write("setgroups", "deny"); err != nil {
			return err
		}
	}
	if err := write("uid_map", fmt.Sprintf("%d %d 1\n", uid.inside, uid.outside)); err != nil {
		return err
	}
	return write("gid_map", fmt.Sprintf("%d %d 1\n", gid.inside, gid.outside))
}

// newInitArgs lays out what the init works on.
func newInitArgs(req request, prog *program, fds []int) *initArgs {
	p := req.Spec.Process
	a := &initArgs{
		calls:   prog.calls,
		control: uintptr(fds[fdControl]),
		status:  uintptr(fds[fdStatus]),
	}
	search := searchPaths(p.Args[0], p.Env)
	for i := range a.steps {
		args := p.Args
		if i == 0 && req.Spec.Annotations[cellspec.SyntaxPassAnnotation] != "" {
			args = cellspec.SyntaxArgs(args)
		}
		a.steps[i] = stepArgs{
			paths: pointers(search), argv: append(pointers(args), nil), envv: append(pointers(p.Env), nil),
			stdout: uintptr(fds[fdStdout0+2*i]), stderr: uintptr(fds[fdStderr0+2*i]),
		}
	}
	return a
}

// searchPaths lists where a program is looked for: as execvp(3) does.
func searchPaths(name string, env []string) []string {
	if strings.Contains(name, "/") {
		return []string{name}
	}
	var paths []string
	for _, dir := range strings.Split(optionOf(env, "PATH"), ":") {
		if dir != "" { // an empty part would mean the working directory
			paths = append(paths, path.Join(dir, name))
		}
	}
	return paths
}

func pointers(texts []string) []*byte {
	list := make([]*byte, 0, len(texts)+1)
	for _, s := range texts {
		b := make([]byte, len(s)+1)
		copy(b, s)
		list = append(list, &b[0])
	}
	return list
}
