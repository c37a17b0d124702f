package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// mount is one line of /proc/self/mountinfo; see proc_pid_mountinfo(5).
type mount struct {
	root, dir, fstype, source string
	super                     []string // options of the superblock
}

// parseMounts reads the text of mountinfo. Lines that are not of its form are
// errors, because a mount that can't be read could be a leftover.
func parseMounts(text []byte) ([]mount, error) {
	var mounts []mount
	for line := range strings.Lines(string(text)) {
		left, right, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " - ")
		before, after := strings.Split(left, " "), strings.Split(right, " ")
		if !ok || len(before) < 6 || len(after) < 3 {
			return nil, fmt.Errorf("mountinfo line %q is not of the known form", line)
		}
		mounts = append(mounts, mount{
			root: unescape(before[3]), dir: unescape(before[4]),
			fstype: after[0], source: unescape(after[1]), super: strings.Split(after[2], ","),
		})
	}
	return mounts, nil
}

// unescape undoes the \ooo with which the kernel writes blanks and backslashes.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+4 <= len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

func readMounts() ([]mount, error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("read mounts: %w", err)
	}
	return parseMounts(text)
}

// hierarchy is a mounted cgroup hierarchy.
type hierarchy struct {
	v2          bool
	mount       string   // where it is mounted
	dir         string   // the group of this process in it
	controllers []string // for version 2 those that are usable in dir
}

func (h hierarchy) has(controller string) bool { return slices.Contains(h.controllers, controller) }

// withGroup makes a group below our own, calls f with its path and removes it.
func (h hierarchy) withGroup(f func(group string) error) (err error) {
	group, err := os.MkdirTemp(h.dir, "host-probe-*")
	if err != nil {
		return fmt.Errorf("make a group: %w", err)
	}
	defer func() {
		if e := os.Remove(group); e != nil {
			err = errors.Join(err, fmt.Errorf("remove the group: %w", e))
		}
	}()
	return f(group)
}

func findHierarchy(what string, match func(hierarchy) bool) (hierarchy, error) {
	all, err := hierarchies()
	if err != nil {
		return hierarchy{}, err
	}
	i := slices.IndexFunc(all, match)
	if i < 0 {
		return hierarchy{}, fmt.Errorf("no %s is mounted", what)
	}
	return all[i], nil
}

// hierarchies lists what is mounted, each hierarchy where it is first seen.
func hierarchies() ([]hierarchy, error) {
	mounts, err := readMounts()
	if err != nil {
		return nil, err
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, fmt.Errorf("read own groups: %w", err)
	}
	all := placeHierarchies(mounts, own)
	for i, h := range all {
		if !h.v2 {
			continue
		}
		list, err := os.ReadFile(filepath.Join(h.dir, "cgroup.controllers"))
		if err != nil {
			return nil, fmt.Errorf("read controllers: %w", err)
		}
		all[i].controllers = strings.Fields(string(list))
	}
	return all, nil
}

// placeHierarchies joins the cgroup mounts with the text of /proc/self/cgroup,
// lines of "id:controllers:path" (cgroups(7)); version 2 has no controllers there.
func placeHierarchies(mounts []mount, own []byte) []hierarchy {
	var all []hierarchy
	for line := range strings.Lines(string(own)) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(fields) != 3 {
			continue
		}
		controllers := strings.Split(fields[1], ",")
		for _, m := range mounts {
			v2 := m.fstype == "cgroup2" && fields[1] == ""
			v1 := m.fstype == "cgroup" && fields[1] != "" &&
				!slices.ContainsFunc(controllers, func(c string) bool { return !slices.Contains(m.super, c) })
			if !v1 && !v2 {
				continue
			}
			h := hierarchy{v2: v2, mount: m.dir, dir: m.dir}
			if v1 {
				h.controllers = controllers
			}
			// A mount may show a part of the hierarchy; a group outside it has no path here.
			if below, err := filepath.Rel(m.root, fields[2]); err == nil && filepath.IsLocal(below) {
				h.dir = filepath.Join(m.dir, below)
			}
			all = append(all, h)
			break
		}
	}
	return all
}
