//go:build linux

package cellinit

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/checkcell/checkcell/internal/host"
	"github.com/checkcell/checkcell/sandbox"
	"github.com/checkcell/checkcell/sandbox/cellspec"
)

// contained starts the init of a container as an ordinary process. What it runs
// sees the host.
func contained(t *testing.T, check string, change ...func(*sandbox.Spec)) (*Peer, *exec.Cmd) {
	t.Helper()
	code, err := Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "init")
	if err := os.WriteFile(file, code, 0o755); err != nil {
		t.Fatal(err)
	}
	spec := sandbox.Spec{ID: "contained", Check: check, Limits: sandbox.DefaultLimits()}
	for _, c := range change {
		c(&spec)
	}
	oci, err := cellspec.Build(spec)
	if err != nil {
		t.Fatal(err)
	}
	oci.Process.Cwd = t.TempDir()
	layout, err := LayOut(spec, nil, false)
	if err != nil {
		t.Fatal(err)
	}
	arena, calls, err := Contain(oci, layout, true)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(file)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stdin.Close()
		_ = cmd.Wait() // how it ended is the test's to say
	})
	peer := NewPeer(oci.Process, calls, stdin)
	go peer.Listen(stdout)
	if err := peer.Hello(t.Context(), arena); err != nil {
		t.Fatal(err)
	}
	if err := peer.SetUp(t.Context(), layout.Content...); err != nil {
		t.Fatal(err)
	}
	return peer, cmd
}

func TestContained(t *testing.T) {
	long := strings.Repeat("0123456789abcdef", 20_000)
	peer, cmd := contained(t, `printf %s "$(cat d/f)" | head -c 400000; echo err >&2; (sleep 0.3 >&2 &) ; kill -USR1 $$`, func(s *sandbox.Spec) {
		s.Files = []sandbox.File{{Path: "d/f", Content: []byte(long)}}
	})
	threads, err := os.ReadDir("/proc/" + strconv.Itoa(cmd.Process.Pid) + "/task")
	if err != nil || len(threads) != 1 {
		t.Errorf("the init has %d threads, %v, want 1", len(threads), err)
	}
	for name, want := range map[string]string{"status": "CapEff:", "limits": "Max open files", "mountinfo": " / "} {
		if text := string(peer.Shown(name)); !strings.Contains(text, want) {
			t.Errorf("the init shows of %s %q, want %q in it", name, text, want)
		}
	}
	if n, err := peer.Count(t.Context()); err != nil || n < 2 {
		t.Errorf("the init counts %d processes, %v, want at least itself and this one", n, err)
	}
	ended, err := peer.Start(t.Context(), sandbox.StepCheck)
	if err != nil {
		t.Fatal(err)
	}
	stdout, stderr := peer.Streams(sandbox.StepCheck)
	got := make(chan string)
	go func() {
		b, _ := io.ReadAll(stdout) // the text tells what is missing
		got <- string(b)
	}()
	b := make([]byte, 4)
	if _, err := io.ReadFull(stderr, b); err != nil || string(b) != "err\n" {
		t.Errorf("stderr = %q, %v", b, err)
	}
	if text := <-got; text != long {
		t.Errorf("stdout has %d bytes, want the file's %d", len(text), len(long))
	}
	if end := <-ended; end != sandbox.EndSignaled(10) {
		t.Errorf("end = %v, want signal 10", end)
	}
	if peer.Running() {
		t.Error("the first process counts as running after its end")
	}
	if rest, err := io.ReadAll(stderr); err != nil || len(rest) > 0 { // open until its last holder has ended
		t.Errorf("the rest of stderr = %q, %v, want its end", rest, err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-peer.Done():
	case <-time.After(10 * time.Second):
		t.Fatal("the peer listens to a dead init")
	}
}

// What was written before the end is there when the end is, though the init is
// killed as soon as it has told it, as whoever makes cells does.
func TestContainedDrains(t *testing.T) {
	host.Need(t, host.Python3)
	const size = 500_000                                                                                                                                  // many times of what is passed on at once
	const check = "exec python3 -SE -c 'import fcntl, os\nfcntl.fcntl(1, 1031, 1 << 20)\nos.write(2, b\"err\")\nos.write(1, bytes(500000))\nos._exit(3)'" // F_SETPIPE_SZ
	for range 20 {
		peer, cmd := contained(t, check)
		ended, err := peer.Start(t.Context(), sandbox.StepCheck)
		if err != nil {
			t.Fatal(err)
		}
		stdout, stderr := peer.Streams(sandbox.StepCheck)
		var got [2]chan []byte
		for i, stream := range []io.Reader{stdout, stderr} {
			got[i] = make(chan []byte, 1)
			go func() {
				b, _ := io.ReadAll(stream) // the bytes tell what is missing
				got[i] <- b
			}()
		}
		if end := <-ended; end != sandbox.EndExited(3) {
			t.Errorf("end = %v, want exit 3", end)
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		if out, errs := <-got[0], <-got[1]; len(out) != size || string(errs) != "err" {
			t.Errorf("stdout has %d bytes, stderr %q, want %d and err", len(out), errs, size)
		}
	}
}

func TestContainedCannotExecute(t *testing.T) {
	peer, _ := contained(t, "", func(s *sandbox.Spec) { s.Args = []string{"no-such-program"} })
	if _, err := peer.Start(t.Context(), sandbox.StepCheck); err == nil || !strings.Contains(err.Error(), "start no-such-program: not found") {
		t.Errorf("Start = %v, want that it was not found", err)
	}
}
