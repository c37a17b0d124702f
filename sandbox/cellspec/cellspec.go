// Package cellspec makes the one description of a cell that every backend
// reads: a *specs.Spec of the OCI runtime specification, built from a
// sandbox.Spec. A field that a backend can't honour is a missing control.
//
// What a cell has and the runtime specification has no field for is written in
// terms of it:
//
//   - All writable places are directories of one tmpfs, so that one limit
//     holds for them together. Their mounts carry Scratch as their source.
//   - A bind whose source is a symbolic link of the host stands for that link.
//   - Small files of the root are annotations: FileAnnotation + path.
//   - Limits that the engine keeps, not the kernel, are annotations too, so that
//     the description's digest covers them: LimitAnnotation + name.
package cellspec

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path"
	"slices"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/checkcell/checkcell/images"
	"github.com/checkcell/checkcell/sandbox"
	"github.com/opencontainers/runtime-spec/specs-go"
)

const (
	// Scratch is the source of every mount that is a directory of the cell's
	// one writable tmpfs. Each such mount carries that tmpfs's size and
	// nr_inodes.
	Scratch = "checkcell-scratch"

	// FileAnnotation, followed by an absolute path, is the annotation that
	// holds a read-only file of the cell's root.
	FileAnnotation = "io.checkcell.file:"

	// FilesDigestAnnotation is the digest of the files laid out in the
	// working directory, so that the description's digest covers them.
	FilesDigestAnnotation = "io.checkcell.files"

	// SyntaxPassAnnotation is there, with the value "true", where the run has
	// a syntax pass.
	SyntaxPassAnnotation = "io.checkcell.syntax-pass"

	// LimitAnnotation, followed by the name of a limit, is the annotation
	// that holds it: a time in nanoseconds or a size in bytes. There is none
	// for a limit that is unlimited.
	LimitAnnotation = "io.checkcell.limit:"

	// HostRoot is the root path of the host view: a root that holds nothing
	// but the mounts.
	HostRoot = "rootfs"

	// ImageRoot is the root path of an image. Where its tree lies is not part of
	// the cell; ImageAnnotation is.
	ImageRoot = "image"

	// ImageAnnotation is the annotation that holds the digest of the image that
	// the root is made of.
	ImageAnnotation = "io.checkcell.image"

	// UID and GID are the check's user, inside the cell.
	UID, GID = 1000, 1000

	// WorkDir is the check's working directory and home.
	WorkDir = "/work"

	// Path is the check's PATH.
	Path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

	// checkFile is where a check is put that is too long for an argument.
	checkFile = "/.checkcell/check"

	// maxArgument is MAX_ARG_STRLEN of execve(2) less the closing NUL: the
	// longest argument that the kernel takes.
	maxArgument = 131072 - 1

	cpuPeriodUS = 100_000
)

// Build returns the description of spec's cell. It reads nothing of the host.
// User namespace mappings are left to the backend, so that the same spec has
// the same digest in every cell. What names a run (its ID), and what may be
// missing on a host, is no part of the cell.
func Build(spec sandbox.Spec) (*specs.Spec, error) {
	if err := errors.Join(spec.Validate(), validatePaths(spec)); err != nil {
		return nil, err
	}
	s := &specs.Spec{
		Version:     specs.Version,
		Hostname:    "cell",
		Root:        &specs.Root{Path: HostRoot, Readonly: true},
		Annotations: engineLimits(spec.Limits),
		Process: &specs.Process{
			User:            specs.User{UID: UID, GID: GID, Umask: ptr[uint32](0o022)},
			Cwd:             WorkDir,
			Env:             environment(spec.Env),
			Capabilities:    &specs.LinuxCapabilities{},
			NoNewPrivileges: true,
			Rlimits:         rlimits(spec.Limits),
		},
		Linux: &specs.Linux{
			Namespaces:    namespaces(),
			Resources:     resources(spec.Limits),
			MaskedPaths:   maskedPaths(),
			ReadonlyPaths: readonlyPaths(),
			Seccomp:       seccomp(),
		},
	}
	if dir, ok := spec.Root.Path(); ok {
		s.Root.Path = dir
	} else if digest, ok := spec.Root.Digest(); ok {
		s.Root.Path = ImageRoot
		s.Annotations[ImageAnnotation] = digest.String()
	} else {
		s.Mounts = hostView()
		for name, text := range rootFiles() {
			s.Annotations[FileAnnotation+name] = text
		}
	}
	s.Mounts = append(s.Mounts, ownMounts(spec)...)
	if len(spec.Files) > 0 {
		s.Annotations[FilesDigestAnnotation] = filesDigest(spec.Files)
	}
	setProcess(s, spec)
	return s, nil
}

// validatePaths refuses paths of the host that depend on where we run.
func validatePaths(spec sandbox.Spec) error {
	var errs []error
	dir, isDir := spec.Root.Path()
	if !isDir && !spec.Root.IsHost() && spec.Root.Kind() != images.KindStored {
		errs = append(errs, fmt.Errorf("root %s: a cell is made of a directory, or of an image of the local store by digest", spec.Root))
	}
	if isDir && !path.IsAbs(dir) {
		errs = append(errs, fmt.Errorf("root %q: want an absolute path", dir))
	}
	if dir := spec.Workspace; dir != "" && !path.IsAbs(dir) {
		errs = append(errs, fmt.Errorf("workspace %q: want an absolute path", dir))
	}
	return errors.Join(errs...)
}

// engineLimits are the annotations of the limits that the engine keeps.
func engineLimits(l sandbox.Limits) map[string]string {
	list := map[string]int64{
		"wall": l.Wall.Nanoseconds(), "parse": l.Parse.Nanoseconds(),
		"stdout-cap": int64(l.Stdout), "stderr-cap": int64(l.Stderr),
	}
	if d, ok := l.CPUTime.Value(); ok {
		list["cpu-time"] = d.Nanoseconds()
	}
	out := make(map[string]string, len(list))
	for name, n := range list {
		out[LimitAnnotation+name] = strconv.FormatInt(n, 10)
	}
	return out
}

// setProcess says what is executed. The check's text travels as an argument
// or as a file, never as shell text of ours (design.md, section 3).
func setProcess(s *specs.Spec, spec sandbox.Spec) {
	if len(spec.Args) > 0 {
		s.Process.Args = slices.Clone(spec.Args)
		return
	}
	s.Process.Args = []string{"bash", "--norc", "--noprofile", "-c", "--", spec.Check}
	if len(spec.Check) > maxArgument {
		s.Process.Args = []string{"bash", "--norc", "--noprofile", "--", checkFile}
		s.Annotations[FileAnnotation+checkFile] = spec.Check
	}
	if spec.SyntaxPass {
		s.Annotations[SyntaxPassAnnotation] = "true"
	}
}

// SyntaxArgs returns the arguments of the syntax pass for those of the check:
// bash's -n, "read commands but do not execute them", put before the rest.
func SyntaxArgs(args []string) []string {
	return slices.Insert(slices.Clone(args), 3, "-n")
}

// Digest returns "sha256:…" over the description's JSON. Texts that JSON can't
// hold, because they are not UTF-8, are taken in behind it as they are: two
// checks that differ only there are two checks.
func Digest(s *specs.Spec) (string, error) {
	b, err := json.Marshal(s)
	if err != nil {
		return "", fmt.Errorf("digest the cell's description: %w", err)
	}
	h := sha256.New()
	h.Write(b)
	for i, text := range texts(s) {
		if !utf8.ValidString(text) {
			fmt.Fprintf(h, "\n%d %d %s", i, len(text), text)
		}
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil)), nil
}

// texts are the parts of a description that a caller writes freely, in an
// order that depends on nothing else.
func texts(s *specs.Spec) []string {
	all := []string{s.Annotations[FileAnnotation+checkFile]}
	if s.Root != nil {
		all = append(all, s.Root.Path)
	}
	if s.Process != nil {
		all = slices.Concat(all, s.Process.Args, s.Process.Env)
	}
	for _, m := range s.Mounts {
		all = append(all, m.Options...)
	}
	return all
}

func filesDigest(files []sandbox.File) string {
	sorted := slices.Clone(files)
	sort.Slice(sorted, func(i, j int) bool { return sorted[i].Path < sorted[j].Path })
	h := sha256.New()
	for _, f := range sorted {
		fmt.Fprintf(h, "%d %s %d ", len(f.Path), f.Path, len(f.Content))
		h.Write(f.Content)
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}

func environment(extra map[string]string) []string {
	env := map[string]string{
		"HOME": WorkDir, "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8",
		"PATH": Path, "TMPDIR": "/tmp", "TZ": "UTC",
	}
	for k, v := range extra {
		env[k] = v
	}
	list := make([]string, 0, len(env))
	for k, v := range env {
		list = append(list, k+"="+v)
	}
	sort.Strings(list)
	return list
}

// rlimits are the limits per process: no core files, the descriptors that were
// asked for, and for the rest what a fresh login has, whatever our caller's are.
func rlimits(l sandbox.Limits) []specs.POSIXRlimit {
	const infinity = math.MaxUint64 // RLIM_INFINITY
	files := uint64(l.OpenFiles)
	return []specs.POSIXRlimit{
		{Type: "RLIMIT_CORE"},
		{Type: "RLIMIT_NOFILE", Hard: files, Soft: files},
		{Type: "RLIMIT_STACK", Hard: infinity, Soft: 8 << 20},
		{Type: "RLIMIT_MEMLOCK", Hard: 8 << 20, Soft: 8 << 20},
		{Type: "RLIMIT_NICE"},
		{Type: "RLIMIT_RTPRIO"},
		{Type: "RLIMIT_FSIZE", Hard: infinity, Soft: infinity},
		{Type: "RLIMIT_CPU", Hard: infinity, Soft: infinity},
		{Type: "RLIMIT_DATA", Hard: infinity, Soft: infinity},
		{Type: "RLIMIT_AS", Hard: infinity, Soft: infinity},
		{Type: "RLIMIT_NPROC", Hard: infinity, Soft: infinity},
	}
}

func namespaces() []specs.LinuxNamespace {
	return []specs.LinuxNamespace{
		{Type: specs.PIDNamespace}, {Type: specs.MountNamespace}, {Type: specs.NetworkNamespace},
		{Type: specs.IPCNamespace}, {Type: specs.UTSNamespace}, {Type: specs.CgroupNamespace},
		{Type: specs.UserNamespace},
	}
}

func resources(l sandbox.Limits) *specs.LinuxResources {
	r := &specs.LinuxResources{}
	if n, ok := l.Memory.Value(); ok {
		// In the runtime specification swap is memory and swap together.
		r.Memory = &specs.LinuxMemory{Limit: ptr(int64(n)), Swap: ptr(int64(n))}
	}
	if n, ok := l.Processes.Value(); ok {
		r.Pids = &specs.LinuxPids{Limit: ptr(n)}
	}
	if n, ok := l.CPUs.Value(); ok {
		quota := int64(math.Round(n * cpuPeriodUS))
		r.CPU = &specs.LinuxCPU{Quota: ptr(quota), Period: ptr(uint64(cpuPeriodUS))}
	}
	return r
}

// Disk returns how much all writable places of a cell together hold: the disk
// limit, but at most half of the memory limit, since what is in a tmpfs is
// memory too, and a full disk should be ENOSPC and not an OOM kill.
func Disk(l sandbox.Limits) sandbox.Bytes {
	if memory, limited := l.Memory.Value(); limited {
		return min(l.Disk, memory/2)
	}
	return l.Disk
}

// scratchOptions returns the size and nr_inodes of the writable tmpfs.
func scratchOptions(l sandbox.Limits, mode string) []string {
	return []string{"nosuid", "nodev", "mode=" + mode,
		fmt.Sprintf("size=%d", Disk(l)), fmt.Sprintf("nr_inodes=%d", l.Inodes)}
}

func ownMounts(spec sandbox.Spec) []specs.Mount {
	mounts := []specs.Mount{
		{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "nodev", "noexec"}},
		{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "noexec", "mode=755", "size=65536", "nr_inodes=64", "ro"}},
	}
	for _, d := range []struct{ dir, mode string }{{"/dev/shm", "1777"}, {"/tmp", "1777"}, {"/var/tmp", "1777"}} {
		mounts = append(mounts, specs.Mount{Destination: d.dir, Type: "tmpfs", Source: Scratch, Options: scratchOptions(spec.Limits, d.mode)})
	}
	work := specs.Mount{Destination: WorkDir, Type: "tmpfs", Source: Scratch, Options: scratchOptions(spec.Limits, "755")}
	if spec.Workspace != "" {
		work.Type = "overlay"
		work.Options = append(work.Options, "lowerdir="+spec.Workspace)
	}
	return append(mounts, work)
}

// Workspace returns the host's directory that m, the mount at WorkDir, shows;
// ok is false where it shows none.
func Workspace(m specs.Mount) (dir string, ok bool) {
	for _, o := range m.Options {
		if dir, ok := strings.CutPrefix(o, "lowerdir="); ok && m.Type == "overlay" {
			return dir, true
		}
	}
	return "", false
}

func ptr[T any](v T) *T { return &v }
