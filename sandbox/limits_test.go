package sandbox_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/checkcell/checkcell/sandbox"
)

func TestParseBytes(t *testing.T) {
	tests := []struct {
		in   string
		want sandbox.Bytes
		err  bool
	}{
		{"0", 0, false}, {"1", 1, false}, {"512", 512, false}, {"512B", 512, false}, {"1K", 1024, false}, {"1KiB", 1024, false},
		{"512MiB", 512 << 20, false}, {"512 MiB", 512 << 20, false}, {"2G", 2 << 30, false}, {"1TiB", 1 << 40, false},
		{"1kB", 1000, false}, {"5MB", 5e6, false}, {"1.5GiB", 3 << 29, false}, {"-1", -1, false}, {"-5M", -5 << 20, false},
		{"", 0, true}, {"B", 0, true}, {"MiB", 0, true}, {"x", 0, true}, {"1X", 0, true}, {"1 2", 0, true}, {"NaN", 0, true}, {"Inf", 0, true},
		{"9223372036854775807", math.MaxInt64, false}, {"9223372036854775808", 0, true}, {"9000000TiB", 0, true}, {"1e30", 0, true}, {"unlimited", 0, true},
	}
	for _, tt := range tests {
		got, err := sandbox.ParseBytes(tt.in)
		if got != tt.want || (err != nil) != tt.err {
			t.Errorf("ParseBytes(%q) = %d, %v, want %d, error %v", tt.in, got, err, tt.want, tt.err)
		}
	}
}

func FuzzParseBytes(f *testing.F) {
	for _, s := range []string{"512MiB", "1.5G", "", "B", "-1", "9223372036854775807KiB", "1e9"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := sandbox.ParseBytes(s)
		if err != nil {
			return
		}
		again, err := sandbox.ParseBytes(n.String())
		if err != nil || again != n {
			t.Errorf("ParseBytes(%q) = %d, its String %q gives %d, %v", s, n, n.String(), again, err)
		}
	})
}

func TestLimitsValidate(t *testing.T) {
	if err := sandbox.DefaultLimits().Validate(); err != nil {
		t.Errorf("DefaultLimits().Validate() = %v, want nil", err)
	}
	unlimited := sandbox.DefaultLimits()
	unlimited.CPUTime, unlimited.CPUs = sandbox.Unlimited[time.Duration](), sandbox.Unlimited[float64]()
	unlimited.Memory, unlimited.Processes = sandbox.Unlimited[sandbox.Bytes](), sandbox.Unlimited[int64]()
	if err := unlimited.Validate(); err != nil {
		t.Errorf("with unlimited where it is allowed: Validate() = %v, want nil", err)
	}
	zero := sandbox.Limits{}.Validate()
	for _, name := range []string{"wall", "parse", "cpu-time", "cpus", "memory", "pids", "stdout-cap", "stderr-cap", "disk", "inodes", "nofile"} {
		if zero == nil || !strings.Contains(zero.Error(), "limit "+name+":") {
			t.Errorf("zero Limits: Validate() = %v, want every limit named, %s too", zero, name)
		}
	}
	tests := []struct {
		name string
		set  func(*sandbox.Limits)
	}{
		{"wall", func(l *sandbox.Limits) { l.Wall = -time.Second }},
		{"wall", func(l *sandbox.Limits) { l.Wall = 1000 * time.Hour * 24 }},
		{"wall", func(l *sandbox.Limits) { l.Wall = 1 }},
		{"memory", func(l *sandbox.Limits) { l.Memory = sandbox.At[sandbox.Bytes](0) }},
		{"memory", func(l *sandbox.Limits) { l.Memory = sandbox.At[sandbox.Bytes](math.MaxInt64) }},
		{"memory", func(l *sandbox.Limits) { l.Memory = sandbox.Limit[sandbox.Bytes]{} }},
		{"cpus", func(l *sandbox.Limits) { l.CPUs = sandbox.At(math.NaN()) }},
		{"cpus", func(l *sandbox.Limits) { l.CPUs = sandbox.At(0.001) }},
		{"pids", func(l *sandbox.Limits) { l.Processes = sandbox.At[int64](-1) }},
		{"stdout-cap", func(l *sandbox.Limits) { l.Stdout = 2 * sandbox.GiB }},
		{"nofile", func(l *sandbox.Limits) { l.OpenFiles = 3 }},
	}
	for _, tt := range tests {
		l := sandbox.DefaultLimits()
		tt.set(&l)
		err := l.Validate()
		if err == nil || !strings.HasPrefix(err.Error(), "limit "+tt.name+":") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: Validate(%+v) = %v, want an error that names it alone", tt.name, l, err)
		}
	}
}

func TestSpecValidate(t *testing.T) {
	good := func() sandbox.Spec {
		return sandbox.Spec{ID: "run-1", Check: "true", Limits: sandbox.DefaultLimits()}
	}
	tests := []struct {
		name string
		set  func(*sandbox.Spec)
		want string // part of the error; "": none
	}{
		{"good", func(*sandbox.Spec) {}, ""},
		{"command", func(s *sandbox.Spec) { s.Check, s.Args = "", []string{"true"} }, ""},
		{"empty check that is parsed", func(s *sandbox.Spec) { s.Check, s.SyntaxPass = "", true }, ""},
		{"neither", func(s *sandbox.Spec) { s.Check = "" }, "either"},
		{"both", func(s *sandbox.Spec) { s.Args = []string{"true"} }, "either"},
		{"command with a syntax pass", func(s *sandbox.Spec) { s.Check, s.Args, s.SyntaxPass = "", []string{"true"}, true }, "either"},
		{"no id", func(s *sandbox.Spec) { s.ID = "" }, "id"},
		{"NUL in the check", func(s *sandbox.Spec) { s.Check = "a\x00b" }, "NUL byte at offset 1"},
		{"NUL in an argument", func(s *sandbox.Spec) { s.Check, s.Args = "", []string{"a", "b\x00"} }, "argument 1"},
		{"env without a name", func(s *sandbox.Spec) { s.Env = map[string]string{"": "x"} }, "environment"},
		{"env with =", func(s *sandbox.Spec) { s.Env = map[string]string{"A=B": "x"} }, "environment"},
		{"env with NUL", func(s *sandbox.Spec) { s.Env = map[string]string{"A": "\x00"} }, "environment"},
		{"absolute file", files("/etc/passwd"), "absolute"},
		{"file that climbs", files("a/../../b"), "'..'"},
		{"file with NUL", files("a\x00"), "NUL"},
		{"empty path", files(""), "empty"},
		{"the directory itself", files("."), "empty"},
		{"unclean path", files("a//b"), "unclean"},
		{"file twice", files("a", "a"), "twice"},
		{"file as a directory", files("a", "a/b/c"), `"a" is a file`},
		{"files beside one another", files("a/b", "a/c", "ab"), ""},
		{"bad limits", func(s *sandbox.Spec) { s.Limits.Wall = 0 }, "limit wall"},
	}
	for _, tt := range tests {
		s := good()
		tt.set(&s)
		err := s.Validate()
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: Validate() = %v, want %q in it", tt.name, err, tt.want)
		}
	}
}

func files(paths ...string) func(*sandbox.Spec) {
	return func(s *sandbox.Spec) {
		for _, p := range paths {
			s.Files = append(s.Files, sandbox.File{Path: p})
		}
	}
}
