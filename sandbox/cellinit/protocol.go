//go:build linux

package cellinit

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/checkcell/checkcell/sandbox"
)

// record is what the init reports, 12 bytes in the machine's byte order.
type record struct {
	kind, x, y uint32
}

const recordBytes = 12

// The kinds of record.
const (
	recordSetupFailed uint32 = iota + 1 // x: index of the call, y: errno
	recordReady
	recordStarted
	recordExecFailed // x: a stage, y: errno
	recordEnded      // x: the wait status
	recordHello      // of a container's init: it has its arena
	recordShown      // of a container's init. x: the file, y: how many bytes of it follow
	recordCounted    // of a container's init. x: how many processes it sees, y: errno
	recordStream     // of a container's init. x: the stream, y: how many bytes of it follow; 0: it has ended
)

// streamOf numbers the streams: stdout and stderr of the syntax pass, then of the check.
func streamOf(step sandbox.Step, stderr int) int { return 2*int(step) + stderr }

// What failed, in recordSetupFailed, where it was none of the program's calls.
const (
	callMap     uint32 = 1<<32 - 1 - iota // mapping the arena
	callSignals                           // being told of ended children
)

// The stages of recordExecFailed.
const (
	stageFork uint32 = iota + 1
	stageExec
)

// Orders to the init: orderGo, then orderStep plus the step's number.
const (
	orderGo    byte = 'g'
	orderStep  byte = '0'
	orderCount byte = 'c' // of a container's init: say how many processes there are
)

// readRecord reads one record; it is io.EOF at the end of the pipe, and an
// error where the pipe ended inside one.
func readRecord(r io.Reader) (record, error) {
	var b [recordBytes]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = fmt.Errorf("read the init's report: cut off: %w", err)
		}
		return record{}, err
	}
	return record{
		kind: binary.NativeEndian.Uint32(b[0:]),
		x:    binary.NativeEndian.Uint32(b[4:]),
		y:    binary.NativeEndian.Uint32(b[8:]),
	}, nil
}

// endOf reads a wait status as wait(2) lays it out: the low seven bits are the
// signal that killed the process, 0 if it exited with the code in the next byte.
func endOf(wstatus uint32) sandbox.End {
	switch sig := wstatus & 0x7f; sig {
	case 0:
		return sandbox.EndExited(uint8(wstatus >> 8))
	case 0x7f:
		return sandbox.EndLost("the first process was reported stopped, not ended")
	default:
		return sandbox.EndSignaled(uint8(sig))
	}
}
