package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/checkcell/checkcell/images"
	"github.com/checkcell/checkcell/sandbox"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// cellFlags are the flags that describe a cell.
type cellFlags struct {
	limits       sandbox.Limits
	setup        time.Duration
	image        string
	workspace    string
	env          []string
	allowMissing []string
	network      string
	backend      string
	runtime      string
	cgroupParent string
	store        string
	scope        string // set by open: the one that groups are made in; "" for none
}

// value is a flag that is parsed into a limit.
type value[T any] struct {
	into  *T
	parse func(string) (T, error)
	show  func(T) string
}

func (v value[T]) Set(s string) error {
	got, err := v.parse(s)
	if err != nil {
		return err
	}
	*v.into = got
	return nil
}

func (v value[T]) String() string {
	if v.into == nil {
		return ""
	}
	return v.show(*v.into)
}

func (v value[T]) Type() string { return "limit" }

func limitFlag[T ~int64 | ~float64](flags *pflag.FlagSet, into *sandbox.Limit[T], name, usage string, parse func(string) (T, error)) {
	flags.Var(value[sandbox.Limit[T]]{into, func(s string) (sandbox.Limit[T], error) {
		if s == "unlimited" {
			return sandbox.Unlimited[T](), nil
		}
		v, err := parse(s)
		return sandbox.At(v), err
	}, sandbox.Limit[T].String}, name, usage+", or unlimited")
}

func sizeFlag(flags *pflag.FlagSet, into *sandbox.Bytes, name, usage string) {
	flags.Var(value[sandbox.Bytes]{into, sandbox.ParseBytes, sandbox.Bytes.String}, name, usage)
}

func parseCount(s string) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is not a whole number", s)
	}
	return n, nil
}

func parseCPUs(s string) (float64, error) {
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is not a number of processors such as 0.5", s)
	}
	return f, nil
}

func (c *cellFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.SortFlags = false
	c.limits = sandbox.DefaultLimits()
	l := &c.limits
	flags.DurationVar(&l.Wall, "timeout", l.Wall, "wall time of a check")
	flags.DurationVar(&l.Parse, "parse-timeout", l.Parse, "wall time of the syntax pass")
	limitFlag(flags, &l.CPUTime, "cpu-time", "CPU time of the whole tree", time.ParseDuration)
	limitFlag(flags, &l.CPUs, "cpus", "processors at one time", parseCPUs)
	limitFlag(flags, &l.Memory, "memory", "memory of the whole tree, without swap", sandbox.ParseBytes)
	limitFlag(flags, &l.Processes, "pids", "processes and threads at one time", parseCount)
	sizeFlag(flags, &l.Stdout, "stdout-cap", "bytes of stdout that are kept; more end the run")
	sizeFlag(flags, &l.Stderr, "stderr-cap", "bytes of stderr that are kept; more end the run")
	sizeFlag(flags, &l.Disk, "disk", "bytes of all writable places together")
	flags.Int64Var(&l.Inodes, "inodes", l.Inodes, "files of all writable places together")
	flags.DurationVar(&c.setup, "setup-timeout", sandbox.DefaultSetupBudget, "wall time of making a cell; more where a busy host makes many at once")
	flags.Int64Var(&l.OpenFiles, "nofile", l.OpenFiles, "open files of one process")
	flags.StringVar(&c.network, "network", "none", "only none: an empty network namespace")
	flags.StringVar(&c.image, "image", "host", "root file system: host, dir:PATH, or an image (see checkcell image --help)")
	flags.StringVar(&c.store, "store", "", "directory of the images (default: "+storeDir()+")")
	flags.StringVar(&c.workspace, "workspace", "", "directory to appear as /work; it is never changed")
	flags.StringArrayVar(&c.env, "env", nil, "K=V to add to the cell's environment (again for more)")
	flags.StringSliceVar(&c.allowMissing, "allow-missing", nil, "controls that this host may lack, by name")
	flags.StringVar(&c.backend, "backend", backendNative, "what makes the cells: native; oci, an OCI runtime; or docker, a Docker Engine")
	flags.StringVar(&c.runtime, "runtime", "", "of the oci backend, runc, crun or a path (default: runc); of the docker backend, one that the daemon knows")
	flags.StringVar(&c.cgroupParent, "cgroup-parent", "", "existing cgroup to make ours below, as in /proc/self/cgroup")
}

// cell is what the flags say, checked.
type cell struct {
	limits       sandbox.Limits
	image        images.Ref
	workspace    string
	env          map[string]string
	allowMissing []sandbox.Control
}

// read checks the flags. Its error names every flag that is wrong.
func (c *cellFlags) read() (cell, error) {
	got := cell{limits: c.limits, workspace: c.workspace, env: map[string]string{}}
	var errs []error
	var err error
	if got.image, err = parseImage(c.image); err != nil {
		errs = append(errs, fmt.Errorf("--image: %w", err))
	}
	errs = append(errs, c.checkBackend())
	if c.network != "none" {
		errs = append(errs, fmt.Errorf("--network %q: this version knows none", c.network))
	}
	for _, kv := range c.env {
		k, v, ok := strings.Cut(kv, "=")
		if !ok || k == "" {
			errs = append(errs, fmt.Errorf("--env %q: want NAME=VALUE", kv))
			continue
		}
		got.env[k] = v
	}
	for _, name := range c.allowMissing {
		control, err := sandbox.ParseControl(name)
		if err != nil {
			errs = append(errs, fmt.Errorf("--allow-missing: %w", err))
			continue
		}
		got.allowMissing = append(got.allowMissing, control)
	}
	if dir := c.workspace; dir != "" {
		if got.workspace, err = directory(dir); err != nil {
			errs = append(errs, fmt.Errorf("--workspace: %w", err))
		}
	}
	if dir, ok := got.image.Path(); ok {
		if _, err := directory(dir); err != nil {
			errs = append(errs, fmt.Errorf("--image: %w", err))
		}
	}
	if c.setup <= 0 {
		errs = append(errs, fmt.Errorf("--setup-timeout %v: it must be positive", c.setup))
	}
	errs = append(errs, c.checkLimits()...)
	if err := errors.Join(errs...); err != nil {
		return cell{}, exit(exitUsage, err)
	}
	return got, nil
}

// parseImage reads a reference; a relative path behind a prefix is below the
// working directory.
func parseImage(s string) (images.Ref, error) {
	wd, err := os.Getwd()
	if err != nil {
		return images.Ref{}, err
	}
	return images.ParseIn(wd, s)
}

// checkLimits checks each limit by itself, to say which flag is at fault.
func (c *cellFlags) checkLimits() []error {
	l := c.limits
	var errs []error
	for _, f := range []struct {
		name string
		put  func(*sandbox.Limits)
	}{
		{"timeout", func(to *sandbox.Limits) { to.Wall = l.Wall }},
		{"parse-timeout", func(to *sandbox.Limits) { to.Parse = l.Parse }},
		{"cpu-time", func(to *sandbox.Limits) { to.CPUTime = l.CPUTime }},
		{"cpus", func(to *sandbox.Limits) { to.CPUs = l.CPUs }},
		{"memory", func(to *sandbox.Limits) { to.Memory = l.Memory }},
		{"pids", func(to *sandbox.Limits) { to.Processes = l.Processes }},
		{"stdout-cap", func(to *sandbox.Limits) { to.Stdout = l.Stdout }},
		{"stderr-cap", func(to *sandbox.Limits) { to.Stderr = l.Stderr }},
		{"disk", func(to *sandbox.Limits) { to.Disk = l.Disk }},
		{"inodes", func(to *sandbox.Limits) { to.Inodes = l.Inodes }},
		{"nofile", func(to *sandbox.Limits) { to.OpenFiles = l.OpenFiles }},
	} {
		one := sandbox.DefaultLimits()
		f.put(&one)
		if err := one.Validate(); err != nil {
			errs = append(errs, fmt.Errorf("--%s: %w", f.name, err))
		}
	}
	if len(errs) == 0 {
		errs = append(errs, l.Validate())
	}
	return errs
}

// enoughFiles refuses to begin with fewer descriptors than we are sure to use:
// Go's runtime itself ends the program where it can't have its first ones, with a
// code that could be the check's.
func enoughFiles(jobs int) error {
	const ours, cell = 48, 20 // 30 and 14 were counted, on a hybrid host
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return fmt.Errorf("read the limit of open files: %w", err)
	}
	if need := uint64(ours + cell*jobs); files.Cur < need {
		return fmt.Errorf("checkcell may open only %d files, and %d are needed for %s at once; raise the limit (ulimit -n %d), or lower --jobs\nnothing was run",
			files.Cur, need, counted(int64(jobs), "check", "checks"), need)
	}
	return nil
}

// enforced checks, by a trial cell, that this host enforces what the limits
// need, but for what may be missing.
func enforced(ctx context.Context, b sandbox.Backend, c cell) error {
	type reason struct{ how, fix string }
	names := map[reason][]string{}
	var reasons []reason
	for _, p := range b.Probe(ctx) {
		if p.State == sandbox.CapabilityInForce || !c.limits.Need(p.Control) || slices.Contains(c.allowMissing, p.Control) {
			continue
		}
		r := reason{p.How, p.Fix}
		if names[r] == nil {
			reasons = append(reasons, r)
		}
		names[r] = append(names[r], string(p.Control))
	}
	var errs []error
	for _, r := range reasons {
		errs = append(errs, fmt.Errorf("this host can't enforce %s: %s\n  to fix it: %s\n  to do without: --allow-missing=%s",
			strings.Join(names[r], ", "), r.how, r.fix, strings.Join(names[r], ",")))
	}
	if ctx.Err() != nil {
		return exit(exitInterrupted, context.Cause(ctx))
	}
	if len(errs) > 0 {
		return exit(exitCannot, errors.Join(append(errs, errors.New("nothing was run"))...))
	}
	return nil
}

// directory returns the absolute path of a directory that can be read.
func directory(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("%s: %w", dir, err)
	}
	f, err := os.OpenFile(abs, os.O_RDONLY|syscall.O_DIRECTORY, 0) // never waits, as opening a pipe would
	if err != nil {
		return "", err
	}
	defer f.Close() // only read from
	if _, err := f.ReadDir(1); err != nil && err != io.EOF {
		return "", fmt.Errorf("%s is no directory that can be read: %w", dir, err)
	}
	return abs, nil
}
