package store

import (
	"fmt"
	"sync"

	"github.com/checkcell/checkcell/images"
)

// Step is what an Event tells of. The set is closed.
type Step uint8

// The steps of a pull or pack, in their order.
const (
	StepRead    Step = iota // a file or directory of this host is read; What is its path
	StepResolve             // it is known what the reference stands for; What is that, by digest
	StepFetch               // a layer is fetched; What is its digest
	StepUnpack              // a layer is unpacked; What is its digest
)

var stepWords = [...]string{"read", "resolve", "fetch", "unpack"}

// String is the word of the step.
func (s Step) String() string {
	if int(s) < len(stepWords) {
		return stepWords[s]
	}
	return fmt.Sprintf("Step(%d)", s)
}

// Event is how far one step is. Several layers are fetched at once.
type Event struct {
	Step     Step
	What     string
	Done     int64 // bytes
	Total    int64 // bytes; 0 where that is not known
	Resolved images.Digest
}

// Progress is told of every event, one at a time. It must be quick. A nil
// Progress is told nothing.
type Progress func(Event)

// reporter calls a Progress, in turn.
type reporter struct {
	mu   sync.Mutex
	tell Progress
}

func (r *reporter) send(e Event) {
	if r.tell == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tell(e)
}

// step returns what to call with the bytes that are done.
func (r *reporter) step(step Step, what string, total int64) func(done int64) {
	return func(done int64) { r.send(Event{Step: step, What: what, Done: done, Total: total}) }
}
