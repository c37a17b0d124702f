package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/checkcell/checkcell/images"
)

func TestStoreDir(t *testing.T) {
	tests := []struct{ data, home, want, wantRoot string }{
		{"/data", "/home/ada", "/data/checkcell/images", "/data/checkcell/images"},
		{"", "/home/ada", "/home/ada/.local/share/checkcell/images", "/var/lib/checkcell/images"},
		{"data", "/home/ada", "/home/ada/.local/share/checkcell/images", "/var/lib/checkcell/images"},
		{"", "", "", "/var/lib/checkcell/images"},
	}
	for _, tt := range tests {
		t.Setenv("XDG_DATA_HOME", tt.data)
		t.Setenv("HOME", tt.home)
		want := tt.want
		if os.Geteuid() == 0 {
			want = tt.wantRoot
		}
		if got := storeDir(); got != want {
			t.Errorf("storeDir() with XDG_DATA_HOME=%q HOME=%q = %q, want %q", tt.data, tt.home, got, want)
		}
	}
}

func TestFailed(t *testing.T) {
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(errInterrupted)
	for _, tt := range []struct {
		ctx  context.Context
		err  error
		want int
	}{{t.Context(), errors.New("x"), exitFailed}, {ended, errInterrupted, exitInterrupted}} {
		if code, ok := codeOf(failed(tt.ctx, tt.err)); code != tt.want || !ok {
			t.Errorf("failed(%v) has the exit code %d, want %d", tt.err, code, tt.want)
		}
	}
	if err := failed(ended, nil); err != nil {
		t.Errorf("failed(nil) = %v, want nil: what was done was done", err)
	}
}

func TestLockFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "checkcell.lock")
	if _, err := readLock(path, false); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("readLock of no file = %v, want that it is missing", err)
	}
	lock, err := readLock(path, true)
	if err != nil {
		t.Fatal(err)
	}
	ref, err := images.Parse("debian:12")
	if err != nil {
		t.Fatal(err)
	}
	if lock, err = lock.Add(ref, images.NewDigest([32]byte{1})); err != nil {
		t.Fatal(err)
	}
	for range 2 { // over itself too
		if err := writeLock(path, lock); err != nil {
			t.Fatal(err)
		}
	}
	if again, err := readLock(path, false); err != nil || again.String() != lock.String() {
		t.Errorf("readLock of what was written = %v, %v, want %v", again, err, lock)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("beside the lock file there is %v, %v", left, err)
	}
	if err := writeLock(filepath.Join(dir, "none/checkcell.lock"), lock); err == nil || !strings.Contains(err.Error(), "write the lock file") {
		t.Errorf("writeLock into no directory = %v, want an error", err)
	}
}
