//go:build linux

package cellhost

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/checkcell/checkcell/cgroup"
	"github.com/checkcell/checkcell/sandbox"
	"github.com/checkcell/checkcell/sandbox/cellspec"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// Cell is what is known of a cell that was set up, and what was asked of it.
type Cell struct {
	PID    int // of its init, or of another process in its namespaces
	Spec   *specs.Spec
	Limits sandbox.Limits
	Group  *Group
	UID    int  // of the check, outside
	UserNS bool // it is the user of a user namespace of its own
	Opaque bool // we may not look into the cell: the backend answers for what we can't read
	Guest  *Guest
}

// Guest is a kernel of its own that the cell is in. PID is then a process of
// that kernel's, which shows what is around it, and the rest is told from inside.
type Guest struct {
	Kernel  string                   // its name and version
	Shown   func(name string) []byte // what is in /proc/self there
	Scratch string                   // where this host sees the tmpfs of the writable places; "" if it does not
}

// Receipt reads back from the kernel what is in force on the cell, and fails
// where something that was asked for is not.
func (c Cell) Receipt(missing []sandbox.Control) (sandbox.Receipt, error) {
	r := sandbox.Receipt{Cgroup: cgroup.ModeNone.String(), Controls: map[sandbox.Control]string{}, Missing: missing}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.PID))
	if err != nil {
		return r, fmt.Errorf("read back the cell's controls: %w", err)
	}
	var errs []error
	if c.Guest != nil {
		errs = []error{c.readNamespaces(r), c.readGuest(r, parseStatus(status))}
	} else {
		errs = []error{c.readStatus(r, parseStatus(status)), c.readNamespaces(r), c.readFileLimit(r), c.readMounts(r)}
	}
	c.Group.receipt(&r, c.Limits)
	return r, errors.Join(errs...)
}

// receipt puts into r what the group enforces.
func (g *Group) receipt(r *sandbox.Receipt, l sandbox.Limits) {
	if g.Group == nil {
		return
	}
	if budget, limited := l.CPUTime.Value(); limited {
		r.Controls[sandbox.ControlCPUTime] = fmt.Sprintf("%v, watched from outside", budget)
	}
	r.Cgroup = g.groups.host.Mode().String()
	kill, _ := g.groups.support(cgroup.Kill)
	r.Controls[sandbox.ControlCgroup] = kill.Detail
	for name, how := range g.Controls() {
		r.Controls[sandbox.Control(name)] = how
	}
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
func (c Cell) readStatus(r sandbox.Receipt, status map[string]string) error {
	const none = "0000000000000000"
	caps := []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"}
	uid := fmt.Sprint(c.UID)
	var errs []error
	user := "user namespace, host uid " + uid
	if !c.UserNS {
		user = "uid " + uid + " of the host, no user namespace of its own"
	}
	for _, s := range []struct {
		control sandbox.Control
		wanted  bool
		how     string
		ok      bool
	}{
		{sandbox.ControlCaps, true, "CapEff=" + status["CapEff"] + " CapBnd=" + status["CapBnd"],
			!slices.ContainsFunc(caps, func(set string) bool { return status[set] != none })},
		{sandbox.ControlNoPrivs, c.Spec.Process.NoNewPrivileges, "NoNewPrivs=" + status["NoNewPrivs"], status["NoNewPrivs"] == "1"},
		{sandbox.ControlSeccomp, c.Spec.Linux.Seccomp != nil, "Seccomp=" + status["Seccomp"] + ", deny by default", status["Seccomp"] == "2"},
		{sandbox.ControlUser, true, user, status["Uid"] == strings.Join([]string{uid, uid, uid, uid}, " ")},
	} {
		switch {
		case s.wanted && s.ok:
			r.Controls[s.control] = s.how
		case s.wanted:
			errs = append(errs, fmt.Errorf("control %s is not in force: %s, uid %s", s.control, s.how, status["Uid"]))
		}
	}
	return errors.Join(errs...)
}

// readNamespaces checks that the init shares no namespace with us. Whose
// they are can be seen only by who may trace the init, which is root alone;
// for others clone3(2) has made them or failed.
func (c Cell) readNamespaces(r sandbox.Receipt) error {
	var errs []error
	for _, ns := range []struct {
		name    string
		control sandbox.Control
	}{
		{"net", sandbox.ControlNetwork}, {"pid", sandbox.ControlPIDNS}, {"ipc", sandbox.ControlIPCNS},
		{"uts", sandbox.ControlUTSNS}, {"cgroup", sandbox.ControlCgroupNS}, {"mnt", sandbox.ControlRoot},
	} {
		if c.Opaque {
			r.Controls[ns.control] = ns.name + " namespace"
			continue
		}
		if c.Guest != nil && (ns.name == "pid" || ns.name == "cgroup") {
			r.Controls[ns.control] = c.Guest.Kernel + " knows no process and no group but its own"
			continue
		}
		theirs, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", c.PID, ns.name))
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
func (c Cell) readFileLimit(r sandbox.Receipt) error {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", c.PID))
	if err != nil {
		return fmt.Errorf("control %s: %w", sandbox.ControlNoFile, err)
	}
	return c.fileLimit(r, text)
}

// fileLimit looks for it in the text of proc_pid_limits(5).
func (c Cell) fileLimit(r sandbox.Receipt, text []byte) error {
	want := fmt.Sprint(c.Limits.OpenFiles)
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "Max open files"); ok { // soft, hard, unit: proc_pid_limits(5)
			if f := strings.Fields(rest); len(f) < 2 || f[0] != want || f[1] != want {
				return fmt.Errorf("control %s is not in force: %q", sandbox.ControlNoFile, line)
			}
			r.Controls[sandbox.ControlNoFile] = "RLIMIT_NOFILE=" + want
			return nil
		}
	}
	return fmt.Errorf("control %s: the limits of the cell's init do not show it", sandbox.ControlNoFile)
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

// changesInScratch is the option of an overlay whose changes go to the cell's tmpfs.
const changesInScratch = "upperdir=.scratch/work"

// readMounts checks that the root file system is read-only, and that whatever
// is writable is tmpfs that together has the size that was asked for. Where we may
// not look, the mounts were made, or the set-up failed.
func (c Cell) readMounts(r sandbox.Receipt) error {
	page := sandbox.Bytes(os.Getpagesize())
	want := space{(cellspec.Disk(c.Limits) + page - 1) / page * page, c.Limits.Inodes} // a tmpfs has whole pages
	if c.Opaque {
		r.Controls[sandbox.ControlRoot] += ", pivot_root, read-only"
		r.Controls[sandbox.ControlDisk] = fmt.Sprintf("one tmpfs of %v", want)
		return nil
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", c.PID))
	if err != nil {
		return fmt.Errorf("controls %s, %s: %w", sandbox.ControlRoot, sandbox.ControlDisk, err)
	}
	mounts := parseMountinfo(text)
	root, ok := mounts["/"]
	if !ok || !slices.Contains(root.options, "ro") {
		return fmt.Errorf("control %s is not in force: / is mounted %q", sandbox.ControlRoot, root.options)
	}
	var places []string
	devices := map[string]bool{}
	got := space{}
	for where, m := range mounts {
		switch {
		case slices.Contains(m.options, "ro"), takesNothing[m.fstype]:
		case slices.Contains(m.superblock, changesInScratch):
			places = append(places, where)
		case m.fstype == "tmpfs" || m.fstype == "devtmpfs":
			dir := fmt.Sprintf("/proc/%d/root%s", c.PID, where)
			open, err := c.writable(dir)
			if errors.Is(err, fs.ErrNotExist) {
				continue // another mount covers it
			}
			if err != nil {
				return fmt.Errorf("control %s: %w", sandbox.ControlDisk, err)
			}
			if !open {
				continue
			}
			places = append(places, where)
			if !devices[m.device] {
				devices[m.device] = true
				if err := got.add(dir); err != nil {
					return fmt.Errorf("control %s: %w", sandbox.ControlDisk, err)
				}
			}
		default:
			return fmt.Errorf("control %s is not in force: %s is a writable %s", sandbox.ControlDisk, where, m.fstype)
		}
	}
	rounding := space{page, 1}.times(len(devices) - 1) // where it is divided among several
	if len(devices) == 0 || got.bytes > want.bytes || got.inodes > want.inodes || got.bytes < want.bytes-rounding.bytes || got.inodes < want.inodes-rounding.inodes {
		return fmt.Errorf("control %s is not in force: %d tmpfs at %v have %v, want %v", sandbox.ControlDisk, len(devices), places, got, want)
	}
	slices.Sort(places)
	r.Controls[sandbox.ControlRoot] += ", pivot_root, / is " + strings.Join(root.options, ",")
	r.Controls[sandbox.ControlDisk] = fmt.Sprintf("%d tmpfs of %v at %s", len(devices), got, strings.Join(places, " "))
	return nil
}

// takesNothing lists file systems in which nothing can be kept.
var takesNothing = map[string]bool{"proc": true, "devpts": true, "mqueue": true}

// writable reports whether the check's user may keep something in what is mounted
// at path, which a device has no room for.
func (c Cell) writable(path string) (bool, error) {
	var stat unix.Stat_t
	if err := unix.Lstat(path, &stat); err != nil {
		return false, fmt.Errorf("look at %s: %w", path, err)
	}
	if stat.Mode&unix.S_IFMT == unix.S_IFCHR {
		return false, nil
	}
	return stat.Uid == uint32(c.UID) || stat.Mode&0o022 != 0, nil
}

// space is what a file system can hold.
type space struct {
	bytes  sandbox.Bytes
	inodes int64
}

func (s *space) add(dir string) error {
	var has unix.Statfs_t
	if err := unix.Statfs(dir, &has); err != nil {
		return fmt.Errorf("look at %s: %w", dir, err)
	}
	s.bytes += sandbox.Bytes(has.Blocks) * sandbox.Bytes(has.Bsize)
	s.inodes += int64(has.Files)
	return nil
}

func (s space) times(n int) space { return space{s.bytes * sandbox.Bytes(n), s.inodes * int64(n)} }

// String is the space in words.
func (s space) String() string { return fmt.Sprintf("%d bytes and %d inodes", s.bytes, s.inodes) }
