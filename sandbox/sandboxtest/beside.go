package sandboxtest

import (
	"slices"
	"testing"
	"time"
)

// Beside measures ours and bare in turns in one run, so that a noisy machine
// disturbs both alike, and reports medians and the ratios of medians and of 95th
// percentiles.
func Beside(b *testing.B, ours, bare func()) {
	var times [2][]time.Duration
	for b.Loop() {
		for i, do := range []func(){ours, bare} {
			began := time.Now()
			do()
			times[i] = append(times[i], time.Since(began))
		}
	}
	at := func(i int, p float64) float64 {
		slices.Sort(times[i])
		return times[i][int(float64(len(times[i])-1)*p)].Seconds() * 1000
	}
	b.ReportMetric(at(0, .5), "ours-p50-ms")
	b.ReportMetric(at(1, .5), "bare-p50-ms")
	b.ReportMetric(at(0, .5)/at(1, .5), "ratio-p50")
	b.ReportMetric(at(0, .95)/at(1, .95), "ratio-p95")
	b.ReportMetric(0, "ns/op") // of both together, which says nothing
}
