//go:build linux

package docker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/checkcell/checkcell/images/store"
	"github.com/checkcell/checkcell/sandbox"
	"github.com/checkcell/checkcell/sandbox/cellhost"
	"github.com/checkcell/checkcell/sandbox/container"
	dockercontainer "github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/client"
)

// Config says how cells are made. Its zero value uses the daemon that the docker
// command would: DOCKER_HOST, else the context, else the usual socket.
type Config struct {
	Runtime      string            // one that the daemon knows, such as runsc; "" for its default
	CgroupParent string            // see native.Config
	AllowMissing []sandbox.Control // controls that may be missing on this host
	Images       *store.Store      // where images are looked up; nil for the host view and directories alone
	Dir          string            // where supervisors keep what their containers are made of; "" for container.DefaultDir
}

// Backend makes cells with one daemon. Its methods may be called at the same time.
type Backend struct {
	runtime string
	host    string // the daemon's address
	api     *client.Client
	version string
	kernel  string // the one that containers have of their own; "" for this host's
	home    *container.Home
	cells   container.Config
	count   atomic.Uint64

	mu        sync.Mutex
	skeletons map[string]string // by digest: the daemon's images of roots that are known to be there
}

// daemonName is the file of our directory that holds the daemon's address.
const daemonName = "daemon"

// label marks our containers, with the name of their supervisor's directory.
const label = "io.checkcell.supervisor"

// apiBudget is how long the daemon may take to answer a question that costs it nothing.
const apiBudget = 20 * time.Second

// Open finds the daemon, asks for its version, and makes a directory and groups
// for containers. It needs root. Call Close when done.
func Open(ctx context.Context, cfg Config) (*Backend, error) {
	host, err := daemonHost()
	if err != nil {
		return nil, err
	}
	if !strings.HasPrefix(host, "unix://") {
		return nil, fmt.Errorf("the docker daemon at %s may be on another host, where neither its containers nor this host's programs can be seen; use a daemon of this host by its unix socket", host)
	}
	if os.Geteuid() != 0 {
		return nil, errors.New("the docker backend has to be run as root, for its groups; the native backend needs no root")
	}
	b := &Backend{runtime: cfg.Runtime, host: host, skeletons: map[string]string{}}
	if b.api, err = client.NewClientWithOpts(client.WithHost(host), client.WithAPIVersionNegotiation()); err != nil {
		return nil, fmt.Errorf("docker daemon at %s: %w", host, err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, apiBudget, fmt.Errorf("it gave no answer for %v", apiBudget))
	defer cancel()
	version, err := b.api.ServerVersion(ctx)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("docker daemon at %s: %w", host, why(ctx, err)), b.api.Close())
	}
	b.version = version.Version
	if err := b.knowsRuntime(ctx); err != nil {
		return nil, errors.Join(err, b.api.Close())
	}
	if b.home, err = container.OpenHome(cfg.Dir, "docker-"); err != nil {
		return nil, errors.Join(err, b.api.Close())
	}
	if err := os.WriteFile(filepath.Join(b.home.Dir, daemonName), []byte(host), 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("make a directory for containers: %w", err), b.home.Close(), b.api.Close())
	}
	cellhost.RaiseInherited()
	b.cells = container.Config{
		Maker: b, Images: cfg.Images,
		Groups: cellhost.Open(cellhost.Config{Parent: cfg.CgroupParent, AllowMissing: cfg.AllowMissing}),
		Guest:  b.kernel != "",
	}
	if b.kernel != "" {
		const fix = "use the native backend, the oci backend, or another runtime"
		b.cells.Lacks = []cellhost.Lack{
			{Control: sandbox.ControlPIDs, Why: "the processes of a check are those of " + b.kernel + ", and nothing here counts them", Fix: fix},
			{Control: sandbox.ControlDisk, Why: "a tmpfs of " + b.kernel + " can't be seen from here, and may have no bound but the memory limit", Fix: fix},
		}
	}
	return b, nil
}

// why prefers the cause of an ended context to what the client makes of it.
func why(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// knowsRuntime refuses a runtime that the daemon does not have, and finds out
// whether it is one with a kernel of its own.
func (b *Backend) knowsRuntime(ctx context.Context) error {
	info, err := b.api.Info(ctx)
	if err != nil {
		return fmt.Errorf("docker daemon: %w", why(ctx, err))
	}
	if r, ok := info.Runtimes[cmp.Or(b.runtime, info.DefaultRuntime)]; ok {
		if strings.HasPrefix(filepath.Base(r.Path), "runsc") {
			b.kernel = "gVisor (" + r.Path + ")"
		}
		return nil
	}
	var names []string
	for name := range info.Runtimes {
		names = append(names, name)
	}
	return fmt.Errorf("--runtime %s: the docker daemon has %s; name it under runtimes in its daemon.json", b.runtime, strings.Join(names, ", "))
}

// Name returns "docker".
func (b *Backend) Name() string { return "docker" }

// String names the daemon with its version.
func (b *Backend) String() string { return "Docker Engine " + b.version }

// Create makes and sets up a cell. See sandbox.Backend.
func (b *Backend) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Box, error) {
	if err := cellhost.Fits(spec.Limits); err != nil {
		return nil, err
	}
	return container.Create(ctx, b.cells, spec)
}

// Probe runs an empty cell and says what of this host's it found in force.
func (b *Backend) Probe(ctx context.Context) []sandbox.Capability {
	caps, _ := b.cells.Groups.Trial(ctx, b, "run checkcell run --backend docker -- true, which says what the daemon says", b.cells.Lacks...)
	return caps
}

// Sweep kills and removes what crashed supervisors left: groups, and containers of
// this daemon. Those of another are left to a start with that one.
func (b *Backend) Sweep(ctx context.Context) (sandbox.Swept, error) {
	swept, err := b.cells.Groups.Sweep(ctx)
	return swept, errors.Join(err, b.home.Sweep(func(dir string) error {
		host, err := os.ReadFile(filepath.Join(dir, daemonName))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil // it crashed before it made a container
		case err != nil:
			return err
		case string(host) != b.host:
			return container.ErrElsewhere
		}
		return b.removeAll(ctx, filepath.Base(dir))
	}))
}

// removeAll removes the containers of one supervisor.
func (b *Backend) removeAll(ctx context.Context, supervisor string) error {
	list, err := b.api.ContainerList(ctx, dockercontainer.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("label", label+"="+supervisor))})
	if err != nil {
		return fmt.Errorf("list the containers of a crashed supervisor: %w", err)
	}
	var errs []error
	for _, c := range list {
		errs = append(errs, b.remove(ctx, c.ID))
	}
	return errors.Join(errs...)
}

// Close removes our directories, and containers that could not be removed before.
// Boxes must be destroyed before.
func (b *Backend) Close() error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), apiBudget, errors.New("the docker daemon did not answer in time"))
	defer cancel()
	errs := []error{b.cells.Groups.Close()}
	if err := b.removeAll(ctx, filepath.Base(b.home.Dir)); err != nil {
		b.home.Leave() // so the next start looks for them again
		return errors.Join(append(errs, err, b.api.Close())...)
	}
	return errors.Join(append(errs, b.home.Close(), b.api.Close())...)
}
