package native

import (
	"unsafe"

	"github.com/checkcell/checkcell/sandbox/cellinit"
	"golang.org/x/sys/unix"
)

// openTree keeps a detached copy of the mounts at path in a new slot.
func (p *planner) openTree(path string) cellinit.Slot {
	s := p.NewSlot()
	p.Call("take "+path, cellinit.Call{Nr: unix.SYS_OPEN_TREE, Save: s,
		Arg: [6]uintptr{cellinit.AtCwd, p.Text(path), unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC | unix.AT_RECURSIVE}})
	return s
}

// bind shows source at path with the given mount attributes.
func (p *planner) bind(source, path string, attr uint64) {
	s := p.openTree(source)
	p.setAttr(s, path, attr)
	p.attach(s, path)
}

// setAttr changes the flags of the detached mounts in s.
func (p *planner) setAttr(s cellinit.Slot, name string, set uint64) {
	p.Call("protect "+name, cellinit.Call{Nr: unix.SYS_MOUNT_SETATTR, From: [6]cellinit.Slot{s},
		Arg: [6]uintptr{0, p.Text(""), unix.AT_EMPTY_PATH | unix.AT_RECURSIVE, p.mountAttr(set), unsafe.Sizeof(unix.MountAttr{})}})
}

// protectPath changes the flags of the one mount at path.
func (p *planner) protectPath(path string, set uint64) {
	p.Call("protect "+path, cellinit.Call{Nr: unix.SYS_MOUNT_SETATTR,
		Arg: [6]uintptr{cellinit.AtCwd, p.Text(path), 0, p.mountAttr(set), unsafe.Sizeof(unix.MountAttr{})}})
}

func (p *planner) mountAttr(set uint64) uintptr {
	return p.Add(cellinit.Raw(unix.MountAttr{Attr_set: set}))
}

// attach puts the detached mounts in s at path and closes the slot.
func (p *planner) attach(s cellinit.Slot, path string) {
	p.Call("mount "+path, cellinit.Call{Nr: unix.SYS_MOVE_MOUNT, From: [6]cellinit.Slot{s},
		Arg: [6]uintptr{0, p.Text(""), cellinit.AtCwd, p.Text(path), unix.MOVE_MOUNT_F_EMPTY_PATH}})
	p.Close(s)
}

func (p *planner) mount(source, target, fstype string, flags uintptr, data string) {
	p.Call("mount "+fstype+" on "+target, cellinit.Call{Nr: unix.SYS_MOUNT,
		Arg: [6]uintptr{p.Text(source), p.Text(target), p.Text(fstype), flags, p.Text(data)}})
}

func (p *planner) detach(path string) {
	p.Call("unmount "+path, cellinit.Call{Nr: unix.SYS_UMOUNT2, Arg: [6]uintptr{p.Text(path), unix.MNT_DETACH}})
}

// hide takes the mount at path away, and the directory that it was on.
func (p *planner) hide(path string) {
	p.detach(path)
	p.Call("remove directory "+path, cellinit.Call{Nr: unix.SYS_UNLINKAT, Arg: [6]uintptr{cellinit.AtCwd, p.Text(path), unix.AT_REMOVEDIR}})
}

// create makes the file at path, new, and keeps its descriptor.
func (p *planner) create(path string, mode uint32) cellinit.Slot {
	s := p.NewSlot()
	p.Call("make file "+path, cellinit.Call{Nr: unix.SYS_OPENAT, Save: s,
		Arg: [6]uintptr{cellinit.AtCwd, p.Text(path), unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL | unix.O_CLOEXEC, uintptr(mode)}})
	return s
}

// touch makes an empty file to mount something on.
func (p *planner) touch(path string) { p.Close(p.create(path, 0o444)) }

// write makes a file that holds data.
func (p *planner) write(path, data string, mode uint32) {
	s := p.create(path, mode)
	if data != "" {
		p.Call("write "+path, cellinit.Call{Nr: unix.SYS_WRITE, From: [6]cellinit.Slot{s}, Only: true, Want: uintptr(len(data)),
			Arg: [6]uintptr{0, p.Text(data), uintptr(len(data))}})
	}
	p.Close(s)
}
