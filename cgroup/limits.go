package cgroup

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// defaultPeriod is the kernel's own period of CPU bandwidth, in microseconds.
const defaultPeriod = 100_000

// limits are the bounds of one group. A nil pointer is no bound.
type limits struct {
	memory *int64 // bytes
	pids   *int64
	quota  *int64 // microseconds a period
	period uint64 // microseconds; 0 without a quota
}

// limitsOf reads the fields of res that a group enforces, and refuses those
// that it doesn't, so that nothing asked for is dropped. Devices are left to
// the backend.
func limitsOf(res *specs.LinuxResources) (limits, error) {
	var l limits
	if res == nil {
		return l, nil
	}
	if res.BlockIO != nil || len(res.HugepageLimits) > 0 || res.Network != nil || len(res.Rdma) > 0 || len(res.Unified) > 0 {
		return l, fmt.Errorf("resources: only memory, pids and cpu can be limited")
	}
	var err error
	if m := res.Memory; m != nil {
		if l.memory, err = bound("memory limit", m.Limit); err != nil {
			return l, err
		}
		if err := refuseMemory(m); err != nil {
			return l, err
		}
	}
	if res.Pids != nil {
		if l.pids, err = bound("pids limit", res.Pids.Limit); err != nil {
			return l, err
		}
	}
	if c := res.CPU; c != nil {
		if l.quota, err = bound("cpu quota", c.Quota); err != nil {
			return l, err
		}
		if c.Shares != nil || c.Burst != nil || c.RealtimeRuntime != nil || c.RealtimePeriod != nil || c.Idle != nil || c.Cpus != "" || c.Mems != "" {
			return l, fmt.Errorf("resources: of cpu only quota and period can be set")
		}
		l.period, err = period(c, l.quota)
	}
	return l, err
}

// refuseMemory returns an error for what res asks of memory beside the limit.
// Swap counts memory and swap together there, so "no swap" is the limit itself.
func refuseMemory(m *specs.LinuxMemory) error {
	if m.Swap != nil && (m.Limit == nil || *m.Swap != *m.Limit) {
		return fmt.Errorf("resources: memory swap %d: must be left out or equal to the limit, for swap is always 0", *m.Swap)
	}
	if m.DisableOOMKiller != nil && *m.DisableOOMKiller {
		return fmt.Errorf("resources: the OOM killer can't be disabled")
	}
	//lint:ignore SA1019 the deprecated fields are read to refuse them
	if m.Reservation != nil || m.Kernel != nil || m.KernelTCP != nil || m.Swappiness != nil || m.UseHierarchy != nil && !*m.UseHierarchy {
		return fmt.Errorf("resources: of memory only limit and swap can be set")
	}
	return nil
}

// bound returns nil for no bound: nil or -1, as the runtime specification has it.
func bound(what string, value *int64) (*int64, error) {
	switch {
	case value == nil || *value == -1:
		return nil, nil
	case *value < 1:
		return nil, fmt.Errorf("resources: %s %d: must be positive, or -1 for none", what, *value)
	}
	return value, nil
}

func period(c *specs.LinuxCPU, quota *int64) (uint64, error) {
	switch {
	case c.Period != nil && *c.Period == 0:
		return 0, fmt.Errorf("resources: cpu period 0: must be positive")
	case quota == nil:
		return 0, nil
	case c.Period == nil:
		return defaultPeriod, nil
	}
	return *c.Period, nil
}

// setting is a value to write to one file of a group.
type setting struct {
	controller Controller
	key        string // the key in Group.Controls
	file       string
	value      string
	pages      bool // the kernel rounds the value to pages
	optional   bool // the file may be missing, where there is no swap
}

// settings are the writes that put l in force, in order.
func (l limits) settings(v2 func(Controller) bool) []setting {
	var s []setting
	if l.memory != nil {
		s = append(s, memorySettings(strconv.FormatInt(*l.memory, 10), v2(Memory))...)
	}
	if l.pids != nil {
		s = append(s, setting{controller: PIDs, key: "pids", file: "pids.max", value: strconv.FormatInt(*l.pids, 10)})
	}
	if l.quota == nil {
		return s
	}
	quota, period := strconv.FormatInt(*l.quota, 10), strconv.FormatUint(l.period, 10)
	if v2(CPU) {
		return append(s, setting{controller: CPU, key: "cpu", file: "cpu.max", value: quota + " " + period})
	}
	return append(s,
		setting{controller: CPU, key: "cpu", file: "cpu.cfs_period_us", value: period},
		setting{controller: CPU, key: "cpu", file: "cpu.cfs_quota_us", value: quota})
}

// memorySettings bound memory, and swap to nothing. Version 1 bounds memory and
// swap together, and only after memory alone (cgroup-v1/memory.rst, 2.4).
func memorySettings(bytes string, v2 bool) []setting {
	if v2 {
		return []setting{
			{controller: Memory, key: "memory", file: "memory.max", value: bytes, pages: true},
			{controller: Memory, key: "memory", file: "memory.swap.max", value: "0", optional: true},
			{controller: Memory, key: "memory", file: "memory.oom.group", value: "1"},
		}
	}
	return []setting{
		{controller: Memory, key: "memory", file: "memory.limit_in_bytes", value: bytes, pages: true},
		{controller: Memory, key: "memory", file: "memory.memsw.limit_in_bytes", value: bytes, pages: true, optional: true},
	}
}

// holds reports whether got, read from the file, is what s asked for.
func (s setting) holds(got string, pageSize int64) bool {
	if !s.pages {
		return strings.Join(strings.Fields(got), " ") == s.value
	}
	want, err := strconv.ParseInt(s.value, 10, 64)
	if err != nil {
		return false
	}
	have, err := strconv.ParseInt(strings.TrimSpace(got), 10, 64)
	return err == nil && have > want-pageSize && have < want+pageSize
}
