package scope

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/checkcell/checkcell/internal/host"
	"github.com/godbus/dbus/v5"
	"go.uber.org/goleak"
)

// enterVar names a runtime directory: the test binary then only calls Enter.
const enterVar = "CHECKCELL_TEST_ENTER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(enterVar); dir != "" {
		name, err := Enter(context.Background(), dir)
		fmt.Println(name, err)
		os.Exit(0)
	}
	os.Exit(host.Main(m))
}

// startBus starts a bus at dir/bus and returns a connection to it.
func startBus(t *testing.T, dir string) *dbus.Conn {
	t.Helper()
	config := filepath.Join(dir, "bus.conf")
	address := "unix:path=" + filepath.Join(dir, "bus")
	text := `<busconfig><type>session</type><listen>` + address + `</listen><auth>EXTERNAL</auth><policy context="default">` +
		`<allow send_destination="*"/><allow receive_sender="*"/><allow own="*"/><allow user="*"/></policy></busconfig>`
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("dbus-daemon", "--config-file="+config, "--nofork", "--print-address=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if n, err := out.Read(make([]byte, 512)); err != nil { // it prints when it listens
		t.Fatalf("dbus-daemon printed %d bytes: %v", n, err)
	}
	conn, err := dbus.Connect(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// fakeSystemd answers on a bus in the place of systemd.
type fakeSystemd struct {
	conn   *dbus.Conn
	refuse string        // the error that it answers with; "" for none
	result string        // how the job ends; "" for never
	asked  chan struct{} // closed at the first request
	name   string
	mode   string
	have   map[string]any
}

type property struct {
	Name  string
	Value dbus.Variant
}

type unit struct {
	Name       string
	Properties []property
}

// StartTransientUnit is systemd's; see org.freedesktop.systemd1(5).
func (m *fakeSystemd) StartTransientUnit(name, mode string, properties []property, _ []unit) (dbus.ObjectPath, *dbus.Error) {
	m.name, m.mode, m.have = name, mode, map[string]any{}
	for _, p := range properties {
		m.have[p.Name] = p.Value.Value()
	}
	close(m.asked)
	if m.refuse != "" {
		return "", dbus.NewError("org.freedesktop.DBus.Error.AccessDenied", []any{m.refuse})
	}
	const job = dbus.ObjectPath("/org/freedesktop/systemd1/job/7")
	if m.result != "" {
		// The signal may well come before the answer.
		if err := m.conn.Emit("/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager.JobRemoved", uint32(7), job, name, m.result); err != nil {
			return "", dbus.MakeFailedError(err)
		}
	}
	return job, nil
}

// Get is that of the properties.
func (m *fakeSystemd) Get(_, _ string) (dbus.Variant, *dbus.Error) {
	return dbus.MakeVariant("/user.slice"), nil
}

// serve puts m on a bus at dir/bus.
func (m *fakeSystemd) serve(t *testing.T, dir string) {
	t.Helper()
	m.conn, m.asked = startBus(t, dir), make(chan struct{})
	for _, of := range []string{"org.freedesktop.systemd1.Manager", "org.freedesktop.DBus.Properties"} {
		if err := m.conn.Export(m, "/org/freedesktop/systemd1", of); err != nil {
			t.Fatal(err)
		}
	}
	reply, err := m.conn.RequestName("org.freedesktop.systemd1", dbus.NameFlagDoNotQueue)
	if err != nil || reply != dbus.RequestNameReplyPrimaryOwner {
		t.Fatalf("RequestName = %v, %v", reply, err)
	}
}

func TestEnterWhatSystemdSays(t *testing.T) {
	host.Need(t, host.DBusDaemon)
	for _, tt := range []struct {
		name string
		m    fakeSystemd
		want string
	}{
		{"it refuses", fakeSystemd{refuse: "not today"}, "not today"},
		{"the job fails", fakeSystemd{result: "failed"}, `systemd says "failed"; its journal has the reason: journalctl --user -u checkcell-`},
		{"the job is canceled", fakeSystemd{result: "canceled"}, `systemd says "canceled"`},
		{"done but not true", fakeSystemd{result: "done"}, "but this process is in /"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			tt.m.serve(t, dir)
			defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
			name, err := Enter(t.Context(), dir)
			if name != "" || err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), tt.m.name) {
				t.Errorf("Enter = %q, %v, want an error with %q and %q", name, err, tt.want, tt.m.name)
			}
		})
	}
}

func TestEnterAsksFor(t *testing.T) {
	host.Need(t, host.DBusDaemon)
	dir := t.TempDir()
	m := fakeSystemd{refuse: "seen enough"}
	m.serve(t, dir)
	if name, err := Enter(t.Context(), dir); err == nil {
		t.Fatalf("Enter = %q, nil, want an error", name)
	}
	prefix := fmt.Sprintf("checkcell-%d-", os.Getpid())
	if !strings.HasPrefix(m.name, prefix) || !strings.HasSuffix(m.name, ".scope") || m.mode != "fail" {
		t.Errorf("asked for %q in mode %q, want %s….scope and fail", m.name, m.mode, prefix)
	}
	if pids, ok := m.have["PIDs"].([]uint32); !ok || len(pids) != 1 || pids[0] != 0 {
		t.Errorf("PIDs = %v, want 0 alone, the sender", m.have["PIDs"])
	}
	if m.have["Delegate"] != true || m.have["CollectMode"] != "inactive-or-failed" || m.have["Description"] == "" || len(m.have) != 4 {
		t.Errorf("asked for a scope with %v, want it delegated, collected and described", m.have)
	}
}

func TestEnterEndsWithItsContext(t *testing.T) {
	host.Need(t, host.DBusDaemon)
	dir := t.TempDir()
	m := fakeSystemd{}
	m.serve(t, dir)
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	withdrawn := errors.New("withdrawn")
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() { // ends with the request
		<-m.asked
		cancel(withdrawn)
	}()
	if name, err := Enter(ctx, dir); name != "" || !errors.Is(err, withdrawn) {
		t.Errorf("Enter with a job that never ends = %q, %v, want %v", name, err, withdrawn)
	}
}

// listen makes a socket on which somebody is who says nothing, and returns a
// channel that is closed when the first has called.
func listen(t *testing.T, dir string) <-chan struct{} {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(dir, "bus"))
	if err != nil {
		t.Fatal(err)
	}
	called, ended := make(chan struct{}), make(chan struct{})
	go func() { // ends when the listener is closed
		defer close(ended)
		var conns []net.Conn
		for {
			conn, err := l.Accept()
			if err != nil {
				break
			}
			if conns = append(conns, conn); len(conns) == 1 {
				close(called)
			}
		}
		for _, conn := range conns {
			conn.Close()
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-ended
	})
	return called
}

func TestEnterDoesNotWaitForTheDumb(t *testing.T) {
	dir := t.TempDir()
	called := listen(t, dir)
	withdrawn := errors.New("withdrawn")
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() { // ends with the call
		<-called
		cancel(withdrawn)
	}()
	if name, err := Enter(ctx, dir); name != "" || !errors.Is(err, withdrawn) {
		t.Errorf("Enter with a bus that says nothing = %q, %v, want %v", name, err, withdrawn)
	}
}

func TestEnterWithoutSystemdOnTheBus(t *testing.T) {
	host.Need(t, host.DBusDaemon)
	dir := t.TempDir()
	startBus(t, dir)
	name, err := Enter(t.Context(), dir)
	for _, want := range []string{"no systemd answers at " + dir + "/bus", dir + "/systemd/private"} {
		if name != "" || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Enter = %q, %v, want an error with %q", name, err, want)
		}
	}
}

func TestEnterWithoutSockets(t *testing.T) {
	if name, err := Enter(t.Context(), t.TempDir()); name != "" || err == nil || !strings.HasPrefix(err.Error(), "ask the user's systemd for a group: ") {
		t.Errorf("Enter in an empty directory = %q, %v, want an error", name, err)
	}
	for _, tt := range []struct {
		booted bool
		want   []string
	}{
		{false, []string{"systemd doesn't run this host"}},
		{true, []string{"none runs for user 1001", "/run/user/1001", "loginctl enable-linger 1001"}},
	} {
		err := noSocket(tt.booted, 1001, "/run/user/1001")
		for _, want := range tt.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("noSocket(%v, 1001) = %v, want %q in it", tt.booted, err, want)
			}
		}
	}
}

// The socket is of another PID namespace: that of a host, seen from a container.
func TestEnterAsksNobodyOutside(t *testing.T) {
	host.Need(t, host.Root)
	dir := t.TempDir()
	listen(t, dir)
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), enterVar+"="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	out, err := cmd.CombinedOutput()
	if want := dir + "/bus: it belongs to a systemd outside of this container"; err != nil || !strings.Contains(string(out), want) {
		t.Errorf("Enter in a PID namespace of its own printed %q, %v, want %q", out, err, want)
	}
}

func TestUnified(t *testing.T) {
	tests := []struct {
		text, want string // "" for an error
	}{
		{"0::/user.slice/user-1000.slice/session-3.scope\n", "/user.slice/user-1000.slice/session-3.scope"},
		{"12:memory:/a\n1:name=systemd:/b\n0::/c\n", "/c"},
		{"0::/", "/"},
		{"10::/a\n12:memory:/0::/b\n", ""},
		{"", ""},
	}
	for _, tt := range tests {
		if got, err := unified([]byte(tt.text)); got != tt.want || (err != nil) != (tt.want == "") {
			t.Errorf("unified(%q) = %q, %v, want %q", tt.text, got, err, tt.want)
		}
	}
}

// A shell takes the remedy as it is printed, and it names the user.
func TestDelegateFix(t *testing.T) {
	host.Need(t, host.Bash)
	fix := DelegateFix(1000)
	_, command, ok := strings.Cut(fix, "as root: ")
	command, _, found := strings.Cut(command, " (that ends")
	if !ok || !found || !strings.HasSuffix(command, "systemctl restart user@1000.service") {
		t.Fatalf("DelegateFix(1000) = %q, want a command that ends with the user's service", fix)
	}
	dir := t.TempDir()
	command = strings.ReplaceAll(command, "/etc/", dir+"/etc/")
	script := "systemctl() { echo \"$*\"; }\n" + command
	out, err := exec.CommandContext(t.Context(), "bash", "-ec", script).CombinedOutput()
	if err != nil || string(out) != "daemon-reload\nrestart user@1000.service\n" {
		t.Errorf("%s: printed %q, %v", command, out, err)
	}
	text, err := os.ReadFile(dir + "/etc/systemd/system/user@.service.d/delegate.conf")
	if want := "[Service]\nDelegate=cpu cpuset io memory pids\n"; err != nil || string(text) != want {
		t.Errorf("the remedy wrote %q, %v, want %q", text, err, want)
	}
}
