//go:build linux

package cellinit

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sort"
	"syscall"

	"github.com/checkcell/checkcell/sandbox"
	"github.com/checkcell/checkcell/sandbox/cellspec"
	"golang.org/x/sys/unix"
)

// Layout is what is laid out in the working directory, each thing before its
// children, and the content of the files among them, one after the other.
type Layout struct {
	entries []entry
	Content [][]byte
}

// entry is one thing of a Layout.
type entry struct {
	Path   string // relative, clean
	Kind   entryKind
	Mode   uint32 // permission bits
	Size   int64  // of a file that is filled
	Target string // of a link
}

type entryKind uint8

const (
	entryFile entryKind = iota
	entryDir
	entryLink
	entryMode // what is there already gets Mode
)

// LayOut says what is laid out for spec: its workspace, where s is not nil, and
// over it its files. A workspace that is shown as it is has only modes changed;
// otherwise it is read here, to be copied.
func LayOut(spec sandbox.Spec, s *Survey, shown bool) (Layout, error) {
	var l Layout
	switch {
	case s == nil:
	case shown:
		l.entries = s.opened()
	default:
		var err error
		if l.Content, err = s.copy(spec.Limits); err != nil {
			return l, fmt.Errorf("workspace: %w", err)
		}
		l.entries = s.entries
	}
	dirs := map[string]bool{}
	files := append([]sandbox.File(nil), spec.Files...)
	sort.Slice(files, func(i, j int) bool { return files[i].Path < files[j].Path })
	for _, f := range files {
		l.entries = appendParents(l.entries, dirs, path.Dir(f.Path))
		l.entries = append(l.entries, entry{Path: f.Path, Kind: entryFile, Mode: 0o644, Size: int64(len(f.Content))})
		l.Content = append(l.Content, f.Content)
	}
	return l, nil
}

// LayOut has the init enter the directory dir and lay l out there.
func (p *Program) LayOut(dir string, l Layout) {
	p.Simple("enter "+dir, unix.SYS_CHDIR, p.Text(dir))
	links := map[string]bool{}
	for _, e := range l.entries {
		for above := path.Dir(e.Path); p.guest && above != "."; above = path.Dir(above) {
			if links[above] {
				p.Fail(fmt.Errorf("make file %s: a symbolic link of the workspace is in the way: %s", e.Path, above))
			}
		}
		switch e.Kind {
		case entryDir:
			p.Mkdir(e.Path, e.Mode)
		case entryLink:
			links[e.Path] = true
			p.Symlink(e.Target, e.Path)
		case entryMode:
			p.Simple("open up "+e.Path, unix.SYS_FCHMODAT, AtCwd, p.Text(e.Path), uintptr(e.Mode))
		case entryFile:
			s := p.openBeneath(e.Path, e.Mode)
			p.fill(s, e.Path, e.Size)
			p.Close(s)
		}
	}
}

func appendParents(entries []entry, made map[string]bool, dir string) []entry {
	if dir == "." || made[dir] {
		return entries
	}
	made[dir] = true
	return append(appendParents(entries, made, path.Dir(dir)), entry{Path: dir, Kind: entryDir, Mode: 0o755})
}

// Survey is what a workspace holds: every directory, regular file and symbolic
// link. In the cell all of it belongs to the check's user, who can read and
// write it, whoever owns it outside; entries carry the modes that this takes.
type Survey struct {
	dir      string
	entries  []entry
	modes    []uint32 // of each entry, as they are
	OneOwner bool     // all of it belongs to one user and one group
	UID, GID int      // of the directory itself
}

// SurveyWorkspace walks the directory at dir. What is neither a directory, a
// regular file nor a symbolic link (a device, a socket, a pipe) is refused by
// name: it would be a way out of the cell.
func SurveyWorkspace(dir string) (*Survey, error) {
	s := &Survey{dir: dir, OneOwner: true}
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		stat, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return fmt.Errorf("%s: its owner is not known", name)
		}
		if name == dir {
			s.UID, s.GID = int(stat.Uid), int(stat.Gid)
			return nil
		}
		s.OneOwner = s.OneOwner && s.UID == int(stat.Uid) && s.GID == int(stat.Gid)
		mode := uint32(info.Mode().Perm())
		e := entry{Path: name[len(dir)+1:], Mode: mode | 0o600}
		switch {
		case d.IsDir():
			e.Kind, e.Mode = entryDir, mode|0o700
		case info.Mode()&fs.ModeSymlink != 0:
			e.Kind = entryLink
			if e.Target, err = os.Readlink(name); err != nil {
				return err
			}
		case info.Mode().IsRegular():
			e.Size = info.Size()
		default:
			return fmt.Errorf("%s is a %v, which a cell can't be given", name, info.Mode().Type())
		}
		s.entries = append(s.entries, e)
		s.modes = append(s.modes, mode)
		return nil
	})
	return s, err
}

// opened lists, for a workspace that is shown as it is, the entries whose
// owner could not read and write them.
func (s *Survey) opened() []entry {
	var list []entry
	for i, e := range s.entries {
		if e.Kind != entryLink && e.Mode != s.modes[i] {
			list = append(list, entry{Path: e.Path, Kind: entryMode, Mode: e.Mode})
		}
	}
	return list
}

// copy reads all files and sets the entries' sizes to what was read. A
// workspace larger than the cell's disk is refused before it is read.
func (s *Survey) copy(l sandbox.Limits) ([][]byte, error) {
	var size sandbox.Bytes
	for _, e := range s.entries {
		size += sandbox.Bytes(e.Size)
	}
	if disk := cellspec.Disk(l); size > disk {
		return nil, fmt.Errorf("%s holds %d bytes and has to be copied, more than the cell's disk of %v; raise --disk (and --memory to twice that)", s.dir, int64(size), disk)
	}
	root, err := os.OpenRoot(s.dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	var parts [][]byte
	for i, e := range s.entries {
		if e.Kind != entryFile {
			continue
		}
		content, err := root.ReadFile(e.Path)
		if err != nil {
			return nil, err
		}
		s.entries[i].Size = int64(len(content))
		parts = append(parts, content)
	}
	return parts, nil
}
