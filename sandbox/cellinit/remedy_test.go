//go:build linux

package cellinit

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
)

func TestRemedy(t *testing.T) {
	tests := []struct {
		err  error
		want string // a part
	}{
		{fmt.Errorf("make a pipe: %w", syscall.EMFILE), "ulimit -n"},
		{fmt.Errorf("fork: %w", syscall.EAGAIN), "pids.max"},
		{fmt.Errorf("map: %w", syscall.ENOMEM), "memory.max"},
		{fmt.Errorf("open: %w", syscall.ENFILE), "fs.file-max"},
		{fmt.Errorf("clone: %w", syscall.ENOSYS), "seccomp=unconfined"},
		{fmt.Errorf("mount: %w", syscall.EPERM), ""},
		{nil, ""},
	}
	for _, tt := range tests {
		if got := Remedy(tt.err); !strings.Contains(got, tt.want) || (got == "") != (tt.want == "") {
			t.Errorf("Remedy(%v) = %q, want %q in it", tt.err, got, tt.want)
		}
	}
}
