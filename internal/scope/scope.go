// Package scope gets an ordinary user a control group that is theirs to fill.
//
// Nobody but root may make groups where a login puts its processes. Below the
// user's own systemd (user@UID.service) everything is the user's, so that systemd
// is asked, over D-Bus, for a scope: a unit that starts nothing and takes in a
// process that runs already, this one. With Delegate=yes the scope's group is
// ours, with the controllers that the user's systemd was given itself; see
// systemd.scope(5) and "Delegation" in systemd.resource-control(5).
//
// The scope ends when the last process in it does. Nothing has to be undone.
package scope

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"time"

	systemd "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"
)

// Budget is the most that Enter takes.
const Budget = 10 * time.Second

// Enter has the user's systemd put this process, with all its threads, into a
// new scope, and returns the scope's name. Processes that were started before
// stay where they are. RuntimeDir is where the sockets of the user's systemd are,
// XDG_RUNTIME_DIR; empty means the usual place.
//
// The error says what is in the way and what to do. Where it is that ctx or
// Budget ended, systemd may yet move this process.
func Enter(ctx context.Context, runtimeDir string) (name string, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, Budget, fmt.Errorf("no answer within %v", Budget))
	defer cancel()
	defer func() {
		if err != nil && ctx.Err() != nil {
			err = context.Cause(ctx) // a connection that we closed gives other reasons
		}
		if err != nil {
			err = fmt.Errorf("ask the user's systemd for a group: %w", err)
		}
	}()
	if runtimeDir == "" {
		runtimeDir = filepath.Join("/run/user", strconv.Itoa(os.Geteuid()))
	}
	conn, err := connect(ctx, runtimeDir)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	name = newName()
	if err := start(ctx, conn, name); err != nil {
		return "", fmt.Errorf("start %s: %w", name, err)
	}
	if err := arrived(name); err != nil {
		return "", err
	}
	return name, nil
}

// newName returns the name of a scope that nobody has: the process id is for people.
func newName() string {
	var random [8]byte
	rand.Read(random[:]) // never fails; see crypto/rand
	return fmt.Sprintf("checkcell-%d-%s.scope", os.Getpid(), hex.EncodeToString(random[:]))
}

// endpoints are where the user's systemd is reached, below the runtime directory:
// through the user's bus, and directly, where there is no bus.
var endpoints = [...]endpoint{{"bus", true}, {"systemd/private", false}}

// connect returns a connection on which systemd answers.
func connect(ctx context.Context, runtimeDir string) (*systemd.Conn, error) {
	var errs []error
	gone := 0
	for _, e := range endpoints {
		conn, err := e.connect(ctx, runtimeDir)
		if err == nil {
			return conn, nil
		}
		if errors.Is(err, fs.ErrNotExist) {
			gone++
		}
		errs = append(errs, err)
	}
	if gone < len(endpoints) {
		return nil, errors.Join(errs...)
	}
	_, err := os.Stat("/run/systemd/system") // as sd_booted(3)
	return nil, noSocket(err == nil, os.Geteuid(), runtimeDir)
}

// noSocket is the error for a user without sockets; booted says whether systemd
// runs this host.
func noSocket(booted bool, uid int, runtimeDir string) error {
	if !booted {
		return errors.New("systemd doesn't run this host, or can't be reached from this container")
	}
	return fmt.Errorf("none runs for user %d (no socket in %s); log in as that user, or have root run: loginctl enable-linger %d", uid, runtimeDir, uid)
}

// start has systemd make the scope and waits until it has.
func start(ctx context.Context, conn *systemd.Conn, name string) error {
	properties := []systemd.Property{
		systemd.PropDescription("Cells of checkcell, process " + strconv.Itoa(os.Getpid())),
		// 0 is the process that sends this, as the kernel names it to systemd: a
		// number of ours would be somebody else's in another PID namespace.
		systemd.PropPids(0),
		{Name: "Delegate", Value: dbus.MakeVariant(true)},
		{Name: "CollectMode", Value: dbus.MakeVariant("inactive-or-failed")}, // a failed unit would stay listed
	}
	ended := make(chan string, 1)
	if _, err := conn.StartTransientUnitContext(ctx, name, "fail", properties, ended); err != nil {
		return err
	}
	select {
	case result := <-ended:
		if result != "done" {
			return fmt.Errorf("systemd says %q; its journal has the reason: journalctl --user -u %s", result, name)
		}
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// arrived returns an error unless this process is in the scope, seen from here.
func arrived(name string) error {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return err
	}
	group, err := unified(text)
	if err != nil {
		return err
	}
	if path.Base(group) != name {
		return fmt.Errorf("systemd says that it started %s, but this process is in %s", name, group)
	}
	return nil
}

// unified returns the group on cgroup2 in the text of a /proc/PID/cgroup file;
// see cgroups(7).
func unified(text []byte) (string, error) {
	for line := range bytes.Lines(text) {
		if group, ok := bytes.CutPrefix(bytes.TrimSuffix(line, []byte("\n")), []byte("0::")); ok {
			return string(group), nil
		}
	}
	return "", fmt.Errorf("/proc/self/cgroup %q has no line of cgroup2", text)
}

// DelegateFix says how user uid gets the controllers that a scope lacks: older
// versions of systemd hand the systemd of a user memory and pids only.
func DelegateFix(uid int) string {
	const dropIn = "/etc/systemd/system/user@.service.d"
	return fmt.Sprintf("give the systemd of users every controller, as root: mkdir -p %[1]s && { echo '[Service]'; echo 'Delegate=cpu cpuset io memory pids'; } >%[1]s/delegate.conf && "+
		"systemctl daemon-reload && systemctl restart user@%[2]d.service (that ends what runs below it)", dropIn, uid)
}
