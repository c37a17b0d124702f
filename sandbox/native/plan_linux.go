package native

import (
	"fmt"
	"os"
	"path"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/checkcell/checkcell/sandbox/cellinit"
	"github.com/checkcell/checkcell/sandbox/cellspec"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// staging is where the new root is put together: a directory that every host
// has and that no mount of a cell has as its source.
const staging = "/proc"

// Flags of the mounts of a cell.
const (
	attrReadOnly = unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV
	attrDevice   = unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NOEXEC
)

// planner lays out the set-up of one cell.
type planner struct {
	cellinit.Program
	req   request
	trees map[string]int  // by host path: the descriptor of the detached mount that we took of it
	made  map[string]bool // directories of the new root that are there

	writable []string // places of the new root
}

// plan turns a request into the arena of the init, and the names of its calls.
func plan(req request, trees map[string]int) (arena []byte, calls []string, err error) {
	p := &planner{Program: cellinit.NewProgram(), req: req, trees: trees, made: map[string]bool{"": true, ".": true}}
	p.Simple("close", unix.SYS_CLOSE, cellinit.FdCloner)
	p.becomeUser()
	p.makeRoot()
	for _, m := range req.Spec.Mounts {
		p.mountOne(m)
	}
	p.scratchDone()
	p.rootFiles()
	p.proc()
	p.enterRoot()
	p.network()
	p.LayOut(req.Spec.Process.Cwd, req.Layout)
	p.ownStreams()
	p.landlock()
	p.dropPrivileges()
	return p.Finish(req.Spec)
}

// becomeUser takes the cell's user and leaves the groups of ours.
func (p *planner) becomeUser() {
	user := p.req.Spec.Process.User
	if p.req.Privileged {
		p.Simple("drop supplementary groups", unix.SYS_SETGROUPS, 0, 0)
	}
	gid, uid := uintptr(user.GID), uintptr(user.UID)
	p.Simple("set group id", unix.SYS_SETRESGID, gid, gid, gid)
	p.Simple("set user id", unix.SYS_SETRESUID, uid, uid, uid)
	p.Simple("make a cgroup namespace", unix.SYS_UNSHARE, unix.CLONE_NEWCGROUP)
	p.Simple("set umask", unix.SYS_UMASK, 0)
	name := p.req.Spec.Hostname
	p.Simple("set host name", unix.SYS_SETHOSTNAME, p.Text(name), uintptr(len(name)))
}

// makeRoot puts an empty tmpfs at staging, and a second one, for all writable
// places together, inside it.
func (p *planner) makeRoot() {
	p.mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	size := 256 << 10
	for _, text := range p.req.Spec.Annotations {
		size += len(text) + 8192
	}
	p.mount("checkcell-root", staging, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, fmt.Sprintf("mode=755,size=%d", size))
	p.Simple("enter the new root", unix.SYS_CHDIR, p.Text(staging))
	for _, m := range p.req.Spec.Mounts {
		if m.Source == cellspec.Scratch {
			p.mkdirAll(".scratch")
			p.mount("checkcell", ".scratch", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, dataOf(m.Options, "size", "nr_inodes")+",mode=755")
			break
		}
	}
	if p.req.Root != "" {
		p.imageRoot(p.req.Root)
	}
}

// imageRoot shows the top level of the directory at dir, entry by entry, so
// that places which the image lacks can be made beside them.
func (p *planner) imageRoot(dir string) {
	names, err := imageEntries(dir)
	if err != nil {
		p.Fail(err)
	}
	for _, name := range names {
		p.show(path.Join(dir, name), name)
	}
}

// imageEntries lists the top level of an image, less what the cell has of its own.
func imageEntries(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read the root file system: %w", err)
	}
	own := []string{"dev", "proc", "sys", "tmp", "work", "run", ".scratch", ".lower", ".checkcell"}
	var names []string
	for _, e := range entries {
		if !slices.Contains(own, e.Name()) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// bindHost shows what is at path on the host at dst, read-only: through the
// detached mount that the launcher took of it, if it did.
func (p *planner) bindHost(path, dst string) {
	fd, ok := p.trees[path]
	if !ok {
		p.bind(path, dst, attrReadOnly)
		return
	}
	s := p.NewSlot()
	p.Call("take "+path, cellinit.Call{Nr: unix.SYS_DUP, Arg: [6]uintptr{uintptr(fd)}, Save: s})
	p.setAttr(s, path, attrReadOnly)
	p.attach(s, dst)
	p.Simple("close", unix.SYS_CLOSE, uintptr(fd))
}

// show gives what is at host its place in the new root: a link is made again,
// anything else is bound read-only. What is not there is left out.
func (p *planner) show(host, dst string) {
	info, err := os.Lstat(host)
	switch {
	case os.IsNotExist(err):
		return
	case err != nil:
		p.Fail(fmt.Errorf("look at %s: %w", host, err))
	case info.Mode()&os.ModeSymlink != 0:
		target, err := os.Readlink(host)
		if err != nil {
			p.Fail(fmt.Errorf("read link %s: %w", host, err))
		}
		p.mkdirAll(path.Dir(dst))
		p.Symlink(target, dst)
	case info.IsDir():
		p.mkdirAll(dst)
		p.bindHost(host, dst)
	case info.Mode().IsRegular():
		p.mkdirAll(path.Dir(dst))
		p.touch(dst)
		p.bindHost(host, dst)
	}
}

func (p *planner) mkdirAll(dir string) {
	if p.made[dir] {
		return
	}
	p.mkdirAll(path.Dir(dir))
	p.Mkdir(dir, 0o755)
	p.made[dir] = true
}

// mountOne carries out one mount of the description.
func (p *planner) mountOne(m specs.Mount) {
	dst := strings.TrimPrefix(path.Clean(m.Destination), "/")
	switch {
	case m.Type == "bind":
		if !slices.Contains(m.Options, cellspec.OptionalOption) {
			p.Fail(fmt.Errorf("mount %s: this backend binds only paths of the host view", m.Destination))
		}
		p.show(m.Source, dst)
	case m.Source == cellspec.Scratch:
		p.scratch(m, dst)
	case m.Type == "proc":
		p.mkdirAll(dst)
		p.mount("proc", dst, "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
	case m.Type == "tmpfs" && dst == "dev":
		p.mkdirAll(dst)
		p.mount("dev", dst, "tmpfs", unix.MS_NOSUID|unix.MS_NOEXEC, dataOf(m.Options, "size", "nr_inodes", "mode"))
		p.devices()
	default:
		p.Fail(fmt.Errorf("mount %s: type %q is not one that this backend knows", m.Destination, m.Type))
	}
}

// devices fills /dev: the six devices that every container has, and the links
// to the descriptors of whoever looks.
func (p *planner) devices() {
	for _, name := range []string{"null", "zero", "full", "random", "urandom", "tty"} {
		p.touch("dev/" + name)
		p.bind("/dev/"+name, "dev/"+name, attrDevice)
	}
	p.Symlink("/proc/self/fd", "dev/fd")
	for i, name := range []string{"stdin", "stdout", "stderr"} {
		p.Symlink("/proc/self/fd/"+strconv.Itoa(i), "dev/"+name)
	}
	p.mkdirAll("dev/shm")
	p.protectPath("dev", attrDevice)
}

// ownStreams gives the init, and the steps' standard input, the cell's
// /dev/null. What lay below 3 was closed, so it becomes descriptor 0.
func (p *planner) ownStreams() {
	p.Simple("close", unix.SYS_CLOSE, cellinit.FdArena)
	p.Simple("close", unix.SYS_CLOSE, cellinit.FdContent)
	p.Call("open /dev/null", cellinit.Call{Nr: unix.SYS_OPENAT, Only: true, Want: 0, Arg: [6]uintptr{cellinit.AtCwd, p.Text("/dev/null"), unix.O_RDWR}})
	p.Simple("open /dev/null", unix.SYS_DUP3, 0, 1, 0)
	p.Simple("open /dev/null", unix.SYS_DUP3, 0, 2, 0)
}

// scratch gives one writable place its directory of the scratch tmpfs, or, for
// a workspace that is shown, an overlay whose changes go there.
func (p *planner) scratch(m specs.Mount, dst string) {
	if dst == "var/tmp" && p.req.Root != "" {
		if _, err := os.Lstat(path.Join(p.req.Root, dst)); err != nil {
			return // the image's /var is read-only and has no such place
		}
	}
	mode, err := strconv.ParseUint(optionOf(m.Options, "mode"), 8, 32)
	if err != nil {
		p.Fail(fmt.Errorf("mount %s: mode: %w", m.Destination, err))
	}
	p.writable = append(p.writable, dst)
	p.mkdirAll(dst)
	dir := ".scratch/" + strings.ReplaceAll(dst, "/", "-")
	p.Mkdir(dir, uint32(mode))
	lower, shown := cellspec.Workspace(m)
	if !shown || !p.req.Overlay {
		s := p.openTree(dir)
		p.attach(s, dst)
		return
	}
	p.Mkdir(".scratch/.overlay", 0o700)
	// A tmpfs has user attributes since Linux 6.6. Without them an overlay mounts all
	// the same, and then fails to make a directory where another was removed.
	mark := "x"
	p.Simple("set an attribute of a file in a tmpfs", unix.SYS_SETXATTR,
		p.Text(".scratch/.overlay"), p.Text("user.checkcell"), p.Text(mark), uintptr(len(mark)), 0)
	p.mkdirAll(".lower")
	p.bindHost(lower, ".lower")
	p.mount("work", dst, "overlay", unix.MS_NOSUID|unix.MS_NODEV,
		"userxattr,lowerdir=.lower,upperdir="+dir+",workdir=.scratch/.overlay")
	p.hide(".lower")
}

// scratchDone hides the scratch tmpfs itself; its places stay.
func (p *planner) scratchDone() {
	if p.made[".scratch"] {
		p.hide(".scratch")
	}
}

// rootFiles writes the small files of the root.
func (p *planner) rootFiles() {
	var names []string
	for key := range p.req.Spec.Annotations {
		if name, ok := strings.CutPrefix(key, cellspec.FileAnnotation+"/"); ok {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	for _, name := range names {
		p.mkdirAll(path.Dir(name))
		p.write(name, p.req.Spec.Annotations[cellspec.FileAnnotation+"/"+name], 0o444)
	}
}

// proc hides and protects entries of /proc, those that this kernel has, and
// lets nobody make user namespaces below the cell's.
func (p *planner) proc() {
	const limit = "proc/sys/user/max_user_namespaces"
	s := p.NewSlot()
	p.Call("open "+limit, cellinit.Call{Nr: unix.SYS_OPENAT, Save: s, Arg: [6]uintptr{cellinit.AtCwd, p.Text(limit), unix.O_WRONLY | unix.O_CLOEXEC}})
	p.Call("write "+limit, cellinit.Call{Nr: unix.SYS_WRITE, From: [6]cellinit.Slot{s}, Arg: [6]uintptr{0, p.Text("0"), 1}, Only: true, Want: 1})
	p.Close(s)
	for _, name := range p.req.Spec.Linux.MaskedPaths {
		info, err := os.Lstat(name)
		switch {
		case err != nil: // this kernel has no such entry
		case info.IsDir():
			p.mount("tmpfs", name[1:], "tmpfs", unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, "mode=555,size=4096,nr_inodes=2")
		default:
			p.bind("dev/null", name[1:], attrDevice)
		}
	}
	for _, name := range p.req.Spec.Linux.ReadonlyPaths {
		if _, err := os.Lstat(name); err == nil {
			p.bind(name[1:], name[1:], attrReadOnly|unix.MOUNT_ATTR_NOEXEC)
		}
	}
}

// enterRoot makes the new root the root, takes the old one away, and closes
// the new one to writes.
func (p *planner) enterRoot() {
	p.Simple("pivot into the new root", unix.SYS_PIVOT_ROOT, p.Text("."), p.Text("."))
	p.detach(".")
	p.Simple("enter /", unix.SYS_CHDIR, p.Text("/"))
	p.protectPath("/", attrReadOnly)
}

// network brings the loopback device of the otherwise empty network up, as
// container runtimes do, so that a check can talk to a server of its own.
func (p *planner) network() {
	ifreq := struct { // struct ifreq: a name, then a union of 24 bytes
		name  [16]byte
		flags uint16
		rest  [22]byte
	}{name: [16]byte{'l', 'o'}, flags: unix.IFF_UP}
	s := p.NewSlot()
	p.Call("open a socket", cellinit.Call{Nr: unix.SYS_SOCKET, Save: s, Arg: [6]uintptr{unix.AF_INET, unix.SOCK_DGRAM | unix.SOCK_CLOEXEC}})
	p.Call("bring up lo", cellinit.Call{Nr: unix.SYS_IOCTL, From: [6]cellinit.Slot{s}, Arg: [6]uintptr{0, unix.SIOCSIFFLAGS, p.Add(cellinit.Raw(ifreq))}})
	p.Close(s)
}

func optionOf(options []string, key string) string {
	for _, o := range options {
		if v, ok := strings.CutPrefix(o, key+"="); ok {
			return v
		}
	}
	return ""
}

// dataOf joins the named options as mount(2) takes them.
func dataOf(options []string, keys ...string) string {
	var data []string
	for _, k := range keys {
		if v := optionOf(options, k); v != "" {
			data = append(data, k+"="+v)
		}
	}
	return strings.Join(data, ",")
}
