package e2e

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

const inspectScript = "../examples/inspect.sh"

// A cell that looks at itself finds itself as it should be, and in no
// namespace of the host that it names.
func TestInspect(t *testing.T) {
	needCells(t)
	leavesNothing(t)
	workspace := t.TempDir()
	for _, flags := range [][]string{nil, {"--workspace", workspace}} {
		args := append([]string{"run", "--json", "--check", inspectScript}, flags...)
		got := checkcell(t, args...)
		r := decode[result](t, got.stdout)
		if got.code != 0 || strings.Contains(r.Stdout.Text, "AMISS") || r.Stderr.Text != "" {
			t.Errorf("checkcell %q = %d, want 0\n%s%s", args, got.code, r.Stdout.Text, r.Stderr.Text)
		}
		spaces := regexp.MustCompile(`(?m)^compare with the host: ((\w+):\[\d+\])$`).FindAllStringSubmatch(r.Stdout.Text, -1)
		if len(spaces) != 7 { // all but that of the time: a cell can't set the host's
			t.Errorf("checkcell %q names %d namespaces, want 7\n%s", args, len(spaces), r.Stdout.Text)
		}
		for _, space := range spaces {
			ours, err := os.Readlink("/proc/self/ns/" + space[2])
			if err != nil {
				t.Fatal(err)
			}
			if space[1] == ours {
				t.Errorf("the cell is in %s, which is the host's", ours)
			}
		}
	}
}

// Outside of a cell the script says what is amiss.
func TestInspectOutside(t *testing.T) {
	needCells(t)
	out, err := exec.Command("bash", "--norc", inspectScript).Output()
	if err == nil {
		t.Error("inspect.sh outside of a cell exits with 0, want 1")
	}
	for _, fact := range []string{"CapEff", "Seccomp", "NoNewPrivs", "uid_map not 0 outside", "writable, not ours", "mounts with set-uid", "/usr writable", "/sys", "processes"} {
		if !strings.Contains(string(out), "AMISS  "+fact) {
			t.Errorf("inspect.sh outside of a cell does not say that %s is amiss\n%s", fact, out)
		}
	}
}
