package e2e

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// What a case looks for on the host. The names are those of the corpus.
const (
	canaryText    = "canary-5d1f90c2"
	canaryEnv     = "CHECKCELL_CANARY=canary-env-canary-5d1f90c2"
	canaryName    = "checkcell-canary"
	canaryProcess = "checkcell-canary-proc"
	canaryTCP     = "0.0.0.0:47811"
	canaryUDP     = "0.0.0.0:47812"
	canarySocket  = "/tmp/checkcell-canary.sock"
)

// surroundings is the host as the corpus wants it, and as it was then.
type surroundings struct {
	process *exec.Cmd
	state   string            // of the process
	files   map[string]string // path -> what it is
	clock   time.Time

	mu   sync.Mutex
	hits []string // whoever reached a listener
}

// newSurroundings sets the host up until the test's end. Where a user starts
// checkcell, the bait is the user's: nothing but the cell is in the way to it.
func newSurroundings(t *testing.T, user *delegate) *surroundings {
	t.Helper()
	s := &surroundings{files: map[string]string{}, clock: time.Now()}
	s.listen(t) // first: whoever has the port owns the canaries
	binary, err := exec.LookPath("checkcell")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"/tmp", "/var/tmp", "/root", "/home"} {
		path := filepath.Join(dir, canaryName)
		if err := os.WriteFile(path, []byte(canaryText), 0o644); err != nil {
			t.Fatal(err)
		}
		if user != nil {
			if err := os.Chown(path, ordinary, ordinary); err != nil {
				t.Fatal(err)
			}
		}
		t.Cleanup(func() {
			if err := os.Remove(path); err != nil {
				t.Error(err)
			}
		})
		s.files[path] = ""
	}
	s.files[binary], s.files["/proc/sys/kernel/hostname"], s.files["/proc/sys/kernel/core_pattern"] = "", "", ""
	for path := range s.files {
		s.files[path] = fingerprint(path)
	}
	s.startProcess(t, user)
	return s
}

// fingerprint tells a file from itself after a change.
func fingerprint(path string) string {
	info, err := os.Lstat(path)
	if err != nil {
		return err.Error()
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	when := info.ModTime().String()
	if strings.HasPrefix(path, "/proc/") {
		when = "always" // it is the time of the look
	}
	return fmt.Sprintf("%v, changed %s, %x", info.Mode(), when, sha256.Sum256(text))
}

// startProcess starts the process that no case may touch. It ends with its
// standard input.
func (s *surroundings) startProcess(t *testing.T, user *delegate) {
	t.Helper()
	s.process = exec.Command("bash")
	if user != nil {
		s.process.SysProcAttr = user.attr(user.home)
	}
	s.process.Args = []string{canaryProcess, "--norc", "-c", "echo up; read -r line"}
	in, err := s.process.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := s.process.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()       // the process sees its end
		s.process.Wait() // and ends as it likes
	})
	if up, err := io.ReadAll(io.LimitReader(out, 3)); err != nil || string(up) != "up\n" {
		t.Fatalf("%s says %q, %v, want up", canaryProcess, up, err)
	}
	if s.state, err = processState(s.process.Process.Pid); err != nil {
		t.Fatal(err)
	}
}

// processState is what others could change in a process; see proc(5).
func processState(pid int) (string, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", err
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	state := fields[0]
	switch state {
	case "R", "S", "D":
		state = "alive"
	}
	// Fields 18, 19, 40 and 41 of the file: priority, nice, rt_priority, policy.
	parts := []string{state, "priority", fields[15], "nice", fields[16], "rt", fields[37], "policy", fields[38]}
	text, err = os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		if name, _, _ := strings.Cut(line, ":"); name == "TracerPid" || name == "Cpus_allowed" {
			parts = append(parts, strings.Fields(line)...)
		}
	}
	oom, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid))
	return strings.Join(append(parts, "oom_score_adj", strings.TrimSpace(string(oom))), " "), err
}

// listen opens what no case may reach. The port may still be another clone's,
// whose tests run at the same time, so it is waited for.
func (s *surroundings) listen(t *testing.T) {
	t.Helper()
	var tcp net.Listener
	waitFor(t, "port "+canaryTCP+" is free", func() (free bool) {
		var err error
		tcp, err = net.Listen("tcp4", canaryTCP)
		return err == nil
	})
	udp, err := net.ListenPacket("udp4", canaryUDP)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(canarySocket); err != nil && !errors.Is(err, os.ErrNotExist) { // of a test that was killed
		t.Fatal(err)
	}
	all := map[string]net.Listener{"tcp": tcp}
	for _, name := range []string{"@" + canaryName, canarySocket} {
		if all[name], err = net.Listen("unix", name); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(canarySocket, 0o777); err != nil {
		t.Fatal(err)
	}
	var wait sync.WaitGroup // for the goroutines, which end with their listener
	for name, l := range all {
		wait.Go(func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				s.hit(name + " from " + conn.RemoteAddr().String())
				conn.Close()
			}
		})
	}
	wait.Go(func() {
		for {
			_, from, err := udp.ReadFrom(make([]byte, 1))
			if from == nil {
				return
			}
			s.hit(fmt.Sprintf("udp from %v, %v", from, err))
		}
	})
	t.Cleanup(func() {
		udp.Close()
		for _, l := range all {
			l.Close()
		}
		wait.Wait()
	})
}

func (s *surroundings) hit(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hits = append(s.hits, what)
}

// reached returns an error if a listener was ever reached.
func (s *surroundings) reached() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.hits) > 0 {
		return fmt.Errorf("the host was reached: %q", s.hits)
	}
	return nil
}

// touched returns an error if the process is not as it was.
func (s *surroundings) touched() error {
	now, err := processState(s.process.Process.Pid)
	if err != nil || now != s.state {
		return fmt.Errorf("%s is %q, %v, want %q", canaryProcess, now, err, s.state)
	}
	return nil
}

// changed names what of the host's files, names and clock is not as it was.
func (s *surroundings) changed() error {
	var f wrong
	for path, want := range s.files {
		if got := fingerprint(path); got != want {
			f.add("%s is %s, want %s", path, got, want)
		}
	}
	const most = 2 * time.Second
	now := time.Now()
	ran, shown := now.Sub(s.clock), now.Round(0).Sub(s.clock.Round(0)) // Round(0) drops the monotonic clock
	if off := (ran - shown).Abs(); off > most {
		f.add("the host's clock moved by %v, want at most %v", off, most)
	}
	return errors.Join(f...)
}

// The looks at the host see what was done to it.
func TestSurroundings(t *testing.T) {
	s := newSurroundings(t, nil)
	if err := errors.Join(s.reached(), s.touched(), s.changed()); err != nil {
		t.Fatalf("nothing was done, but: %v", err)
	}
	for _, at := range []struct{ network, address string }{{"tcp", "127.0.0.1:47811"}, {"unix", "@" + canaryName}, {"unix", canarySocket}, {"udp", "127.0.0.1:47812"}} {
		s.mu.Lock()
		s.hits = nil
		s.mu.Unlock()
		conn, err := net.Dial(at.network, at.address)
		if err != nil {
			t.Fatal(err)
		}
		if at.network == "udp" { // the others are told of the connection
			if _, err := conn.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
		}
		waitFor(t, "a hit at "+at.address, func() bool { return s.reached() != nil })
		conn.Close()
	}
	path := filepath.Join("/tmp", canaryName)
	for _, change := range []func() error{
		func() error { return os.Chmod(path, 0o600) },
		func() error { return os.WriteFile(path, []byte("else"), 0o644) },
		func() error { return os.Chtimes(path, time.Time{}, s.clock.Add(time.Hour)) },
	} {
		s.files[path] = fingerprint(path)
		if err := change(); err != nil {
			t.Fatal(err)
		}
		if s.changed() == nil {
			t.Error("a canary was changed, and changed() = nil")
		}
	}
	s.files[path] = fingerprint(path)
	s.clock = s.clock.Round(0).Add(-time.Hour) // without its monotonic reading both differences are the same
	if err := s.changed(); err != nil {
		t.Errorf("changed() = %v after no change", err)
	}
	pid := s.process.Process.Pid
	if out, err := exec.Command("renice", "-n", "5", "-p", fmt.Sprint(pid)).CombinedOutput(); err != nil {
		t.Fatalf("renice: %v: %s", err, out)
	}
	if s.touched() == nil {
		t.Error("the process was reniced, and touched() = nil")
	}
}
