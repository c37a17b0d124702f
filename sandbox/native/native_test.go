package native_test

import (
	"os"
	"testing"

	"github.com/checkcell/checkcell/internal/host"
	"github.com/checkcell/checkcell/sandbox"
	"github.com/checkcell/checkcell/sandbox/native"
	"github.com/checkcell/checkcell/sandbox/sandboxtest"
)

func TestMain(m *testing.M) {
	if code, was := native.RunLauncher(); was {
		os.Exit(code)
	}
	os.Exit(host.Main(m))
}

// open returns a backend that the test's end closes.
func open(t testing.TB, cfg native.Config) *native.Backend {
	t.Helper()
	b, err := native.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return b
}

func TestContract(t *testing.T) {
	host.Need(t, host.CgroupWritable, host.MemoryCgroup, host.PidsCgroup, host.UserNS, host.Bash) // not root: users can be given groups
	sandboxtest.Contract(t, open(t, native.Config{}))
}

func run(t testing.TB, b sandbox.Backend, spec sandbox.Spec) sandbox.Result {
	t.Helper()
	return (&sandbox.Runner{Backend: b}).Run(t.Context(), spec).Last()
}
