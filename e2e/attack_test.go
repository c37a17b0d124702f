package e2e

import (
	"encoding/json"
	"net"
	"strings"
	"testing"

	"github.com/checkcell/checkcell/internal/host"
)

// attackLine is a line of doctor --attack --json. The last has a summary only.
type attackLine struct {
	Name     string         `json:"name"`
	Family   string         `json:"family"`
	Standing string         `json:"standing"`
	Detail   string         `json:"detail"`
	Summary  map[string]int `json:"summary"`
}

// Nothing gets through, and what limits alone can stop is said to be limited.
func TestDoctorAttack(t *testing.T) {
	needCells(t)
	host.Need(t, host.Python3)
	leavesNothing(t)
	got := checkcell(t, "doctor", "--attack", "--json")
	lines := decodeLines[attackLine](t, got.stdout)
	if got.code != 0 || len(lines) != 63+1 || got.stderr != "" {
		t.Errorf("doctor --attack = %d with %d lines and stderr %q, want 0, 64 and none", got.code, len(lines), got.stderr)
	}
	counts := map[string]int{}
	standings := map[string]string{}
	for _, l := range lines[:max(0, len(lines)-1)] {
		counts[strings.ReplaceAll(l.Standing, " ", "_")]++
		standings[l.Name] = l.Standing
		if l.Standing != "held" && l.Standing != "limited" || l.Family == "" || (l.Detail == "") != (l.Standing == "held") {
			t.Errorf("doctor --attack: %+v, want held, or limited with a detail", l)
		}
	}
	for name, want := range map[string]string{"fork-bomb": "limited", "memory-bomb-touching": "limited", "kernel-doors": "held", "network-is-unreachable": "held"} {
		if standings[name] != want {
			t.Errorf("doctor --attack: %s is %q, want %q", name, standings[name], want)
		}
	}
	for standing, n := range lines[len(lines)-1].Summary {
		if n != counts[standing] {
			text, _ := json.Marshal(lines[len(lines)-1])
			t.Errorf("doctor --attack ends with %s, want %v", text, counts)
		}
	}
}

// Without the bait's places an attack would prove less than it says, so none is tried.
func TestDoctorAttackNeedsBait(t *testing.T) {
	needCells(t)
	leavesNothing(t)
	l, err := net.Listen("tcp4", "127.0.0.1:47811")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	got := checkcell(t, "doctor", "--attack")
	if got.code != 4 || got.stdout != "" || !strings.Contains(got.stderr, "lay bait") {
		t.Errorf("doctor --attack without its port = %d with stdout %q, stderr %q, want 4, none, the reason", got.code, got.stdout, got.stderr)
	}
}
