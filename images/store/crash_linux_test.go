package store

import (
	"archive/tar"
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/checkcell/checkcell/images"
	"github.com/checkcell/checkcell/internal/host"
)

// child is a puller in a process of its own.
type child struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	out   *bufio.Scanner
}

func startPuller(t *testing.T, dir string, ref images.Ref, hold string, user *syscall.Credential) *child {
	t.Helper()
	c := &child{cmd: exec.CommandContext(t.Context(), os.Args[0])}
	c.cmd.Env = append(os.Environ(), pullerVar+"="+dir+"\n"+ref.String()+"\n"+hold)
	c.cmd.Stderr = os.Stderr
	c.cmd.Dir = "/"
	if user != nil {
		c.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: user}
	}
	var err error
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.out = bufio.NewScanner(out)
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.cmd.Process.Kill() }) // it was waited for, unless the test failed
	return c
}

// lines reads the puller's lines until it has printed most of them, or one that
// begins with until, or has ended.
func (c *child) lines(most int, until string) []string {
	var all []string
	for len(all) < most && c.out.Scan() {
		all = append(all, c.out.Text())
		if until != "" && strings.HasPrefix(c.out.Text(), until) {
			break
		}
	}
	return all
}

func (c *child) kill(t *testing.T) {
	t.Helper()
	if err := c.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	c.lines(1<<30, "")
	_ = c.cmd.Wait() // it says that it was killed
}

// crashImage takes enough steps to be killed between any two of them.
func crashImage(t *testing.T) [][]byte {
	t.Helper()
	var layers [][]byte
	for i := range 3 {
		var entries []entry
		for j := range 20 {
			content := make([]byte, 20_000)
			for k := range content {
				content[k] = byte(rand.Uint32())
			}
			entries = append(entries, entry{name: strings.Repeat("d/", i+1) + fmt.Sprint(j), content: string(content)})
		}
		layers = append(layers, tarOf(t, entries...))
	}
	return layers
}

// A pull that is killed at any moment leaves a store that works, and that has
// the image as a whole or not at all.
func TestPullIsKilled(t *testing.T) {
	img := imageOf(t, crashImage(t)...)
	ref := push(t, serve(t, nil)+"/a:1", img)
	whole := startPuller(t, filepath.Join(t.TempDir(), "images"), ref, "", nil)
	all := whole.lines(1<<30, "")
	if err := whole.cmd.Wait(); err != nil || len(all) < 20 || !strings.HasPrefix(all[len(all)-1], "pulled") {
		t.Fatalf("the puller ended with %v, and printed %d lines: %v", err, len(all), all)
	}
	want := describe(t, pull(t, openStore(t, Limits{}), ref).Image.Path)

	const moments = 20
	cut := 0
	dir := filepath.Join(t.TempDir(), "images") // one store survives them all
	for i := range moments {
		c := startPuller(t, dir, ref, "", nil)
		at := 1 + rand.IntN(len(all)-1)
		seen := c.lines(at, "")
		c.kill(t)
		s, err := Open(t.Context(), Config{Dir: dir})
		if err != nil {
			t.Fatalf("killed after %d of %d steps: Open = %v", at, len(all), err)
		}
		leavesNoStage(t, s)
		have, err := s.List(t.Context())
		if err != nil {
			t.Fatalf("killed after %d of %d steps: List = %v", at, len(all), err)
		}
		for _, img := range have {
			if got := describe(t, img.Path); got != want {
				t.Errorf("killed after %d steps, the last %q: there is an image with the tree\n%swant\n%s", at, seen[len(seen)-1], got, want)
			}
		}
		if len(have) == 0 {
			cut++
		}
		// Every other store goes on with what is there; the others begin anew.
		if got, err := s.Pull(t.Context(), ref, nil); err != nil || describe(t, got.Image.Path) != want {
			t.Fatalf("killed after %d steps: Pull = %v, want the tree\n%s", at, err, want)
		}
		if i%2 == 0 {
			if _, err := s.Remove(t.Context(), ref); err != nil {
				t.Fatal(err)
			}
		} else if err := removeTree(dir); err != nil {
			t.Fatal(err)
		}
	}
	if cut == 0 {
		t.Errorf("none of %d pulls was cut off before it was done", moments)
	}
}

// What a killed process was making is removed by the next Open; what a living
// one is making is not.
func TestSweep(t *testing.T) {
	s := openStore(t, Limits{})
	dead, err := s.newStage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dead.path("closed/below"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dead.path("closed"), 0); err != nil {
		t.Fatal(err)
	}
	alive, err := s.newStage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	dead.hold.release() // as the kernel does for a process that ended
	if _, err := Open(t.Context(), Config{Dir: s.dir}); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(s.path("tmp"))
	if err != nil || len(left) != 1 || s.path("tmp", left[0].Name()) != alive.dir {
		t.Errorf("Open left %v, %v, want %s alone", left, err, alive.dir)
	}
	if err := alive.close(); err != nil {
		t.Error(err)
	}
	leavesNoStage(t, s)
}

// An ordinary user has a store of its own, in which all is that user's.
func TestPullAsOrdinaryUser(t *testing.T) {
	host.Need(t, host.Root)
	const uid = 65534
	dir := t.TempDir()
	for d := dir; d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	own := filepath.Join(dir, "own")
	if err := os.Mkdir(own, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(own, uid, uid); err != nil {
		t.Fatal(err)
	}
	layer := tarOf(t, append(plainEntries(), entry{name: "closed/", kind: tar.TypeDir, mode: 0o500}, entry{name: "closed/x", content: "x", mode: 0o400, uid: 5})...)
	ref := push(t, serve(t, nil)+"/a:1", imageOf(t, layer, tarOf(t, entry{name: "closed/y", content: "y"})))
	// The test's own program is where that user can't get at it.
	program := filepath.Join(dir, "puller")
	content, err := os.ReadFile(os.Args[0])
	if err == nil {
		err = os.WriteFile(program, content, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	before := os.Args[0]
	os.Args[0] = program
	defer func() { os.Args[0] = before }()
	c := startPuller(t, filepath.Join(own, "images"), ref, "", &syscall.Credential{Uid: uid, Gid: uid})
	all := c.lines(1<<30, "")
	if err := c.cmd.Wait(); err != nil {
		t.Fatalf("the puller ended with %v: %v", err, all)
	}
	s, err := Open(t.Context(), Config{Dir: filepath.Join(own, "images")})
	if err != nil {
		t.Fatal(err)
	}
	img, err := s.Inspect(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(describe(t, img.Path)) {
		if !strings.Contains(line, " 65534:65534 ") {
			t.Errorf("%q is not of the user who pulled", line)
		}
	}
	aside, err := s.Aside(img)
	want := []Aside{{Path: "closed/x", Owner: "5:0"}, {Path: "home/ada/notes", Owner: "1000:1001"}}
	if !slices.EqualFunc(aside, want, func(a, b Aside) bool { return a.Path == b.Path && a.Owner == b.Owner }) || err != nil {
		t.Errorf("Aside = %+v, %v, want %+v", aside, err, want)
	}
	// Also what its owner may not write to is removed again.
	c = startPuller(t, filepath.Join(own, "images"), ref, "remove", &syscall.Credential{Uid: uid, Gid: uid})
	all = c.lines(1<<30, "")
	if err := c.cmd.Wait(); err != nil {
		t.Errorf("who removes the image ended with %v: %v", err, all)
	}
	if left := have(t, s); len(left) != 0 {
		t.Errorf("after it was removed there is %v", left)
	}
}
