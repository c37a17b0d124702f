package native

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/checkcell/checkcell/cgroup"
	"github.com/checkcell/checkcell/sandbox"
	"github.com/checkcell/checkcell/sandbox/cellspec"
	"golang.org/x/sys/unix"
)

// inForce reads back from the kernel what is in force on the set-up cell, and
// fails where something that was asked for is not.
func (x *box) inForce() (sandbox.Receipt, error) {
	r := sandbox.Receipt{Cgroup: cgroup.ModeNone.String(), Controls: map[sandbox.Control]string{}, Missing: x.missing}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", x.pid))
	if err != nil {
		return r, fmt.Errorf("read back the cell's controls: %w", err)
	}
	errs := []error{x.readStatus(r, parseStatus(status)), x.readNamespaces(r), x.readFileLimit(r), x.readMounts(r)}
	if x.req.Landlock > 0 { // the set-up would have failed
		r.Controls[sandbox.ControlLandlock] = fmt.Sprintf("ABI %d, a mount in the cell was refused", x.req.Landlock)
	}
	if budget, limited := x.limits.CPUTime.Value(); limited && x.group != nil {
		r.Controls[sandbox.ControlCPUTime] = fmt.Sprintf("%v, watched from outside", budget)
	}
	if x.group != nil {
		r.Cgroup = x.backend.cgroups.Mode().String()
		kill, _ := x.backend.support(cgroup.Kill)
		r.Controls[sandbox.ControlCgroup] = kill.Detail
		for name, how := range x.group.Controls() {
			r.Controls[sandbox.Control(name)] = how
		}
	}
	return r, errors.Join(errs...)
}

// parseStatus reads /proc/PID/status (proc_pid_status(5)).
func parseStatus(text []byte) map[string]string {
	fields := map[string]string{}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		if name, value, ok := strings.Cut(lines.Text(), ":"); ok {
			fields[name] = strings.Join(strings.Fields(value), " ")
		}
	}
	return fields
}

// readStatus checks privileges, the filter and the user of the init, from
// which every process of the check inherits them.
func (x *box) readStatus(r sandbox.Receipt, status map[string]string) error {
	const none = "0000000000000000"
	caps := []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"}
	uid := fmt.Sprint(x.req.HostUID)
	var errs []error
	for _, c := range []struct {
		control sandbox.Control
		wanted  bool
		how     string
		ok      bool
	}{
		{sandbox.ControlCaps, true, "CapEff=" + status["CapEff"] + " CapBnd=" + status["CapBnd"],
			!slices.ContainsFunc(caps, func(c string) bool { return status[c] != none })},
		{sandbox.ControlNoPrivs, x.req.Spec.Process.NoNewPrivileges, "NoNewPrivs=" + status["NoNewPrivs"], status["NoNewPrivs"] == "1"},
		{sandbox.ControlSeccomp, x.req.Spec.Linux.Seccomp != nil, "Seccomp=" + status["Seccomp"] + ", deny by default", status["Seccomp"] == "2"},
		{sandbox.ControlUser, true, "user namespace, host uid " + uid, status["Uid"] == strings.Join([]string{uid, uid, uid, uid}, " ")},
	} {
		switch {
		case c.wanted && c.ok:
			r.Controls[c.control] = c.how
		case c.wanted:
			errs = append(errs, fmt.Errorf("control %s is not in force: %s, uid %s", c.control, c.how, status["Uid"]))
		}
	}
	return errors.Join(errs...)
}

// readNamespaces checks that the init shares no namespace with us. Whose
// they are can be seen only by who may trace the init, which is root alone;
// for others clone3(2) has made them or failed.
func (x *box) readNamespaces(r sandbox.Receipt) error {
	var errs []error
	for _, ns := range []struct {
		name    string
		control sandbox.Control
	}{
		{"net", sandbox.ControlNetwork}, {"pid", sandbox.ControlPIDNS}, {"ipc", sandbox.ControlIPCNS},
		{"uts", sandbox.ControlUTSNS}, {"cgroup", sandbox.ControlCgroupNS}, {"mnt", sandbox.ControlRoot},
	} {
		if !x.req.Privileged {
			r.Controls[ns.control] = ns.name + " namespace"
			continue
		}
		theirs, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", x.pid, ns.name))
		if err != nil {
			errs = append(errs, fmt.Errorf("control %s: %w", ns.control, err))
			continue
		}
		ours, err := os.Readlink("/proc/self/ns/" + ns.name)
		if err != nil || theirs == ours {
			errs = append(errs, errors.Join(fmt.Errorf("control %s is not in force: %s is ours", ns.control, theirs), err))
			continue
		}
		r.Controls[ns.control] = theirs
	}
	return errors.Join(errs...)
}

// readFileLimit checks how many files a process may have open.
func (x *box) readFileLimit(r sandbox.Receipt) error {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", x.pid))
	if err != nil {
		return fmt.Errorf("control %s: %w", sandbox.ControlNoFile, err)
	}
	want := fmt.Sprint(x.limits.OpenFiles)
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "Max open files"); ok { // soft, hard, unit: proc_pid_limits(5)
			if f := strings.Fields(rest); len(f) < 2 || f[0] != want || f[1] != want {
				return fmt.Errorf("control %s is not in force: %q", sandbox.ControlNoFile, line)
			}
			r.Controls[sandbox.ControlNoFile] = "RLIMIT_NOFILE=" + want
			return nil
		}
	}
	return fmt.Errorf("control %s: /proc/%d/limits does not show it", sandbox.ControlNoFile, x.pid)
}

// mountEntry is one line of mountinfo (proc_pid_mountinfo(5)).
type mountEntry struct {
	device, fstype      string
	options, superblock []string
}

// parseMountinfo reads what is mounted, by mount point; of several mounts at
// one point, the last is the one that is seen.
func parseMountinfo(text []byte) map[string]mountEntry {
	mounts := map[string]mountEntry{}
	for line := range strings.Lines(string(text)) {
		place, kind, ok := strings.Cut(line, " - ")
		p, k := strings.Fields(place), strings.Fields(kind)
		if ok && len(p) >= 6 && len(k) >= 3 {
			mounts[p[4]] = mountEntry{device: p[2], fstype: k[0], options: strings.Split(p[5], ","), superblock: strings.Split(k[2], ",")}
		}
	}
	return mounts
}

// readMounts checks that the root file system is read-only, and that whatever
// is writable is the one tmpfs of the size that was asked for. Without root the
// init may not be looked into; its mounts were made then, or the set-up failed.
func (x *box) readMounts(r sandbox.Receipt) error {
	page := sandbox.Bytes(os.Getpagesize())
	blocks := (cellspec.Disk(x.limits) + page - 1) / page // a tmpfs has whole pages
	how := fmt.Sprintf("one tmpfs of %d bytes and %d inodes", blocks*page, x.limits.Inodes)
	if !x.req.Privileged {
		r.Controls[sandbox.ControlRoot] += ", pivot_root, read-only"
		r.Controls[sandbox.ControlDisk] = how
		return nil
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", x.pid))
	var fs unix.Statfs_t
	if err == nil {
		err = unix.Statfs(fmt.Sprintf("/proc/%d/root/tmp", x.pid), &fs)
	}
	if err != nil {
		return fmt.Errorf("controls %s, %s: %w", sandbox.ControlRoot, sandbox.ControlDisk, err)
	}
	mounts := parseMountinfo(text)
	root, ok := mounts["/"]
	if !ok || !slices.Contains(root.options, "ro") {
		return fmt.Errorf("control %s is not in force: / is mounted %q", sandbox.ControlRoot, root.options)
	}
	if fs.Blocks != uint64(blocks) || fs.Bsize != int64(page) || fs.Files != uint64(x.limits.Inodes) {
		return fmt.Errorf("control %s is not in force: /tmp has %d blocks of %d bytes and %d inodes, want %s", sandbox.ControlDisk, fs.Blocks, fs.Bsize, fs.Files, how)
	}
	var places []string
	for where, m := range mounts {
		switch {
		case slices.Contains(m.options, "ro"), m.fstype == "proc": // the latter takes no bytes
		case m.device == mounts["/tmp"].device, slices.Contains(m.superblock, "upperdir=.scratch/work"):
			places = append(places, where)
		default:
			return fmt.Errorf("control %s is not in force: %s is a writable %s", sandbox.ControlDisk, where, m.fstype)
		}
	}
	slices.Sort(places)
	r.Controls[sandbox.ControlRoot] += ", pivot_root, / is " + strings.Join(root.options, ",")
	r.Controls[sandbox.ControlDisk] = how + " at " + strings.Join(places, " ")
	return nil
}
