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
	p.rlimits()
	if mask := p.req.Spec.Process.User.Umask; mask != nil {
		p.simple("set umask", unix.SYS_UMASK, uintptr(*mask))
	}
	// A session keyring of its own (keyrings(7)); ENOSYS: a kernel without keys.
	p.simple("join a session keyring", unix.SYS_KEYCTL, unix.KEYCTL_JOIN_SESSION_KEYRING, 0).let = unix.ENOSYS
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
	p.filter()
}

// rlimits sets the limits per process. The cell's user can raise no hard
// limit, so one that the description does not insist on is cut to ours.
func (p *planner) rlimits() {
	numbers := map[string]int{
		"RLIMIT_CORE": unix.RLIMIT_CORE, "RLIMIT_NOFILE": unix.RLIMIT_NOFILE, "RLIMIT_STACK": unix.RLIMIT_STACK,
		"RLIMIT_FSIZE": unix.RLIMIT_FSIZE, "RLIMIT_CPU": unix.RLIMIT_CPU, "RLIMIT_DATA": unix.RLIMIT_DATA, "RLIMIT_AS": unix.RLIMIT_AS,
		"RLIMIT_NPROC": unix.RLIMIT_NPROC, "RLIMIT_MEMLOCK": unix.RLIMIT_MEMLOCK, "RLIMIT_NICE": unix.RLIMIT_NICE, "RLIMIT_RTPRIO": unix.RLIMIT_RTPRIO,
	}
	for _, r := range p.req.Spec.Process.Rlimits {
		number, ok := numbers[r.Type]
		if !ok {
			p.fail(fmt.Errorf("rlimit %s is not one that this backend knows", r.Type))
			continue
		}
		limit := unix.Rlimit{Cur: r.Soft, Max: r.Hard}
		var ours unix.Rlimit
		if err := unix.Getrlimit(number, &ours); err != nil {
			p.fail(fmt.Errorf("rlimit %s: %w", r.Type, err))
		}
		if r.Type != "RLIMIT_NOFILE" {
			limit.Max = min(limit.Max, ours.Max)
			limit.Cur = min(limit.Cur, limit.Max)
		}
		p.simple("set "+r.Type, unix.SYS_PRLIMIT64, 0, uintptr(number), p.add(rawBytes(limit)), 0)
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
		p.fail(err)
		return
	}
	prog := struct { // struct sock_fprog
		length  uint16
		_       [6]byte
		address uintptr
	}{length: uint16(len(filter)), address: p.add(rawBytes(filter...))}
	p.simple("install the seccomp filter", unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, p.add(rawBytes(prog)))
}
