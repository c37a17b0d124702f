package claims

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Source is one file of claims, which can be read any number of times.
type Source struct {
	name  string // for people: as it was named, or found below a directory
	label string // what default ids begin with
	dir   string // the directory it was found below; "" if it was named itself
	kind  format
	most  int // bytes that one claim, or a file that can't be streamed, may take
	open  func() (io.ReadCloser, error)
	spool *os.File // what open reads, for what can be read only once; else nil
}

// Name returns the source's name for people.
func (s Source) Name() string { return s.name }

// Open finds the sources behind paths: a file, a directory, whose files of
// claims are taken in lexical order, or "-" for stdin. What can be read only
// once, standard input or a pipe, is read to its end into a temporary file that
// has no name. All problems are reported at once, and then nothing is left
// open; otherwise the caller closes the sources with Close.
func Open(paths []string, stdin io.Reader) ([]Source, error) {
	var sources []Source
	var errs []error
	if len(paths) == 0 {
		errs = append(errs, errors.New("open claims: no file is named; name files, directories, or - for standard input"))
	}
	for _, path := range paths {
		found, err := find(path, stdin)
		if err != nil {
			errs = append(errs, fmt.Errorf("open claims: %w", err))
		}
		if path == "-" {
			stdin = nil
		}
		sources = append(sources, found...)
	}
	if len(errs) > 0 {
		return nil, errors.Join(append(errs, Close(sources))...)
	}
	setLabels(sources)
	return sources, nil
}

// Close gives back what Open holds. It goes through all sources.
func Close(sources []Source) error {
	var errs []error
	for _, s := range sources {
		if s.spool == nil {
			continue
		}
		if err := s.spool.Close(); err != nil {
			errs = append(errs, fmt.Errorf("close claims of %s: %w", s.name, err))
		}
	}
	return errors.Join(errs...)
}

// find returns the sources behind one path. A nil stdin was given away before.
func find(path string, stdin io.Reader) ([]Source, error) {
	if path == "-" {
		if stdin == nil {
			return nil, errors.New("-: standard input can be named only once")
		}
		return spooled("stdin", formatUnknown, stdin)
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	switch {
	case info.IsDir():
		return walk(path)
	case !info.Mode().IsRegular():
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		found, err := spooled(path, formatOf(path), f)
		return found, errors.Join(err, f.Close())
	}
	return []Source{fileSource(path, "")}, nil
}

func fileSource(path, dir string) Source {
	open := func() (io.ReadCloser, error) { return os.Open(path) }
	return Source{name: path, dir: dir, kind: formatOf(path), most: maxClaim, open: open}
}

// walk finds the files of claims below dir. It follows a symbolic link to a
// file, not one to a directory.
func walk(dir string) ([]Source, error) {
	var found []Source
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, entry fs.DirEntry, err error) error {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err != nil || entry.IsDir() || formatOf(name) == formatUnknown {
			return err
		}
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		if info.Mode().IsRegular() {
			found = append(found, fileSource(path, dir))
		} else if !info.IsDir() {
			return fmt.Errorf("%s: not a regular file; name it itself to have it read", path)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("walk %s: %w", dir, err)
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("%s: the directory holds no file of claims (.jsonl .ndjson .json .yaml .yml .md .markdown)", dir)
	}
	return found, nil
}

// spooled copies from to a file that is gone when it is closed.
func spooled(name string, kind format, from io.Reader) ([]Source, error) {
	f, err := os.CreateTemp("", "checkcell-claims-")
	if err != nil {
		return nil, fmt.Errorf("keep %s: %w; name another directory in TMPDIR", name, err)
	}
	size, err := copyUnlinked(f, from)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("keep %s: %w; name another directory in TMPDIR", name, err), f.Close())
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(io.NewSectionReader(f, 0, size)), nil }
	return []Source{{name: name, kind: kind, most: maxClaim, open: open, spool: f}}, nil
}

func copyUnlinked(to *os.File, from io.Reader) (int64, error) {
	if err := os.Remove(to.Name()); err != nil {
		return 0, err
	}
	return io.Copy(to, from)
}

// setLabels gives each source its base name, but where two have one, both
// their whole names, so that default ids stay apart.
func setLabels(sources []Source) {
	uses := make(map[string]int)
	for _, s := range sources {
		uses[filepath.Base(s.name)]++
	}
	for i, s := range sources {
		sources[i].label = filepath.Base(s.name)
		if uses[sources[i].label] > 1 {
			sources[i].label = s.name
		}
	}
}

// format is how the claims of a source are written.
type format uint8

const (
	formatUnknown format = iota // to be told from the content
	formatLines
	formatJSON
	formatYAML
	formatPages
)

// formatOf tells the format by the name's ending.
func formatOf(name string) format {
	switch strings.ToLower(filepath.Ext(name)) {
	case ".jsonl", ".ndjson":
		return formatLines
	case ".json":
		return formatJSON
	case ".yaml", ".yml":
		return formatYAML
	case ".md", ".markdown":
		return formatPages
	}
	return formatUnknown
}
