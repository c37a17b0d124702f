package native

import (
	"github.com/checkcell/checkcell/sandbox/cellhost"
	"github.com/checkcell/checkcell/sandbox/cellinit"
	"golang.org/x/sys/unix"
)

// securebits that give no program of the cell a capability for being run by
// root or for having root's id, locked (capabilities(7)). The constants are
// those of linux/securebits.h.
const securebits = 1<<0 | 1<<1 | // NOROOT, locked
	1<<2 | 1<<3 | // NO_SETUID_FIXUP, locked
	1<<5 | // KEEP_CAPS locked at off
	1<<6 | 1<<7 // NO_CAP_AMBIENT_RAISE, locked

// dropPrivileges is the last part of the set-up: limits per process, and no
// way to a capability or a privilege from here on.
func (p *planner) dropPrivileges() {
	p.rlimits()
	if mask := p.req.Spec.Process.User.Umask; mask != nil {
		p.Simple("set umask", unix.SYS_UMASK, uintptr(*mask))
	}
	// A session keyring of its own (keyrings(7)); ENOSYS: a kernel without keys.
	p.Simple("join a session keyring", unix.SYS_KEYCTL, unix.KEYCTL_JOIN_SESSION_KEYRING, 0).Let = unix.ENOSYS
	p.Simple("lock securebits", unix.SYS_PRCTL, unix.PR_SET_SECUREBITS, securebits)
	for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
		// EINVAL: a kernel older than these constants does not know it.
		p.Simple("drop capability", unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, c).Let = unix.EINVAL
	}
	p.Simple("clear ambient capabilities", unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL)
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	p.Simple("drop all capabilities", unix.SYS_CAPSET, p.Add(cellinit.Raw(header)), p.Add(cellinit.Raw(unix.CapUserData{}, unix.CapUserData{})))
	if p.req.Spec.Process.NoNewPrivileges {
		p.Simple("set no_new_privs", unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1)
	}
	p.Simple("make the init unreadable", unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 0)
	p.filter()
}

// rlimits sets the limits per process.
func (p *planner) rlimits() {
	limits, err := cellhost.Rlimits(p.req.Spec.Process.Rlimits)
	if err != nil {
		p.Fail(err)
	}
	for _, r := range limits {
		p.Simple("set "+r.Type, unix.SYS_PRLIMIT64, 0, uintptr(cellhost.RlimitNumber(r)), p.Add(cellinit.Raw(unix.Rlimit{Cur: r.Soft, Max: r.Hard})), 0)
	}
}

// filter installs the seccomp filter. From here on the init is bound by it
// too.
func (p *planner) filter() {
	if p.req.Spec.Linux.Seccomp == nil {
		return
	}
	filter, err := compileFilter(p.req.Spec.Linux.Seccomp)
	if err != nil {
		p.Fail(err)
		return
	}
	prog := struct { // struct sock_fprog
		length  uint16
		_       [6]byte
		address uintptr
	}{length: uint16(len(filter)), address: p.Add(cellinit.Raw(filter...))}
	p.Simple("install the seccomp filter", unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, p.Add(cellinit.Raw(prog)))
}
