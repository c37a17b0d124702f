package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/checkcell/checkcell/internal/host"
)

// TestMain builds checkcell once and puts it first on PATH, where every test
// and script of this package finds it under its own name.
func TestMain(m *testing.M) {
	code, err := withBinary(func() int { return host.Main(m) })
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// withBinary calls tests while the built binary is on PATH.
func withBinary(tests func() int) (code int, err error) {
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
