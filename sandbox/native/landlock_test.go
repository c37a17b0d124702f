package native

import (
	"context"
	"strings"
	"testing"

	"github.com/checkcell/checkcell/internal/host"
	"github.com/checkcell/checkcell/sandbox"
	"golang.org/x/sys/unix"
)

// touchEverything makes, changes, moves and removes files of every kind where a
// check may, and tries it where it may not. Each line says how it went.
const touchEverything = `exec python3 - <<'END'
import os, shutil, signal, socket, stat, subprocess

def attempt(what, *args, **kw):
    try:
        what(*args, **kw)
        result = "done"
    except OSError as e:
        result = os.strerror(e.errno)
    print(result, getattr(what, "__name__", what), *args)

def write(path, flags=0):
    os.write(os.open(path, os.O_WRONLY | flags), b"500")

def tmpfile(name):
    fd = os.open(".", os.O_TMPFILE | os.O_RDWR)
    os.link("/proc/self/fd/%d" % fd, name, src_dir_fd=fd, follow_symlinks=True)

def gone(name):
    fd = os.open(name, os.O_RDWR)
    os.unlink(name)
    write("/proc/self/fd/%d" % fd, os.O_TRUNC)

def memfd():
    write("/proc/self/fd/%d" % os.memfd_create("m"))

def bind(name):
    socket.socket(socket.AF_UNIX).bind(name)

def chdir_and_list(path):
    os.chdir(path)
    os.listdir(".")

for d in ["/work", "/tmp", "/var/tmp", "/dev/shm"]:
    attempt(chdir_and_list, d)
    attempt(os.mkdir, "a"), attempt(os.mkdir, "b"), attempt(write, "a/f", os.O_CREAT), attempt(write, "a/f", os.O_TRUNC)
    attempt(os.link, "a/f", "b/g"), attempt(os.rename, "b/g", "a/h"), attempt(os.rename, "a", "b/a"), attempt(os.truncate, "b/a/f", 1)
    attempt(os.symlink, "x", "s"), attempt(os.mkfifo, "p"), attempt(bind, "sock"), attempt(tmpfile, "t"), attempt(memfd)
    attempt(os.mknod, "c", stat.S_IFCHR, os.makedev(1, 3)), attempt(os.mknod, "w", stat.S_IFCHR, 0), attempt(os.mknod, "k", stat.S_IFBLK, 0)
    attempt(os.rmdir, "b"), attempt(gone, "b/a/f"), attempt(os.remove, "b/a/h"), attempt(os.rmdir, "b/a"), attempt(os.utime, "b")
    attempt(shutil.copy, "/bin/true", "run"), attempt(subprocess.run, ["./run"]), attempt(os.chmod, "run", 0), attempt(subprocess.run, ["./run"])
attempt(os.rename, "/tmp/b", "/work/c"), attempt(os.link, "/tmp/s", "/work/other"), attempt(os.chroot, "/tmp")
for d in ["/", "/usr", "/etc", "/dev", "/proc", "/proc/self", "/proc/sys", "/root", "/proc/1/root", "/proc/1/fd", "/proc/self/root"]:
    attempt(chdir_and_list, d)
    attempt(os.mkdir, d + "/n"), attempt(write, d + "/n", os.O_CREAT), attempt(os.rename, d + "/bin", d + "/n"), attempt(os.symlink, "x", d + "/n")
    attempt(os.mkfifo, d + "/n"), attempt(os.remove, d + "/null"), attempt(os.rmdir, d + "/bin"), attempt(os.link, "/usr/bin/true", d + "/n")
for f in ["/dev/null", "/dev/zero", "/dev/full", "/dev/tty", "/dev/stdout", "/proc/self/fd/1", "/proc/self/comm", "/proc/self/oom_score_adj", "/proc/sys/kernel/hostname", "/etc/passwd"]:
    attempt(write, f), attempt(write, f, os.O_TRUNC), attempt(os.truncate, f, 0)
attempt(os.kill, 1, 0), attempt(os.kill, os.getpid(), 0), attempt(os.kill, 2, signal.SIGCONT)
END
`

// Landlock is a wall behind walls: a check can tell it by nothing.
func TestLandlockChangesNothing(t *testing.T) {
	host.Need(t, host.Root, host.CgroupWritable, host.MemoryCgroup, host.PidsCgroup, host.UserNS, host.Bash, host.Python3)
	b, err := Open(Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	abi := landlockABI()
	text := func(abi int) string {
		b.landlock = abi
		res := (&sandbox.Runner{Backend: b}).Run(context.Background(), sandbox.Spec{ID: "t", Check: touchEverything, Limits: sandbox.DefaultLimits()}).Last()
		if how := res.Evidence.Receipt.Controls[sandbox.ControlLandlock]; res.Outcome != sandbox.Exited(0) || (abi > 0) != (how != "") {
			t.Fatalf("with version %d: outcome %v, Landlock %q, stderr %s", abi, res.Outcome, how, res.Stderr.Kept)
		}
		return string(res.Stdout.Kept)
	}
	without := text(0)
	if !strings.Contains(without, "Read-only file system mkdir /usr/n\n") || !strings.Contains(without, " kill 2 ") {
		t.Fatalf("the check did not get far:\n%s", without)
	}
	for _, version := range []int{landlockLeast, landlockTruncates, landlockScopes, abi} { // a kernel takes the calls of older versions
		if version > abi {
			continue
		}
		if with := text(version); with != without {
			t.Errorf("Landlock of version %d changes what a check sees; got\n%s\nwant\n%s", version, with, without)
		}
	}
}

// The set-up of a cell whose domain does not hold fails, and says so: right
// behind the entry there is a mount that nothing but a refusal lets pass.
func TestLandlockIsProven(t *testing.T) {
	p := &planner{req: request{Landlock: landlockLeast}, writable: []string{"tmp"}}
	p.landlock()
	last := len(p.Calls) - 1
	proof := p.Calls[last]
	if p.Names[last] != proofOfLandlock || proof.Nr != unix.SYS_MOUNT || proof.Let != unix.EPERM || !proof.Only || proof.Want != ^uintptr(0) {
		t.Errorf("the last call is %q, %+v, want a mount that only EPERM lets pass", p.Names[last], proof)
	}
	if p.Calls[last-2].Nr != unix.SYS_LANDLOCK_RESTRICT_SELF { // a close is between them
		t.Errorf("before it there is %q, want the entry into the domain", p.Names[last-2])
	}
}
