// Package host says what the machine that runs a test can do, and what a test
// run left behind on it. Only tests import it, and the command testrun below it.
//
// A test that needs something of the machine says so on its first line:
//
//	host.Need(t, host.Root, host.CgroupWritable)
//
// and a package whose tests start processes, groups or mounts has
//
//	func TestMain(m *testing.M) { os.Exit(host.Main(m)) }
package host

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
)

// The environment of a test run.
const (
	// RequireVar lists the words of what this machine must have, separated by
	// commas, or is "all". What it names and is missing fails a test instead
	// of skipping it.
	RequireVar = "CHECKCELL_REQUIRE"
	// SkipLogVar names a file to which every skip is appended as one line.
	SkipLogVar = "CHECKCELL_SKIPLOG"
	// MachineVar is "expendable" where tests may do to the machine what others on
	// it would not forgive, such as set its clock. Only the emulated machine, which
	// is thrown away after its tests, says so.
	MachineVar = "CHECKCELL_MACHINE"
)

// Cap is one thing that a machine may or may not offer to a test.
// The set is closed; the zero value is no capability and never offered.
type Cap uint8

// The capabilities. What each one means is what its probe tries; see probe.
const (
	None           Cap = iota // nothing: Need refuses it
	Root                      // the effective user is 0
	CgroupWritable            // groups can be made below our own in every hierarchy that checkcell uses
	CgroupV1                  // a version 1 hierarchy with the memory controller is mounted (hybrid counts)
	CgroupV2                  // a cgroup2 hierarchy is mounted (hybrid counts)
	CgroupPureV2              // cgroup2 is mounted with the memory controller, and no version 1 controller is
	CgroupKill                // a cgroup2 group has cgroup.kill (Linux 5.14)
	MemoryCgroup              // memory can be limited by group, version 1 or 2
	PidsCgroup                // processes can be limited by group, version 1 or 2
	UserNS                    // this user can make a user namespace
	UnprivUserNS              // a user without privileges can make one
	OverlayUserNS             // overlayfs can be mounted inside a user namespace (Linux 5.11)
	Bash                      // bash is where a cell looks for it
	Python3                   // python3 is where a cell looks for it
	Docker                    // a Docker daemon answers
	Runc                      // runc is installed
	Crun                      // crun is installed
	Runsc                     // runsc is installed
	QEMU                      // qemu-system-x86_64 is installed
	ClockSettable             // the clock can be set, and the machine is there to be lost
	Chromium                  // a Chromium browser is installed
	StressNG                  // stress-ng is where a cell looks for it
	DBusDaemon                // dbus-daemon is installed
)

var capWords = [...]string{
	"none", "root", "cgroup-writable", "cgroup-v1", "cgroup-v2", "cgroup-pure-v2", "cgroup-kill",
	"memory-cgroup", "pids-cgroup", "userns", "unpriv-userns", "overlay-userns",
	"bash", "python3", "docker", "runc", "crun", "runsc", "qemu", "clock-settable", "chromium", "stress-ng", "dbus-daemon",
}

// String returns the word that stands for c in CHECKCELL_REQUIRE and in skips.
func (c Cap) String() string {
	if int(c) < len(capWords) {
		return capWords[c]
	}
	return fmt.Sprintf("Cap(%d)", c)
}

// Need ends the test unless the machine has every one of caps. It skips, and
// notes the skip in the file that CHECKCELL_SKIPLOG names; but it fails where
// CHECKCELL_REQUIRE lists a missing one, where that list holds an unknown word,
// and where the skip can't be noted.
func Need(t testing.TB, caps ...Cap) {
	t.Helper()
	need(t, Cap.probe, os.Getenv(RequireVar), os.Getenv(SkipLogVar), caps)
}

func need(t testing.TB, probe func(Cap) error, require, skipLog string, caps []Cap) {
	t.Helper()
	required, err := parseRequire(require)
	if err != nil {
		t.Fatalf("%s: %v", RequireVar, err)
	}
	var missing []string
	for _, c := range caps {
		err := probe(c)
		if err == nil {
			continue
		}
		reason := fmt.Sprintf("needs %v: %v; to fix it, %s", c, err, c.fix())
		if c == None || int(c) >= len(capWords) {
			t.Fatalf("Need was called with %s", reason)
		}
		if slices.Contains(required, c) {
			t.Fatalf("%s lists %v, but the test %s", RequireVar, c, reason)
		}
		missing = append(missing, reason)
	}
	if len(missing) == 0 {
		return
	}
	reason := strings.Join(missing, ". Also ")
	if err := noteSkip(skipLog, t.Name(), reason); err != nil {
		t.Fatalf("%s; and the skip can't be noted: %v", reason, err)
	}
	t.Skip(reason)
}

// parseRequire reads the value of CHECKCELL_REQUIRE.
func parseRequire(list string) ([]Cap, error) {
	var caps []Cap
	var errs []error
	for word := range strings.SplitSeq(list, ",") {
		word = strings.TrimSpace(word)
		i := slices.Index(capWords[:], word)
		switch {
		case word == "":
		case word == "all":
			for i := range capWords[1:] {
				caps = append(caps, Cap(i+1))
			}
		case i > 0:
			caps = append(caps, Cap(i))
		default:
			errs = append(errs, fmt.Errorf("unknown word %q, known are all, %s", word, strings.Join(capWords[1:], ", ")))
		}
	}
	return caps, errors.Join(errs...)
}

// noteSkip appends one line to the file called path. An empty path notes nothing.
// Several test binaries append at once, so the line is one write.
func noteSkip(path, test, reason string) error {
	if path == "" {
		return nil
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("open skip log: %w", err)
	}
	line := strings.Join(strings.Fields(fmt.Sprintf("%s %s: %s", packageUnderTest(), test, reason)), " ") + "\n"
	_, err = f.WriteString(line)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("append to skip log: %w", err)
	}
	return nil
}

// packageUnderTest returns the import path that the running test binary tests.
func packageUnderTest() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return os.Args[0]
	}
	return strings.TrimSuffix(info.Path, ".test")
}
