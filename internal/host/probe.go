package host

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// cellPath is where a cell looks for programs (design.md section 3); the PATH
// of the caller may hold others, which no cell would find.
const cellPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// probeTime bounds one probe, so that a daemon that hangs is a missing one.
const probeTime = 20 * time.Second

// probe tries c and returns nil if the machine has it, or what is wrong.
func (c Cap) probe() error {
	switch c {
	case None:
		return errors.New("no capability was named")
	case Root:
		return probeRoot()
	case CgroupWritable:
		return probeGroups()
	case CgroupV1:
		return probeV1("memory")
	case CgroupV2:
		return probeV2()
	case CgroupPureV2:
		return probePureV2()
	case CgroupKill:
		return probeKill()
	case MemoryCgroup:
		return probeController("memory", "memory.limit_in_bytes")
	case PidsCgroup:
		return probeController("pids", "pids.max")
	case UserNS:
		return try(&syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER}, "/bin/true")
	case UnprivUserNS:
		return probeUnprivUserNS()
	case OverlayUserNS:
		return try(nil, "unshare", "--user", "--map-root-user", "--mount", "/bin/sh", "-ec", overlayScript)
	case Bash:
		return tryInCellPath("bash", "--norc", "--noprofile", "-c", "exit 0")
	case Python3:
		return tryInCellPath("python3", "-S", "-c", "pass")
	case Docker:
		return probeDocker()
	case Runc:
		return try(nil, "runc", "--version")
	case Crun:
		return try(nil, "crun", "--version")
	case Runsc:
		return try(nil, "runsc", "--version")
	case QEMU:
		return try(nil, "qemu-system-x86_64", "--version")
	case ClockSettable:
		return probeClock()
	case Chromium:
		return try(nil, "chromium", "--version")
	case StressNG:
		return tryInCellPath("stress-ng", "--version")
	case DBusDaemon:
		return try(nil, "dbus-daemon", "--version")
	}
	return fmt.Errorf("%v is not a capability", c)
}

// fix says how the machine gets c.
func (c Cap) fix() string {
	switch c {
	case None:
		return "name one in the test"
	case Root:
		return "run the tests as root"
	case CgroupWritable:
		return "run as root on a host, or in a container that has its cgroups mounted writable"
	case CgroupV1:
		return "boot with systemd.unified_cgroup_hierarchy=0"
	case CgroupV2:
		return "mount cgroup2"
	case CgroupPureV2:
		return "boot with systemd.unified_cgroup_hierarchy=1, or run make test-vm"
	case CgroupKill:
		return "use Linux 5.14 or later, with cgroup2 mounted writable"
	case MemoryCgroup:
		return "boot with cgroup_enable=memory, with cgroups mounted writable"
	case PidsCgroup:
		return "use a kernel with CONFIG_CGROUP_PIDS, with cgroups mounted writable"
	case UserNS:
		return "set user.max_user_namespaces above 0"
	case UnprivUserNS:
		return "set kernel.unprivileged_userns_clone=1 and kernel.apparmor_restrict_unprivileged_userns=0, where they exist"
	case OverlayUserNS:
		return "use Linux 5.11 or later with overlayfs, and allow user namespaces"
	case Docker:
		return "start dockerd (Debian's package docker.io)"
	case QEMU:
		return "apt-get install qemu-system-x86"
	case ClockSettable:
		return "run make test-vm, whose machine has " + MachineVar + "=expendable"
	case Bash, Python3, Runc, Crun, Runsc, Chromium, StressNG, DBusDaemon:
		return "apt-get install " + c.String()
	}
	return "use a constant of package host"
}

func probeRoot() error {
	if uid := os.Geteuid(); uid != 0 {
		return fmt.Errorf("the effective user is %d", uid)
	}
	return nil
}

// probeClock sets the clock to what it is, but only where nobody would mind.
func probeClock() error {
	if value := os.Getenv(MachineVar); value != "expendable" {
		return fmt.Errorf("%s is %q", MachineVar, value)
	}
	var now syscall.Timeval
	if err := errors.Join(syscall.Gettimeofday(&now), syscall.Settimeofday(&now)); err != nil {
		return fmt.Errorf("set the clock: %w", err)
	}
	return nil
}

// probeUnprivUserNS makes a user namespace as nobody, if it can become nobody.
func probeUnprivUserNS() error {
	var attr *syscall.SysProcAttr
	if os.Geteuid() == 0 {
		attr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	return try(attr, "unshare", "--user", "/bin/true")
}

// overlayScript mounts over a tmpfs of its own: an upper directory can't be on
// an overlay, which /tmp in a container often is.
const overlayScript = `mount -t tmpfs tmpfs /tmp
mkdir /tmp/lower /tmp/upper /tmp/work /tmp/merged
mount -t overlay -o lowerdir=/tmp/lower,upperdir=/tmp/upper,workdir=/tmp/work overlay /tmp/merged
: >/tmp/merged/file`

// tryInCellPath is try for the program that a cell would find under name.
func tryInCellPath(name string, args ...string) error {
	for _, dir := range filepath.SplitList(cellPath) {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err == nil {
			return try(nil, path, args...)
		}
	}
	return fmt.Errorf("%s is not in %s", name, cellPath)
}

// try runs a program and returns an error unless it exits with 0.
func try(attr *syscall.SysProcAttr, name string, args ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), probeTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.SysProcAttr = attr
	cmd.Dir = "/"
	cmd.WaitDelay = time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("run %s: %w %s", name, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// probeDocker pings the daemon that DOCKER_HOST names, or the usual socket.
func probeDocker() error {
	socket := "/var/run/docker.sock"
	if named := os.Getenv("DOCKER_HOST"); named != "" {
		path, ok := strings.CutPrefix(named, "unix://")
		if !ok {
			return fmt.Errorf("DOCKER_HOST=%s is not a unix socket", named)
		}
		socket = path
	}
	ctx, cancel := context.WithTimeout(context.Background(), probeTime)
	defer cancel()
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", socket)
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://docker/_ping", nil)
	if err != nil {
		return fmt.Errorf("ping docker: %w", err)
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return fmt.Errorf("ping docker at %s: %w", socket, err)
	}
	if err := resp.Body.Close(); err != nil {
		return fmt.Errorf("ping docker at %s: %w", socket, err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("ping docker at %s: %s", socket, resp.Status)
	}
	return nil
}

// usedControllers are the version 1 controllers in whose hierarchies checkcell
// makes groups.
func usedControllers() []string { return []string{"cpu", "cpuacct", "memory", "pids", "freezer"} }

// probeGroups makes a group and removes it again in every hierarchy in use.
func probeGroups() error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	tried := 0
	for _, h := range all {
		if !h.v2 && !slices.ContainsFunc(usedControllers(), h.has) {
			continue
		}
		if err := h.withGroup(func(string) error { return nil }); err != nil {
			return err
		}
		tried++
	}
	if tried == 0 {
		return errors.New("no cgroup hierarchy is mounted")
	}
	return nil
}

func probeV1(controller string) error {
	_, err := findHierarchy("version 1 hierarchy with "+controller, func(h hierarchy) bool { return !h.v2 && h.has(controller) })
	return err
}

func probeV2() error {
	_, err := findHierarchy("cgroup2 hierarchy", func(h hierarchy) bool { return h.v2 })
	return err
}

func probePureV2() error {
	h, err := findHierarchy("cgroup2 hierarchy with memory", func(h hierarchy) bool { return h.v2 && h.has("memory") })
	if err != nil {
		return err
	}
	for _, c := range usedControllers() {
		if probeV1(c) == nil {
			return fmt.Errorf("beside %s, %s is in a version 1 hierarchy", h.dir, c)
		}
	}
	return nil
}

func probeKill() error {
	h, err := findHierarchy("cgroup2 hierarchy", func(h hierarchy) bool { return h.v2 })
	if err != nil {
		return err
	}
	return h.withGroup(func(group string) error {
		if _, err := os.Stat(filepath.Join(group, "cgroup.kill")); err != nil {
			return fmt.Errorf("look for cgroup.kill: %w", err)
		}
		return nil
	})
}

// probeController finds controller, and for version 1 the file that its
// groups must have. Under version 2 a group has the file only once its parent
// hands the controller down, which is not for a probe to change.
func probeController(controller, file string) error {
	h, err := findHierarchy("hierarchy with "+controller, func(h hierarchy) bool { return h.has(controller) })
	if err != nil {
		return err
	}
	return h.withGroup(func(group string) error {
		if h.v2 {
			return nil
		}
		if _, err := os.Stat(filepath.Join(group, file)); err != nil {
			return fmt.Errorf("look for %s: %w", file, err)
		}
		return nil
	})
}
