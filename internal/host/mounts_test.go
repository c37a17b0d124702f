package host

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

const (
	hybridMounts = `26 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
31 30 0:28 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
34 30 0:31 / /sys/fs/cgroup/memory rw,relatime shared:1 master:2 - cgroup cgroup rw,memory
39 30 0:36 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,xattr,name=systemd
40 30 0:37 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
41 30 0:37 / /elsewhere/unified rw,relatime - cgroup2 cgroup2 rw
`
	containerMounts = `40 30 0:37 /docker/abc /sys/fs/cgroup ro,relatime - cgroup2 cgroup rw,nsdelegate
`
)

// mountTests seeds the fuzz target too.
func mountTests() []struct {
	text string
	want []mount
	ok   bool
} {
	return []struct {
		text string
		want []mount
		ok   bool
	}{
		{"", nil, true},
		{"26 1 254:0 / / rw - ext4 /dev/vda rw,discard\n", []mount{{"/", "/", "ext4", "/dev/vda", []string{"rw", "discard"}}}, true},
		{"26 1 254:0 /a /b rw shared:1 master:2 - tmpfs none rw", []mount{{"/a", "/b", "tmpfs", "none", []string{"rw"}}}, true},
		{"26 1 0:9 / /a\\040b\\134c\\011 rw - tmpfs x\\040y rw\n", []mount{{"/", "/a b\\c\t", "tmpfs", "x y", []string{"rw"}}}, true},
		{"26 1 0:9 / /odd\\9\\04 rw - tmpfs none rw\n", []mount{{"/", "/odd\\9\\04", "tmpfs", "none", []string{"rw"}}}, true},
		{"26 1 254:0 / / rw ext4 /dev/vda rw\n", nil, false},
		{"26 1 254:0 / / - ext4 /dev/vda rw\n", nil, false},
		{"26 1 254:0 / / rw - ext4 /dev/vda\n", nil, false},
		{"\n", nil, false},
	}
}

func TestParseMounts(t *testing.T) {
	for _, tt := range mountTests() {
		got, err := parseMounts([]byte(tt.text))
		if (err == nil) != tt.ok || !reflect.DeepEqual(got, tt.want) {
			t.Errorf("parseMounts(%q) = %+v, %v, want %+v and nil to be %v", tt.text, got, err, tt.want, tt.ok)
		}
	}
}

func FuzzParseMounts(f *testing.F) {
	for _, tt := range mountTests() {
		f.Add(tt.text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := parseMounts([]byte(text))
		if lines := len(slices.Collect(strings.Lines(text))); err == nil && len(got) != lines {
			t.Errorf("parseMounts(%q) = %d mounts of %d lines", text, len(got), lines)
		}
	})
}

func TestPlaceHierarchies(t *testing.T) {
	tests := []struct {
		name, mounts, own string
		want              []hierarchy
	}{
		{"hybrid", hybridMounts, "9:name=systemd:/\n4:memory:/api/x y\n2:cpu,cpuacct:/\n0::/a:b\n", []hierarchy{
			{false, "/sys/fs/cgroup/systemd", "/sys/fs/cgroup/systemd", []string{"name=systemd"}},
			{false, "/sys/fs/cgroup/memory", "/sys/fs/cgroup/memory/api/x y", []string{"memory"}},
			{false, "/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup/cpu,cpuacct", []string{"cpu", "cpuacct"}},
			{true, "/sys/fs/cgroup/unified", "/sys/fs/cgroup/unified/a:b", nil},
		}},
		{"container", containerMounts, "0::/docker/abc/inner\n", []hierarchy{{true, "/sys/fs/cgroup", "/sys/fs/cgroup/inner", nil}}},
		{"outside the mount", containerMounts, "0::/user.slice\n", []hierarchy{{true, "/sys/fs/cgroup", "/sys/fs/cgroup", nil}}},
		{"outside the namespace", containerMounts, "0::/../..\n", []hierarchy{{true, "/sys/fs/cgroup", "/sys/fs/cgroup", nil}}},
		{"not mounted", hybridMounts, "8:pids:/\n", nil},
		{"a line that is none", hybridMounts, "memory\n", nil},
	}
	for _, tt := range tests {
		mounts, err := parseMounts([]byte(tt.mounts))
		if err != nil {
			t.Fatalf("%s: parseMounts = %v", tt.name, err)
		}
		if got := placeHierarchies(mounts, []byte(tt.own)); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: placeHierarchies(%q) = %+v, want %+v", tt.name, tt.own, got, tt.want)
		}
	}
}
