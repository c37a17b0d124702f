package cgroup

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"
)

func ptr[T any](v T) *T { return &v }

func TestSettings(t *testing.T) {
	full := &specs.LinuxResources{
		Devices: []specs.LinuxDeviceCgroup{{Allow: false}},
		Memory:  &specs.LinuxMemory{Limit: ptr(int64(1 << 20)), Swap: ptr(int64(1 << 20)), DisableOOMKiller: ptr(false)},
		Pids:    &specs.LinuxPids{Limit: ptr(int64(9))},
		CPU:     &specs.LinuxCPU{Quota: ptr(int64(50_000)), Period: ptr(uint64(20_000))},
	}
	for _, tt := range []struct {
		name   string
		res    *specs.LinuxResources
		v2, v1 []string
	}{
		{"nil", nil, nil, nil},
		{"empty", &specs.LinuxResources{Memory: &specs.LinuxMemory{}, Pids: &specs.LinuxPids{}, CPU: &specs.LinuxCPU{}}, nil, nil},
		{"full", full,
			[]string{"memory.max=1048576", "memory.swap.max=0", "memory.oom.group=1", "pids.max=9", "cpu.max=50000 20000"},
			[]string{"memory.limit_in_bytes=1048576", "memory.memsw.limit_in_bytes=1048576", "pids.max=9", "cpu.cfs_period_us=20000", "cpu.cfs_quota_us=50000"}},
		{"unlimited", &specs.LinuxResources{
			Memory: &specs.LinuxMemory{Limit: ptr(int64(-1))}, Pids: &specs.LinuxPids{Limit: ptr(int64(-1))},
			CPU: &specs.LinuxCPU{Quota: ptr(int64(-1)), Period: ptr(uint64(1000))},
		}, nil, nil},
		{"quota without a period", &specs.LinuxResources{CPU: &specs.LinuxCPU{Quota: ptr(int64(70_000))}},
			[]string{"cpu.max=70000 100000"}, []string{"cpu.cfs_period_us=100000", "cpu.cfs_quota_us=70000"}},
	} {
		l, err := limitsOf(tt.res)
		if err != nil {
			t.Errorf("limitsOf(%s) = %v, want nil", tt.name, err)
		}
		for v2, want := range map[bool][]string{true: tt.v2, false: tt.v1} {
			var got []string
			for _, s := range l.settings(func(Controller) bool { return v2 }) {
				got = append(got, s.file+"="+s.value)
			}
			if diff := cmp.Diff(got, want); diff != "" {
				t.Errorf("settings(%s), v2 %v (-got +want):\n%s", tt.name, v2, diff)
			}
		}
	}
}

// TestLimitsOfRefuses has one field a case that would otherwise be dropped, or
// that means nothing: a limit that was asked for is enforced or refused.
func TestLimitsOfRefuses(t *testing.T) {
	memory := func(m specs.LinuxMemory) *specs.LinuxResources { return &specs.LinuxResources{Memory: &m} }
	cpu := func(c specs.LinuxCPU) *specs.LinuxResources { return &specs.LinuxResources{CPU: &c} }
	for i, tt := range []struct {
		res  *specs.LinuxResources
		want string
	}{
		{memory(specs.LinuxMemory{Limit: ptr(int64(0))}), "memory limit 0"},
		{memory(specs.LinuxMemory{Limit: ptr(int64(-2))}), "memory limit -2"},
		{memory(specs.LinuxMemory{Swap: ptr(int64(0))}), "swap"},
		{memory(specs.LinuxMemory{Limit: ptr(int64(1 << 20)), Swap: ptr(int64(2 << 20))}), "swap"},
		{memory(specs.LinuxMemory{Limit: ptr(int64(1 << 20)), Swap: ptr(int64(-1))}), "swap"},
		{memory(specs.LinuxMemory{DisableOOMKiller: ptr(true)}), "OOM"},
		{memory(specs.LinuxMemory{Reservation: ptr(int64(1))}), "of memory"},
		//lint:ignore SA1019 the deprecated field is refused too
		{memory(specs.LinuxMemory{Kernel: ptr(int64(1))}), "of memory"},
		{memory(specs.LinuxMemory{KernelTCP: ptr(int64(1))}), "of memory"},
		{memory(specs.LinuxMemory{Swappiness: ptr(uint64(1))}), "of memory"},
		{memory(specs.LinuxMemory{UseHierarchy: ptr(false)}), "of memory"},
		{&specs.LinuxResources{Pids: &specs.LinuxPids{Limit: ptr(int64(0))}}, "pids limit 0"},
		{&specs.LinuxResources{Pids: &specs.LinuxPids{Limit: ptr(int64(-5))}}, "pids limit -5"},
		{cpu(specs.LinuxCPU{Quota: ptr(int64(0))}), "cpu quota 0"},
		{cpu(specs.LinuxCPU{Quota: ptr(int64(5)), Period: ptr(uint64(0))}), "cpu period 0"},
		{cpu(specs.LinuxCPU{Shares: ptr(uint64(5))}), "of cpu"},
		{cpu(specs.LinuxCPU{Burst: ptr(uint64(5))}), "of cpu"},
		{cpu(specs.LinuxCPU{RealtimeRuntime: ptr(int64(5))}), "of cpu"},
		{cpu(specs.LinuxCPU{RealtimePeriod: ptr(uint64(5))}), "of cpu"},
		{cpu(specs.LinuxCPU{Idle: ptr(int64(1))}), "of cpu"},
		{cpu(specs.LinuxCPU{Cpus: "0"}), "of cpu"},
		{cpu(specs.LinuxCPU{Mems: "0"}), "of cpu"},
		{&specs.LinuxResources{BlockIO: &specs.LinuxBlockIO{}}, "only memory"},
		{&specs.LinuxResources{HugepageLimits: []specs.LinuxHugepageLimit{{}}}, "only memory"},
		{&specs.LinuxResources{Network: &specs.LinuxNetwork{}}, "only memory"},
		{&specs.LinuxResources{Rdma: map[string]specs.LinuxRdma{"x": {}}}, "only memory"},
		{&specs.LinuxResources{Unified: map[string]string{"memory.high": "1"}}, "only memory"},
	} {
		if l, err := limitsOf(tt.res); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%d: limitsOf = %+v, %v, want an error with %q", i, l, err, tt.want)
		}
	}
}

func TestSettingHolds(t *testing.T) {
	plain, pages := setting{value: "50000 20000"}, setting{value: "10000", pages: true}
	for _, tt := range []struct {
		s    setting
		got  string
		want bool
	}{
		{plain, "50000 20000\n", true}, {plain, "50000  20000", true}, {plain, "max 20000", false}, {plain, "50000", false}, {plain, "", false},
		{pages, "10000", true}, {pages, "8192\n", true}, {pages, "12288", true},
		{pages, "4096", false}, {pages, "16384", false}, {pages, "max", false}, {pages, "", false},
	} {
		if got := tt.s.holds(tt.got, 4096); got != tt.want {
			t.Errorf("setting %q holds(%q) = %v, want %v", tt.s.value, tt.got, got, tt.want)
		}
	}
}

func TestReading(t *testing.T) {
	broken := fmt.Errorf("broken")
	for _, tt := range []struct {
		r    Reading
		n    int64
		ok   bool
		want string
	}{
		{Reading{}, 0, false, "not read"},
		{reading(0, nil), 0, true, ""},
		{reading(7, nil), 7, true, ""},
		{reading(0, broken), 0, false, "broken"},
	} {
		n, ok := tt.r.Value()
		got := ""
		if err := tt.r.Err(); err != nil {
			got = err.Error()
		}
		if n != tt.n || ok != tt.ok || got != tt.want {
			t.Errorf("%+v: Value() = %d, %v and Err() = %q, want %d, %v, %q", tt.r, n, ok, got, tt.n, tt.ok, tt.want)
		}
	}
}
