package native

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"github.com/checkcell/checkcell/cgroup"
	"github.com/checkcell/checkcell/images/store"
	"github.com/checkcell/checkcell/sandbox"
)

// Config says how cells are made. Its zero value is the usual one.
type Config struct {
	CgroupParent string            // an existing group to make ours below, as in /proc/self/cgroup; "" for our own position
	AllowMissing []sandbox.Control // controls that may be missing on this host
	Images       *store.Store      // where images are looked up; nil for the host view and directories alone
	CgroupFix    string            // what to do where groups or controllers are missing, if the caller knows better; "" for the usual words
}

// Backend makes native cells. Its methods may be called at the same time.
type Backend struct {
	cfg        Config
	privileged bool
	cgroups    *cgroup.Host // nil where groups can't be had and may be missing
	cgroupErr  error        // why not
	uids       *uidRange
	landlock   int           // the version that this kernel has; 0: none
	copyOnly   atomic.Bool   // workspaces can't be shown through an overlay here
	cells      atomic.Uint64 // how many were asked for; names their groups

	mu       sync.Mutex
	launcher *link // replaced when it died
	closed   bool
}

// Open readies the backend: it finds out what groups can be had and makes its
// own directory for them. Where groups, or a controller of them, are missing
// and Config.AllowMissing does not name them, cells that need them are refused
// by Create, with the reason and what to do; Open itself fails only where
// something is wrong beyond that. As root it raises this process's hard limits
// (ulimit -H), since cells can have no more; see Fits. Call Close when done.
func Open(cfg Config) (*Backend, error) {
	b := &Backend{cfg: cfg, privileged: os.Geteuid() == 0, landlock: landlockABI()}
	var all []cgroup.Controller
	for _, c := range groupControls {
		all = append(all, c.controller)
	}
	b.cgroups, b.cgroupErr = cgroup.Open(cgroup.Config{Parent: cfg.CgroupParent, AllowMissing: all})
	var err error
	if b.uids, err = newUIDRange(); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	raiseInherited()
	// The launcher takes its time to start; let it, while our caller goes on.
	// It comes after the groups, since on pure v2 we may have to be alone in ours.
	if b.launcher, err = startLauncher(); err != nil {
		return nil, errors.Join(withRemedy(err), b.Close())
	}
	return b, nil
}

// Name returns "native".
func (b *Backend) Name() string { return "native" }

// Sweep kills and removes what crashed supervisors left in cgroups. Mounts,
// namespaces and processes of theirs ended with them.
func (b *Backend) Sweep(ctx context.Context) (sandbox.Swept, error) {
	if b.cgroups == nil {
		return sandbox.Swept{}, nil
	}
	swept, err := b.cgroups.Sweep(ctx)
	return sandbox.Swept{Runs: swept.Runs, Processes: swept.Processes}, err
}

// Close ends the launcher, and with it whatever cell is left, and removes our
// directory of groups.
func (b *Backend) Close() error {
	b.mu.Lock()
	b.closed = true
	l := b.launcher
	b.mu.Unlock()
	ended := make(chan error, 1)
	go func() { // ends within closeBudget
		if l == nil {
			ended <- nil
			return
		}
		ctx, cancel := context.WithTimeoutCause(context.Background(), closeBudget, errors.New("the launcher did not end in time"))
		defer cancel()
		ended <- l.close(ctx)
	}()
	var err error
	if b.cgroups != nil {
		err = b.cgroups.Close()
	}
	return errors.Join(err, <-ended)
}

// link returns a launcher that lives.
func (b *Backend) link() (*link, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, errors.New("the backend was closed")
	}
	if b.launcher != nil && b.launcher.alive() {
		return b.launcher, nil
	}
	l, err := startLauncher()
	if err != nil {
		return nil, err
	}
	if b.launcher != nil {
		ctx, cancel := context.WithTimeout(context.Background(), closeBudget)
		defer cancel()
		_ = b.launcher.close(ctx) // it died, which the cells of that time were told
	}
	b.launcher = l
	return l, nil
}

// uidRange gives every cell of a root supervisor a host user of its own, so
// that cells can't reach one another through a common one. The ids lie where
// neither people, system users nor the ranges of containers are expected
// (0x70000000 to 0x7fffffff), at a random place for each supervisor.
type uidRange struct {
	mu    sync.Mutex
	first int
	used  map[int]bool
}

const uidsPerSupervisor = 4096

func newUIDRange() (*uidRange, error) {
	var b [4]byte
	if _, err := rand.Read(b[:]); err != nil {
		return nil, fmt.Errorf("choose user ids: %w", err)
	}
	blocks := uint32(0x10000000 / uidsPerSupervisor)
	return &uidRange{first: 0x70000000 + int(binary.NativeEndian.Uint32(b[:])%blocks)*uidsPerSupervisor, used: map[int]bool{}}, nil
}

func (r *uidRange) take() (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range uidsPerSupervisor {
		if !r.used[i] {
			r.used[i] = true
			return r.first + i, nil
		}
	}
	return 0, fmt.Errorf("all %d user ids for cells are taken", uidsPerSupervisor)
}

func (r *uidRange) give(uid int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.used, uid-r.first)
}
