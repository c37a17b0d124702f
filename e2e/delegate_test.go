package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/checkcell/checkcell/internal/host"
)

// delegate is an ordinary user who was given a control group, as "Delegation"
// of cgroup-v2.rst has it: the directory and the files to move processes and
// to hand controllers down are the user's, the limits are not.
type delegate struct {
	name string // of the group, as in /proc/self/cgroup
	dir  string // of the group
	home *os.File
}

// ordinary is the user and group id of a delegate. It is that of a cell's user
// inside, too, so whoever confuses the two is seen.
const ordinary = 1000

// newDelegate makes the group and hands it over with these controllers. It
// lasts as long as the test, which must have ended all that it holds by then.
func newDelegate(t *testing.T, controllers ...string) *delegate {
	t.Helper()
	host.Need(t, host.Root, host.CgroupPureV2, host.CgroupKill, host.UnprivUserNS, host.Bash)
	root := groupRoot(t)
	administrated := filepath.Join(root, fmt.Sprintf("checkcell-administrator-%d", os.Getpid()))
	handDown(t, root, "memory", "pids", "cpu")
	makeGroup(t, administrated)
	handDown(t, administrated, controllers...)
	d := &delegate{dir: filepath.Join(administrated, "user")}
	d.name = strings.TrimPrefix(d.dir, root)
	makeGroup(t, d.dir)
	handOver(t, d.dir)
	// A group that hands controllers down holds no process, so the user's
	// programs start in one beside those of checkcell.
	home := filepath.Join(d.dir, "session")
	makeGroup(t, home)
	d.home = openGroup(t, home)
	return d
}

// groupRoot is where cgroup2 is mounted.
func groupRoot(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if before, _, ok := strings.Cut(line, " - cgroup2 "); ok {
			return strings.Fields(before)[4]
		}
	}
	t.Fatal("cgroup2 is not mounted")
	return ""
}

func handDown(t *testing.T, dir string, controllers ...string) {
	t.Helper()
	text := "+" + strings.Join(controllers, " +")
	if err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte(text), 0); err != nil {
		t.Fatal(err)
	}
}

// makeGroup makes a group that the test's end removes. A process that was
// waited for leaves its group a moment later.
func makeGroup(t *testing.T, dir string) {
	t.Helper()
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		waitFor(t, "nobody is left in "+dir, func() bool {
			err := os.Remove(dir)
			return err == nil || errors.Is(err, fs.ErrNotExist)
		})
	})
}

// handOver makes a group the user's, limits aside.
func handOver(t *testing.T, dir string) {
	t.Helper()
	for _, file := range []string{"", "cgroup.procs", "cgroup.subtree_control", "cgroup.threads"} {
		if err := os.Chown(filepath.Join(dir, file), ordinary, ordinary); err != nil {
			t.Fatal(err)
		}
	}
}

func openGroup(t *testing.T, dir string) *os.File {
	t.Helper()
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// attr starts a process as the user, in one of the user's groups.
func (d *delegate) attr(group *os.File) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		Credential:  &syscall.Credential{Uid: ordinary, Gid: ordinary},
		UseCgroupFD: true, CgroupFD: int(group.Fd()),
	}
}

// as is the call made by the user, with checkcell's groups below the user's.
// No delegate makes it ourselves.
func (c command) as(d *delegate) command {
	if d != nil {
		c.attr = d.attr(d.home)
		c.args = slices.Insert(slices.Clone(c.args), 1, "--cgroup-parent", d.name)
	}
	return c
}

// give makes the user own all that is in dir, and reach it.
func (d *delegate) give(t testing.TB, dir string) {
	t.Helper()
	if d == nil || dir == "" {
		return
	}
	if err := os.Chmod(filepath.Dir(dir), 0o711); err != nil { // testing's own, for its user alone
		t.Fatal(err)
	}
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(path, ordinary, ordinary))
	})
	if err != nil {
		t.Fatal(err)
	}
}

// refusal is a control that an ordinary user can't have enforced in a case. The
// case is then refused, and that is what is wanted of it.
type refusal struct {
	Name    string `json:"name"`
	Control string `json:"control"`
	Why     string `json:"why"`
}

const (
	refusalTable = "testdata/hostile-user.jsonl"
	refusalCount = 0 // root is not needed for any control, once groups are delegated
)

// match returns an error unless got is a run that was refused for the lack of
// the control, which names it and what to do.
func (r refusal) match(got ended) error {
	want := hostileWant{Kind: "start_failed"}
	if err := want.match(got, 1); err != nil {
		return err
	}
	var x struct {
		Outcome outcome `json:"outcome"`
	}
	if err := json.Unmarshal([]byte(got.stdout), &x); err != nil {
		return err
	}
	detail := deref(x.Outcome.Detail)
	for _, part := range []string{"can't enforce " + r.Control + ": ", "; to fix it: ", "--allow-missing=" + r.Control} {
		if !strings.Contains(detail, part) {
			return fmt.Errorf("the refusal says %q, want %q in it", detail, part)
		}
	}
	return nil
}

// An ordinary user who was given a group with every controller but one has
// every run refused by that one's name, and can do without it by saying so.
func TestRefusedToUser(t *testing.T) {
	user := newDelegate(t, "memory", "cpu")
	leavesNothing(t)
	dir := t.TempDir()
	user.give(t, dir)
	c := command{args: []string{"run", "--json", "--", "sh", "-c", "echo ran"}, env: []string{"TMPDIR=" + dir}, dir: dir}
	if err := (refusal{Control: "pids"}).match(c.as(user).run(t)); err != nil {
		t.Error(err)
	}
	if err := (refusal{Control: "memory"}).match(c.as(user).run(t)); err == nil {
		t.Error("a refusal for pids counts as one for memory")
	}
	c.args = slices.Insert(slices.Clone(c.args), 1, "--allow-missing", "pids")
	got := c.as(user).run(t)
	r := decode[result](t, got.stdout)
	if got.code != 0 || r.Stdout.Text != "ran\n" || !slices.Equal(r.Receipt.Missing, []string{"pids"}) {
		t.Errorf("checkcell %q = %d with stdout %q and missing %q, want 0, ran and pids\n%s", c.args, got.code, r.Stdout.Text, r.Receipt.Missing, got.stderr)
	}
}

// A checkcell that is started alone in its user's group, as by systemd-run
// --user --scope -p Delegate=yes, makes room there for its groups by itself.
func TestUserInOwnGroup(t *testing.T) {
	user := newDelegate(t, "memory", "pids", "cpu")
	leavesNothing(t)
	dir := t.TempDir()
	user.give(t, dir)
	scope := filepath.Join(user.dir, "scope")
	makeGroup(t, scope)
	handOver(t, scope)
	handDown(t, user.dir, "memory", "pids", "cpu")
	group := openGroup(t, scope)
	for range 2 { // the second finds the group as it was
		c := command{
			args: []string{"run", "--json", "--memory", "64MiB", "--pids", "9", "--", "sh", "-c", "echo $(id -u)"},
			env:  []string{"TMPDIR=" + dir}, dir: dir, attr: user.attr(group),
		}
		got := c.run(t)
		r := decode[result](t, got.stdout)
		controls := r.Receipt.Controls
		if got.code != 0 || r.Stdout.Text != "1000\n" || len(r.Receipt.Missing) > 0 || r.Cleanup.State != "done" {
			t.Errorf("checkcell %q = %d with stdout %q, missing %q, cleanup %+v, want 0, 1000, nothing, done\n%s",
				c.args, got.code, r.Stdout.Text, r.Receipt.Missing, r.Cleanup, got.stderr)
		}
		if !strings.HasPrefix(controls["memory"], "cgroup2 memory.max=67108864 ") || controls["pids"] != "cgroup2 pids.max=10" || !strings.HasSuffix(controls["user"], " host uid 1000") {
			t.Errorf("controls = %v, want the limits as given, and uid 1000", controls)
		}
		if text, err := os.ReadFile(filepath.Join(scope, "cgroup.subtree_control")); err != nil || strings.TrimSpace(string(text)) != "" {
			t.Errorf("the group hands down %q, %v afterwards, want nothing, as before", text, err)
		}
	}
}
