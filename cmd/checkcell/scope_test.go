package main

import (
	"testing"

	"github.com/checkcell/checkcell/cgroup"
	"github.com/checkcell/checkcell/sandbox"
)

func TestWantsScope(t *testing.T) {
	cpu := []sandbox.Control{sandbox.ControlCPU}
	tests := []struct {
		name    string
		uid     int
		parent  string
		mode    cgroup.Mode
		missing []sandbox.Control
		want    bool
	}{
		{"a user without cpu", 1000, "", cgroup.ModeV2, cpu, true},
		{"nothing is missing", 1000, "", cgroup.ModeV2, nil, false},
		{"root", 0, "", cgroup.ModeV2, cpu, false},
		{"a parent was named", 1000, "/checkcell.slice", cgroup.ModeV2, cpu, false},
		{"hybrid", 1000, "", cgroup.ModeHybrid, cpu, false},
		{"version 1", 1000, "", cgroup.ModeV1, cpu, false},
		{"no groups at all, or nobody knows why", 1000, "", cgroup.ModeNone, cpu, false},
	}
	for _, tt := range tests {
		if got := wantsScope(tt.uid, tt.parent, tt.mode, tt.missing); got != tt.want {
			t.Errorf("%s: wantsScope(%d, %q, %v, %v) = %v, want %v", tt.name, tt.uid, tt.parent, tt.mode, tt.missing, got, tt.want)
		}
	}
}

func TestSayScope(t *testing.T) {
	caps := func() []sandbox.Capability {
		return []sandbox.Capability{{Control: sandbox.ControlCgroup, How: "cgroup2"}, {Control: sandbox.ControlCPU, How: "cgroup2"}}
	}
	f := cellFlags{scope: "checkcell-7-ab.scope"}
	if got := f.sayScope(caps()); got[0].How != "cgroup2, in checkcell-7-ab.scope of your systemd" || got[1].How != "cgroup2" {
		t.Errorf("sayScope in a scope = %+v, want it named beside cgroup", got)
	}
	f.scope = ""
	if got := f.sayScope(caps()); got[0].How != "cgroup2" {
		t.Errorf("sayScope without one = %+v, want no word of it", got)
	}
}
