package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// killer ends what is in a tree and watches it become empty.
type killer struct {
	*tree
	events *os.File // cgroup.events of the cgroup2 node, nil without one
	atOnce bool     // there is cgroup.kill (Linux 5.14)
	wait   pause
	blows  int // writes to cgroup.kill
	rests  int // waits of full length
}

// kill ends all processes in t and below, and returns nil only when none is left
// in any hierarchy. Processes that are born meanwhile die too.
func (t *tree) kill(ctx context.Context) error {
	k := killer{tree: t}
	err := k.open()
	if err == nil {
		err = errors.Join(k.run(ctx), k.close())
	}
	if err != nil {
		return fmt.Errorf("kill group %s: %w", t.name, err)
	}
	return nil
}

// run strikes until nobody is left.
func (k *killer) run(ctx context.Context) error {
	for {
		populated, others, err := k.look()
		if err != nil || !populated && !others {
			return err
		}
		if err := k.strike(populated); err != nil {
			return err
		}
		if cause := k.rest(ctx, populated); cause != nil {
			populated, others, err := k.look()
			if err == nil && (populated || others) {
				err = k.remaining(cause)
			}
			return err
		}
	}
}

// rest waits for a strike to take effect.
func (k *killer) rest(ctx context.Context, populated bool) error {
	var fds []unix.PollFd
	if populated {
		fds = []unix.PollFd{{Fd: int32(k.events.Fd()), Events: unix.POLLPRI}}
	}
	return k.wait.sleep(ctx, fds)
}

func (k *killer) open() error {
	n, ok := k.unified()
	if !ok {
		return nil
	}
	var err error
	if k.atOnce, err = n.dir.has("cgroup.kill"); err != nil {
		return err
	}
	k.events, err = n.dir.openAt("cgroup.events", unix.O_RDONLY)
	return err
}

func (k *killer) close() error {
	if k.events == nil {
		return nil
	}
	return k.events.Close()
}

// look asks whether anybody is left: whether the cgroup2 group is populated, and
// if it is not or there is none, whether anybody is in the others. Populated
// counts live processes, of sub-groups too (cgroup-v2.rst, "[Un]populated
// Notification").
func (k *killer) look() (populated, others bool, err error) {
	nodes := k.nodes
	if k.events != nil {
		text, err := readAll(k.events)
		if err != nil {
			return false, false, err
		}
		n, err := parseKey(text, "populated")
		if err != nil {
			return false, false, fmt.Errorf("%s: %w", k.events.Name(), err)
		}
		if n != 0 {
			return true, false, nil
		}
		nodes = nodes[1:]
	}
	pids, err := members(nodes)
	return false, len(pids) > 0, err
}

// strike kills once. One cgroup.kill reaches every process that is there or is
// being born, but for one whose first thread has ended: the signal goes to that
// thread (cgroup_kill in kernel/cgroup/cgroup.c). So what outlives it for long is
// also signaled process by process, and what was moved in later is killed again,
// ever more rarely: each blow takes time from those who are dying.
//
// Without cgroup.kill every member is signaled, and again, until none is born any
// more. Only a group that holds out is frozen for it: version 1 takes
// milliseconds to freeze.
func (k *killer) strike(populated bool) error {
	if !populated || !k.atOnce {
		if k.wait.last < patience && hasPidfd() {
			return signalAll(k.nodes)
		}
		return k.frozen(func() error { return signalAll(k.nodes) })
	}
	if k.wait.long() {
		k.rests++
	}
	if k.blows == 0 || k.blows == 1 && k.wait.last > patience || k.rests&(k.rests-1) == 0 && k.rests > 0 {
		k.blows++
		if err := k.nodes[0].dir.write("cgroup.kill", "1"); err != nil {
			return err
		}
		if k.blows > 1 {
			return signalAll(k.nodes)
		}
	}
	return nil
}

// patience is how long the waits grow before more is done than to wait, or to
// signal again; a large group takes tens of milliseconds to die.
const patience = time.Millisecond

// freezeTime bounds the wait for a group to freeze: a member in an uninterruptible
// sleep can hold that up for ever.
const freezeTime = 20 * time.Millisecond

// frozen calls do while the group is frozen, where it can be, so that no member
// forks or gives up its process id in between. One that can't be frozen is killed
// as it is. The group is thawed in any case: version 1 lets frozen processes die
// only then.
func (k *killer) frozen(do func() error) error {
	n, file, on, off := k.freezer()
	if file == "" {
		return do()
	}
	err := n.dir.write(file, on)
	if err == nil {
		err = k.awaitFrozen(n)
	}
	return errors.Join(err, do(), n.dir.write(file, off))
}

// freezer returns the node that freezes, its file, and what to write to it; an
// empty file where there is no freezer (before Linux 5.2 on cgroup2).
func (k *killer) freezer() (n node, file, on, off string) {
	if n, ok := k.unified(); ok {
		if ok, err := n.dir.has("cgroup.freeze"); ok && err == nil {
			return n, "cgroup.freeze", "1", "0"
		}
	}
	if n, ok := k.with("freezer"); ok {
		return n, "freezer.state", "FROZEN", "THAWED"
	}
	return node{}, "", "", ""
}

// awaitFrozen returns when the group is frozen or freezeTime is over.
func (k *killer) awaitFrozen(n node) error {
	ctx, cancel := context.WithTimeout(context.Background(), freezeTime)
	defer cancel()
	for wait := (pause{}); ; {
		frozen, err := isFrozen(n)
		if frozen || err != nil {
			return err
		}
		if wait.sleep(ctx, nil) != nil {
			return nil
		}
	}
}

func isFrozen(n node) (bool, error) {
	if !n.v2 {
		text, err := n.dir.read("freezer.state")
		return string(text) == "FROZEN\n", err
	}
	text, err := n.dir.read("cgroup.events")
	if err != nil {
		return false, err
	}
	frozen, err := parseKey(text, "frozen")
	return frozen == 1, err
}
