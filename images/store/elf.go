package store

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// program is what the loader would read of an ELF file (ld.so(8)).
type program struct {
	class   elf.Class
	machine elf.Machine
	loader  string   // "" for a static program or a library
	needed  []string // names of libraries
	runpath []string // directories that the file itself names, $ORIGIN resolved
}

// readProgram reads an ELF file; ok is false for any other file.
func readProgram(path string) (p program, ok bool, err error) {
	if ok, err := isELF(path); !ok || err != nil {
		return program{}, false, err
	}
	f, err := elf.Open(path)
	if err != nil {
		return program{}, false, fmt.Errorf("%s: %w", path, err)
	}
	defer f.Close() // only read from
	p.class, p.machine = f.Class, f.Machine
	for _, s := range f.Progs {
		if s.Type != elf.PT_INTERP || s.Filesz > 4096 {
			continue
		}
		name := make([]byte, s.Filesz)
		if _, err := s.ReadAt(name, 0); err != nil {
			return program{}, false, fmt.Errorf("%s: loader: %w", path, err)
		}
		p.loader = strings.TrimRight(string(name), "\x00")
	}
	if p.needed, err = f.ImportedLibraries(); err != nil {
		return program{}, false, fmt.Errorf("%s: %w", path, err)
	}
	// RUNPATH overrules RPATH.
	for _, tag := range []elf.DynTag{elf.DT_RUNPATH, elf.DT_RPATH} {
		found, err := f.DynString(tag)
		if err != nil {
			return program{}, false, fmt.Errorf("%s: %w", path, err)
		}
		for dir := range strings.SplitSeq(strings.Join(found, ":"), ":") {
			if dir != "" {
				p.runpath = append(p.runpath, originOf(dir, path))
			}
		}
		if len(p.runpath) > 0 {
			break
		}
	}
	return p, true, nil
}

func isELF(path string) (bool, error) {
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close() // only read from
	magic := make([]byte, len(elf.ELFMAG))
	_, err = io.ReadFull(f, magic)
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return false, nil
	}
	return string(magic) == elf.ELFMAG, err
}

func originOf(dir, path string) string {
	origin := filepath.Dir(path)
	return filepath.Clean(strings.NewReplacer("$ORIGIN", origin, "${ORIGIN}", origin).Replace(dir))
}

// fits reports whether the file at path is a library for p.
func (p program) fits(path string) bool {
	f, err := elf.Open(path)
	if err != nil {
		return false
	}
	defer f.Close() // only read from
	return f.Class == p.class && f.Machine == p.machine
}

// trustedDirs are where loaders look without being told to.
func trustedDirs(m elf.Machine) []string {
	dirs := []string{"/lib64", "/usr/lib64", "/lib", "/usr/lib"}
	for machine, triplet := range map[elf.Machine]string{elf.EM_X86_64: "x86_64-linux-gnu", elf.EM_AARCH64: "aarch64-linux-gnu", elf.EM_386: "i386-linux-gnu"} {
		if machine == m {
			dirs = append([]string{"/lib/" + triplet, "/usr/lib/" + triplet}, dirs...)
		}
	}
	return dirs
}

// library finds a library that p needs. runpath is of the files that led to p,
// whose RPATH holds for what they load. cached says that it was found only
// where the loader's cache leads.
func (p program) library(name string, runpath, configured []string) (path string, cached bool, err error) {
	if strings.Contains(name, "/") {
		return name, false, nil
	}
	trusted := trustedDirs(p.machine)
	for _, dir := range slices.Concat(p.runpath, runpath, trusted, configured) {
		if path := filepath.Join(dir, name); p.fits(path) {
			return path, !slices.Contains(slices.Concat(p.runpath, runpath, trusted), dir), nil
		}
	}
	return "", false, fmt.Errorf("no library %s for it in %s", name, strings.Join(slices.Concat(p.runpath, runpath, trusted, configured), ":"))
}

// configuredDirs reads ld.so.conf and what it includes (ldconfig(8)).
func configuredDirs(conf string, depth int) ([]string, error) {
	text, err := os.ReadFile(conf)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var dirs []string
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		if len(words) == 2 && words[0] == "include" && depth < 8 {
			pattern := words[1]
			if !filepath.IsAbs(pattern) {
				pattern = filepath.Join(filepath.Dir(conf), pattern)
			}
			files, err := filepath.Glob(pattern) // sorted
			if err != nil {
				return nil, fmt.Errorf("%s: %w", conf, err)
			}
			for _, file := range files {
				more, err := configuredDirs(file, depth+1)
				if err != nil {
					return nil, err
				}
				dirs = append(dirs, more...)
			}
			continue
		}
		for _, dir := range words {
			if filepath.IsAbs(dir) {
				dirs = append(dirs, filepath.Clean(dir))
			}
		}
	}
	return dirs, nil
}
