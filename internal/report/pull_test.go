package report

import (
	"strings"
	"testing"

	"github.com/checkcell/checkcell/images/store"
)

func pullEvents() []store.Event {
	digest := "sha256:" + strings.Repeat("0123456789abcdef", 4)
	return []store.Event{
		{Step: store.StepResolve, What: "r.example/a@" + digest},
		{Step: store.StepFetch, What: digest, Done: 10, Total: 3 << 20},
		{Step: store.StepFetch, What: digest, Done: 3 << 20, Total: 3 << 20},
		{Step: store.StepUnpack, What: digest, Done: 1, Total: 3 << 20},
		{Step: store.StepRead, What: "/srv/a\x1b[31m", Done: 1},
	}
}

func TestPullLines(t *testing.T) {
	var out strings.Builder
	p := NewPull(&out, false)
	for _, e := range pullEvents() {
		p.Event(e)
	}
	p.Close()
	want := "resolve  r.example/a@sha256:" + strings.Repeat("0123456789abcdef", 4) + "\n" +
		"fetch    0123456789ab  3.0MiB\nunpack   0123456789ab  3.0MiB\nread     /srv/a\\x1b[31m\n"
	if out.String() != want {
		t.Errorf("a pull without a terminal writes\n%swant\n%s", out.String(), want)
	}
}

// The line with the digest is written on a terminal too, before the bars or
// behind them, and nothing of a stranger's escapes.
func TestPullBars(t *testing.T) {
	events := pullEvents()
	for _, order := range [][]store.Event{events, append(events[1:], events[0])} {
		var out strings.Builder
		p := NewPull(&out, true)
		for _, e := range order {
			p.Event(e)
		}
		p.Close()
		if got := out.String(); !strings.Contains(got, "resolve  r.example/a@sha256:0123") || strings.Contains(got, "\x1b[31m") {
			t.Errorf("a pull on a terminal writes %q, want the digest, and nothing of a stranger's escapes", got)
		}
	}
}

func TestSize(t *testing.T) {
	for n, want := range map[int64]string{0: "0B", 1023: "1023B", 1024: "1.0KiB", 1536: "1.5KiB", 5 << 20: "5.0MiB", 3 << 30: "3.0GiB", 2 << 40: "2.0TiB", 1 << 60: "1048576.0TiB"} {
		if got := Size(n); got != want {
			t.Errorf("Size(%d) = %q, want %q", n, got, want)
		}
	}
}
