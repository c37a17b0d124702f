//go:build linux

package oci

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/checkcell/checkcell/cgroup"
	"github.com/checkcell/checkcell/sandbox/cellhost"
)

// program is an OCI runtime.
type program struct {
	path    string
	name    string // runc, crun or runsc, by its own words; "" for another
	version string
}

// versionBudget is how long a runtime may take to say its version.
const versionBudget = 10 * time.Second

// find looks a runtime up, in PATH unless it is a path, and asks what it is.
func find(ctx context.Context, name string) (*program, error) {
	path, err := exec.LookPath(cmp.Or(name, "runc"))
	if err != nil {
		return nil, fmt.Errorf("runtime: %w; install it, or name another with --runtime", err)
	}
	if path, err = filepath.Abs(path); err != nil {
		return nil, fmt.Errorf("runtime: %w", err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, versionBudget, fmt.Errorf("it took longer than %v", versionBudget))
	defer cancel()
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return nil, fmt.Errorf("runtime %s --version: %w: %s", path, err, bytes.TrimSpace(out))
	}
	// All of them print "NAME version VERSION" first.
	words := strings.Fields(string(out))
	if len(words) < 3 || words[1] != "version" {
		return nil, fmt.Errorf("runtime %s --version says %q, want NAME version VERSION", path, bytes.TrimSpace(out))
	}
	return &program{path: path, name: words[0], version: words[2]}, nil
}

// String names the runtime with its version.
func (p *program) String() string { return p.name + " " + p.version }

// refuses reports whether the runtime runs no container on a host with such groups.
// crun reads cgroup v1 as a legacy, and a hybrid host's not at all.
func (p *program) refuses(mode cgroup.Mode) bool {
	return p.name == "crun" && mode == cgroup.ModeHybrid
}

// run is the command that runs a container in the foreground, until it has ended
// and is removed.
func (p *program) run(state, bundle, id string) *exec.Cmd {
	return exec.Command(p.path, append(p.flags(state), "run", "--bundle", bundle, id)...)
}

// flags are those of every call. gVisor is told to leave groups alone, which are
// ours, and to make no network.
func (p *program) flags(state string) []string {
	if p.ownsKernel() {
		return []string{"--root", state, "--ignore-cgroups", "--network=none"}
	}
	return []string{"--root", state}
}

// ownsKernel reports whether containers have a kernel of the runtime's, so that
// this host sees of them but the processes of that kernel.
func (p *program) ownsKernel() bool { return p.name == "runsc" }

// remove kills and removes a container, whatever state it is in. Of gVisor's there
// is nothing on this host but files, once our group is empty, and the caller removes
// those: "runsc delete" kills whatever process has the recorded number by now.
func (p *program) remove(ctx context.Context, state, id string) error {
	if p.ownsKernel() {
		return nil
	}
	out, err := exec.CommandContext(ctx, p.path, append(p.flags(state), "delete", "--force", id)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s delete --force %s: %w: %s", p.name, id, err, said(string(out)))
	}
	return nil
}

// removeAll removes every container of a state directory, as remove does.
func (p *program) removeAll(ctx context.Context, state string) error {
	if p.ownsKernel() {
		return nil
	}
	var words cellhost.Words
	list := exec.CommandContext(ctx, p.path, append(p.flags(state), "list", "--quiet")...)
	list.Stderr = &words
	out, err := list.Output()
	if err != nil {
		return fmt.Errorf("%s list: %w: %s", p.name, err, said(words.String()))
	}
	var errs []error
	for _, id := range strings.Fields(string(out)) {
		errs = append(errs, p.remove(ctx, state, id))
	}
	return errors.Join(errs...)
}

// said returns what a runtime means by what it printed: runc logs in lines of
// KEY=VALUE, of which msg counts.
func said(text string) string {
	var lines []string
	for line := range strings.Lines(strings.TrimSpace(text)) {
		line = strings.TrimSpace(line)
		if _, quoted, ok := strings.Cut(line, " msg="); ok && strings.HasPrefix(line, "time=") {
			if prefix, err := strconv.QuotedPrefix(quoted); err == nil {
				if message, err := strconv.Unquote(prefix); err == nil {
					line = message
				}
			}
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "; ")
}
