package store

import (
	"archive/tar"
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// place adds what is at a path of the host, which is absolute, and all that
// leads there: directories, links, and what the links lead to. It returns the
// path without links.
func (h *hostFiles) place(name string) (string, error) {
	real, links := "/", 0
	for todo := strings.Split(filepath.Clean(name), "/"); len(todo) > 0; {
		part := todo[0]
		todo = todo[1:]
		if part == ".." {
			real = path.Dir(real)
		}
		if part == "" || part == "." || part == ".." {
			continue
		}
		next := path.Join(real, part)
		info, err := os.Lstat(next)
		if err != nil {
			if links > 0 && errors.Is(err, fs.ErrNotExist) {
				return next, nil // the end of a link that leads nowhere
			}
			return "", err
		}
		switch {
		case info.IsDir():
			h.put(next[1:], hostFile{kind: tar.TypeDir, mode: 0o755})
		case info.Mode().IsRegular():
			mode := int64(0o644)
			if info.Mode()&0o111 != 0 {
				mode = 0o755
			}
			h.put(next[1:], hostFile{kind: tar.TypeReg, mode: mode, from: next})
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(next)
			if err != nil {
				return "", err
			}
			if links++; links > 40 {
				return "", fmt.Errorf("%s: too many links", name)
			}
			h.put(next[1:], hostFile{kind: tar.TypeSymlink, mode: 0o777, link: target})
			if path.IsAbs(target) {
				real = "/"
			}
			todo = append(strings.Split(target, "/"), todo...)
			continue
		default:
			return "", fmt.Errorf("%s is a %v, which an image can't have", next, info.Mode().Type())
		}
		real = path.Join(real, part)
	}
	return real, nil
}

// add adds a file of the host and, for a program or library, its loader and
// the libraries that it needs. runpath is what the loader knows from the files
// that need this one.
func (h *hostFiles) add(name string, runpath []string) error {
	real, err := h.place(name)
	if err != nil {
		return err
	}
	if h.seen[real] {
		return nil
	}
	h.seen[real] = true
	if info, err := os.Stat(real); err != nil || !info.Mode().IsRegular() {
		return err
	}
	p, ok, err := readProgram(real)
	if err != nil || !ok {
		return err
	}
	if p.loader != "" {
		if err := h.add(p.loader, nil); err != nil {
			return fmt.Errorf("%s: loader: %w", real, err)
		}
	}
	needed := p.needed
	if slices.Contains(needed, "libc.so.6") {
		// The GNU C library loads it when a thread is canceled.
		if _, _, err := p.library("libgcc_s.so.1", runpath, h.configured); err == nil {
			needed = append(needed, "libgcc_s.so.1")
		}
	}
	for _, lib := range needed {
		file, cached, err := p.library(lib, runpath, h.configured)
		if err != nil {
			return fmt.Errorf("%s: %w", real, err)
		}
		h.cached = h.cached || cached
		if err := h.add(file, slices.Concat(p.runpath, runpath)); err != nil {
			return err
		}
	}
	return nil
}

// addInterpreter adds what a script is run by, and behind env the program that
// it names.
func (h *hostFiles) addInterpreter(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()                                                       // only read from
	line, err := bufio.NewReader(io.LimitReader(f, 256)).ReadString('\n') // BINPRM_BUF_SIZE
	if err != nil && err != io.EOF {
		return fmt.Errorf("%s: %w", name, err)
	}
	line, isScript := strings.CutPrefix(line, "#!")
	words := strings.Fields(line)
	if !isScript || len(words) == 0 || !filepath.IsAbs(words[0]) {
		return nil
	}
	if err := h.add(words[0], nil); err != nil {
		return fmt.Errorf("%s: interpreter: %w", name, err)
	}
	if filepath.Base(words[0]) != "env" || len(words) < 2 || strings.HasPrefix(words[1], "-") {
		return nil
	}
	program, err := lookUp(words[1])
	if err != nil {
		return fmt.Errorf("%s: %s: %w", name, words[1], err)
	}
	return h.add(program, nil)
}

// addCell adds what a cell needs whatever runs in it: places for its mounts,
// the few files of /etc that programs read, and the links by which programs
// and loaders are found.
func (h *hostFiles) addCell() error {
	for dir, mode := range map[string]int64{"work": 0o755, "tmp": 0o1777, "var/tmp": 0o1777, "proc": 0o755, "dev": 0o755, "dev/shm": 0o1777, "sys": 0o755, "etc": 0o755} {
		h.put(dir, hostFile{kind: tar.TypeDir, mode: mode})
	}
	for name, content := range map[string]string{
		"passwd": "root:x:0:0:root:/nonexistent:/usr/sbin/nologin\n" +
			"cell:x:1000:1000:cell:/work:/bin/bash\n" +
			"nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
		"group":         "root:x:0:\ncell:x:1000:\nnogroup:x:65534:\n",
		"hosts":         "127.0.0.1 localhost cell\n::1 localhost\n",
		"hostname":      "cell\n",
		"nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
		"resolv.conf":   "",
	} {
		h.put("etc/"+name, hostFile{kind: tar.TypeReg, mode: 0o644, content: content})
	}
	for _, link := range []string{"/bin", "/sbin", "/lib", "/lib64"} {
		info, err := os.Lstat(link)
		if err != nil || info.Mode()&fs.ModeSymlink == 0 {
			continue // a host that has them apart
		}
		if _, err := h.place(link); err != nil {
			return err
		}
	}
	// The one locale of a cell; newer C libraries have it built in.
	const locale = "/usr/lib/locale/C.utf8"
	if _, err := os.Stat(locale); err != nil {
		return nil
	}
	return h.addTree(locale, func(string) bool { return false })
}

func isPython(name string) bool {
	rest, ok := strings.CutPrefix(name, "python3")
	return ok && strings.Trim(rest, ".0123456789") == ""
}

// pythonPaths asks an interpreter for the directories of its standard library.
// -I and -S keep it from reading anything of the user's or of the site's.
const pythonPaths = `import json, sysconfig
print(json.dumps(sorted({sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")})))`

// addPython adds the standard library, but for its tests, what needs a screen,
// what installs packages, packages that are installed, and bytecode, which
// would tell when it was compiled.
func (h *hostFiles) addPython(ctx context.Context, interpreter string) error {
	cmd := exec.CommandContext(ctx, interpreter, "-I", "-S", "-B", "-c", pythonPaths)
	cmd.Env, cmd.Dir = []string{}, "/"
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("ask it for its library: %w", err)
	}
	var dirs []string
	if err := json.Unmarshal(out, &dirs); err != nil {
		return fmt.Errorf("ask it for its library: %q: %w", out, err)
	}
	skipped := []string{"__pycache__", "test", "tests", "idlelib", "tkinter", "turtledemo", "ensurepip", "lib2to3", "site-packages", "dist-packages"}
	for _, dir := range dirs {
		if err := h.addTree(filepath.Clean(dir), func(name string) bool { return slices.Contains(skipped, name) || strings.HasSuffix(name, ".a") }); err != nil {
			return err
		}
	}
	return nil
}
