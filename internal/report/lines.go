package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/checkcell/checkcell/grade"
	"github.com/checkcell/checkcell/internal/intake"
)

// Lines writes grade lines, each whole or not at all, in the order of Add.
// A line whose shared_check depends on claims that are still to be graded
// waits, and the ones behind it with it: in a temporary file without a name,
// so that memory stays flat.
type Lines struct {
	write func([]byte) error
	batch *grade.Batch

	head  *entry // the line that waits first; nil if none does
	spool *os.File
	queue *json.Decoder // reads the lines that wait behind head
	tail  *json.Encoder // writes them
	count int           // how many wait behind head

	failed error // the first one of Add; no line can follow one that is not there
}

// NewLines writes to w. Where w is a regular file, a line that could not be
// written whole, on a full disk for one, is taken out again, so that no half
// line is left that looks whole.
func NewLines(w io.Writer, batch *grade.Batch) *Lines {
	return &Lines{batch: batch, write: wholeLines(w)}
}

// wholeLines returns a function that writes one line to w, or takes it back.
func wholeLines(w io.Writer) func([]byte) error {
	f, ok := w.(*os.File)
	return func(line []byte) error {
		n, err := w.Write(line)
		if err == nil && n == len(line) {
			return nil
		}
		err = fmt.Errorf("write results: %w", errors.Join(err, partial(n, len(line))))
		if ok && n > 0 {
			err = errors.Join(err, takeBack(f, n))
		}
		return err
	}
}

func partial(n, of int) error {
	if n == of {
		return nil
	}
	return fmt.Errorf("%d bytes of a line of %d were written", n, of)
}

// takeBack removes the last n bytes written to f, if it is a regular file.
func takeBack(f *os.File, n int) error {
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return err
	}
	at, err := f.Seek(int64(-n), io.SeekCurrent)
	if err != nil {
		return fmt.Errorf("take the half line back: %w", err)
	}
	if err := f.Truncate(at); err != nil {
		return fmt.Errorf("take the half line back: %w", err)
	}
	return nil
}

// Add writes the line of g, or has it wait. After an error it does nothing
// but return that error again.
func (l *Lines) Add(g intake.Graded, duplicateOf *string) error {
	if l.failed == nil {
		l.failed = l.add(g, duplicateOf)
	}
	return l.failed
}

func (l *Lines) add(g intake.Graded, duplicateOf *string) error {
	e, err := newEntry(g, duplicateOf)
	if err != nil {
		return err
	}
	if l.head == nil {
		l.head = &e
	} else if err := l.push(e); err != nil {
		return err
	}
	return l.flush(false)
}

// Close writes what still waits, which after an interrupt may be lines whose
// last word on shared_check was never spoken, and gives the temporary file back.
// An error of Add is not returned again.
func (l *Lines) Close() error {
	err := l.flush(true)
	if l.spool != nil {
		err = errors.Join(err, l.spool.Close())
		l.spool = nil
	}
	return err
}

func (l *Lines) flush(all bool) error {
	for l.head != nil {
		ids, count, final := l.batch.Shared(l.head.Title, l.head.Evidence)
		if !final && !all {
			return nil
		}
		line, err := l.head.line(ids, count)
		if err != nil {
			return err
		}
		if err := l.write(line); err != nil {
			l.head, l.count = nil, 0
			return err
		}
		if err := l.pop(); err != nil {
			return err
		}
	}
	return nil
}

func (l *Lines) push(e entry) error {
	if l.spool == nil {
		f, err := os.CreateTemp("", "checkcell-lines-*")
		if err != nil {
			return fmt.Errorf("keep lines that wait: %w; name another directory in TMPDIR", err)
		}
		if err := os.Remove(f.Name()); err != nil {
			return errors.Join(fmt.Errorf("keep lines that wait: %w", err), f.Close())
		}
		l.spool = f
	}
	if l.count == 0 {
		if err := l.rewind(); err != nil {
			return err
		}
	}
	if err := l.tail.Encode(e); err != nil {
		return fmt.Errorf("keep lines that wait: %w; name another directory in TMPDIR", err)
	}
	l.count++
	return nil
}

// rewind empties the spool.
func (l *Lines) rewind() error {
	if err := l.spool.Truncate(0); err != nil {
		return fmt.Errorf("keep lines that wait: %w", err)
	}
	l.tail = json.NewEncoder(&at{f: l.spool})
	l.tail.SetEscapeHTML(false)
	l.queue = json.NewDecoder(&at{f: l.spool})
	return nil
}

func (l *Lines) pop() error {
	l.head = nil
	if l.count == 0 {
		return nil
	}
	var e entry
	if err := l.queue.Decode(&e); err != nil {
		return fmt.Errorf("fetch lines that waited: %w", err)
	}
	l.head = &e
	l.count--
	return nil
}

// at reads or writes a file from its start, without moving its offset.
type at struct {
	f   *os.File
	off int64
}

func (a *at) Read(p []byte) (int, error) {
	n, err := a.f.ReadAt(p, a.off)
	a.off += int64(n)
	return n, err
}

func (a *at) Write(p []byte) (int, error) {
	n, err := a.f.WriteAt(p, a.off)
	a.off += int64(n)
	return n, err
}
