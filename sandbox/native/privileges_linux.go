package native

import (
	"fmt"

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
	for _, r := range p.req.Spec.Process.Rlimits {
		number, ok := map[string]uintptr{"RLIMIT_CORE": unix.RLIMIT_CORE, "RLIMIT_NOFILE": unix.RLIMIT_NOFILE}[r.Type]
		if !ok {
			p.fail(fmt.Errorf("rlimit %s is not one that this backend knows", r.Type))
		}
		p.simple("set "+r.Type, unix.SYS_PRLIMIT64, 0, number, p.add(rawBytes(unix.Rlimit{Cur: r.Soft, Max: r.Hard})), 0)
	}
	if mask := p.req.Spec.Process.User.Umask; mask != nil {
		p.simple("set umask", unix.SYS_UMASK, uintptr(*mask))
	}
	p.simple("lock securebits", unix.SYS_PRCTL, unix.PR_SET_SECUREBITS, securebits)
	for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
		// EINVAL: a kernel older than these constants does not know it.
		p.simple("drop capability", unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, c).let = unix.EINVAL
	}
	p.simple("clear ambient capabilities", unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL)
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	p.simple("drop all capabilities", unix.SYS_CAPSET, p.add(rawBytes(header)), p.add(rawBytes(unix.CapUserData{}, unix.CapUserData{})))
	if p.req.Spec.Process.NoNewPrivileges {
		p.simple("set no_new_privs", unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1)
	}
	p.simple("make the init unreadable", unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 0)
}
