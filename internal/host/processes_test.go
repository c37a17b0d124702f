package host

import (
	"bufio"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

func TestParseStat(t *testing.T) {
	tail := " 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 4711 9 9\n" // from field 5 on; the start is field 22
	tests := []struct {
		text string
		want process
		ok   bool
	}{
		{"7 (sleep) S 3" + tail, process{7, 3, "sleep", "S", "4711"}, true},
		{"7 (a) Z (b) c) R 1" + tail, process{7, 1, "a) Z (b) c", "R", "4711"}, true},
		{"7 (sleep) S 3 0 0\n", process{}, false},
		{"7 sleep S 3" + tail, process{}, false},
		{"x (sleep) S 3" + tail, process{}, false},
		{"7 (sleep) S y" + tail, process{}, false},
		{"", process{}, false},
	}
	for _, tt := range tests {
		got, err := parseStat(tt.text)
		if (err == nil) != tt.ok || got != tt.want {
			t.Errorf("parseStat(%q) = %+v, %v, want %+v and nil to be %v", tt.text, got, err, tt.want, tt.ok)
		}
	}
}

// start runs a shell script that says a line when it is ready, and then waits
// for the end of its input, which the returned function brings about.
func start(t *testing.T, script string) (pid int, end func()) {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", script)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Errorf("the script said nothing: %v", err)
	}
	return cmd.Process.Pid, func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
}

func TestDescendantsSeesEveryGeneration(t *testing.T) {
	pid, end := start(t, `sh -c 'sh -c "echo ready; read x; :"; :'; :`)
	defer end()
	for of, want := range map[int]int{os.Getpid(): 3, pid: 2} {
		got, err := descendants(of)
		if err != nil || len(got) != want {
			t.Errorf("descendants(%d) = %q, %v, want %d", of, got, err, want)
		}
		for _, one := range got {
			if !strings.Contains(one, " sh started ") {
				t.Errorf("descendants(%d) has %q, want its name and start", of, one)
			}
		}
	}
}

func TestDescendantsLeavesOutZombies(t *testing.T) {
	pid, end := start(t, `echo ready`)
	defer end() // and only then is the zombie gone
	const (
		byPid = 1          // P_PID of waitid(2)
		flags = 0x01000004 // WNOWAIT and WEXITED: wait until it is a zombie, and leave it one
	)
	if _, _, errno := syscall.Syscall6(syscall.SYS_WAITID, byPid, uintptr(pid), 0, flags, 0, 0); errno != 0 {
		t.Fatalf("waitid(%d) = %v", pid, errno)
	}
	if got, err := descendants(os.Getpid()); err != nil || len(got) != 0 {
		t.Errorf("descendants(%d) = %q, %v, want none beside the zombie %d", os.Getpid(), got, err, pid)
	}
}
