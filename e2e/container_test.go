package e2e

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/checkcell/checkcell/internal/host"
)

// unconfined are the options of a container that may make namespaces and mount, as far as
// its user may.
var unconfined = []string{"--security-opt", "seccomp=unconfined", "--security-opt", "apparmor=unconfined", "--security-opt", "systempaths=unconfined"}

// The image of checkcell makes cells in a container that may do what root may here,
// as an ordinary user without groups, and says of other containers what they lack.
func TestContainer(t *testing.T) {
	host.Need(t, host.Root, host.CgroupV1, host.MemoryCgroup, host.PidsCgroup, host.UserNS, host.Bash, host.Docker)
	leavesNothing(t)
	image := buildContainer(t)
	root := imagesOf(t, 0)
	privileged := slices.Concat(unconfined, ourCapabilities(t), root, []string{"--volume", "/sys/fs/cgroup:/sys/fs/cgroup"})
	user := append(imagesOf(t, 1000), "--user", "1000")
	anyone := slices.Concat(unconfined, user)
	const withoutGroups = "--allow-missing=cgroup,memory,pids,cpu,cpu-time"
	const claim = `{"id":"c","rung":4,"check":"echo rows=$(seq 17 | wc -l)","expect":"rows=17"}`
	const hello = "echo hello; exit 7"
	cell := []string{"run", "--image", "localhost/shell:1"}
	for _, tt := range []struct {
		name    string
		options []string
		args    []string
		code    int
		want    string // in stdout or stderr
	}{
		{"doctor of all", privileged, []string{"doctor", "--json"}, 0, `"control":"memory","state":"in force"`},
		{"run with all", privileged, append(cell, "--", "bash", "-c", hello), 7, "hello"},
		{"grade with all", privileged, []string{"grade", "--image", "localhost/shell:1", "-"}, 0, "1 verified"},
		{"an ordinary user", anyone, append(cell, withoutGroups, "--", "bash", "-c", hello), 7, "hello"},
		{"grade by an ordinary user", anyone, []string{"grade", "--image", "localhost/shell:1", withoutGroups, "-"}, 0, "1 verified"},
		{"an ordinary user without leave", anyone, append(cell, "--", "true"), 125, "can't enforce cgroup, memory, pids, cpu"},
		{"root that may not mount", slices.Concat(unconfined, root), append(cell, withoutGroups, "--", "true"), 125, "docker run --user 1000"},
		{"a filter of system calls", user, append(cell, withoutGroups, "--", "true"), 125, "seccomp=unconfined"},
		{"doctor in the usual container", nil, []string{"doctor"}, 4, "docker run --privileged"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := docker(t, claim, slices.Concat([]string{"run", "--rm", "--interactive", "--network=none"}, tt.options, []string{image}, tt.args)...)
			if got.code != tt.code || !strings.Contains(got.stdout+got.stderr, tt.want) {
				t.Errorf("checkcell %q in a container = %d, want %d and %q:\n%s%s", tt.args, got.code, tt.code, tt.want, got.stdout, got.stderr)
			}
		})
	}
}

// imagesOf are the options that show a container an image of cells, in a store of the
// given user's.
func imagesOf(t *testing.T, user uint32) []string {
	t.Helper()
	dir := t.TempDir()
	if err := errors.Join(os.Chmod(filepath.Dir(dir), 0o755), os.Chown(dir, int(user), int(user))); err != nil {
		t.Fatal(err)
	}
	pack := command{
		args: []string{"image", "pack", "--store", dir, "--from-host", "--name", "localhost/shell:1", "bash", "coreutils"},
		attr: &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}},
	}
	if got := pack.run(t); got.code != 0 {
		t.Fatalf("image pack = %d: %s", got.code, got.stderr)
	}
	return []string{"--volume", dir + ":/var/lib/checkcell/images"}
}

// buildContainer builds the image as make image does, and returns its name.
func buildContainer(t *testing.T) string {
	t.Helper()
	binary, err := exec.LookPath("checkcell")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	install := exec.Command("make", "-C", "..", "--no-print-directory", "image-root", "BINARY="+binary, "ROOT="+filepath.Join(dir, "bin/root"))
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("%q: %v: %s", install.Args, err, out)
	}
	image := "checkcell-test:" + strconv.Itoa(os.Getpid())
	if got := docker(t, "", "build", "--quiet", "--target", "prebuilt", "--tag", image, "--file", "../Dockerfile", dir); got.code != 0 {
		t.Fatalf("docker build = %d: %s", got.code, got.stderr)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("docker", "image", "rm", "--force", image).CombinedOutput(); err != nil {
			t.Errorf("docker image rm: %v: %s", err, out)
		}
	})
	return image
}

func docker(t *testing.T, stdin string, args ...string) ended {
	t.Helper()
	return command{program: "docker", args: args, stdin: stdin}.run(t)
}

// ourCapabilities are the options that give a container what root has here, which is
// not all that --privileged asks for on every machine.
func ourCapabilities(t *testing.T) []string {
	t.Helper()
	names := strings.Fields("CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE NET_BIND_SERVICE " +
		"NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT SYS_PTRACE SYS_PACCT SYS_ADMIN SYS_BOOT SYS_NICE SYS_RESOURCE")
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(status), "\nCapBnd:\t")
	bounding, err := strconv.ParseUint(strings.Fields(text)[0], 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	var options []string
	for n, name := range names { // by their numbers, capabilities(7)
		if bounding>>n&1 == 1 {
			options = append(options, "--cap-add", name)
		}
	}
	return options
}
