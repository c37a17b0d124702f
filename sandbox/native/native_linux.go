package native

import (
	"context"
	"errors"
	"os"
	"sync"
	"sync/atomic"

	"github.com/checkcell/checkcell/images/store"
	"github.com/checkcell/checkcell/sandbox"
	"github.com/checkcell/checkcell/sandbox/cellhost"
	"github.com/checkcell/checkcell/sandbox/cellinit"
	"golang.org/x/sys/unix"
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
	powerless  bool // root that may not mount
	groups     *cellhost.Groups
	uids       *cellhost.UIDs
	landlock   int         // the version that this kernel has; 0: none
	copyOnly   atomic.Bool // workspaces can't be shown through an overlay here

	mu       sync.Mutex
	launcher *link // replaced when it died
	closed   bool
}

// Open readies the backend: it finds out what groups can be had and makes its
// own directory for them. Where groups, or a controller of them, are missing
// and Config.AllowMissing does not name them, cells that need them are refused
// by Create, with the reason and what to do; Open itself fails only where
// something is wrong beyond that. As root it raises this process's hard limits
// (ulimit -H), since cells can have no more; see cellhost.Fits. Call Close when done.
func Open(cfg Config) (*Backend, error) {
	b := &Backend{cfg: cfg, privileged: os.Geteuid() == 0, landlock: landlockABI()}
	b.powerless = b.privileged && !mayMount()
	b.groups = cellhost.Open(cellhost.Config{Parent: cfg.CgroupParent, AllowMissing: cfg.AllowMissing, Fix: cfg.CgroupFix})
	var err error
	if b.uids, err = cellhost.NewUIDs(); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	cellhost.RaiseInherited()
	// The launcher takes its time to start; let it, while our caller goes on.
	// It comes after the groups, since on pure v2 we may have to be alone in ours.
	if b.launcher, err = startLauncher(); err != nil {
		return nil, errors.Join(cellinit.WithRemedy(err), b.Close())
	}
	return b, nil
}

// mayMount reports whether we have CAP_SYS_ADMIN, which root in a container mostly
// lacks. Cells of such a root would be root's outside, and are refused.
func mayMount() bool {
	var data [2]unix.CapUserData
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	err := unix.Capget(&header, &data[0])
	return err == nil && data[0].Effective&(1<<unix.CAP_SYS_ADMIN) != 0
}

// errPowerless is what Create says where root may not mount.
var errPowerless = errors.New("checkcell runs as root without CAP_SYS_ADMIN, as in a container that is not privileged: run it there as another user (docker run --user 1000), or with that capability (docker run --privileged)")

// Name returns "native".
func (b *Backend) Name() string { return "native" }

// Sweep kills and removes what crashed supervisors left in cgroups. Mounts,
// namespaces and processes of theirs ended with them.
func (b *Backend) Sweep(ctx context.Context) (sandbox.Swept, error) {
	return b.groups.Sweep(ctx)
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
	return errors.Join(b.groups.Close(), <-ended)
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
