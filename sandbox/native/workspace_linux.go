package native

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
)

// layOut says what is laid out in the working directory, and returns a memory
// file with the content: the workspace's copy, where it is not shown through
// an overlay, and over it the claim's files.
func (x *box) layOut(spec sandbox.Spec) (*os.File, error) {
	var parts [][]byte
	if spec.Workspace != "" {
		s, err := surveyWorkspace(spec.Workspace)
		if err != nil {
			return nil, fmt.Errorf("workspace: %w", err)
		}
		x.req.Overlay = x.req.Overlay && s.oneOwner && (x.req.Privileged || s.uid == x.req.HostUID)
		x.req.OwnerUID, x.req.OwnerGID = s.uid, s.gid
		if x.req.Overlay {
			x.req.Entries = s.opened()
		} else if parts, err = s.copy(spec.Limits); err != nil {
			return nil, fmt.Errorf("workspace: %w", err)
		} else {
			x.req.Entries = s.entries
		}
	}
	dirs := map[string]bool{}
	files := append([]sandbox.File(nil), spec.Files...)
	sort.Slice(files, func(i, j int) bool { return files[i].Path < files[j].Path })
	for _, f := range files {
		x.req.Entries = appendParents(x.req.Entries, dirs, path.Dir(f.Path))
		x.req.Entries = append(x.req.Entries, entry{Path: f.Path, Kind: entryFile, Mode: 0o644, Size: int64(len(f.Content))})
		parts = append(parts, f.Content)
	}
	return memoryFile("checkcell-content", parts...)
}

func appendParents(entries []entry, made map[string]bool, dir string) []entry {
	if dir == "." || made[dir] {
		return entries
	}
	made[dir] = true
	return append(appendParents(entries, made, path.Dir(dir)), entry{Path: dir, Kind: entryDir, Mode: 0o755})
}

// survey is what a workspace holds: every directory, regular file and symbolic
// link. In the cell all of it belongs to the check's user, who can read and
// write it, whoever owns it outside; entries carry the modes that this takes.
type survey struct {
	dir      string
	entries  []entry
	modes    []uint32 // of each entry, as they are
	oneOwner bool
	uid, gid int
}

// surveyWorkspace walks the directory at dir. What is neither a directory, a
// regular file nor a symbolic link (a device, a socket, a pipe) is refused by
// name: it would be a way out of the cell.
func surveyWorkspace(dir string) (*survey, error) {
	s := &survey{dir: dir, oneOwner: true}
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
			s.uid, s.gid = int(stat.Uid), int(stat.Gid)
			return nil
		}
		s.oneOwner = s.oneOwner && s.uid == int(stat.Uid) && s.gid == int(stat.Gid)
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
func (s *survey) opened() []entry {
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
func (s *survey) copy(l sandbox.Limits) ([][]byte, error) {
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
