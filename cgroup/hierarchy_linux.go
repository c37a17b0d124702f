package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

// hierarchy is one mounted hierarchy in which a Host makes groups.
type hierarchy struct {
	v2      bool
	point   string   // where it is mounted
	options []string // of the mount
	words   []string // version 1: the controllers of the mount; cgroup2: those that groups get
	missing map[Controller]string
	parent  dir // where top is
	top     dir // "checkcell"
	owner   dir // the Host's own in top, locked
}

// String is "cgroup2" or "cgroup1 cpu,cpuacct".
func (h *hierarchy) String() string {
	if h.v2 {
		return "cgroup2"
	}
	return "cgroup1 " + strings.Join(h.words, ",")
}

// version is the part of String that stands in front of a file's name.
func (h *hierarchy) version() string {
	if h.v2 {
		return "cgroup2"
	}
	return "cgroup1"
}

// own makes the Host's directory in the hierarchy of u.
func (h *Host) own(u use, cfg Config) (*hierarchy, error) {
	one := &hierarchy{v2: u.mount.v2, point: u.mount.point, options: u.mount.options}
	if err := h.settle(one, u, cfg); err != nil {
		return nil, err
	}
	if err := one.claim(h.name); err != nil {
		topErr := one.parent.rmdir(topName)
		if isBusy(topErr) {
			topErr = nil
		}
		return nil, errors.Join(err, topErr, one.parent.close())
	}
	h.all = append(h.all, one)
	h.left = append(h.left, one)
	return one, nil
}

// settle opens the directory in which "checkcell" goes.
func (h *Host) settle(one *hierarchy, u use, cfg Config) (err error) {
	if u.dir == "" {
		return fmt.Errorf("the mount at %s doesn't reach the group %q", u.mount.point, u.group)
	}
	if !one.v2 {
		one.words = u.mount.controllers()
		one.parent, err = openDir(u.dir)
		return err
	}
	p, err := findPlace(u, cfg)
	if isGone(err) && cfg.Parent == "" {
		return errors.Join(errLost, err) // our own group was there when we read its name
	}
	if err != nil {
		return err
	}
	h.place = &p
	one.words, one.missing = p.words, p.missing
	one.parent, err = p.parent.sub(".")
	return err
}

// claim makes and locks the directory called name. A directory that vanished
// meanwhile, or that a sweeper has locked, is errLost. On error "checkcell" is
// all that is left.
func (h *hierarchy) claim(name string) (err error) {
	defer func() {
		if isGone(err) {
			err = errors.Join(errLost, err)
		}
	}()
	if h.top, err = openTop(h.parent); err != nil {
		return err
	}
	err = h.fill(h.top)
	if err == nil {
		err = h.top.mkdir(name)
	}
	if err != nil {
		return errors.Join(err, h.top.close())
	}
	if h.owner, err = h.top.sub(name); err != nil {
		return errors.Join(err, h.top.rmdir(name), h.top.close())
	}
	if err := h.hold(name); err != nil {
		return errors.Join(err, h.top.rmdir(name), h.owner.close(), h.top.close())
	}
	return nil
}

// hold locks the owner's directory and makes it ready.
func (h *hierarchy) hold(name string) error {
	locked, err := h.owner.lock()
	if err != nil {
		return err
	}
	same, err := h.top.contains(name, h.owner)
	if err != nil {
		return err
	}
	if !locked || !same {
		return fmt.Errorf("own %s: %w", h.owner.path(), errLost)
	}
	return h.fill(h.owner)
}

// fill makes d ready to hold groups: on cgroup2 it hands down the controllers;
// on version 1, groups of the memory controller must count for those above them,
// which kernels before 5.11 leave open (cgroup-v1/memory.rst, section 6).
func (h *hierarchy) fill(d dir) error {
	if h.v2 {
		kind, err := d.read("cgroup.type")
		if err != nil {
			return err
		}
		if kind := strings.TrimSpace(string(kind)); kind != "domain" {
			return fmt.Errorf("group %s is of the type %q: processes above it make it unfit for others", d.path(), kind)
		}
		for _, word := range h.words {
			if err := d.write("cgroup.subtree_control", "+"+word); err != nil {
				return err
			}
		}
		return nil
	}
	if !slices.Contains(h.words, "memory") {
		return nil
	}
	text, err := d.read("memory.use_hierarchy")
	if errors.Is(err, fs.ErrNotExist) || err == nil && strings.TrimSpace(string(text)) == "1" {
		return nil
	}
	if err != nil {
		return err
	}
	return d.write("memory.use_hierarchy", "1")
}

// disown removes the directory called name and gives up the lock; "checkcell"
// goes too if nobody else is in it. On error nothing is given up.
func (h *hierarchy) disown(name string) error {
	if err := h.top.rmdir(name); err != nil {
		return err
	}
	if err := h.parent.rmdir(topName); err != nil && !isBusy(err) {
		return err
	}
	return errors.Join(h.owner.close(), h.top.close(), h.parent.close())
}

// openTop opens "checkcell" in parent and makes it if it isn't there. It is the
// one directory that is shared.
func openTop(parent dir) (dir, error) {
	if err := parent.mkdir(topName); err != nil && !errors.Is(err, fs.ErrExist) {
		return dir{}, err
	}
	return parent.sub(topName)
}

// freezes reports whether groups of h can be frozen by cgroup2 (Linux 5.2).
func (h *hierarchy) freezes() (bool, error) { return h.owner.has("cgroup.freeze") }
