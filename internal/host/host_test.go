package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

func TestMain(m *testing.M) { os.Exit(Main(m)) }

// ended is a testing.TB that records how the test that had it ended.
type ended struct {
	testing.TB
	how, message string
}

func (e *ended) Helper()      {}
func (e *ended) Name() string { return "TestSomething/case one" }
func (e *ended) Skip(args ...any) {
	e.how, e.message = "skip", fmt.Sprint(args...)
	runtime.Goexit()
}
func (e *ended) Fatalf(format string, args ...any) {
	e.how, e.message = "fatal", fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// runNeed calls need on a machine that has only what is in has.
func runNeed(require, skipLog string, has, caps []Cap) (how, message string) {
	e := &ended{how: "run"}
	done := make(chan struct{})
	go func() {
		defer close(done) // ends when need returns, skips or fails
		need(e, func(c Cap) error {
			if slices.Contains(has, c) {
				return nil
			}
			return errors.New("the probe said no")
		}, require, skipLog, caps)
	}()
	<-done
	return e.how, e.message
}

func TestNeed(t *testing.T) {
	tests := []struct {
		name      string
		require   string
		has, caps []Cap
		want      string
		says      []string
	}{
		{"nothing needed", "", nil, nil, "run", nil},
		{"all there", "all", []Cap{Root, Bash}, []Cap{Root, Bash}, "run", nil},
		{"missing", "", []Cap{Root}, []Cap{Root, Bash}, "skip", []string{"bash", "the probe said no", "apt-get install bash"}},
		{"two missing", "", nil, []Cap{Root, Bash}, "skip", []string{"root", "as root", "bash"}},
		{"another required", "root, python3", nil, []Cap{Bash}, "skip", []string{"bash"}},
		{"required", "root,bash", []Cap{Root}, []Cap{Root, Bash}, "fatal", []string{"CHECKCELL_REQUIRE", "bash", "the probe said no"}},
		{"second of two required", "bash", nil, []Cap{Root, Bash}, "fatal", []string{"lists bash"}},
		{"all required", "all", nil, []Cap{Chromium}, "fatal", []string{"chromium"}},
		{"unknown word", "root,bsah", []Cap{Root}, []Cap{Root}, "fatal", []string{`"bsah"`, "bash"}},
		{"none is no word", "none", []Cap{Root}, []Cap{Root}, "fatal", []string{`"none"`}},
		{"no capability", "", nil, []Cap{None}, "fatal", []string{"name one"}},
		{"not a capability", "", nil, []Cap{200}, "fatal", []string{"Cap(200)"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			log := filepath.Join(t.TempDir(), "skips")
			how, message := runNeed(tt.require, log, tt.has, tt.caps)
			if how != tt.want {
				t.Errorf("need(%v) on %v, requiring %q: %s %q, want %s", tt.caps, tt.has, tt.require, how, message, tt.want)
			}
			for _, word := range tt.says {
				if !strings.Contains(message, word) {
					t.Errorf("need(%v) says %q, want it to say %q", tt.caps, message, word)
				}
			}
			logged, err := os.ReadFile(log)
			if got, want := err == nil, tt.want == "skip"; got != want {
				t.Errorf("need(%v) noted a skip: %v (%q), want %v", tt.caps, got, logged, want)
			}
		})
	}
}

func TestNeedNotesEachSkipOnOneLine(t *testing.T) {
	log := filepath.Join(t.TempDir(), "skips")
	for range 2 {
		if how, message := runNeed("", log, nil, []Cap{Bash}); how != "skip" {
			t.Fatalf("need(bash) = %s %q, want skip", how, message)
		}
	}
	got, err := os.ReadFile(log)
	if err != nil {
		t.Fatalf("read the skip log: %v", err)
	}
	line := "github.com/checkcell/checkcell/internal/host TestSomething/case one: " +
		"needs bash: the probe said no; to fix it, apt-get install bash\n"
	if string(got) != line+line {
		t.Errorf("skip log = %q, want %q", got, line+line)
	}
}

func TestNeedFailsWhereSkipCannotBeNoted(t *testing.T) {
	log := filepath.Join(t.TempDir(), "missing", "skips")
	if how, message := runNeed("", log, nil, []Cap{Bash}); how != "fatal" || !strings.Contains(message, log) {
		t.Errorf("need(bash) with skip log %s: %s %q, want fatal and the path", log, how, message)
	}
	if how, message := runNeed("", "", nil, []Cap{Bash}); how != "skip" {
		t.Errorf("need(bash) without a skip log: %s %q, want skip", how, message)
	}
}

func TestEveryCapHasWordFixAndProbe(t *testing.T) {
	words := map[string]Cap{}
	for i := range capWords {
		c := Cap(i)
		if other, ok := words[c.String()]; ok {
			t.Errorf("Cap(%d).String() = %q, the word of Cap(%d)", i, c, other)
		}
		words[c.String()] = c
		if c.fix() == Cap(len(capWords)).fix() {
			t.Errorf("%v.fix() = %q, the answer for no capability", c, c.fix())
		}
		if err := c.probe(); err != nil && strings.Contains(err.Error(), "is not a capability") {
			t.Errorf("%v.probe() = %v, want a probe", c, err)
		}
	}
	if got, want := Cap(len(capWords)), DBusDaemon+1; got != want {
		t.Errorf("there are words up to %d, want %d", got, want)
	}
	beyond := DBusDaemon + 1
	if err := beyond.probe(); err == nil {
		t.Errorf("Cap(%d).probe() = nil, want an error", beyond)
	}
}

func TestParseRequireAll(t *testing.T) {
	got, err := parseRequire("all")
	if err != nil || len(got) != len(capWords)-1 || got[0] != Root || got[len(got)-1] != DBusDaemon {
		t.Errorf("parseRequire(all) = %v, %v, want root to dbus-daemon", got, err)
	}
	if _, err := parseRequire("x,bash,y"); err == nil || !strings.Contains(err.Error(), `"x"`) || !strings.Contains(err.Error(), `"y"`) {
		t.Errorf("parseRequire(x,bash,y) = %v, want both unknown words", err)
	}
}
