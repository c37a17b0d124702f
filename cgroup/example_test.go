package cgroup_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/checkcell/checkcell/cgroup"
	"github.com/checkcell/checkcell/internal/host"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// A process in a group of its own, with a limit, from its birth to the proof
// that nothing of it is left. It needs root or a delegated group, so it says
// what it prints in a comment of its own, and TestExample runs it where these
// are to be had.
func Example() {
	owner, err := cgroup.Open(cgroup.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() {
		if err := owner.Close(); err != nil {
			fmt.Println(err)
		}
	}()
	most := int64(16)
	group, err := owner.Create("example", &specs.LinuxResources{Pids: &specs.LinuxPids{Limit: &most}})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	defer func() {
		if err := group.Remove(ctx); err != nil {
			fmt.Println(err)
		}
	}()

	sleep := exec.Command("sleep", "600")
	if fd, ok := group.FD(); ok { // cgroup2: it is born in the group
		sleep.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: fd}
	}
	if err := sleep.Start(); err != nil {
		fmt.Println(err)
		return
	}
	err = group.Add(sleep.Process.Pid) // version 1: it is moved there
	members, membersErr := group.Members()
	killErr := group.Kill(ctx) // nil: the group is empty
	if err := errors.Join(err, membersErr, killErr); err != nil {
		fmt.Println(err)
	}
	fmt.Println(len(members), "member,", sleep.Wait())
	members, err = group.Members()
	fmt.Println(len(members), "members,", err)
	// It prints:
	// 1 member, signal: killed
	// 0 members, <nil>
}

// A limit that can't be enforced is an error that says which and why, never a
// group without it.
func ExampleMissingError() {
	err := error(&cgroup.MissingError{
		Mode:    cgroup.ModeHybrid,
		Missing: map[cgroup.Controller]string{cgroup.Memory: "no hierarchy with memory is mounted"},
		Hint:    "Run it as root, or name a group that you may write to with --cgroup-parent",
	})
	var missing *cgroup.MissingError
	if errors.As(err, &missing) {
		fmt.Println(missing.Missing[cgroup.Memory])
	}
	fmt.Println(err)
	// Output:
	// no hierarchy with memory is mounted
	// cgroup hybrid can't enforce memory: no hierarchy with memory is mounted. Run it as root, or name a group that you may write to with --cgroup-parent
}

// A reading that is not known is not 0.
func ExampleReading() {
	var never cgroup.Reading
	n, ok := never.Value()
	fmt.Println(n, ok, never.Err())
	// Output:
	// 0 false not read
}

func TestExample(t *testing.T) {
	host.Need(t, host.Root, host.CgroupWritable, host.PidsCgroup)
	const want = "1 member, signal: killed\n0 members, <nil>\n"
	if got := printed(t, Example); got != want {
		t.Errorf("Example() printed %q, want %q", got, want)
	}
}

// printed returns what example prints.
func printed(t *testing.T, example func()) string {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "stdout")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() // all that is wanted of it was read
	stdout := os.Stdout
	os.Stdout = f
	defer func() { os.Stdout = stdout }()
	example()
	text, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
