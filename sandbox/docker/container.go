//go:build linux

package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/checkcell/checkcell/sandbox"
	"github.com/checkcell/checkcell/sandbox/cellhost"
	"github.com/checkcell/checkcell/sandbox/cellspec"
	"github.com/checkcell/checkcell/sandbox/container"
	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types"
	dockercontainer "github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/pkg/stdcopy"
	"github.com/docker/go-units"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// running is a container that the daemon runs.
type running struct {
	backend *Backend
	id      string                  // the daemon's, or its name while that is not known; "" before it was asked for
	dir     string                  // with a check that is too long for the skeleton; "" for none
	conn    *types.HijackedResponse // of the attachment
	stdout  *io.PipeReader
	words   *cellhost.Words // what came on stderr, and what the daemon says
	ended   chan struct{}   // closed when the daemon says that the container has ended, or can say no more
	stop    context.CancelFunc
}

// Make makes a container. See container.Maker.
func (b *Backend) Make(ctx context.Context, o container.Order) (container.Container, error) {
	r := &running{backend: b, words: &cellhost.Words{}, ended: make(chan struct{})}
	err := r.make(ctx, o)
	if err == nil {
		return r, nil
	}
	undo, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), sandbox.DefaultTeardownBudget, errors.New("undoing took too long"))
	defer cancel()
	if undoErr := r.Remove(undo); undoErr != nil {
		err = errors.Join(err, fmt.Errorf("%w: %w", sandbox.ErrLeftBehind, undoErr))
	}
	return nil, err
}

func (r *running) make(ctx context.Context, o container.Order) error {
	b := r.backend
	root, err := container.NewRoot(o, b.home.Init())
	if err != nil {
		return err
	}
	if err := r.takeOut(&root); err != nil {
		return err
	}
	image, err := b.skeleton(ctx, root)
	if err != nil {
		return err
	}
	cfg, host, err := b.describe(o, root, image)
	if err != nil {
		return err
	}
	name := fmt.Sprintf("checkcell-%s-%d", filepath.Base(b.home.Dir), b.count.Add(1))
	r.id = name // an answer that is lost leaves it there all the same
	made, err := b.api.ContainerCreate(ctx, cfg, host, nil, nil, name)
	if err != nil {
		return fmt.Errorf("create the container: %w", why(ctx, err))
	}
	r.id = made.ID
	conn, err := b.api.ContainerAttach(ctx, r.id, dockercontainer.AttachOptions{Stream: true, Stdin: true, Stdout: true, Stderr: true})
	if err != nil {
		return fmt.Errorf("attach to the container: %w", why(ctx, err))
	}
	r.conn = &conn
	r.watch(context.WithoutCancel(ctx))
	if err := b.api.ContainerStart(ctx, r.id, dockercontainer.StartOptions{}); err != nil {
		return fmt.Errorf("start the container: %w", why(ctx, err))
	}
	return nil
}

// takeOut puts files that belong to one check alone beside the skeleton, which is
// kept.
func (r *running) takeOut(root *container.Root) error {
	ours := filepath.Dir(container.InitPath) + "/"
	for name, text := range root.Files {
		if text == "" || !strings.HasPrefix(name, ours) {
			continue
		}
		if r.dir == "" {
			dir, err := os.MkdirTemp(r.backend.home.Dir, "files-")
			if err != nil {
				return err
			}
			r.dir = dir
			if err := os.Chmod(dir, 0o711); err != nil {
				return err
			}
		}
		file := filepath.Join(r.dir, filepath.Base(name))
		if err := os.WriteFile(file, []byte(text), 0o444); err != nil {
			return err
		}
		root.Files[name] = ""
		root.Binds = append(root.Binds, container.Bind{Host: file, Path: name})
	}
	return nil
}

// watch reads what the container sends, and waits for its end. The wait is asked
// for before the start, since "next-exit" is not told of one that has been.
func (r *running) watch(ctx context.Context) {
	ctx, r.stop = context.WithCancel(ctx)
	stdout, w := io.Pipe()
	r.stdout = stdout
	go func() { // ends with the attachment
		_, err := stdcopy.StdCopy(w, r.words, r.conn.Reader)
		if err == nil {
			err = io.EOF
		}
		w.CloseWithError(err) // never fails
	}()
	answers, errs := r.backend.api.ContainerWait(ctx, r.id, dockercontainer.WaitConditionNextExit)
	go func() { // ends with the container, the daemon, or stop
		defer close(r.ended)
		select {
		case a := <-answers:
			if a.Error != nil { // before the code, which means nothing then
				_, _ = io.WriteString(r.words, a.Error.Message) // never fails
			}
		case <-errs: // the daemon is gone; Remove finds out
		}
	}()
}

// Stdin is that of the container's process 1.
func (r *running) Stdin() io.WriteCloser { return stdin{r.conn} }

// stdin is the half of an attachment that is written.
type stdin struct{ conn *types.HijackedResponse }

func (s stdin) Write(p []byte) (int, error) { return s.conn.Conn.Write(p) }
func (s stdin) Close() error                { return s.conn.CloseWrite() }

// Stdout is that of the container's process 1.
func (r *running) Stdout() io.Reader { return r.stdout }

// Process asks the daemon for the container's process 1.
func (r *running) Process(ctx context.Context) (container.Process, error) {
	info, err := r.backend.api.ContainerInspect(ctx, r.id)
	if err != nil {
		return container.Process{}, fmt.Errorf("look at the container: %w", why(ctx, err))
	}
	if info.State == nil || info.State.Pid <= 0 {
		return container.Process{}, errors.New("look at the container: the daemon knows no process of it")
	}
	p := container.Process{PID: info.State.Pid, UID: cellspec.UID}
	if kernel := r.backend.kernel; kernel != "" {
		p.Guest = &cellhost.Guest{Kernel: kernel}
		p.Kernel, err = kernelProcesses(r.id)
	}
	return p, err
}

// kernelProcesses lists the processes of a container's kernel of its own: those
// that gVisor started for it, which name it among their arguments, and what they
// have started, each behind its parent, so that what that starts meanwhile is born
// where it is.
func kernelProcesses(id string) ([]int, error) {
	found, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil, err
	}
	var list []int
	for _, file := range found {
		args, err := os.ReadFile(file)
		if err != nil || !strings.HasPrefix(string(args), "runsc-") || !strings.Contains(string(args), id) {
			continue // the first: it has ended
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil {
			list = append(list, pid)
		}
	}
	if len(list) == 0 {
		return nil, errors.New("look at the container: no process of gVisor names it")
	}
	for i := 0; i < len(list); i++ {
		children, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", list[i]))
		if err != nil {
			return nil, err
		}
		for _, file := range children {
			text, err := os.ReadFile(file)
			if err != nil {
				continue // the thread has ended
			}
			for _, child := range strings.Fields(string(text)) {
				if pid, err := strconv.Atoi(child); err == nil && !slices.Contains(list, pid) {
					list = append(list, pid)
				}
			}
		}
	}
	return list, nil
}

// Words returns what the container and the daemon said.
func (r *running) Words(context.Context) string { return r.words.String() }

// Remove removes the container. See container.Container.
func (r *running) Remove(ctx context.Context) error {
	if r.conn != nil {
		r.conn.Close() // the read loop ends with it
	}
	if r.id != "" {
		if err := r.backend.remove(ctx, r.id); err != nil {
			return err
		}
		r.id = ""
	}
	if r.stop != nil {
		r.stop()
		<-r.ended
	}
	if r.dir != "" {
		return os.RemoveAll(r.dir)
	}
	return nil
}

// remove removes a container, in whatever state it is; one that is gone is fine.
func (b *Backend) remove(ctx context.Context, id string) error {
	err := b.api.ContainerRemove(ctx, id, dockercontainer.RemoveOptions{Force: true})
	if err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("remove container %s: %w; the next start tries it again", id, why(ctx, err))
	}
	return nil
}

// describe turns the cell's description into the engine's.
func (b *Backend) describe(o container.Order, root container.Root, image string) (*dockercontainer.Config, *dockercontainer.HostConfig, error) {
	s := o.Spec
	seccomp, err := json.Marshal(s.Linux.Seccomp)
	if err != nil {
		return nil, nil, fmt.Errorf("write the seccomp profile: %w", err)
	}
	limits, err := cellhost.Rlimits(s.Process.Rlimits)
	if err != nil {
		return nil, nil, err
	}
	cfg := &dockercontainer.Config{
		Image: image, Entrypoint: []string{container.InitPath}, WorkingDir: "/", Hostname: s.Hostname,
		User:      fmt.Sprintf("%d:%d", s.Process.User.UID, s.Process.User.GID),
		OpenStdin: true, StdinOnce: true, AttachStdin: true, AttachStdout: true, AttachStderr: true,
		NetworkDisabled: true, Labels: map[string]string{label: filepath.Base(b.home.Dir)},
	}
	host := &dockercontainer.HostConfig{
		NetworkMode: "none", IpcMode: dockercontainer.IPCModeNone, CgroupnsMode: dockercontainer.CgroupnsModePrivate,
		ReadonlyRootfs: true, Runtime: b.runtime, CapDrop: []string{"ALL"},
		SecurityOpt: []string{"no-new-privileges", "seccomp=" + string(seccomp)},
		LogConfig:   dockercontainer.LogConfig{Type: "none"},
		Tmpfs:       map[string]string{}, MaskedPaths: slices.Concat(s.Linux.MaskedPaths, []string{"/sys"}), ReadonlyPaths: s.Linux.ReadonlyPaths,
		Resources: resources(s.Linux.Resources),
	}
	for _, r := range limits {
		host.Ulimits = append(host.Ulimits, &units.Ulimit{Name: strings.ToLower(strings.TrimPrefix(r.Type, "RLIMIT_")), Hard: int64(r.Hard), Soft: int64(r.Soft)})
	}
	for _, bind := range root.Binds {
		host.Mounts = append(host.Mounts, mount.Mount{
			Type: mount.TypeBind, Source: bind.Host, Target: bind.Path, ReadOnly: true, BindOptions: &mount.BindOptions{Propagation: mount.PropagationRPrivate},
		})
	}
	for i, share := range shares(len(root.Writable)) {
		p := root.Writable[i]
		host.Tmpfs[p.Path] = fmt.Sprintf("rw,nosuid,nodev,exec,mode=%s,uid=%d,gid=%d,size=%d,nr_inodes=%d", p.Mode,
			s.Process.User.UID, s.Process.User.GID, share.of(int64(cellspec.Disk(o.Limits)), int64(os.Getpagesize())), share.of(o.Limits.Inodes, 1))
	}
	return cfg, host, nil
}

// share is the part of the cell's disk that one writable place gets: the engine
// makes a tmpfs of each, and together they must not hold more than was asked for.
type share struct{ part, whole int64 }

// of is the share of n, in whole units, and at least one.
func (s share) of(n, unit int64) int64 { return max(n*s.part/s.whole/unit, 1) * unit }

// shares divides the disk among n places. The last is the working directory, which
// gets half.
func shares(n int) []share {
	list := make([]share, n)
	for i := range list {
		list[i] = share{1, 2 * max(int64(n)-1, 1)}
	}
	if n > 0 {
		list[n-1] = share{1, 2}
	}
	return list
}

// resources are the limits for the daemon. Those of our own group are the same and
// count; these hold until the container is moved there.
func resources(r *specs.LinuxResources) dockercontainer.Resources {
	var own dockercontainer.Resources
	if r.Memory != nil {
		own.Memory, own.MemorySwap = *r.Memory.Limit, *r.Memory.Limit
	}
	if r.Pids != nil {
		limit := *r.Pids.Limit + container.Processes
		own.PidsLimit = &limit
	}
	if r.CPU != nil {
		own.CPUPeriod, own.CPUQuota = int64(*r.CPU.Period), *r.CPU.Quota
	}
	return own
}
