package report

import (
	"fmt"
	"io"
	"sync"

	"github.com/checkcell/checkcell/grade"
	"github.com/checkcell/checkcell/internal/intake"
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// Progress is a live line on a terminal: done of total, verdicts, time left.
// A nil Progress shows nothing.
type Progress struct {
	bars *mpb.Progress
	bar  *mpb.Bar

	mu     sync.Mutex
	counts map[grade.Verdict]int
}

// NewProgress shows progress on w, a terminal, towards total claims, of which
// up to jobs run at once.
func NewProgress(w io.Writer, total, jobs int) *Progress {
	p := &Progress{counts: map[grade.Verdict]int{}}
	p.bars = mpb.New(mpb.WithOutput(w), mpb.WithWidth(24))
	p.bar = p.bars.New(int64(total), mpb.BarStyle().Lbound("[").Filler("=").Tip(">").Padding(" ").Rbound("]"),
		mpb.BarRemoveOnComplete(),
		mpb.PrependDecorators(decor.CountersNoUnit("%d of %d done")),
		mpb.AppendDecorators(
			decor.Any(func(s decor.Statistics) string {
				return fmt.Sprintf("%d running  %s  ", min(int64(jobs), s.Total-s.Current), p.verdicts())
			}),
			decor.Name("left "),
			decor.OnComplete(decor.AverageETA(decor.ET_STYLE_GO), ""),
		))
	return p
}

func (p *Progress) verdicts() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	text := ""
	for _, v := range Verdicts {
		if n := p.counts[v]; n > 0 {
			text += fmt.Sprintf(" %d %s", n, v)
		}
	}
	return text
}

// Add shows one claim more as done.
func (p *Progress) Add(g intake.Graded) {
	if p == nil {
		return
	}
	p.mu.Lock()
	p.counts[g.Grade.Verdict]++
	p.mu.Unlock()
	p.bar.Increment()
}

// Close takes the line away.
func (p *Progress) Close() {
	if p == nil {
		return
	}
	p.bar.Abort(true)
	p.bars.Wait()
}
