package e2e

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"
)

// BenchmarkDeadline says how long after its wall deadline a check is proven to
// be gone, with its streams and counters read: ended - started - timeout of
// the result, where started is the start of the check and ended the moment
// when the outcome was settled. Late is the part of it by which our timer came
// late, and all but that is the kill and the proof. It is measured by one
// checkcell, for one process and for a tree of 1,000.
func BenchmarkDeadline(b *testing.B) {
	needCells(b)
	// A fork is all that a sleeper costs: it reads from a pipe in which nothing comes.
	const tree = "mkfifo p; exec 3<>p; for ((i = 0; i < 1000; i++)); do read -u 3 & done; echo all-up\n"
	for _, v := range []struct {
		name, check, stdout string
		runs                int
	}{{"one process", "exec sleep 300", "", 100}, {"tree of 1000", tree + "wait", "all-up\n", 20}} {
		b.Run(v.name, func(b *testing.B) {
			timeout := 200 * time.Millisecond
			if v.stdout != "" {
				timeout = time.Second + 2*growth(b, tree+"exit 0")
			}
			claims := make([]hostileClaim, v.runs)
			for i := range claims {
				id := fmt.Sprint(i)
				claims[i] = hostileClaim{claim: claim{ID: id, Title: id, Rung: 3, Check: v.check}, hostileLimits: hostileLimits{Timeout: timeout.String()}}
			}
			file := write(b, "claims.jsonl", jsonLines(b, claims))
			var gone, late []time.Duration
			for b.Loop() {
				got := checkcell(b, "grade", "--json", "--jobs", "1", "--timeout", "10m", "--memory", "1GiB", "--pids", "1100", "--cpus", "unlimited", file)
				for _, line := range decodeLines[gradeLine](b, got.stdout) {
					r := decode[result](b, string(line.Result))
					var o outcome
					if err := json.Unmarshal(r.Outcome, &o); err != nil || o.AfterNS == nil || r.Stdout.Text != v.stdout {
						b.Fatalf("outcome %s, stdout %q, want timed_out and %q", r.Outcome, r.Stdout.Text, v.stdout)
					}
					gone = append(gone, r.Ended.Sub(r.Started)-timeout)
					late = append(late, time.Duration(*o.AfterNS)-timeout)
				}
			}
			if len(gone) == 0 || len(gone)%v.runs != 0 {
				b.Fatalf("%d results, want %d each time", len(gone), v.runs)
			}
			for _, m := range []struct {
				name string
				all  []time.Duration
			}{{"gone", gone}, {"late", late}} {
				b.ReportMetric(quantile(m.all, 0.5).Seconds()*1000, m.name+"-median-ms")
				b.ReportMetric(quantile(m.all, 0.99).Seconds()*1000, m.name+"-p99-ms")
			}
		})
	}
}

// growth is how long the tree takes to grow.
func growth(b *testing.B, check string) time.Duration {
	b.Helper()
	got := checkcell(b, "run", "--json", "--timeout", "10m", "--memory", "1GiB", "--pids", "1100", "--cpus", "unlimited", "--", "bash", "-c", check)
	r := decode[result](b, got.stdout)
	if got.code != 0 || r.Leftovers == nil || *r.Leftovers != 1000 {
		b.Fatalf("run = %d with leftovers %s and stdout %q, want 0 and 1000: %s", got.code, show(r.Leftovers), r.Stdout.Text, r.Stderr.Text)
	}
	return r.Ended.Sub(r.Started).Round(time.Millisecond)
}
