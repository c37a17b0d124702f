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
)

// inForce reads back from the kernel what is in force on the set-up cell, and
// fails where something that was asked for is not.
func (x *box) inForce() (sandbox.Receipt, error) {
	r := sandbox.Receipt{Cgroup: cgroup.ModeNone.String(), Controls: map[sandbox.Control]string{}, Missing: x.missing}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", x.pid))
	if err != nil {
		return r, fmt.Errorf("read back the cell's controls: %w", err)
	}
	errs := []error{x.readStatus(r, parseStatus(status)), x.readNamespaces(r), x.readRoot(r)}
	for _, m := range x.req.Spec.Mounts {
		if size := optionOf(m.Options, "size"); size != "" && m.Destination == "/tmp" {
			r.Controls[sandbox.ControlDisk] = fmt.Sprintf("one tmpfs size=%s nr_inodes=%s", size, optionOf(m.Options, "nr_inodes"))
		}
	}
	for _, l := range x.req.Spec.Process.Rlimits {
		if l.Type == "RLIMIT_NOFILE" {
			r.Controls[sandbox.ControlNoFile] = fmt.Sprintf("RLIMIT_NOFILE=%d", l.Hard)
		}
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

// readRoot checks that the root file system is read-only.
func (x *box) readRoot(r sandbox.Receipt) error {
	if !x.req.Privileged {
		r.Controls[sandbox.ControlRoot] += ", pivot_root, read-only"
		return nil
	}
	mounts, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", x.pid))
	if err != nil {
		return fmt.Errorf("control %s: %w", sandbox.ControlRoot, err)
	}
	for lines := bufio.NewScanner(bytes.NewReader(mounts)); lines.Scan(); {
		// id, parent, device, root, mount point, options: proc_pid_mountinfo(5)
		if f := strings.Fields(lines.Text()); len(f) > 5 && f[4] == "/" {
			if !slices.Contains(strings.Split(f[5], ","), "ro") {
				return fmt.Errorf("control %s is not in force: / is mounted %s", sandbox.ControlRoot, f[5])
			}
			r.Controls[sandbox.ControlRoot] += ", pivot_root, / is " + f[5]
			return nil
		}
	}
	return fmt.Errorf("control %s is not in force: the cell has no / of its own", sandbox.ControlRoot)
}
