package native

import (
	"context"
	"fmt"
	"os"
	"path"

	"github.com/checkcell/checkcell/sandbox/cellinit"
	"github.com/checkcell/checkcell/sandbox/cellspec"
	"golang.org/x/sys/unix"
)

// treePaths lists those host paths that the cell's user, who has no rights on
// the host, may not be able to reach, so that we have to take their mounts,
// where we are privileged.
func treePaths(req request) ([]string, error) {
	if !req.Privileged {
		return nil, nil
	}
	var paths []string
	if dir := req.Root; dir != "" {
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

// openTrees takes detached mounts of treePaths, in that order. The caller
// closes them.
func (x *box) openTrees() ([]*os.File, []string, error) {
	paths, err := treePaths(x.req)
	if err != nil {
		return nil, nil, err
	}
	workspace, _ := workspaceOf(x.req)
	var trees []*os.File
	for _, path := range paths {
		fd, err := unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
		if err == nil {
			trees = append(trees, os.NewFile(uintptr(fd), path))
			if path == workspace {
				err = x.idmap(fd)
			}
		}
		if err != nil {
			for _, f := range trees {
				f.Close() // given up
			}
			return nil, nil, fmt.Errorf("take %s: %w", path, err)
		}
	}
	return trees, paths, nil
}

// idmap makes what the workspace's owner owns belong to the cell's user in
// the detached mount tree (mount_setattr(2), MOUNT_ATTR_IDMAP). The mapping
// is that of a user namespace, which a process has to have been in for a moment.
func (x *box) idmap(tree int) error {
	idle := cellinit.Idle()
	arena, err := memoryFile("checkcell-arena", idle)
	if err != nil {
		return err
	}
	defer arena.Close()
	theirs, ours, err := os.Pipe()
	if err != nil {
		return err
	}
	defer theirs.Close()
	// An init without a program: it waits for an order, and ends without one.
	pid, pidfd, err := x.link.clone(cloneRequest{flags: unix.CLONE_NEWUSER, arenaBytes: uint64(len(idle))},
		[]int{int(arena.Fd()), int(arena.Fd()), int(theirs.Fd())})
	if err != nil {
		ours.Close()
		return err
	}
	defer pidfd.Close()
	defer waitGone(context.Background(), pidfd) // it is about to end
	defer ours.Close()
	if err := writeMaps(pid, idPair{x.req.OwnerUID, x.req.HostUID}, idPair{x.req.OwnerGID, x.req.HostGID}, true); err != nil {
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
func (x *box) mapIDs() error {
	user := x.req.Spec.Process.User
	err := writeMaps(x.pid, idPair{int(user.UID), x.req.HostUID}, idPair{int(user.GID), x.req.HostGID}, x.req.Privileged)
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
