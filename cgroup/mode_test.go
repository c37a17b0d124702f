package cgroup

import (
	"testing"
)

func TestModeString(t *testing.T) {
	for m, want := range map[Mode]string{ModeNone: "none", ModeV1: "v1", ModeHybrid: "hybrid", ModeV2: "v2", 9: "Mode(9)"} {
		if got := m.String(); got != want {
			t.Errorf("Mode %d String() = %q, want %q", m, got, want)
		}
	}
}

func TestParseController(t *testing.T) {
	for _, c := range []Controller{Memory, PIDs, CPU, CPUTime, Kill, Freeze} {
		if got, err := ParseController(c.String()); got != c || err != nil {
			t.Errorf("ParseController(%q) = %v, %v, want %v", c.String(), got, err, c)
		}
	}
	for _, word := range []string{"", "none", "Memory", "cpuset", "Controller(9)"} {
		if got, err := ParseController(word); got != 0 || err == nil {
			t.Errorf("ParseController(%q) = %v, %v, want an error", word, got, err)
		}
	}
	if got, want := Controller(9).String(), "Controller(9)"; got != want {
		t.Errorf("String() = %q, want %q", got, want)
	}
}

func TestMissingError(t *testing.T) {
	for _, tt := range []struct {
		err  MissingError
		want string
	}{
		{MissingError{Mode: ModeV1, Missing: map[Controller]string{PIDs: "why"}}, "cgroup v1 can't enforce pids: why"},
		{
			MissingError{Mode: ModeV2, Missing: map[Controller]string{Kill: "b", CPU: "a", PIDs: "b", Memory: "b"}, Hint: "Do this."},
			"cgroup v2 can't enforce memory, pids, kill: b; cpu: a. Do this.",
		},
	} {
		if got := tt.err.Error(); got != tt.want {
			t.Errorf("Error() = %q, want %q", got, tt.want)
		}
	}
}

func TestConfigRequires(t *testing.T) {
	for _, tt := range []struct {
		allow []Controller
		c     Controller
		want  bool
	}{
		{nil, Memory, true}, {nil, PIDs, true}, {nil, CPU, true}, {nil, CPUTime, true}, {nil, Kill, true}, {nil, Freeze, false},
		{[]Controller{Memory}, Memory, false}, {[]Controller{Memory}, PIDs, true},
		{[]Controller{Kill}, Kill, true}, // without it there are no groups
	} {
		if got := (Config{AllowMissing: tt.allow}).requires(tt.c); got != tt.want {
			t.Errorf("Config{AllowMissing: %v}.requires(%v) = %v, want %v", tt.allow, tt.c, got, tt.want)
		}
	}
}

func TestConfigValidate(t *testing.T) {
	for _, cfg := range []Config{{}, {Parent: "/"}, {Parent: "/a.slice/b"}, {AllowMissing: []Controller{Memory, Freeze}}} {
		if err := cfg.Validate(); err != nil {
			t.Errorf("%+v.Validate() = %v, want nil", cfg, err)
		}
	}
	for _, cfg := range []Config{{Parent: "a"}, {Parent: "/.."}, {Parent: "/a/./b"}, {AllowMissing: []Controller{0}}, {AllowMissing: []Controller{7}}} {
		if err := cfg.Validate(); err == nil {
			t.Errorf("%+v.Validate() = nil, want an error", cfg)
		}
	}
}
