package native_test

import (
	"fmt"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/checkcell/checkcell/internal/host"
	"github.com/checkcell/checkcell/sandbox"
	"github.com/checkcell/checkcell/sandbox/native"
	"github.com/checkcell/checkcell/sandbox/sandboxtest"
)

// BenchmarkCell compares one `bash -c 'echo ok'` in a cell of its own with
// the same by plain fork and exec, captured, in turns in one run, so that a
// noisy machine disturbs both alike. It reports medians and 99th percentiles
// in microseconds, and their ratios.
func BenchmarkCell(b *testing.B) {
	host.Need(b, host.Root, host.CgroupWritable, host.UserNS, host.Bash)
	backend := open(b, native.Config{})
	for _, v := range []struct {
		name   string
		pause  time.Duration
		syntax bool
	}{{"back to back", 0, false}, {"with a syntax pass", 0, true}, {"after 60 ms of rest", 60 * time.Millisecond, false}} {
		b.Run(v.name, func(b *testing.B) {
			var plain, cell []time.Duration
			for i := 0; b.Loop(); i++ {
				time.Sleep(v.pause)
				plain = append(plain, clock(func() {
					if out, err := exec.Command("bash", "-c", "echo ok").Output(); err != nil || string(out) != "ok\n" {
						b.Fatalf("plain: %q, %v", out, err)
					}
				}))
				time.Sleep(v.pause)
				cell = append(cell, clock(func() {
					res := run(b, backend, sandboxtest.Spec("echo ok", func(s *sandbox.Spec) { s.SyntaxPass = v.syntax }))
					if !res.Success() || string(res.Stdout.Kept) != "ok\n" {
						b.Fatalf("cell: %+v", res)
					}
				}))
			}
			for _, q := range []struct {
				name string
				at   float64
			}{{"median", 0.5}, {"p99", 0.99}} {
				p, c := quantile(plain, q.at), quantile(cell, q.at)
				b.ReportMetric(float64(p.Microseconds()), fmt.Sprintf("plain-%s-us", q.name))
				b.ReportMetric(float64(c.Microseconds()), fmt.Sprintf("cell-%s-us", q.name))
				b.ReportMetric(float64(c)/float64(p), q.name+"-ratio")
			}
		})
	}
}

func clock(do func()) time.Duration {
	began := time.Now()
	do()
	return time.Since(began)
}

// quantile returns the value below which the share at of all lies.
func quantile(all []time.Duration, at float64) time.Duration {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[min(int(float64(len(sorted))*at), len(sorted)-1)]
}
