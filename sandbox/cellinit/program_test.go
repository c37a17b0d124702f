//go:build linux

package cellinit

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestDescribeCall(t *testing.T) {
	names := []string{"mount proc on /proc", Refused + "a mount", "make file a/b", "write a/b"}
	for _, tt := range []struct {
		index uint32
		errno unix.Errno
		want  string
	}{
		{0, unix.EPERM, "mount proc on /proc: operation not permitted"},
		{1, 0, "be refused a mount: it was not refused"},
		{2, unix.ELOOP, "make file a/b: a symbolic link of the workspace is in the way"},
		{3, 0, "write a/b: no space left on device"},
		{callMap, unix.ENOMEM, "map the cell's program: cannot allocate memory"},
		{callSignals, unix.EMFILE, "be told of ended children: too many open files"},
		{9, unix.EIO, "call 9: input/output error"},
	} {
		if got := describeCall(names, tt.index, tt.errno).Error(); !strings.HasPrefix(got, tt.want) {
			t.Errorf("describeCall(%d, %v) = %q, want %q", tt.index, tt.errno, got, tt.want)
		}
	}
}
