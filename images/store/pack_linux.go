package store

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/checkcell/checkcell/images"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// PackSpec says what an image of the host's own programs is made of.
type PackSpec struct {
	// Programs are names, found where a cell looks for programs; absolute paths
	// of files or of directories, which are taken as a whole; "coreutils", which
	// stands for all its programs; or "std:NAME" for those of a standard image.
	Programs []string
	// Name is what the image is kept as, beside its digest; the zero value is
	// no name. It has to be a registry's tag.
	Name images.Ref
}

// programDirs is where a cell looks for programs (design.md section 3).
func programDirs() []string {
	return []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"}
}

// Pack makes an image of programs of this host with the libraries that they
// need, and what every cell needs. The same files on the host make the same
// image: it has no times, no owners but root, and one layer.
func (s *Store) Pack(ctx context.Context, spec PackSpec, progress Progress) (Pulled, error) {
	got, err := s.pack(ctx, spec, &reporter{tell: progress})
	if err != nil {
		return Pulled{}, fmt.Errorf("pack %s: %w", strings.Join(spec.Programs, " "), err)
	}
	return got, nil
}

func (s *Store) pack(ctx context.Context, spec PackSpec, report *reporter) (got Pulled, err error) {
	if !spec.Name.IsHost() {
		if _, pinned := spec.Name.Digest(); spec.Name.Kind() != images.KindRegistry || pinned {
			return Pulled{}, fmt.Errorf("name %s: want the form of a tag, such as localhost/shell:1", spec.Name)
		}
	}
	h := newHostFiles()
	if err := h.addAll(ctx, spec.Programs); err != nil {
		return Pulled{}, err
	}
	st, err := s.newStage(ctx)
	if err != nil {
		return Pulled{}, err
	}
	defer func() { err = errors.Join(err, st.close()) }()
	l, err := st.writeLayer(ctx, report.step(StepRead, "/", 0), h.write)
	if err != nil {
		return Pulled{}, err
	}
	src, err := newMadeSource(l, s.platform, v1.Config{
		Env:        []string{"PATH=" + strings.Join(programDirs(), ":"), "LANG=C.UTF-8", "LC_ALL=C.UTF-8", "TZ=UTC"},
		WorkingDir: "/work",
	}, "checkcell image pack")
	if err != nil {
		return Pulled{}, err
	}
	ref := spec.Name
	if ref.IsHost() {
		ref = images.Stored(sum(src.made))
	}
	return s.add(ctx, st, src, ref, report)
}

// hostFile is one entry of the image.
type hostFile struct {
	kind    byte   // of tar
	mode    int64  // permissions
	link    string // target
	from    string // the host's file with its content, or
	content string
}

// hostFiles is what an image is packed of, by path without the first slash.
type hostFiles struct {
	files      map[string]hostFile
	seen       map[string]bool // paths of the host whose needs were looked into
	configured []string        // directories of ld.so.conf
	cached     bool            // some library is found only by the loader's cache
}

func newHostFiles() *hostFiles {
	return &hostFiles{files: map[string]hostFile{}, seen: map[string]bool{}}
}

// addAll adds the programs and what every cell needs.
func (h *hostFiles) addAll(ctx context.Context, programs []string) error {
	names, err := expand(programs)
	if err != nil {
		return err
	}
	if h.configured, err = configuredDirs("/etc/ld.so.conf", 0); err != nil {
		return err
	}
	var errs []error
	for _, name := range names {
		if err := h.addProgram(ctx, name); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
	}
	if err := errors.Join(append(errs, h.addCell())...); err != nil {
		return err
	}
	if h.cached {
		return h.add("/etc/ld.so.cache", nil)
	}
	return nil
}

// expand replaces what stands for several programs.
func expand(programs []string) ([]string, error) {
	if len(programs) == 0 {
		return nil, errors.New("no program is named")
	}
	// What scripts start is there whatever is named: env by its path, sh by name.
	names := []string{"env", "sh"}
	for _, p := range programs {
		switch {
		case p == "coreutils":
			for _, name := range coreutils() {
				if _, err := lookUp(name); err == nil {
					names = append(names, name) // builds differ in the rarer ones
				}
			}
		case strings.HasPrefix(p, "std:"):
			standard, err := images.FindStandard(strings.TrimPrefix(p, "std:"))
			if err != nil {
				return nil, err
			}
			more, err := expand(standard.Programs)
			if err != nil {
				return nil, err
			}
			names = append(names, more...)
		default:
			names = append(names, p)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// coreutils lists the programs of GNU coreutils.
func coreutils() []string {
	return strings.Fields(`[ arch b2sum base32 base64 basename basenc cat chcon chgrp chmod chown chroot cksum comm cp csplit cut date dd df dir
		dircolors dirname du echo env expand expr factor false fmt fold groups head hostid id install join link ln logname ls md5sum mkdir
		mkfifo mknod mktemp mv nice nl nohup nproc numfmt od paste pathchk pinky pr printenv printf ptx pwd readlink realpath rm rmdir runcon
		seq sha1sum sha224sum sha256sum sha384sum sha512sum shred shuf sleep sort split stat stdbuf stty sum sync tac tail tee test timeout
		touch tr true truncate tsort tty uname unexpand uniq unlink users vdir wc who whoami yes`)
}

// lookUp finds a program where a cell would.
func lookUp(name string) (string, error) {
	if filepath.IsAbs(name) {
		return filepath.Clean(name), nil
	}
	if strings.Contains(name, "/") {
		return "", errors.New("want a name or an absolute path")
	}
	for _, dir := range programDirs() {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	return "", fmt.Errorf("no such program in %s; install it, or give its absolute path", strings.Join(programDirs(), ":"))
}

func (h *hostFiles) addProgram(ctx context.Context, name string) error {
	path, err := lookUp(name)
	if err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return h.addTree(path, func(string) bool { return false })
	}
	if err := errors.Join(h.add(path, nil), h.addInterpreter(path)); err != nil {
		return err
	}
	if isPython(filepath.Base(path)) {
		return h.addPython(ctx, path)
	}
	return nil
}

// addTree adds all below dir but for the names that skip chooses.
func (h *hostFiles) addTree(dir string, skip func(name string) bool) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		switch {
		case path != dir && skip(d.Name()):
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		case d.IsDir():
			_, err := h.place(path)
			return err
		case d.Type().IsRegular():
			return h.add(path, nil)
		case d.Type()&fs.ModeSymlink != 0:
			if _, err := os.Stat(path); err != nil {
				_, err := h.place(path) // it leads nowhere here either
				return err
			}
			return h.add(path, nil)
		}
		return fmt.Errorf("%s is a %v, which an image can't have", path, d.Type())
	})
}

// write writes the layer: sorted, of root, without times, and readable.
func (h *hostFiles) write(w *tar.Writer) error {
	for _, name := range slices.Sorted(maps.Keys(h.files)) {
		f := h.files[name]
		entry := &tar.Header{Typeflag: f.kind, Name: name, Mode: f.mode, Linkname: f.link, Size: int64(len(f.content)), ModTime: time.Unix(0, 0)}
		open := func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(f.content)), nil }
		switch {
		case f.kind == tar.TypeDir:
			entry.Name += "/"
		case f.from != "":
			info, err := os.Stat(f.from)
			if err != nil {
				return err
			}
			entry.Size = info.Size()
			open = func() (io.ReadCloser, error) { return os.Open(f.from) }
		}
		if err := writeEntry(w, entry, open); err != nil {
			return err
		}
	}
	return nil
}

// put adds an entry that is made for the image.
func (h *hostFiles) put(name string, f hostFile) {
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if _, ok := h.files[dir]; !ok {
			h.files[dir] = hostFile{kind: tar.TypeDir, mode: 0o755}
		}
	}
	h.files[name] = f
}
