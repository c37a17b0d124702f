package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
)

// place is the directory of cgroup2 in which "checkcell" is made, ready to hand
// controllers down: they must be in its cgroup.subtree_control, and a group that
// hands down controllers holds no processes, the real root aside (cgroup-v2.rst,
// "No Internal Process Constraint").
type place struct {
	parent  dir
	words   []string              // controllers that can be handed on to groups
	enabled []string              // those of them that we put into subtree_control
	leaf    string                // the directory in "checkcell" into which we moved; or empty
	missing map[Controller]string // not required, and not to be had here
}

// lackError is the error for a place that can't give all required controllers,
// with the reason for each.
type lackError map[Controller]string

func (e lackError) Error() string {
	return (&MissingError{Mode: ModeV2, Missing: e}).Error()
}

// findPlace returns the place that has most controllers: the parent asked for;
// our own group; as the real root of the hierarchy, its root, where that has
// more. A lackError says which required ones none has, and what was wrong with
// each place.
func findPlace(u use, cfg Config) (place, error) {
	p, err := makePlace(u.dir, u, cfg)
	var lack lackError
	if err != nil && !errors.As(err, &lack) || err == nil && len(p.missing) == 0 || cfg.Parent != "" || u.dir == u.mount.point {
		return p, err
	}
	root, rootErr := rootPlace(u, cfg)
	var lackToo lackError
	switch {
	case rootErr == nil && err == nil && len(root.missing) >= len(p.missing):
		return p, errors.Join(root.undo(), root.parent.close())
	case rootErr == nil && err == nil:
		return root, errors.Join(p.undo(), p.parent.close())
	case rootErr == nil:
		return root, nil
	case err == nil:
		return p, nil
	case errors.As(rootErr, &lackToo):
		for c, why := range lackToo {
			lack[c] = strings.TrimPrefix(lack[c]+"; "+why, "; ")
		}
		return place{}, lack
	}
	return place{}, errors.Join(err, rootErr)
}

// rootPlace makes a place of the hierarchy's root, if it is there to be had.
func rootPlace(u use, cfg Config) (place, error) {
	root, err := openDir(u.mount.point)
	if err != nil {
		return place{}, err
	}
	real, err := isRealRoot(root)
	if err == nil && !real {
		err = fmt.Errorf("%s is the root of a cgroup namespace", u.mount.point)
	}
	if err == nil {
		err = root.writable()
	}
	if err := errors.Join(err, root.close()); err != nil {
		return place{}, err
	}
	return makePlace(u.mount.point, u, cfg)
}

// isRealRoot reports whether d is the root of the hierarchy, not that of a
// cgroup namespace: only the root has no cgroup.type.
func isRealRoot(d dir) (bool, error) {
	has, err := d.has("cgroup.type")
	return !has, err
}

// makePlace makes a place of the directory at path, or leaves it as it was.
func makePlace(path string, u use, cfg Config) (p place, err error) {
	p = place{missing: map[Controller]string{}}
	if p.parent, err = openDir(path); err != nil {
		return place{}, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.undo(), p.parent.close())
		}
	}()
	available, err := p.parent.read("cgroup.controllers")
	if err != nil {
		return p, err
	}
	active, err := p.parent.read("cgroup.subtree_control")
	if err != nil {
		return p, err
	}
	lack := lackError{}
	for _, b := range bounding {
		if !slices.Contains(u.provides, b.controller) {
			continue
		}
		var why error
		switch {
		case !isWord(available, b.word):
			why = fmt.Errorf("group %s doesn't have it, only %q", path, strings.TrimSpace(string(available)))
		case !isWord(active, b.word):
			why = p.enable(b.word, cfg.Parent == "")
		}
		switch {
		case why == nil:
			p.words = append(p.words, b.word)
		case isGone(why):
			return p, why
		case cfg.requires(b.controller):
			lack[b.controller] = why.Error()
		default:
			p.missing[b.controller] = why.Error()
		}
	}
	if len(lack) > 0 {
		return p, lack
	}
	return p, nil
}

// enable puts one controller into subtree_control.
func (p *place) enable(word string, mayMove bool) error {
	if err := p.vacate(mayMove); err != nil {
		return err
	}
	if err := p.parent.write("cgroup.subtree_control", "+"+word); err != nil {
		return err
	}
	p.enabled = append(p.enabled, word)
	return nil
}

// vacate sees to it that no process is in the place, unless it is the real root.
// The kernel itself refuses only some controllers to a group that holds processes;
// with the others, pids and cpu among them, it makes it a threaded domain, and the
// groups below can't be used ("Threads").
func (p *place) vacate(mayMove bool) error {
	if root, err := isRealRoot(p.parent); err != nil || root {
		return err
	}
	text, err := p.parent.read("cgroup.procs")
	if err != nil {
		return err
	}
	pids, err := parsePIDs(text)
	if err != nil {
		return fmt.Errorf("group %s: %w", p.parent.path(), err)
	}
	own := len(pids)
	pids = slices.DeleteFunc(pids, func(pid int) bool { return pid == os.Getpid() })
	switch {
	case own == 0:
		return nil
	case len(pids) > 0:
		return fmt.Errorf("group %s holds other processes too (%d, one is %d), so it can't hand controllers down", p.parent.path(), len(pids), pids[0])
	case !mayMove:
		return fmt.Errorf("group %s holds this process, so it can't hand controllers down", p.parent.path())
	}
	return p.moveDown()
}

// moveDown moves this process, with all its threads, into a leaf of its own
// below "checkcell".
func (p *place) moveDown() error {
	top, err := openTop(p.parent)
	if err != nil {
		return err
	}
	defer top.close()
	leaf := newName(leafPrefix)
	if err := top.mkdir(leaf); err != nil {
		return err
	}
	p.leaf = leaf
	sub, err := top.sub(leaf)
	if err != nil {
		return err
	}
	return errors.Join(sub.write("cgroup.procs", "0"), sub.close()) // 0 is the writing process
}

// undo takes back what was done to the place, as far as others don't use it by
// now: what is busy stays.
func (p *place) undo() error {
	if p.leaf == "" {
		return nil // what is enabled may be used by others, and harms no process
	}
	top, err := p.parent.sub(topName)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer top.close()
	err = p.moveUp(top)
	if err == nil {
		err = top.rmdir(p.leaf)
	}
	if err == nil {
		err = p.parent.rmdir(topName)
	}
	if isBusy(err) || isGone(err) {
		return nil
	}
	return err
}

// moveUp withdraws the controllers, so that the place may hold us again, and
// moves us back.
func (p *place) moveUp(top dir) error {
	for _, d := range []dir{top, p.parent} {
		for _, word := range p.enabled {
			if err := d.write("cgroup.subtree_control", "-"+word); err != nil {
				return err
			}
		}
	}
	return p.parent.write("cgroup.procs", "0")
}
