package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/checkcell/checkcell/images"
)

// Control is one thing that a cell enforces: a word of the receipt, and what
// --allow-missing names.
type Control string

// The controls of a cell.
const (
	ControlCgroup   Control = "cgroup"    // a group of its own: kill and proof of emptiness from outside
	ControlMemory   Control = "memory"    // bytes of the whole tree, no swap
	ControlPIDs     Control = "pids"      // number of processes
	ControlCPU      Control = "cpu"       // bandwidth
	ControlCPUTime  Control = "cpu-time"  // CPU seconds of the whole tree
	ControlDisk     Control = "disk"      // bytes and inodes of all writable places
	ControlNoFile   Control = "nofile"    // descriptors of one process
	ControlNetwork  Control = "network"   // an empty network namespace
	ControlRoot     Control = "root"      // a read-only root file system of its own
	ControlPIDNS    Control = "pid-ns"    // no process outside is seen or reached
	ControlIPCNS    Control = "ipc-ns"    // no System V or POSIX queue outside is seen
	ControlUTSNS    Control = "uts-ns"    // a host name of its own
	ControlCgroupNS Control = "cgroup-ns" // the group's path outside is hidden
	ControlUser     Control = "user"      // an unprivileged user of a user namespace
	ControlCaps     Control = "caps"      // no capability
	ControlNoPrivs  Control = "no-new-privs"
	ControlSeccomp  Control = "seccomp"  // a filter of system calls, deny by default
	ControlLandlock Control = "landlock" // a second wall around files, where the kernel has it
)

// File is a file that is laid out in the working directory before the run.
type File struct {
	Path    string // relative, slash-separated, clean, without ".."
	Content []byte
}

// Spec says what to run and within what. It is a value: a backend may not
// change what it refers to.
type Spec struct {
	ID           string            // names the run in its result
	Root         images.Ref        // the root file system; the zero value is the host view
	Check        string            // a check's text, for bash; or
	Args         []string          // a command and its arguments; exactly one of the two
	SyntaxPass   bool              // run `bash -n` over Check first, in the same cell
	Workspace    string            // a directory of the host to appear, copied on write, as /work; "" for none
	Files        []File            // laid out in /work, over the workspace
	Env          map[string]string // added to the cell's own environment
	Limits       Limits
	AllowMissing []Control // what may be missing on this host without refusing the run
}

// Validate names everything in s that no backend could run, joined.
func (s Spec) Validate() error {
	var errs []error
	if s.ID == "" {
		errs = append(errs, errors.New("id: the run needs a name"))
	}
	if (len(s.Args) > 0) == (s.Check != "" || s.SyntaxPass) {
		errs = append(errs, errors.New("want either the text of a check or the arguments of a command"))
	}
	if i := strings.IndexByte(s.Check, 0); i >= 0 {
		errs = append(errs, fmt.Errorf("the check holds a NUL byte at offset %d; bash can't be given one", i))
	}
	for i, a := range s.Args {
		if strings.IndexByte(a, 0) >= 0 {
			errs = append(errs, fmt.Errorf("argument %d holds a NUL byte", i))
		}
	}
	for k, v := range s.Env {
		if k == "" || strings.ContainsAny(k, "=\x00") || strings.IndexByte(v, 0) >= 0 {
			errs = append(errs, fmt.Errorf("environment variable %q: a name without '=' and a value, neither with a NUL byte, are needed", k))
		}
	}
	errs = append(errs, ValidateFiles(s.Files), s.Limits.Validate())
	return errors.Join(errs...)
}

// misread says why bash would not read the check as whoever wrote it does,
// although its syntax passes: at the end of a line in CR LF the CR is part of
// the last word, so that "set -e" sets nothing, and a byte order mark is part
// of the first. It returns nil where neither is so.
func (s Spec) misread() error {
	if strings.HasPrefix(s.Check, "\ufeff") {
		return errors.New("the check begins with a byte order mark, which bash takes for part of the first word; remove it")
	}
	if before, _, found := strings.Cut(s.Check+"\n", "\r\n"); found {
		return fmt.Errorf("line %d of the check ends in CR LF, and bash takes the CR for part of the last word; end lines in LF", strings.Count(before, "\n")+1)
	}
	return nil
}

// ValidateFiles names every path that is absolute, unclean, outside the
// working directory, not UTF-8 or in another's way, joined.
func ValidateFiles(files []File) error {
	var errs []error
	seen := make(map[string]bool, len(files))
	for _, f := range files {
		switch {
		case strings.IndexByte(f.Path, 0) >= 0:
			errs = append(errs, fmt.Errorf("file %q: the path holds a NUL byte", f.Path))
		case path.IsAbs(f.Path):
			errs = append(errs, fmt.Errorf("file %q: the path is absolute; give it relative to the working directory", f.Path))
		case !fs.ValidPath(f.Path) || f.Path == ".":
			errs = append(errs, fmt.Errorf("file %q: the path is empty, unclean, not UTF-8, or holds '..'", f.Path))
		case seen[f.Path]:
			errs = append(errs, fmt.Errorf("file %q: given twice", f.Path))
		}
		seen[f.Path] = true
	}
	for _, f := range files {
		for dir := path.Dir(f.Path); dir != "." && dir != "/"; dir = path.Dir(dir) {
			if seen[dir] {
				errs = append(errs, fmt.Errorf("file %q: %q is a file, so nothing can be inside it", f.Path, dir))
			}
		}
	}
	return errors.Join(errs...)
}

// Step is one process of a run: first, where asked for, the syntax pass, then
// the check. Both run in the same cell, each with its own budget.
type Step uint8

// The steps, in order.
const (
	StepSyntax Step = iota
	StepCheck
)

var stepWords = [...]string{"syntax pass", "check"}

// String names the step for people.
func (s Step) String() string { return word(stepWords[:], uint8(s), "Step") }

func (l Limits) budget(s Step) time.Duration {
	if s == StepSyntax {
		return l.Parse
	}
	return l.Wall
}

var controls = []Control{
	ControlCgroup, ControlMemory, ControlPIDs, ControlCPU, ControlCPUTime, ControlDisk, ControlNoFile, ControlNetwork,
	ControlRoot, ControlPIDNS, ControlIPCNS, ControlUTSNS, ControlCgroupNS, ControlUser, ControlCaps, ControlNoPrivs, ControlSeccomp,
	ControlLandlock,
}

// ParseControl reads the word of a control.
func ParseControl(word string) (Control, error) {
	if c := Control(word); slices.Contains(controls, c) {
		return c, nil
	}
	return "", fmt.Errorf("control %q is none of %v", word, controls)
}
