package host

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// prefix begins the name of every group and temporary file of checkcell.
const prefix = "checkcell"

// Traces is what runs of checkcell have on this machine at one moment. Each
// list holds one description an entry, sorted.
type Traces struct {
	Processes []string // live descendants of this process
	Groups    []string // control groups named checkcell*
	Mounts    []string // mounts with checkcell in their place or source
	Files     []string // checkcell-* in the directory for temporary files
}

// Look takes stock. Groups, mounts and files are those of the whole machine,
// so a checkcell that somebody else runs meanwhile is seen too.
func Look() (Traces, error) {
	var t Traces
	var errs [4]error
	t.Processes, errs[0] = descendants(os.Getpid())
	t.Groups, errs[1] = namedGroups()
	t.Mounts, errs[2] = namedMounts()
	t.Files, errs[3] = namedFiles()
	return t, errors.Join(errs[:]...)
}

// LookInTurn is Look at a moment when no package runs its tests through Main,
// so that what is seen was left behind and is not in use. The process that is
// in Main must not call it: it would wait for itself.
func LookInTurn() (Traces, error) {
	unlock, err := takeTurn(turnTime)
	if err != nil {
		return Traces{}, err
	}
	defer unlock()
	return Look()
}

// Since returns an error that names everything in t that is not in before, or
// nil if there is nothing.
func (t Traces) Since(before Traces) error {
	return errors.Join(
		added("process", t.Processes, before.Processes),
		added("control group", t.Groups, before.Groups),
		added("mount", t.Mounts, before.Mounts),
		added("temporary file", t.Files, before.Files),
	)
}

func added(what string, now, before []string) error {
	var errs []error
	for _, one := range now {
		if !slices.Contains(before, one) {
			errs = append(errs, fmt.Errorf("left behind: %s %s", what, one))
		}
	}
	return errors.Join(errs...)
}

// InnerVar marks a test binary that a test of it started, to have it crash for one.
const InnerVar = "CHECKCELL_TEST_INNER"

// Main runs the tests of a package that touches the machine and returns the
// status for os.Exit, which is not 0 if a test left something behind. Such
// packages take turns, so that none sees the traces of another. Orphans stay
// descendants of this process, so none escapes the count. A worker of the fuzzer,
// and a test that runs this program once more with InnerVar set, belong to the
// process that has the turn.
func Main(m *testing.M) int {
	flag.Parse()
	if os.Getenv(InnerVar) != "" {
		return m.Run()
	}
	if worker := flag.Lookup("test.fuzzworker"); worker != nil && worker.Value.String() == "true" {
		return m.Run()
	}
	unlock, err := takeTurn(turnTime)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer unlock()
	code, err := watch(m.Run)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	return code
}

// watch calls tests and returns its code, or 1 instead of 0 beside an error
// that says what was left behind or why that isn't known.
func watch(tests func() int) (code int, err error) {
	if err := AdoptOrphans(); err != nil {
		return 1, err
	}
	before, err := Look()
	if err != nil {
		return 1, fmt.Errorf("look before the tests: %w", err)
	}
	code = tests()
	after, err := Look()
	if err == nil {
		err = after.Since(before)
	}
	if err != nil && code == 0 {
		code = 1
	}
	return code, err
}

// AdoptOrphans makes this process the parent of those of its descendants whose
// own parent ends. See PR_SET_CHILD_SUBREAPER in prctl(2).
func AdoptOrphans() error {
	const setChildSubreaper = 36 // linux/prctl.h; package syscall lacks it
	if _, _, errno := syscall.Syscall(syscall.SYS_PRCTL, setChildSubreaper, 1, 0); errno != 0 {
		return fmt.Errorf("adopt orphans: %w", errno)
	}
	return nil
}

// turnTime bounds the wait for a turn, below the ten minutes after which the
// go command kills a test without a word.
const turnTime = 9 * time.Minute

// takeTurn waits until no other test binary of this module has the turn, or
// until patience is over. The lock is on the module's directory: nothing is
// created, and it ends with the process that holds it.
func takeTurn(patience time.Duration) (unlock func(), err error) {
	dir, err := moduleDir()
	if err != nil {
		return nil, err
	}
	f, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("take turn: %w", err)
	}
	locked := make(chan error, 1)
	go func() { locked <- lock(f) }() // ends with the turn of the other, or with this process
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case err := <-locked:
		if err != nil {
			return nil, errors.Join(fmt.Errorf("take turn: lock %s: %w", dir, err), f.Close())
		}
		return func() { f.Close() }, nil // closing a directory that was only locked loses nothing
	case <-timer.C:
		return nil, fmt.Errorf("take turn: other tests have held the lock of %s for %v; /proc/locks has their process", dir, patience)
	}
}

func lock(f *os.File) error {
	for {
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// moduleDir returns the directory with go.mod above the current directory,
// which for a test is that of its package.
func moduleDir() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find go.mod: %w", err)
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("find go.mod: none in %s or above", start)
		}
	}
}

func namedGroups() ([]string, error) {
	all, err := hierarchies()
	if err != nil {
		return nil, err
	}
	var found []string
	for _, h := range all {
		err := filepath.WalkDir(h.mount, func(path string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil // it was removed since it was listed
			}
			if err != nil {
				return err
			}
			if d.IsDir() && strings.HasPrefix(d.Name(), prefix) {
				found = append(found, path)
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("list groups: %w", err)
		}
	}
	slices.Sort(found)
	return found, nil
}

func namedMounts() ([]string, error) {
	mounts, err := readMounts()
	if err != nil {
		return nil, err
	}
	var found []string
	for _, m := range mounts {
		if strings.Contains(m.dir+"\n"+m.source, prefix) {
			found = append(found, fmt.Sprintf("%s (%s of %s)", m.dir, m.fstype, m.source))
		}
	}
	slices.Sort(found)
	return found, nil
}

func namedFiles() ([]string, error) {
	entries, err := os.ReadDir(os.TempDir())
	if err != nil {
		return nil, fmt.Errorf("list temporary files: %w", err)
	}
	var found []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix+"-") {
			found = append(found, filepath.Join(os.TempDir(), e.Name()))
		}
	}
	return found, nil
}
