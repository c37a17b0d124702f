package cgroup

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// describe is a plan as lines that a table can hold.
func (p plan) describe() []string {
	lines := []string{p.mode.String()}
	for _, u := range p.uses {
		lines = append(lines, fmt.Sprintf("%s in %q: %v", u.mount.point, u.dir, u.provides))
	}
	for _, c := range []Controller{Memory, PIDs, CPU, CPUTime, Kill, Freeze} {
		if why := p.missing[c]; why != "" {
			lines = append(lines, fmt.Sprintf("no %v: %s", c, why))
		}
	}
	return lines
}

// at is where all machines of the tables have their hierarchies.
const at = "/sys/fs/cgroup"

// planCase is one row: what is made of a machine.
type planCase struct {
	machine machine
	cfg     Config
	want    []string
}

func (tt planCase) check(t *testing.T) {
	t.Helper()
	mounts, self := tt.machine.parse(t)
	p := makePlan(mounts, self, tt.cfg)
	if diff := cmp.Diff(p.describe(), tt.want); diff != "" {
		t.Errorf("makePlan(%s, %+v) (-got +want):\n%s", tt.machine.name, tt.cfg, diff)
	}
	spare, want := "", ""
	if p.freezer != nil {
		spare = p.freezer.dir
	}
	if p.mode == ModeHybrid {
		want = at + "/freezer"
	}
	if spare != want {
		t.Errorf("makePlan(%s, %+v) has the spare freezer %q, want %q", tt.machine.name, tt.cfg, spare, want)
	}
}

func TestMakePlanV2(t *testing.T) {
	for _, tt := range []planCase{
		{systemdV2, Config{}, []string{
			"v2",
			at + ` in "` + at + `/user.slice/user-1000.slice/session-3.scope": [cpu-time kill freeze memory pids cpu]`,
		}},
		{systemdV2, Config{Parent: "/mine"}, []string{
			"v2",
			at + ` in "` + at + `/mine": [cpu-time kill freeze memory pids cpu]`,
		}},
		{dockerV2, Config{}, []string{
			"v2",
			at + ` in "` + at + `": [cpu-time kill freeze memory pids cpu]`,
		}},
		{systemdV2, Config{V1Only: true}, []string{
			"none",
			"no memory: no hierarchy with memory is mounted",
			"no pids: no hierarchy with pids is mounted",
			"no cpu: no hierarchy with cpu is mounted",
			"no cpu-time: no hierarchy with cpuacct is mounted",
			"no kill: no hierarchy is mounted",
			"no freeze: no hierarchy with the freezer is mounted",
		}},
		{bare, Config{}, []string{
			"none",
			"no memory: no hierarchy with memory is mounted",
			"no pids: no hierarchy with pids is mounted",
			"no cpu: no hierarchy with cpu is mounted",
			"no cpu-time: no hierarchy with cpuacct is mounted",
			"no kill: no hierarchy is mounted",
			"no freeze: no hierarchy with the freezer is mounted",
		}},
	} {
		tt.check(t)
	}
}

func TestMakePlanV1(t *testing.T) {
	for _, tt := range []planCase{
		{dockerHostNS, Config{}, []string{
			"v1",
			at + `/freezer in "` + at + `/freezer": [freeze kill]`,
			at + `/cpu,cpuacct in "` + at + `/cpu,cpuacct": [cpu-time cpu]`,
			at + `/memory in "` + at + `/memory": [memory]`,
			at + `/pids in "` + at + `/pids/inner": [pids]`,
		}},
		{dockerHostNS, Config{Parent: "/elsewhere"}, []string{
			"v1",
			at + `/freezer in "": [freeze kill]`,
			at + `/cpu,cpuacct in "": [cpu-time cpu]`,
			at + `/memory in "": [memory]`,
			at + `/pids in "": [pids]`,
		}},
		{hybrid, Config{}, []string{
			"hybrid",
			at + `/unified in "` + at + `/unified": [cpu-time kill freeze]`,
			at + `/memory in "` + at + `/memory/process_api/4076": [memory]`,
			at + `/pids in "` + at + `/pids": [pids]`,
			at + `/cpu in "` + at + `/cpu": [cpu]`,
		}},
		{hybrid, Config{V1Only: true}, []string{
			"v1",
			at + `/freezer in "` + at + `/freezer": [freeze kill]`,
			at + `/cpuacct in "` + at + `/cpuacct": [cpu-time]`,
			at + `/memory in "` + at + `/memory/process_api/4076": [memory]`,
			at + `/pids in "` + at + `/pids": [pids]`,
			at + `/cpu in "` + at + `/cpu": [cpu]`,
		}},
		{pureV1, Config{}, []string{
			"v1",
			at + `/cpu,cpuacct in "` + at + `/cpu,cpuacct/user.slice": [cpu-time cpu kill]`,
			at + `/memory,pids in "` + at + `/memory,pids/user.slice": [memory pids]`,
			"no freeze: no hierarchy with the freezer is mounted",
		}},
	} {
		tt.check(t)
	}
}

// TestMakePlanMixed has a hybrid host with one controller on cgroup2.
func TestMakePlanMixed(t *testing.T) {
	m := machine{
		"pids on cgroup2",
		strings.Replace(hybrid.mountinfo, "cgroup cgroup rw,pids", "cgroup cgroup rw,perf_event", 1),
		strings.Replace(hybrid.cgroup, "pids", "perf_event", 1),
	}
	mounts, self := m.parse(t)
	p := makePlan(mounts, self, Config{})
	if got, want := fmt.Sprint(p.mode, p.uses[0].provides), "hybrid [cpu-time kill freeze pids]"; got != want {
		t.Errorf("makePlan(%s) = %s, want %s", m.name, got, want)
	}
}

func TestWithoutLeaf(t *testing.T) {
	for in, want := range map[string]string{
		"/":                                   "/",
		"":                                    "",
		"/a/checkcell/supervisor-7-0a":        "/a",
		"/checkcell/supervisor-7-0a":          "/",
		"/checkcell/s-7-0a/run":               "/checkcell/s-7-0a/run",
		"/a/supervisor-7-0a":                  "/a/supervisor-7-0a",
		"/a/checkcell/supervisor-7-0a/deeper": "/a/checkcell/supervisor-7-0a/deeper",
	} {
		if got := withoutLeaf(in); got != want {
			t.Errorf("withoutLeaf(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestHint(t *testing.T) {
	for _, tt := range []struct {
		mode Mode
		uid  int
		want string
	}{
		{ModeNone, 0, "mount -t cgroup2"},
		{ModeV2, 0, "systemd-run --scope -p Delegate=yes"},
		{ModeV2, 1000, "systemd-run --user --scope -p Delegate=yes"},
		{ModeV2, 0, "--cgroup-parent"},
		{ModeV1, 0, "writable"},
		{ModeHybrid, 1000, "as root"},
	} {
		if got := hint(tt.mode, tt.uid); !strings.Contains(got, tt.want) {
			t.Errorf("hint(%v, %d) = %q, want %q in it", tt.mode, tt.uid, got, tt.want)
		}
	}
}
