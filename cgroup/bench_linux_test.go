package cgroup

import (
	"fmt"
	"testing"
	"time"

	"github.com/checkcell/checkcell/internal/host"
)

// BenchmarkKill measures from Kill to the proof, for one process that sleeps.
func BenchmarkKill(b *testing.B) {
	host.Need(b, host.Root, host.CgroupWritable)
	for _, cfg := range []Config{{}, {V1Only: true}} {
		b.Run(fmt.Sprintf("V1Only=%v", cfg.V1Only), func(b *testing.B) {
			h, err := Open(cfg)
			if err != nil {
				b.Fatal(err)
			}
			defer h.Close()
			for b.Loop() {
				b.StopTimer()
				g, err := h.Create("run", nil)
				if err != nil {
					b.Fatal(err)
				}
				cmd, err := sleeper(g)
				if err != nil {
					b.Fatal(err)
				}
				time.Sleep(2 * time.Millisecond)
				b.StartTimer()
				if err := g.Kill(b.Context()); err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				cmd.Wait()
				if err := g.Remove(b.Context()); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
		})
	}
}
