package native

import (
	"unsafe"

	"github.com/checkcell/checkcell/sandbox/cellinit"
	"golang.org/x/sys/unix"
)

// Landlock (Documentation/userspace-api/landlock.rst) is a second wall behind
// the mounts: what a check reaches by a path has to lie below the cell's root,
// and is written only where the cell has writable places; signals and abstract
// sockets stay inside. It forbids nothing that the mounts and namespaces allow,
// so a check sees the same errors with and without it, and a verdict does not
// depend on the kernel. It counts where another wall has a hole: a directory
// handle that leaked, a mount that should not be there.

// landlockLeast is the first version that lets links and renames between
// directories be allowed (Linux 5.19). An older one would forbid them.
const landlockLeast = 2

// Access rights by the version that brought them.
const (
	landlockRead  = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	landlockWrite = unix.LANDLOCK_ACCESS_FS_WRITE_FILE
	landlockMake  = unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE | unix.LANDLOCK_ACCESS_FS_REFER |
		unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_REG | unix.LANDLOCK_ACCESS_FS_MAKE_SYM | unix.LANDLOCK_ACCESS_FS_MAKE_SOCK |
		unix.LANDLOCK_ACCESS_FS_MAKE_FIFO | unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK

	landlockTruncates, landlockScopes = 3, 6
)

// landlockABI is the version of Landlock that the kernel has; 0 is none.
func landlockABI() int {
	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 || abi < landlockLeast { // ENOSYS, or EOPNOTSUPP where it was turned off at boot
		return 0
	}
	return int(abi)
}

// landlock puts the init, and all that comes of it, into a domain of its own,
// and proves that it holds.
func (p *planner) landlock() {
	abi := p.req.Landlock
	if abi == 0 {
		return
	}
	write := uint64(landlockWrite)
	if abi >= landlockTruncates {
		write |= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	all := unix.LandlockRulesetAttr{Handled_access_fs: landlockRead | write | landlockMake}
	if abi >= landlockScopes {
		all.Scoped = unix.LANDLOCK_SCOPE_SIGNAL | unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET
	}
	rules := p.NewSlot()
	p.Call("make a Landlock ruleset", cellinit.Call{Nr: unix.SYS_LANDLOCK_CREATE_RULESET, Save: rules,
		Arg: [6]uintptr{p.Add(cellinit.Raw(all)), unsafe.Sizeof(all)}}) // a kernel that knows a shorter struct wants the rest to be 0
	p.landlockAllow(rules, "/", landlockRead)
	for _, dir := range []string{"/dev", "/proc"} { // devices, and a process's own entries
		p.landlockAllow(rules, dir, landlockRead|write)
	}
	for _, dir := range p.writable {
		p.landlockAllow(rules, "/"+dir, all.Handled_access_fs)
	}
	p.Call("enter the Landlock domain", cellinit.Call{Nr: unix.SYS_LANDLOCK_RESTRICT_SELF, From: [6]cellinit.Slot{rules}})
	p.Close(rules)
	// In a domain nobody may change mounts. The init still has the capability, and
	// the change is none, so a refusal is the domain's.
	p.Call(proofOfLandlock, cellinit.Call{Nr: unix.SYS_MOUNT, Arg: [6]uintptr{0, p.Text("/"), 0, unix.MS_PRIVATE},
		Let: unix.EPERM, Only: true, Want: ^uintptr(0)})
}

// proofOfLandlock names the call that fails unless the domain holds.
const proofOfLandlock = cellinit.Refused + "a mount by Landlock"

// landlockFD is where a rule finds its directory: the kernel reads the number
// from memory, where no slot reaches.
const landlockFD = cellinit.FdMore + maxRights

// landlockAllow allows access to all that is below dir.
func (p *planner) landlockAllow(rules cellinit.Slot, dir string, access uint64) {
	s := p.NewSlot()
	p.Call("open "+dir, cellinit.Call{Nr: unix.SYS_OPENAT, Save: s, Arg: [6]uintptr{cellinit.AtCwd, p.Text(dir), unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC}})
	p.Call("open "+dir, cellinit.Call{Nr: unix.SYS_DUP3, From: [6]cellinit.Slot{s}, Arg: [6]uintptr{0, landlockFD, unix.O_CLOEXEC}})
	p.Close(s)
	rule := unix.LandlockPathBeneathAttr{Allowed_access: access, Parent_fd: landlockFD}
	p.Call("allow access below "+dir, cellinit.Call{Nr: unix.SYS_LANDLOCK_ADD_RULE, From: [6]cellinit.Slot{rules},
		Arg: [6]uintptr{0, unix.LANDLOCK_RULE_PATH_BENEATH, p.Add(cellinit.Raw(rule))}})
	p.Simple("close", unix.SYS_CLOSE, landlockFD)
}
