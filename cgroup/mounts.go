package cgroup

import (
	"bytes"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	cgroups "github.com/containerd/cgroups/v3"
)

// mount is one mounted cgroup hierarchy, from a line of /proc/self/mountinfo.
type mount struct {
	root    string   // which group of the hierarchy is mounted, seen from our cgroup namespace
	point   string   // where
	v2      bool     // cgroup2, not a version 1 hierarchy
	options []string // of the file system: a version 1 hierarchy lists its controllers
}

// parseMounts returns the cgroup mounts in the text of a mountinfo file, in its
// order, without those that a later mount at the same place hides. The format
// is that of proc_pid_mountinfo(5):
//
//	36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue
func parseMounts(text []byte) ([]mount, error) {
	var mounts []mount
	for line := range bytes.Lines(text) {
		before, after, ok := strings.Cut(strings.TrimSuffix(string(line), "\n"), " - ")
		left, right := strings.Split(before, " "), strings.Split(after, " ")
		if !ok || len(left) < 6 || len(right) < 3 {
			return nil, fmt.Errorf("mountinfo line %q is too short", line)
		}
		m := mount{root: unescape(left[3]), point: unescape(left[4]), v2: right[0] == "cgroup2"}
		if !path.IsAbs(m.root) || !path.IsAbs(m.point) {
			return nil, fmt.Errorf("mountinfo line %q has a path that is not absolute", line)
		}
		mounts = slices.DeleteFunc(mounts, func(hidden mount) bool { return hidden.point == m.point })
		if right[0] == "cgroup" || m.v2 {
			m.options = strings.Split(right[2], ",")
			mounts = append(mounts, m)
		}
	}
	return mounts, nil
}

// unescape undoes the kernel's octal escapes of space, tab, newline and
// backslash (mangle in fs/seq_file.c). A backslash before anything else stays.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) && s[i+1] <= '3' && isOctal(s[i+1]) && isOctal(s[i+2]) && isOctal(s[i+3]) {
			b.WriteByte((s[i+1]-'0')<<6 | (s[i+2]-'0')<<3 | (s[i+3] - '0'))
			i += 3
			continue
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

func isOctal(c byte) bool { return '0' <= c && c <= '7' }

// locate returns the directory of group, a path as in /proc/PID/cgroup. ok is
// false where the mount doesn't reach it: the mount shows another part of the
// hierarchy, or either path leads out of our cgroup namespace ("/..").
func (m mount) locate(group string) (dir string, ok bool) {
	if !path.IsAbs(group) || hasDots(group) || hasDots(m.root) {
		return "", false
	}
	group, root := path.Clean(group), path.Clean(m.root)
	if root == "/" {
		return path.Join(m.point, group), true
	}
	rest, ok := strings.CutPrefix(group, root)
	if !ok || rest != "" && rest[0] != '/' {
		return "", false
	}
	return path.Join(m.point, rest), true
}

func hasDots(p string) bool {
	for part := range strings.SplitSeq(p, "/") {
		if part == "." || part == ".." {
			return true
		}
	}
	return false
}

// controllers returns those that a version 1 hierarchy has, for the options of
// its mount are little else (cgroup1_show_options in kernel/cgroup/cgroup-v1.c).
func (m mount) controllers() []string {
	var words []string
	for _, option := range m.options {
		switch {
		case strings.Contains(option, "="), option == "rw", option == "ro", option == "none", option == "noprefix",
			option == "xattr", option == "clone_children", option == "cpuset_v2_mode", option == "favordynmods":
		default:
			words = append(words, option)
		}
	}
	return words
}

// positions are the groups of one process, from /proc/PID/cgroup.
type positions struct {
	v1 map[string]string // by controller, and by "name=…"
	v2 string            // empty where the kernel has no cgroup2
}

// parsePositions reads a /proc/PID/cgroup file; see cgroups(7).
func parsePositions(r io.Reader) (positions, error) {
	v1, v2, err := cgroups.ParseCgroupFromReaderUnified(r)
	if err != nil {
		return positions{}, fmt.Errorf("parse positions: %w", err)
	}
	return positions{v1: v1, v2: v2}, nil
}

// of returns our position in the hierarchy of m.
func (p positions) of(m mount) (group string, ok bool) {
	if m.v2 {
		return p.v2, p.v2 != ""
	}
	for _, option := range m.options {
		if group, ok := p.v1[option]; ok {
			return group, true
		}
	}
	return "", false
}

// find returns the first mount that carries controller (of version 1), or for
// an empty controller the first cgroup2 mount, preferring one that reaches our
// own position.
func find(mounts []mount, self positions, controller string) (m mount, ok bool) {
	for _, candidate := range mounts {
		if candidate.v2 != (controller == "") || !candidate.v2 && !slices.Contains(candidate.options, controller) {
			continue
		}
		group, known := self.of(candidate)
		_, reached := candidate.locate(group)
		if known && reached {
			return candidate, true
		}
		if !ok {
			m, ok = candidate, true
		}
	}
	return m, ok
}
