package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/checkcell/checkcell/grade"
	"github.com/checkcell/checkcell/internal/host"
	"github.com/checkcell/checkcell/internal/intake"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// feed adds list to a batch as a first pass does, and to Lines as a second.
// After each claim of the second it calls after, if that is not nil.
func feed(l *Lines, batch *grade.Batch, list []intake.Graded, after func(i int)) error {
	for i, g := range list {
		var duplicateOf *string
		if of, ok := batch.Duplicate(g.Claim.ID, g.Claim.Title, g.Claim.Evidence, g.Grade.Verdict); ok {
			duplicateOf = &of
		}
		if err := l.Add(g, duplicateOf); err != nil {
			return err
		}
		if after != nil {
			after(i)
		}
	}
	return nil
}

func batchOf(list []intake.Graded) *grade.Batch {
	var b grade.Batch
	for _, g := range list {
		b.Add(g.Claim.ID, g.Claim.Title, g.Claim.Evidence)
	}
	return &b
}

// brief is "id:shared,ids" of each grade line.
func brief(t *testing.T, text string) []string {
	t.Helper()
	var all []string
	for line := range strings.Lines(text) {
		var l struct {
			ID    string   `json:"id"`
			Share []string `json:"shared_check"`
			Count int      `json:"shared_check_count"`
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil || !strings.HasSuffix(line, "\n") {
			t.Fatalf("line %q: %v, want a whole JSON line", line, err)
		}
		word := l.ID + ":" + strings.Join(l.Share, ",")
		if l.Count != len(l.Share) {
			word += fmt.Sprintf("(%d)", l.Count)
		}
		all = append(all, word)
	}
	return all
}

func TestLinesWait(t *testing.T) {
	claim := func(id, title, check string, v grade.Verdict) intake.Graded { return graded(id, title, check, v) }
	tests := []struct {
		name string
		list []intake.Graded
		want []string
		wait []int // how many lines are out after each claim
	}{
		{"nothing shared", []intake.Graded{claim("a", "1", "x", grade.Verified), claim("b", "2", "y", grade.Verified)},
			[]string{"a:", "b:"}, []int{1, 2}},
		{"two titles are shared from the start", []intake.Graded{claim("a", "1", "x", grade.Verified), claim("b", "2", "x", grade.Verified)},
			[]string{"a:a,b", "b:a,b"}, []int{1, 2}},
		{"one title waits for the last verdict", []intake.Graded{
			claim("a", "1", "x", grade.Verified), claim("n", "2", "y", grade.Verified), claim("b", "1", "x", grade.Verified), claim("z", "3", "z", grade.Verified)},
			[]string{"a:", "n:", "b:", "z:"}, []int{0, 0, 3, 4}},
		{"a verdict that differs late", []intake.Graded{
			claim("a", "1", "x", grade.Verified), claim("n", "2", "y", grade.Verified), claim("b", "1", "x", grade.Contradicted), claim("c", "1", "x", grade.Verified)},
			[]string{"a:a,b,c", "n:", "b:a,b,c", "c:a,b,c"}, []int{0, 0, 3, 4}},
		{"the spool is emptied and used again", []intake.Graded{
			claim("a", "1", "x", grade.Verified), claim("m", "m", "m", grade.Verified), claim("b", "1", "x", grade.Verified),
			claim("n", "n", "n", grade.Verified),
			claim("c", "2", "y", grade.Verified), claim("o", "o", "o", grade.Verified), claim("d", "2", "y", grade.Unrunnable)},
			[]string{"a:", "m:", "b:", "n:", "c:c,d", "o:", "d:c,d"}, []int{0, 0, 3, 4, 4, 4, 7}},
		{"the one that waited first leaves another waiting", []intake.Graded{
			claim("a", "1", "x", grade.Verified), claim("c", "2", "y", grade.Verified), claim("b", "1", "x", grade.Verified),
			claim("m", "m", "m", grade.Verified), claim("d", "2", "y", grade.Verified)},
			[]string{"a:", "c:", "b:", "m:", "d:"}, []int{0, 0, 1, 1, 5}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			t.Setenv("TMPDIR", dir)
			var out bytes.Buffer
			batch := batchOf(tt.list)
			l := NewLines(&out, batch)
			err := feed(l, batch, tt.list, func(i int) {
				if n := strings.Count(out.String(), "\n"); n != tt.wait[i] {
					t.Errorf("after %s %d lines are out, want %d", tt.list[i].Claim.ID, n, tt.wait[i])
				}
				if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
					t.Errorf("after %s TMPDIR holds %v, %v, want nothing", tt.list[i].Claim.ID, left, err)
				}
			})
			if err := errors.Join(err, l.Close()); err != nil {
				t.Errorf("Add(…), Close() = %v", err)
			}
			if got := brief(t, out.String()); !slices.Equal(got, tt.want) {
				t.Errorf("lines = %q, want %q", got, tt.want)
			}
		})
	}
}

// After an interrupt the lines that wait are written with what is known.
func TestLinesCloseAfterInterrupt(t *testing.T) {
	list := []intake.Graded{graded("a", "1", "x", grade.Verified), graded("m", "m", "m", grade.Verified), graded("b", "1", "x", grade.Contradicted)}
	batch := batchOf(list)
	var out bytes.Buffer
	l := NewLines(&out, batch)
	if err := errors.Join(feed(l, batch, list[:2], nil), l.Close(), l.Close()); err != nil {
		t.Errorf("Add(…), Close() = %v", err)
	}
	if got, want := brief(t, out.String()), []string{"a:", "m:"}; !slices.Equal(got, want) {
		t.Errorf("lines after two of three claims = %q, want %q", got, want)
	}
}

func TestLinesNamesTheFirstOfALargeGroup(t *testing.T) {
	var list []intake.Graded
	for i := range 25 {
		list = append(list, graded(fmt.Sprint(i), fmt.Sprint("t", i), "x", grade.Verified))
	}
	batch := batchOf(list)
	var out bytes.Buffer
	l := NewLines(&out, batch)
	if err := errors.Join(feed(l, batch, list, nil), l.Close()); err != nil {
		t.Fatal(err)
	}
	want := "24:0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19(25)"
	if got := brief(t, out.String()); got[24] != want {
		t.Errorf("the last of 25 = %q, want %q", got[24], want)
	}
}

// stingy is a writer that takes so many bytes and then fails, or is only short.
type stingy struct {
	got  bytes.Buffer
	room int
	err  error
}

func (s *stingy) Write(p []byte) (int, error) {
	n := min(len(p), s.room)
	s.room -= n
	s.got.Write(p[:n])
	if n < len(p) {
		return n, s.err
	}
	return n, nil
}

func TestLinesStopAtAFailedWrite(t *testing.T) {
	broken := errors.New("the pipe is broken")
	for _, wrapped := range []error{broken, nil} {
		one := written(t, graded("a", "1", "x", grade.Verified), nil)
		out := &stingy{room: len(one) + 10, err: wrapped}
		l := NewLines(out, &grade.Batch{})
		if err := l.Add(graded("a", "1", "x", grade.Verified), nil); err != nil {
			t.Fatal(err)
		}
		first := l.Add(graded("b", "2", "y", grade.Verified), nil)
		if first == nil || !errors.Is(first, wrapped) && wrapped != nil || !strings.Contains(first.Error(), "10 bytes of a line of") {
			t.Errorf("Add at a writer that fails with %v = %v, want that and how much was written", wrapped, first)
		}
		out.room = 1 << 20
		if again := l.Add(graded("c", "3", "z", grade.Verified), nil); again != first {
			t.Errorf("Add after an error = %v, want %v again", again, first)
		}
		if err := l.Close(); err != nil || out.got.Len() != len(one)+10 {
			t.Errorf("Close() after an error = %v with %d bytes written, want nil, %d", err, out.got.Len(), len(one)+10)
		}
	}
}

func TestLinesToAFullDevice(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	l := NewLines(full, &grade.Batch{})
	if err := l.Add(graded("a", "1", "x", grade.Verified), nil); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("Add to /dev/full = %v, want %v", err, syscall.ENOSPC)
	}
	if err := l.Close(); err != nil {
		t.Errorf("Close() = %v, want nil: the error was told", err)
	}
}

// smallDisk mounts a file system of one size at a directory of the test's.
func smallDisk(t *testing.T, size int) string {
	t.Helper()
	host.Need(t, host.Root)
	dir := t.TempDir()
	if err := syscall.Mount("checkcell-test", dir, "tmpfs", syscall.MS_NOSUID|syscall.MS_NODEV, fmt.Sprintf("size=%d", size)); err != nil {
		t.Fatalf("mount a tmpfs of %d bytes: %v", size, err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Errorf("unmount %s: %v", dir, err)
		}
	})
	return dir
}

// On a full disk no half line is left that looks whole, also where the file
// was written to before.
func TestLinesOnAFullDisk(t *testing.T) {
	out, err := os.Create(filepath.Join(smallDisk(t, 64<<10), "out.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	const before = "{\"id\":\"before\"}\n"
	if _, err := io.WriteString(out, before); err != nil {
		t.Fatal(err)
	}
	l := NewLines(out, &grade.Batch{})
	added := 0
	for err == nil {
		g := graded(fmt.Sprint(added), "", "", grade.Verified)
		g.Claim.Raw = json.RawMessage(`"` + strings.Repeat("x", 3000) + `"`)
		if err = l.Add(g, nil); err == nil {
			added++
		}
		if added > 100 {
			t.Fatal("100 lines of 3000 bytes fit on a disk of 64 KiB")
		}
	}
	if !errors.Is(err, syscall.ENOSPC) || added == 0 {
		t.Fatalf("Add to a full disk = %v after %d lines, want %v after some", err, added, syscall.ENOSPC)
	}
	if err := l.Close(); err != nil {
		t.Errorf("Close() = %v, want nil", err)
	}
	text, err := os.ReadFile(out.Name())
	if err != nil {
		t.Fatal(err)
	}
	if got := brief(t, string(text)); len(got) != added+1 {
		t.Errorf("the file has %d whole lines, want %d", len(got), added+1)
	}
	if at, err := out.Seek(0, io.SeekCurrent); err != nil || at != int64(len(text)) {
		t.Errorf("the file's offset is %d, %v, want its end %d", at, err, len(text))
	}
}

// Where the lines that wait can't be kept, the ones that were are still written.
func TestLinesWithoutRoomToWait(t *testing.T) {
	t.Setenv("TMPDIR", smallDisk(t, 64<<10))
	var list []intake.Graded
	for i := range 50 {
		g := graded(fmt.Sprint(i), "t", "x", grade.Verified)
		g.Claim.Raw = json.RawMessage(`"` + strings.Repeat("x", 3000) + `"`)
		list = append(list, g)
	}
	batch := batchOf(list)
	var out bytes.Buffer
	l := NewLines(&out, batch)
	err := feed(l, batch, list, nil)
	if !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("Add without room to wait = %v, want %v", err, syscall.ENOSPC)
	}
	if err := l.Close(); err != nil {
		t.Errorf("Close() = %v, want nil", err)
	}
	if got := brief(t, out.String()); len(got) < 10 || got[0] != "0:" || got[9] != "9:" {
		t.Errorf("lines = %q, want those that were kept, in order", got)
	}
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "none"))
	l = NewLines(&out, batchOf(list))
	if err := errors.Join(l.Add(list[0], nil), l.Add(list[1], nil)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Add with a TMPDIR that is not there = %v, want %v", err, os.ErrNotExist)
	}
	if err := l.Close(); err != nil {
		t.Errorf("Close() = %v, want nil", err)
	}
}

// However many lines wait, they wait on disk.
func TestLinesKeepMemoryFlat(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	const count, size = 3000, 4000
	last := graded("last", "t", "x", grade.Contradicted)
	batch := &grade.Batch{}
	batch.Add("first", "t", last.Claim.Evidence)
	batch.Add("last", "t", last.Claim.Evidence)
	l := NewLines(io.Discard, batch)
	add := func(g intake.Graded) {
		t.Helper()
		batch.Duplicate(g.Claim.ID, g.Claim.Title, g.Claim.Evidence, g.Grade.Verdict)
		if err := l.Add(g, nil); err != nil {
			t.Fatal(err)
		}
	}
	add(graded("first", "t", "x", grade.Verified))
	text := json.RawMessage(`"` + strings.Repeat("x", size) + `"`)
	before := heap()
	for i := range count {
		g := graded(fmt.Sprint(i), "", "", grade.Verified)
		g.Claim.Raw = text
		add(g)
	}
	if l.count != count {
		t.Fatalf("%d lines wait, want %d", l.count, count)
	}
	if grown := heap() - before; grown > count*size/10 {
		t.Errorf("the heap grew by %d bytes while %d lines of %d wait, want less than a tenth of them", grown, count, size)
	}
	add(last)
	if l.count != 0 || l.head != nil {
		t.Errorf("%d lines wait after the last verdict, want none", l.count)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
