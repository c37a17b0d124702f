package cgroup

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strconv"
)

// Host makes groups below one directory that it owns in each hierarchy. Its
// methods may be called concurrently, Close only once all others have returned.
type Host struct {
	mode    Mode
	name    string // of the owned directory, the same in every hierarchy
	support map[Controller]Support
	homes   map[Controller]*hierarchy // who provides what is available
	all     []*hierarchy              // the primary one first
	place   *place                    // on cgroup2
	left    []*hierarchy              // those of all that Close has yet to remove
}

// Open finds the hierarchies and makes a directory of our own in each. Call
// Close to remove them.
//
// Groups go below Config.Parent or else below our own position. On pure v2 that
// group must hand controllers down, so it may hold no processes: if we are the
// only one in it, we move ourselves, with all threads, into the leaf
// checkcell/supervisor-<pid>-<random> below it; processes started later are born
// there. If others are in it, or it lacks a required controller, groups go below
// the root of the hierarchy, where that is mounted and we may write to it.
//
// The error is a *MissingError where a required controller can't be had.
func Open(cfg Config) (*Host, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("open cgroup host: %w", err)
	}
	var lost error
	for range openTries {
		h, err := tryOpen(cfg)
		if err == nil {
			return h, nil
		}
		if lost = err; !errors.Is(err, errLost) {
			break
		}
	}
	return nil, fmt.Errorf("open cgroup host: %w", lost)
}

// openTries bounds how often Open starts again because a closing Host or a
// sweeper removed a directory under its hands.
const openTries = 100

// errLost is the error for such a race.
var errLost = errors.New("lost a race for a directory")

func tryOpen(cfg Config) (h *Host, err error) {
	if err := checkProc(); err != nil {
		return nil, err
	}
	mounts, self, err := look()
	if err != nil {
		return nil, err
	}
	p := makePlan(mounts, self, cfg)
	h = &Host{
		mode: p.mode, name: newName(ownerPrefix),
		support: map[Controller]Support{}, homes: map[Controller]*hierarchy{},
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.Close())
		}
	}()
	for c, why := range p.missing {
		h.support[c] = Support{Detail: why}
	}
	for _, u := range p.uses {
		if err := h.take(u, cfg); err != nil {
			return h, err
		}
	}
	if err := h.findFreezer(p.freezer, cfg); err != nil {
		return h, err
	}
	return h, h.missing(cfg)
}

// look reads what is mounted and where we are.
func look() ([]mount, positions, error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, positions{}, err
	}
	mounts, err := parseMounts(text)
	if err != nil {
		return nil, positions{}, err
	}
	f, err := os.Open("/proc/self/cgroup")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, positions{}, nil // a kernel without cgroups
	}
	if err != nil {
		return nil, positions{}, err
	}
	self, err := parsePositions(f)
	return mounts, self, errors.Join(err, f.Close())
}

// take makes our directory in the hierarchy of u and records what that gives.
// A failure is recorded too; only a lost race is an error.
func (h *Host) take(u use, cfg Config) error {
	owned, err := h.own(u, cfg)
	if errors.Is(err, errLost) {
		return err
	}
	var lack lackError
	lacks := errors.As(err, &lack)
	for _, c := range u.provides {
		switch {
		case lacks && lack[c] == "": // it isn't what stood in the way
		case lacks:
			h.support[c] = Support{Detail: lack[c]}
		case err != nil:
			h.support[c] = Support{Detail: err.Error()}
		case owned.missing[c] != "":
			h.support[c] = Support{Detail: owned.missing[c]}
		default:
			h.support[c] = Support{Available: true, Detail: owned.String()}
			h.homes[c] = owned
		}
	}
	return nil
}

// findFreezer takes the freezer of version 1 where cgroup2 has none.
func (h *Host) findFreezer(spare *use, cfg Config) error {
	home := h.homes[Freeze]
	if home == nil || !home.v2 {
		return nil
	}
	freezes, err := home.freezes()
	if freezes || err != nil {
		return err
	}
	delete(h.homes, Freeze)
	h.support[Freeze] = Support{Detail: "cgroup2 has cgroup.freeze since Linux 5.2"}
	if spare == nil {
		return nil
	}
	return h.take(*spare, cfg)
}

// missing returns a *MissingError unless every required controller is there.
func (h *Host) missing(cfg Config) error {
	e := &MissingError{Mode: h.mode, Missing: map[Controller]string{}, Hint: hint(h.mode, os.Geteuid())}
	for c, s := range h.support {
		if !s.Available && cfg.requires(c) {
			e.Missing[c] = s.Detail
		}
	}
	if len(e.Missing) == 0 {
		return nil
	}
	return e
}

// Mode says which kinds of hierarchy are used.
func (h *Host) Mode() Mode { return h.mode }

// Controllers says of every controller whether it can be used, and why not.
func (h *Host) Controllers() map[Controller]Support { return maps.Clone(h.support) }

// Close removes the directories of h, after which no method of h works. While a
// group is left in them, it returns an error, keeps the lock and may be called
// again.
func (h *Host) Close() error {
	var errs []error
	h.left = slices.DeleteFunc(h.left, func(one *hierarchy) bool {
		err := one.disown(h.name)
		errs = append(errs, err)
		return err == nil
	})
	if h.place != nil && len(h.left) == 0 {
		errs = append(errs, h.place.undo(), h.place.parent.close())
		h.place = nil
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close cgroup host: %w", err)
	}
	return nil
}

// newName returns a name that nobody has: the process id is for people.
func newName(prefix string) string {
	var random [8]byte
	rand.Read(random[:]) // never fails; see crypto/rand
	return prefix + strconv.Itoa(os.Getpid()) + "-" + hex.EncodeToString(random[:])
}
