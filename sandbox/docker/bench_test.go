//go:build linux

package docker_test

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/checkcell/checkcell/sandbox"
	"github.com/checkcell/checkcell/sandbox/docker"
	"github.com/checkcell/checkcell/sandbox/sandboxtest"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/client"
)

// BenchmarkRunTrue runs `true` in a cell and, in turn with it, by the bare calls of
// the API: create, start, wait, remove. Figures are ratios of one process's run; an
// absolute time is this machine's.
func BenchmarkRunTrue(b *testing.B) {
	need(b)
	backend := open(b, docker.Config{})
	api, err := client.NewClientWithOpts(client.FromEnv, client.WithAPIVersionNegotiation())
	if err != nil {
		b.Fatal(err)
	}
	defer api.Close()
	const empty = "checkcell-bench:empty"
	answer, err := api.ImageImport(b.Context(), image.ImportSource{Source: bytes.NewReader(make([]byte, 1024)), SourceName: "-"}, empty, image.ImportOptions{})
	if err != nil {
		b.Fatal(err)
	}
	answer.Close() // its progress is of no interest
	defer func() {
		if _, err := api.ImageRemove(b.Context(), empty, image.RemoveOptions{}); err != nil {
			b.Error(err)
		}
	}()
	r := &sandbox.Runner{Backend: backend}
	spec := sandboxtest.Spec("", func(s *sandbox.Spec) { s.Check, s.Args = "", []string{"true"} })
	sandboxtest.Beside(b, func() {
		if res := r.Run(b.Context(), spec).Last(); !res.Success() {
			b.Fatalf("outcome = %v, cleanup %v", res.Outcome, res.Cleanup)
		}
	}, func() { bareRun(b, api, empty) })
}

func bareRun(b *testing.B, api *client.Client, image string) {
	b.Helper()
	var mounts []mount.Mount
	for _, host := range []string{"/usr", "/lib", "/lib64"} {
		if real, err := filepath.EvalSymlinks(host); err == nil {
			mounts = append(mounts, mount.Mount{Type: mount.TypeBind, Source: real, Target: host, ReadOnly: true})
		}
	}
	made, err := api.ContainerCreate(b.Context(), &container.Config{Image: image, Entrypoint: []string{"/usr/bin/true"}, NetworkDisabled: true},
		&container.HostConfig{NetworkMode: "none", Mounts: mounts, LogConfig: container.LogConfig{Type: "none"}}, nil, nil, "")
	if err != nil {
		b.Fatal(err)
	}
	answers, errs := api.ContainerWait(b.Context(), made.ID, container.WaitConditionNextExit)
	if err := api.ContainerStart(b.Context(), made.ID, container.StartOptions{}); err != nil {
		b.Fatal(err)
	}
	select {
	case a := <-answers:
		if a.StatusCode != 0 || a.Error != nil {
			b.Fatalf("wait = %+v", a)
		}
	case err := <-errs:
		b.Fatal(err)
	}
	if err := api.ContainerRemove(b.Context(), made.ID, container.RemoveOptions{}); err != nil {
		b.Fatal(err)
	}
}
