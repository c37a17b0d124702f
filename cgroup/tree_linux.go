package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// node is a group's directory in one hierarchy.
type node struct {
	*hierarchy
	parent dir // where dir is; not the node's to close
	dir    dir
}

// tree is one group in all its hierarchies, the primary one first: cgroup2
// where there is one. What is below it belongs to it.
type tree struct {
	name  string
	nodes []node
}

// close gives up the descriptors; the directories stay.
func (t *tree) close() error {
	var errs []error
	for _, n := range t.nodes {
		if err := n.dir.close(); !errors.Is(err, fs.ErrClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// with returns the first node whose hierarchy has the controller of version 1.
func (t *tree) with(controller string) (node, bool) {
	for _, n := range t.nodes {
		if !n.v2 && slices.Contains(n.words, controller) {
			return n, true
		}
	}
	return node{}, false
}

// unified returns the cgroup2 node.
func (t *tree) unified() (node, bool) {
	if len(t.nodes) > 0 && t.nodes[0].v2 {
		return t.nodes[0], true
	}
	return node{}, false
}

// remove removes the directories in every hierarchy, with what members made
// below them. Busy ones are tried again until ctx ends.
func (t *tree) remove(ctx context.Context) error {
	var wait pause
	for {
		busy := false
		var errs []error
		for _, n := range t.nodes {
			err := n.parent.removeAll(t.name)
			busy = busy || isBusy(err)
			errs = append(errs, err)
		}
		err := errors.Join(errs...)
		if err == nil {
			return t.close()
		}
		if !busy {
			return fmt.Errorf("remove group %s: %w", t.name, err)
		}
		if cause := wait.sleep(ctx, nil); cause != nil {
			return fmt.Errorf("remove group %s: %w", t.name, errors.Join(err, t.remaining(cause)))
		}
	}
}

// RemainingError is the error of [Group.Kill] and [Group.Remove] when their
// context ended first. It wraps the context's cause.
type RemainingError struct {
	Group     string
	Processes []Process // who was left, as far as could be learned
	Err       error     // why the wait ended, and what couldn't be learned
}

// Error names every process with its state.
func (e *RemainingError) Error() string {
	if len(e.Processes) == 0 {
		return fmt.Sprintf("group %s still has processes that can't be seen from here: %v", e.Group, e.Err)
	}
	var left []string
	for _, p := range e.Processes {
		left = append(left, p.String())
	}
	return fmt.Sprintf("group %s still has processes: %s: %v", e.Group, strings.Join(left, ", "), e.Err)
}

// Unwrap returns why the wait ended.
func (e *RemainingError) Unwrap() error { return e.Err }

// remaining describes who is in the group now.
func (t *tree) remaining(cause error) error {
	e := &RemainingError{Group: t.name, Err: cause}
	pids, err := members(t.nodes)
	if err != nil && !isGone(err) {
		e.Err = errors.Join(cause, err)
	}
	for _, pid := range pids {
		p, ok, err := readProcess(pid)
		if err != nil {
			p, ok = Process{PID: pid, State: '?'}, true
		}
		if ok {
			e.Processes = append(e.Processes, p)
		}
	}
	return e
}

// pause makes the waits between tries: each is longer than the last. They are
// system calls, because the timers of Go are only good to a millisecond.
type pause struct{ last time.Duration }

const (
	firstPause = 50 * time.Microsecond
	longPause  = 10 * time.Millisecond
)

// long reports whether the waits have grown to their full length.
func (p *pause) long() bool { return p.last >= longPause }

// sleep waits, or until the poll of fds reports something. It returns the cause
// where ctx has ended, at most longPause late.
func (p *pause) sleep(ctx context.Context, fds []unix.PollFd) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	p.last = min(max(firstPause, p.last*3/2), longPause)
	ts := unix.NsecToTimespec(p.last.Nanoseconds())
	if _, err := unix.Ppoll(fds, &ts, nil); err != nil && err != unix.EINTR {
		return fmt.Errorf("wait: %w", err)
	}
	return nil
}
