package scope

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	systemd "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"
)

// endpoint is a socket by which systemd can be reached.
type endpoint struct {
	socket string // below the runtime directory
	bus    bool   // a bus is behind it, which wants to be greeted
}

// connect returns a connection on which systemd answers, until ctx ends.
func (e endpoint) connect(ctx context.Context, runtimeDir string) (*systemd.Conn, error) {
	socket := filepath.Join(runtimeDir, e.socket)
	conn, err := systemd.NewConnection(func() (*dbus.Conn, error) { return e.dial(ctx, socket) })
	if err != nil {
		return nil, err // it names the socket
	}
	// A bus may be one that no systemd is on.
	if _, err := conn.GetManagerProperty("ControlGroup"); err != nil {
		conn.Close()
		return nil, fmt.Errorf("no systemd answers at %s: %w", socket, err)
	}
	return conn, nil
}

// dial opens a connection that ctx closes.
func (e endpoint) dial(ctx context.Context, socket string) (*dbus.Conn, error) {
	var d net.Dialer
	raw, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	if err := near(raw.(*net.UnixConn)); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", socket, err), raw.Close())
	}
	conn, err := dbus.NewConn(raw, dbus.WithContext(ctx))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", socket, err), raw.Close())
	}
	err = conn.Auth([]dbus.Auth{dbus.AuthExternal(strconv.Itoa(os.Geteuid()))})
	if err == nil && e.bus {
		err = conn.Hello()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: greet it: %w", socket, err), conn.Close())
	}
	return conn, nil
}

// near returns an error if the other end is outside of our PID namespace: the
// socket of a host that a container was given. That systemd would move us out of
// the container's group to where we can't see.
func near(conn *net.UnixConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var peer *syscall.Ucred
	var peerErr error
	err = raw.Control(func(fd uintptr) {
		peer, peerErr = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	})
	if err := errors.Join(err, peerErr); err != nil {
		return fmt.Errorf("ask who is there: %w", err)
	}
	if peer.Pid == 0 { // who has no number in our PID namespace
		return errors.New("it belongs to a systemd outside of this container, which can't make groups in here; name one with --cgroup-parent")
	}
	return nil
}
