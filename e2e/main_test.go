package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/checkcell/checkcell/internal/host"
)

// binaryVar names a checkcell that was built before, where there is no Go: an
// absolute path that ends in "checkcell". Otherwise the tests build their own.
const binaryVar = "CHECKCELL_BINARY"

// TestMain puts checkcell first on PATH, where every test and script of this
// package finds it under its own name.
func TestMain(m *testing.M) {
	code, err := withBinary(func() int { return host.Main(m) })
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// withBinary calls tests while the binary is on PATH.
func withBinary(tests func() int) (code int, err error) {
	if built := os.Getenv(binaryVar); built != "" {
		if err := usable(built); err != nil {
			return 1, fmt.Errorf("%s: %w", binaryVar, err)
		}
		return onPath(filepath.Dir(built), tests)
	}
	dir, err := os.MkdirTemp("", "e2e-*")
	if err != nil {
		return 1, fmt.Errorf("make a directory for the binary: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := os.Chmod(dir, 0o755); err != nil { // some tests run it as another user
		return 1, fmt.Errorf("open the directory of the binary: %w", err)
	}
	build := exec.Command("go", "build", "-trimpath", "-o", filepath.Join(dir, "checkcell"), "./cmd/checkcell")
	build.Dir = ".."
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return 1, fmt.Errorf("go build: %w\n%s", err, out)
	}
	return onPath(dir, tests)
}

// usable returns an error unless path is that of a program that can be found
// as checkcell from any directory.
func usable(path string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return err
	case !filepath.IsAbs(path) || filepath.Base(path) != "checkcell":
		return fmt.Errorf("%s is not an absolute path that ends in checkcell", path)
	case !info.Mode().IsRegular() || info.Mode()&0o111 == 0:
		return fmt.Errorf("%s is not a program", path)
	}
	return nil
}

// onPath calls tests while dir is first on PATH.
func onPath(dir string, tests func() int) (code int, err error) {
	if err := os.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH")); err != nil {
		return 1, fmt.Errorf("put the binary on PATH: %w", err)
	}
	return tests(), nil
}

// needCells ends a test that makes cells on a machine that can't.
func needCells(t testing.TB) {
	t.Helper()
	host.Need(t, host.Root, host.CgroupWritable, host.MemoryCgroup, host.PidsCgroup, host.UserNS, host.Bash)
}

func TestUsable(t *testing.T) {
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"a/checkcell": 0o755, "b/checkcell": 0o644, "c/other": 0o755} {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	for _, tt := range []struct{ path, want string }{
		{filepath.Join(dir, "a/checkcell"), ""},
		{"a/checkcell", "not an absolute path"},
		{filepath.Join(dir, "b/checkcell"), "not a program"},
		{filepath.Join(dir, "c/other"), "ends in checkcell"},
		{filepath.Join(dir, "d/checkcell"), "no such file"},
		{dir, "ends in checkcell"},
	} {
		if err := usable(tt.path); (err != nil) != (tt.want != "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("usable(%s) = %v, want %q", tt.path, err, tt.want)
		}
	}
}
