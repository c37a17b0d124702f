package native_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/checkcell/checkcell/internal/host"
	"github.com/checkcell/checkcell/sandbox"
	"github.com/checkcell/checkcell/sandbox/native"
)

// The examples need root, so they say what they print in a comment of their
// own, and TestExamples runs them where that is to be had.

// One check in a cell of its own. A program that does this calls RunLauncher
// first thing in main.
func Example() {
	backend, err := native.Open(native.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() {
		if err := backend.Close(); err != nil {
			fmt.Println(err)
		}
	}()
	runner := &sandbox.Runner{Backend: backend}
	record := runner.Run(context.Background(), sandbox.Spec{
		ID:         "names",
		Check:      "sort data/names.txt; id -u; pwd",
		Files:      []sandbox.File{{Path: "data/names.txt", Content: []byte("bob\nada\n")}},
		SyntaxPass: true,
		Limits:     sandbox.DefaultLimits(),
	})
	result := record.Last()
	fmt.Println(result.Outcome, result.Success())
	fmt.Print(result.Stdout.Text())
	// It prints:
	// exited 0 true
	// ada
	// bob
	// 1000
	// /work
}

// The outcome says why a run ended, and an exit code is there only where the
// check ended by itself.
func Example_outcomes() {
	backend, err := native.Open(native.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() {
		if err := backend.Close(); err != nil {
			fmt.Println(err)
		}
	}()
	limits := sandbox.DefaultLimits()
	limits.Wall = 500 * time.Millisecond
	limits.Stdout = 100
	runner := &sandbox.Runner{Backend: backend}
	for _, check := range []string{"exit 3", "kill -SEGV $$", "sleep 60", "seq 1000", "sleep 60 & exit 0"} {
		result := runner.Run(context.Background(), sandbox.Spec{ID: "outcomes", Check: check, Limits: limits}).Last()
		code, ok := result.Outcome.ExitCode()
		leftovers, _ := result.Leftovers.Value()
		fmt.Println(result.Outcome.Kind(), code, ok, leftovers)
	}
	// It prints:
	// exited 3 true 0
	// signaled 0 false 0
	// timed_out 0 false 0
	// limit_exceeded 0 false 0
	// exited 0 true 1
}

func TestExamples(t *testing.T) {
	host.Need(t, host.Root, host.CgroupWritable, host.MemoryCgroup, host.PidsCgroup, host.UserNS, host.Bash)
	for _, tt := range []struct {
		name    string
		example func()
		want    string
	}{
		{"Example", Example, "exited 0 true\nada\nbob\n1000\n/work\n"},
		{"Example_outcomes", Example_outcomes, "exited 3 true 0\nsignaled 0 false 0\ntimed_out 0 false 0\nlimit_exceeded 0 false 0\nexited 0 true 1\n"},
	} {
		if got := printed(t, tt.example); got != tt.want {
			t.Errorf("%s() printed %q, want %q", tt.name, got, tt.want)
		}
	}
}

// printed returns what example prints.
func printed(t *testing.T, example func()) string {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "stdout")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() // all that is wanted of it was read
	stdout := os.Stdout
	os.Stdout = f
	defer func() { os.Stdout = stdout }()
	example()
	text, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
