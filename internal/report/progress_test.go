package report

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/checkcell/checkcell/grade"
)

// screen is a terminal and what was written to it.
type screen struct {
	tty  *os.File
	done chan struct{} // closed when all was read

	mu  sync.Mutex
	buf bytes.Buffer
}

// newScreen makes a pseudo terminal of 100 columns (pts(4), ioctl_tty(2)).
func newScreen(t *testing.T) *screen {
	t.Helper()
	host, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	ioctl := func(f *os.File, request uintptr, arg unsafe.Pointer) {
		t.Helper()
		if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), request, uintptr(arg)); errno != 0 {
			t.Fatalf("ioctl %#x of %s: %v", request, f.Name(), errno)
		}
	}
	var unlock, number int32
	ioctl(host, syscall.TIOCSPTLCK, unsafe.Pointer(&unlock))
	ioctl(host, syscall.TIOCGPTN, unsafe.Pointer(&number))
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	size := [4]uint16{25, 100, 0, 0}
	ioctl(tty, syscall.TIOCSWINSZ, unsafe.Pointer(&size))
	s := &screen{tty: tty, done: make(chan struct{})}
	go func() { // ends when the terminal is closed
		defer close(s.done)
		p := make([]byte, 4096)
		for {
			n, err := host.Read(p)
			s.mu.Lock()
			s.buf.Write(p[:n])
			s.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		tty.Close()
		<-s.done
		host.Close()
	})
	return s
}

func (s *screen) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.String()
}

// waitFor returns when the screen has shown all of words.
func (s *screen) waitFor(t *testing.T, words ...string) {
	t.Helper()
	deadline := time.NewTimer(20 * time.Second)
	defer deadline.Stop()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for {
		missing := ""
		for _, w := range words {
			if !strings.Contains(s.text(), w) {
				missing = w
			}
		}
		if missing == "" {
			return
		}
		select {
		case <-look.C:
		case <-deadline.C:
			t.Fatalf("the screen shows %q, want %q in it", s.text(), missing)
		}
	}
}

func TestProgress(t *testing.T) {
	s := newScreen(t)
	p := NewProgress(s.tty, 3, 2)
	s.waitFor(t, "0 of 3 done", "2 running")
	p.Add(graded("a", "", "", grade.Verified))
	p.Add(graded("b", "", "", grade.Contradicted))
	s.waitFor(t, "2 of 3 done", "1 running", "1 verified 1 contradicted")
	p.Close()
	p.Close()               // as after an error
	s.waitFor(t, "\x1b[1A") // the line is drawn over, not written again below
}

// All done, or none: Close returns either way, and goleak sees what is left.
func TestProgressCloses(t *testing.T) {
	for _, done := range []int{0, 1, 4} {
		p := NewProgress(newScreen(t).tty, 4, 1)
		for range done {
			p.Add(graded("a", "", "", grade.Unrunnable))
		}
		p.Close()
	}
}

// What is no terminal gets no line that is drawn over.
func TestProgressToAFile(t *testing.T) {
	var b bytes.Buffer
	p := NewProgress(&b, 1, 1)
	p.Add(graded("a", "", "", grade.Verified))
	p.Close()
	if strings.Contains(b.String(), "\x1b") {
		t.Errorf("a buffer got %q, want no escape sequence", b.String())
	}
}

func TestNilProgressIsSilent(t *testing.T) {
	var p *Progress
	p.Add(graded("a", "", "", grade.Verified))
	p.Close()
}
