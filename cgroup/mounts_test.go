package cgroup

import (
	"path"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// machine is what one kind of machine shows of its cgroups.
type machine struct {
	name      string
	mountinfo string
	cgroup    string
}

// The machines are as systemd, Docker and this project's own hosts set them up.
var (
	systemdV2 = machine{
		"v2 host with systemd",
		`22 28 0:20 / /sys rw,nosuid,nodev,noexec,relatime shared:7 - sysfs sysfs rw
30 22 0:26 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot
28 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw,errors=remount-ro
`,
		"0::/user.slice/user-1000.slice/session-3.scope\n",
	}
	dockerV2 = machine{
		"container with a cgroup namespace on a v2 host",
		`1042 1031 0:198 / / rw,relatime master:350 - overlay overlay rw,lowerdir=/l/A:/l/B,upperdir=/u,workdir=/w
1046 1042 0:201 / /sys ro,nosuid,nodev,noexec,relatime - sysfs sysfs ro
1047 1046 0:27 / /sys/fs/cgroup ro,nosuid,nodev,noexec,relatime - cgroup2 cgroup rw,nsdelegate
`,
		"0::/\n",
	}
	dockerHostNS = machine{
		"container without a cgroup namespace on a v1 host",
		`812 811 0:52 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime - tmpfs tmpfs rw,mode=755
813 812 0:30 /docker/4f2a /sys/fs/cgroup/cpu,cpuacct ro,nosuid,nodev,noexec,relatime master:11 - cgroup cgroup rw,cpu,cpuacct
814 812 0:31 /docker/4f2a /sys/fs/cgroup/memory ro,nosuid,nodev,noexec,relatime master:12 - cgroup cgroup rw,memory
815 812 0:32 /docker/4f2a /sys/fs/cgroup/pids ro,nosuid,nodev,noexec,relatime master:13 - cgroup cgroup rw,pids
816 812 0:33 /docker/4f2a /sys/fs/cgroup/freezer ro,nosuid,nodev,noexec,relatime master:14 - cgroup cgroup rw,freezer
`,
		"9:freezer:/docker/4f2a\n8:pids:/docker/4f2a/inner\n5:memory:/docker/4f2a\n3:cpu,cpuacct:/docker/4f2a\n1:name=systemd:/docker/4f2a\n0::/system.slice/docker.service\n",
	}
	hybrid = machine{
		"hybrid host, every controller mounted alone",
		`30 22 0:27 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
31 30 0:28 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
32 30 0:29 / /sys/fs/cgroup/cpuacct rw,relatime - cgroup cgroup rw,cpuacct
34 30 0:31 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
36 30 0:33 / /sys/fs/cgroup/freezer rw,relatime - cgroup cgroup rw,freezer
38 30 0:35 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids
39 30 0:36 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd
40 30 0:37 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
`,
		"9:name=systemd:/\n8:pids:/\n6:freezer:/\n4:memory:/process_api/4076\n2:cpuacct:/\n1:cpu:/\n0::/\n",
	}
	pureV1 = machine{
		"v1 host with controllers mounted together",
		`30 22 0:27 / /sys/fs/cgroup ro,nosuid shared:4 - tmpfs tmpfs ro,mode=755
31 30 0:28 / /sys/fs/cgroup/systemd rw,nosuid shared:5 - cgroup cgroup rw,xattr,release_agent=/lib/systemd/systemd-cgroups-agent,name=systemd
32 30 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:6 - cgroup cgroup rw,cpu,cpuacct
33 30 0:30 / /sys/fs/cgroup/memory,pids rw,nosuid shared:7 - cgroup cgroup rw,memory,pids
`,
		"4:name=systemd:/user.slice\n3:memory,pids:/user.slice\n2:cpu,cpuacct:/user.slice\n",
	}
	bare = machine{"no cgroup mounted", "28 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw\n", "0::/\n"}
	odd  = machine{
		"escaped paths, binds and hidden mounts",
		`50 28 0:40 / /mnt/with\040space\134\011x rw,relatime - cgroup2 none rw
51 28 0:40 /elsewhere /mnt/bind rw,relatime - cgroup2 none rw
52 28 0:40 / /mnt/hidden rw,relatime - cgroup2 none rw
53 28 0:41 / /mnt/hidden rw,relatime - tmpfs none rw
`,
		"0::/here\n",
	}
)

func machines() []machine {
	return []machine{systemdV2, dockerV2, dockerHostNS, hybrid, pureV1, bare, odd}
}

func (m machine) parse(t *testing.T) ([]mount, positions) {
	t.Helper()
	mounts, err := parseMounts([]byte(m.mountinfo))
	if err != nil {
		t.Fatalf("parseMounts(%s) = %v, want nil", m.name, err)
	}
	self, err := parsePositions(strings.NewReader(m.cgroup))
	if err != nil {
		t.Fatalf("parsePositions(%s) = %v, want nil", m.name, err)
	}
	return mounts, self
}

func TestParseMounts(t *testing.T) {
	for _, tt := range []struct {
		machine machine
		want    []mount
	}{
		{systemdV2, []mount{{"/", "/sys/fs/cgroup", true, []string{"rw", "nsdelegate", "memory_recursiveprot"}}}},
		{dockerV2, []mount{{"/", "/sys/fs/cgroup", true, []string{"rw", "nsdelegate"}}}},
		{dockerHostNS, []mount{
			{"/docker/4f2a", "/sys/fs/cgroup/cpu,cpuacct", false, []string{"rw", "cpu", "cpuacct"}},
			{"/docker/4f2a", "/sys/fs/cgroup/memory", false, []string{"rw", "memory"}},
			{"/docker/4f2a", "/sys/fs/cgroup/pids", false, []string{"rw", "pids"}},
			{"/docker/4f2a", "/sys/fs/cgroup/freezer", false, []string{"rw", "freezer"}},
		}},
		{bare, nil},
		{odd, []mount{
			{"/", "/mnt/with space\\\tx", true, []string{"rw"}},
			{"/elsewhere", "/mnt/bind", true, []string{"rw"}},
		}},
	} {
		got, err := parseMounts([]byte(tt.machine.mountinfo))
		if err != nil {
			t.Errorf("parseMounts(%s) = %v, want nil", tt.machine.name, err)
		}
		if diff := cmp.Diff(got, tt.want, cmp.AllowUnexported(mount{})); diff != "" {
			t.Errorf("parseMounts(%s) (-got +want):\n%s", tt.machine.name, diff)
		}
	}
}

func TestParseMountsRefuses(t *testing.T) {
	for _, text := range []string{
		"\n", "30 22 0:27 / /sys/fs/cgroup rw\n", "30 22 0:27 / /x rw - cgroup2\n",
		"30 22 0:27 / - cgroup2 none rw\n", "30 22 0:27 root /x rw - cgroup2 none rw\n", "30 22 0:27 / x rw - cgroup2 none rw\n",
	} {
		if got, err := parseMounts([]byte(text)); err == nil {
			t.Errorf("parseMounts(%q) = %v, nil, want an error", text, got)
		}
	}
}

func TestUnescape(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "/a": "/a", `/a\040b`: "/a b", `\134040`: `\040`, `\012`: "\n", `\377`: "\xff",
		`\`: `\`, `\04`: `\04`, `\089`: `\089`, `\400`: `\400`, `a\040`: "a ",
	} {
		if got := unescape(in); got != want {
			t.Errorf("unescape(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestLocate(t *testing.T) {
	for _, tt := range []struct {
		root, group, want string
		ok                bool
	}{
		{"/", "/", "/m", true},
		{"/", "/a/b", "/m/a/b", true},
		{"/a", "/a", "/m", true},
		{"/a", "/a/b", "/m/b", true},
		{"/a", "/ab", "", false},
		{"/a", "/", "", false},
		{"/a/b", "/a", "", false},
		{"/..", "/", "", false},        // the mount is of an outer cgroup namespace
		{"/", "/../other", "", false},  // we are outside of our own
		{"/", "/a/../../b", "", false}, // and never up from the mount
		{"/", "", "", false},           // not known
		{"/", "relative", "", false},   //
		{"/a/", "/a/b/", "/m/b", true}, // cleaned
		{"/", "/a..b/c.", "/m/a..b/c.", true},
	} {
		got, ok := mount{root: tt.root, point: "/m"}.locate(tt.group)
		if got != tt.want || ok != tt.ok {
			t.Errorf("mount of %q .locate(%q) = %q, %v, want %q, %v", tt.root, tt.group, got, ok, tt.want, tt.ok)
		}
	}
}

func TestFind(t *testing.T) {
	for _, tt := range []struct {
		machine    machine
		controller string
		want       string // where it is mounted; empty for not found
	}{
		{systemdV2, "", "/sys/fs/cgroup"},
		{systemdV2, "memory", ""},
		{hybrid, "", "/sys/fs/cgroup/unified"},
		{hybrid, "memory", "/sys/fs/cgroup/memory"},
		{hybrid, "hugetlb", ""},
		{pureV1, "", ""},
		{pureV1, "cpuacct", "/sys/fs/cgroup/cpu,cpuacct"},
		{bare, "", ""},
		{odd, "", "/mnt/with space\\\tx"},
	} {
		mounts, self := tt.machine.parse(t)
		if m, ok := find(mounts, self, tt.controller); m.point != tt.want || ok != (tt.want != "") {
			t.Errorf("find(%s, %q) = %q, %v, want %q", tt.machine.name, tt.controller, m.point, ok, tt.want)
		}
	}
}

// TestFindReached prefers the mount that reaches our group to one that doesn't,
// and names the latter where there is no other.
func TestFindReached(t *testing.T) {
	far, near := mount{root: "/far", point: "/1", v2: true}, mount{root: "/", point: "/2", v2: true}
	self := positions{v2: "/here"}
	if got, ok := find([]mount{far, near}, self, ""); got.point != "/2" || !ok {
		t.Errorf("find(far, near) = %+v, %v, want near", got, ok)
	}
	if got, ok := find([]mount{far}, self, ""); got.point != "/1" || !ok {
		t.Errorf("find(far) = %+v, %v, want far", got, ok)
	}
}

func TestControllersOfMount(t *testing.T) {
	for _, tt := range []struct{ options, want string }{
		{"rw,cpu,cpuacct", "cpu cpuacct"},
		{"rw,xattr,clone_children,noprefix,none,name=systemd,release_agent=/x", ""},
		{"ro,memory", "memory"},
	} {
		got := strings.Join(mount{options: strings.Split(tt.options, ",")}.controllers(), " ")
		if got != tt.want {
			t.Errorf("controllers of a mount with %s = %q, want %q", tt.options, got, tt.want)
		}
	}
}

func TestParsePositionsRefuses(t *testing.T) {
	for _, text := range []string{"x\n", "1:memory\n"} {
		if got, err := parsePositions(strings.NewReader(text)); err == nil {
			t.Errorf("parsePositions(%q) = %v, nil, want an error", text, got)
		}
	}
}

// FuzzParseMounts checks that what is located is below the mount, whatever the
// kernel writes.
func FuzzParseMounts(f *testing.F) {
	for _, m := range machines() {
		f.Add(m.mountinfo, m.cgroup)
	}
	f.Fuzz(func(t *testing.T, mountinfo, cgroup string) {
		mounts, err := parseMounts([]byte(mountinfo))
		if err != nil {
			return
		}
		self, err := parsePositions(strings.NewReader(cgroup))
		if err != nil {
			return
		}
		for _, m := range mounts {
			group, _ := self.of(m)
			dir, ok := m.locate(group)
			point := path.Clean(m.point)
			if ok && dir != point && !strings.HasPrefix(dir, strings.TrimSuffix(point, "/")+"/") {
				t.Errorf("%+v.locate(%q) = %q, want it below", m, group, dir)
			}
			if !ok && dir != "" {
				t.Errorf("%+v.locate(%q) = %q, false", m, group, dir)
			}
		}
		makePlan(mounts, self, Config{})
		makePlan(mounts, self, Config{V1Only: true, Parent: "/x"})
	})
}
