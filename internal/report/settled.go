package report

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"

	"github.com/checkcell/checkcell/internal/claims"
	"github.com/checkcell/checkcell/sandbox"
)

// Settled keeps the results of checks from the moment that they are settled,
// while their cells are still to be torn down and their grade lines to be
// written: what a crash in between would lose. Its file has a line a check, as
// regrade reads them, in no order. Cleanup is not known there.
type Settled struct {
	mu    sync.Mutex // of write
	write func([]byte) error
	file  *os.File
}

// KeepSettled begins an empty file at path. Old is whether one was there, which
// then a crash had left. The caller ends it with Done or Keep.
func KeepSettled(path string) (s *Settled, old bool, err error) {
	_, err = os.Lstat(path)
	old = !errors.Is(err, fs.ErrNotExist)
	file, err := os.Create(path)
	if err != nil {
		return nil, old, fmt.Errorf("keep what is settled: %w", err)
	}
	return &Settled{write: wholeLines(file), file: file}, old, nil
}

// settledLine is a line of RECORDED.jsonl, design.md section 5.
type settledLine struct {
	ID        string          `json:"id"`
	Title     string          `json:"title,omitempty"`
	Evidence  settledEvidence `json:"evidence"`
	Execution sandbox.Result  `json:"execution"`
}

type settledEvidence struct {
	Rung   int    `json:"rung"`
	Check  string `json:"check"`
	Expect string `json:"expect,omitempty"`
}

// Add writes the line of one check, whole or not at all. It may be called from
// many goroutines at once.
func (s *Settled) Add(c claims.Claim, r sandbox.Result) error {
	line, err := marshal(settledLine{c.ID, c.Title, settledEvidence{c.Evidence.Rung, c.Evidence.Check, c.Evidence.Expect}, r})
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.write(append(line, '\n'))
}

// Done removes the file, once all that it says is written elsewhere.
func (s *Settled) Done() error { return errors.Join(s.file.Close(), os.Remove(s.file.Name())) }

// Keep leaves the file to whoever comes, and returns its name.
func (s *Settled) Keep() (path string, err error) { return s.file.Name(), s.file.Close() }
