package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestHostileByUser runs every case as TestHostile does, but an ordinary user
// starts checkcell, in a group that was delegated. The same is wanted of each,
// those aside in which a control can't be had by users: they are refused.
func TestHostileByUser(t *testing.T) {
	user := newDelegate(t, "memory", "pids", "cpu")
	leavesNothing(t)
	refused := map[string]refusal{}
	for _, r := range rows[refusal](t, refusalTable, refusalCount) {
		refused[r.Name] = r
	}
	hostileCasesBy(t, user, func(r *hostileRun, t *testing.T) {
		want, ok := refused[r.c.Name]
		if !ok {
			r.do(t)
			return
		}
		got := r.start(t, r.call(t, r.c.script())).wait(t)
		if err := want.match(got); err != nil {
			t.Errorf("checkcell %q: %v\nwhich is wanted because %s\n%s", r.ran[0].cmd.Args, err, want.Why, got.stderr)
		}
	})
	// Only now: while cases run, others of them have processes of this user.
	if err := user.idle(); err != nil {
		t.Error(err)
	}
}

// idle names the user's processes, but for those that are in the group in
// which the user's programs start, and what is left of checkcell's groups.
func (d *delegate) idle() error {
	home := d.name + "/" + filepath.Base(d.home.Name())
	return eachProcess("status", func(text string) bool {
		if !strings.Contains(text, fmt.Sprintf("\nUid:\t%d\t", ordinary)) {
			return false
		}
		_, rest, _ := strings.Cut(text, "\nPid:\t")
		pid, _, _ := strings.Cut(rest, "\n")
		group, err := os.ReadFile("/proc/" + pid + "/cgroup")
		return err == nil && !strings.Contains(string(group), ":"+home+"\n")
	})
}
