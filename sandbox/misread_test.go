package sandbox

import (
	"strings"
	"testing"
)

func TestMisread(t *testing.T) {
	tests := []struct{ check, want string }{
		{"echo a\necho b\n", ""},
		{"", ""},
		{"printf 'a\rb'", ""},
		{"set -e\r\nfalse\r\n", "line 1 of the check ends in CR LF"},
		{"echo a\necho b\r\n", "line 2 of the check ends in CR LF"},
		{"exit 0\r", "line 1 of the check ends in CR LF"},
		{"\ufeffset -e", "byte order mark"},
		{"echo \ufeff", ""},
	}
	for _, tt := range tests {
		err := Spec{Check: tt.check}.misread()
		if (err != nil) != (tt.want != "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("misread of %q = %v, want %q", tt.check, err, tt.want)
		}
	}
}
