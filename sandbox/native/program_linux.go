package native

import (
	"fmt"
	"slices"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A program is the set-up of a cell as data: a list of system calls that the
// cell's init makes, in order, after it was cloned into its namespaces. The
// init has one thread and no Go runtime, so it can neither allocate nor grow
// its stack; all that it needs is laid out here beforehand, in ordinary Go, in
// an arena that it maps at a fixed address.
type program struct {
	arena
	calls []call
	names []string // of each call, for an error: "mount proc on /proc"
	slots int      // how many results are kept
	err   error    // the first thing that could not be laid out
}

// call is one system call. Arguments are literal or come from a slot.
type call struct {
	nr   uintptr
	arg  [6]uintptr
	from [6]uint8      // 1 + the slot that gives this argument; 0: it is literal
	save uint8         // 1 + the slot that takes the result; 0: none
	only bool          // exact: the result must be want
	want uintptr       // the result that is needed, where exact
	let  syscall.Errno // an error that is fine; 0: none
}

// arena is memory that is written here and read where it is mapped: addresses
// in it are those of the mapping.
type arena struct {
	mem []byte
}

// arenaStart is where an init maps its arena: an address that neither Go's heap,
// a program's image nor the kernel's own choice of mappings comes near, on
// 64-bit machines with 39 bits of address space and more.
const arenaStart = 0x20_0000_0000

// add puts b into the arena, aligned for any type, and returns its address.
func (a *arena) add(b []byte) uintptr {
	for len(a.mem)%8 != 0 {
		a.mem = append(a.mem, 0)
	}
	address := arenaStart + uintptr(len(a.mem))
	a.mem = append(a.mem, b...)
	return address
}

// text puts s into the arena with a closing NUL.
func (a *arena) text(s string) uintptr {
	address := a.add([]byte(s))
	a.mem = append(a.mem, 0)
	return address
}

// texts puts a list of texts into the arena, closed by a null pointer.
func (a *arena) texts(list []string) uintptr {
	addresses := make([]uintptr, 0, len(list)+1)
	for _, s := range list {
		addresses = append(addresses, a.text(s))
	}
	return a.add(rawBytes(append(addresses, 0)...))
}

// rawBytes returns the memory of values, one after the other. T must hold no
// Go pointer.
func rawBytes[T any](values ...T) []byte {
	if len(values) == 0 {
		return nil
	}
	size := uintptr(len(values)) * unsafe.Sizeof(values[0])
	return slices.Clone(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(values))), size))
}

// Sizes that system calls are told, so that the kernel knows the version of a struct.
const (
	mountAttrBytes = unsafe.Sizeof(unix.MountAttr{})
	openHowBytes   = unsafe.Sizeof(unix.OpenHow{})
)

// maxSlots bounds the results that a program can keep at one time.
const maxSlots = 64

// slot is the place of a kept result.
type slot uint8

func (p *program) newSlot() slot {
	if p.slots == maxSlots {
		p.fail(fmt.Errorf("the cell's set-up needs more than %d descriptors at once", maxSlots))
		return 0
	}
	p.slots++
	return slot(p.slots - 1)
}

func (p *program) fail(err error) {
	if p.err == nil {
		p.err = err
	}
}

func (p *program) call(name string, c call) *call {
	p.calls = append(p.calls, c)
	p.names = append(p.names, name)
	return &p.calls[len(p.calls)-1]
}

// at is AT_FDCWD as an argument.
const at = ^uintptr(0) - 99 // -100

func (p *program) mkdir(path string, mode uint32) {
	p.call("make directory "+path, call{nr: unix.SYS_MKDIRAT, arg: [6]uintptr{at, p.text(path), uintptr(mode)}, let: unix.EEXIST})
}

func (p *program) symlink(target, path string) {
	p.call("link "+path, call{nr: unix.SYS_SYMLINKAT, arg: [6]uintptr{p.text(target), at, p.text(path)}})
}

// openTree keeps a detached copy of the mounts at path in a new slot.
func (p *program) openTree(path string) slot {
	s := p.newSlot()
	p.call("take "+path, call{nr: unix.SYS_OPEN_TREE, save: uint8(s) + 1,
		arg: [6]uintptr{at, p.text(path), unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC | unix.AT_RECURSIVE}})
	return s
}

// bind shows source at path with the given mount attributes.
func (p *program) bind(source, path string, attr uint64) {
	s := p.openTree(source)
	p.setAttr(s, path, attr)
	p.attach(s, path)
}

// setAttr changes the flags of the detached mounts in s.
func (p *program) setAttr(s slot, name string, set uint64) {
	p.call("protect "+name, call{nr: unix.SYS_MOUNT_SETATTR, from: [6]uint8{uint8(s) + 1},
		arg: [6]uintptr{0, p.text(""), unix.AT_EMPTY_PATH | unix.AT_RECURSIVE, p.mountAttr(set), mountAttrBytes}})
}

// protectPath changes the flags of the one mount at path.
func (p *program) protectPath(path string, set uint64) {
	p.call("protect "+path, call{nr: unix.SYS_MOUNT_SETATTR,
		arg: [6]uintptr{at, p.text(path), 0, p.mountAttr(set), mountAttrBytes}})
}

func (p *program) mountAttr(set uint64) uintptr {
	return p.add(rawBytes(unix.MountAttr{Attr_set: set}))
}

// attach puts the detached mounts in s at path and closes the slot.
func (p *program) attach(s slot, path string) {
	p.call("mount "+path, call{nr: unix.SYS_MOVE_MOUNT, from: [6]uint8{uint8(s) + 1},
		arg: [6]uintptr{0, p.text(""), at, p.text(path), unix.MOVE_MOUNT_F_EMPTY_PATH}})
	p.close(s)
}

func (p *program) mount(source, target, fstype string, flags uintptr, data string) {
	p.call("mount "+fstype+" on "+target, call{nr: unix.SYS_MOUNT,
		arg: [6]uintptr{p.text(source), p.text(target), p.text(fstype), flags, p.text(data)}})
}

func (p *program) detach(path string) {
	p.call("unmount "+path, call{nr: unix.SYS_UMOUNT2, arg: [6]uintptr{p.text(path), unix.MNT_DETACH}})
}

// hide takes the mount at path away, and the directory that it was on.
func (p *program) hide(path string) {
	p.detach(path)
	p.call("remove directory "+path, call{nr: unix.SYS_UNLINKAT, arg: [6]uintptr{at, p.text(path), unix.AT_REMOVEDIR}})
}

func (p *program) close(s slot) {
	p.call("close", call{nr: unix.SYS_CLOSE, from: [6]uint8{uint8(s) + 1}})
	if int(s) == p.slots-1 {
		p.slots-- // the last one taken can be taken again
	}
}

// create makes the file at path, new, and keeps its descriptor.
func (p *program) create(path string, mode uint32) slot {
	s := p.newSlot()
	p.call("make file "+path, call{nr: unix.SYS_OPENAT, save: uint8(s) + 1,
		arg: [6]uintptr{at, p.text(path), unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL | unix.O_CLOEXEC, uintptr(mode)}})
	return s
}

// touch makes an empty file to mount something on.
func (p *program) touch(path string) { p.close(p.create(path, 0o444)) }

// write makes a file that holds data.
func (p *program) write(path, data string, mode uint32) {
	s := p.create(path, mode)
	if data != "" {
		p.call("write "+path, call{nr: unix.SYS_WRITE, from: [6]uint8{uint8(s) + 1}, only: true, want: uintptr(len(data)),
			arg: [6]uintptr{0, p.text(data), uintptr(len(data))}})
	}
	p.close(s)
}

// openBeneath opens path for writing, made or emptied, so that no symbolic
// link of a workspace is followed on the way.
func (p *program) openBeneath(path string, mode uint32) slot {
	how := unix.OpenHow{
		Flags: unix.O_WRONLY | unix.O_CREAT | unix.O_TRUNC | unix.O_CLOEXEC | unix.O_NOFOLLOW, Mode: uint64(mode),
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
	}
	s := p.newSlot()
	p.call("make file "+path, call{nr: unix.SYS_OPENAT2, save: uint8(s) + 1,
		arg: [6]uintptr{at, p.text(path), p.add(rawBytes(how)), openHowBytes}})
	return s
}

// sendfile copies n bytes from descriptor in, from where it stands, to s.
func (p *program) sendfile(s slot, in int, name string, n int64) {
	const most = 1 << 30 // below the kernel's own bound of one call, MAX_RW_COUNT
	for ; n > 0; n -= most {
		part := uintptr(min(n, most))
		p.call("fill file "+name, call{nr: unix.SYS_SENDFILE, from: [6]uint8{uint8(s) + 1}, only: true, want: part,
			arg: [6]uintptr{0, uintptr(in), 0, part}})
	}
}

func (p *program) simple(name string, nr uintptr, args ...uintptr) *call {
	c := call{nr: nr}
	copy(c.arg[:], args)
	return p.call(name, c)
}

// describeCall puts a failed call in words; names are those of the program. An
// errno of 0 is a short write.
func describeCall(names []string, index uint32, errno syscall.Errno) error {
	name := "call " + fmt.Sprint(index)
	switch {
	case int(index) < len(names):
		name = names[index]
	case index == callMap:
		name = "map the cell's program"
	case index == callSignals:
		name = "be told of ended children"
	}
	switch {
	case errno == 0 && name == proofOfLandlock:
		return fmt.Errorf("%s: it was not refused", name)
	case errno == 0:
		errno = unix.ENOSPC
	case errno == unix.ELOOP:
		return fmt.Errorf("%s: a symbolic link of the workspace is in the way: %w", name, errno)
	}
	return fmt.Errorf("%s: %w", name, errno)
}
