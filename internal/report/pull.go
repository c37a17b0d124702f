package report

import (
	"fmt"
	"io"
	"strings"

	"github.com/checkcell/checkcell/images/store"
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// Pull shows how far an image is on its way into the store: bars on a
// terminal, elsewhere a line as each step begins. It is told of one event at a
// time.
type Pull struct {
	w        io.Writer
	terminal bool
	bars     *mpb.Progress // nil until the first bar, and where lines are written
	seen     map[string]*mpb.Bar
	endless  *mpb.Bar // of a step whose end is not known: it ends as the next begins
	late     string   // what is written once the bars are gone
}

// NewPull writes to w.
func NewPull(w io.Writer, terminal bool) *Pull {
	return &Pull{w: w, terminal: terminal, seen: map[string]*mpb.Bar{}}
}

// Event shows one event.
func (p *Pull) Event(e store.Event) {
	key := e.Step.String() + " " + e.What
	bar, begun := p.seen[key]
	if !begun {
		if p.endless != nil {
			p.endless.SetTotal(-1, true) // what is there is all there is
			p.endless = nil
		}
		bar = p.begin(e)
		p.seen[key] = bar
	}
	if bar != nil {
		bar.SetCurrent(e.Done)
	}
}

// begin shows a step for the first time: as a line, or as a bar if that is
// what is returned.
func (p *Pull) begin(e store.Event) *mpb.Bar {
	what := shortDigest(Escape(e.What))
	if e.Step == store.StepResolve {
		what = Escape(e.What) // whole, to be copied
	}
	line := fmt.Sprintf("%-8s %s", e.Step, what)
	if e.Total > 0 {
		line += "  " + Size(e.Total)
	}
	switch {
	case !p.terminal || e.Step == store.StepResolve && p.bars == nil:
		fmt.Fprintln(p.w, line)
		return nil
	case e.Step == store.StepResolve:
		p.late += line + "\n" // a bar is in the way
		return nil
	}
	if p.bars == nil {
		p.bars = mpb.New(mpb.WithOutput(p.w), mpb.WithWidth(24))
	}
	count := decor.CountersKibiByte("% .1f / % .1f")
	if e.Total == 0 {
		count = decor.CurrentKibiByte("% .1f")
	}
	bar := p.bars.New(e.Total, mpb.BarStyle().Lbound("[").Filler("=").Tip(">").Padding(" ").Rbound("]"),
		mpb.BarRemoveOnComplete(),
		mpb.PrependDecorators(decor.Name(fmt.Sprintf("%-8s %s ", e.Step, what))),
		mpb.AppendDecorators(count))
	if e.Total == 0 {
		p.endless = bar
	}
	return bar
}

// Close takes the bars away. Nothing is told of afterwards.
func (p *Pull) Close() {
	for _, bar := range p.seen {
		if bar != nil {
			bar.Abort(true)
		}
	}
	if p.bars != nil {
		p.bars.Wait()
	}
	fmt.Fprint(p.w, p.late)
}

// shortDigest leaves of a digest what a reader compares.
func shortDigest(s string) string {
	if digits, ok := strings.CutPrefix(s, "sha256:"); ok && len(digits) == 64 {
		return digits[:12]
	}
	return s
}

// Size writes a number of bytes for people.
func Size(n int64) string {
	if n < 1<<10 {
		return fmt.Sprintf("%dB", n)
	}
	size, unit := float64(n)/(1<<10), "KiB"
	for _, next := range []string{"MiB", "GiB", "TiB"} {
		if size < 1<<10 {
			break
		}
		size, unit = size/(1<<10), next
	}
	return fmt.Sprintf("%.1f%s", size, unit)
}
