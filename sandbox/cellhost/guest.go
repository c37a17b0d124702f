//go:build linux

package cellhost

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/checkcell/checkcell/sandbox"
	"github.com/checkcell/checkcell/sandbox/cellspec"
)

// readGuest checks what a kernel of its own says of the cell, and what this host
// says of that kernel: outside is the status of its process.
func (c Cell) readGuest(r sandbox.Receipt, outside map[string]string) error {
	const none = "0000000000000000"
	inside := parseStatus(c.Guest.Shown("status"))
	in := "in " + c.Guest.Kernel + ": "
	var errs []error
	fail := func(control sandbox.Control, how string) {
		errs = append(errs, fmt.Errorf("control %s is not in force %s%s", control, in, how))
	}
	caps := fmt.Sprintf("CapEff=%s CapBnd=%s", inside["CapEff"], inside["CapBnd"])
	if inside["CapEff"] == none && inside["CapBnd"] == none && inside["CapPrm"] == none {
		r.Controls[sandbox.ControlCaps] = in + caps
	} else {
		fail(sandbox.ControlCaps, caps)
	}
	// What a program could gain there are privileges of that kernel, which has a
	// process without any on this host.
	if outside["Seccomp"] == "2" && outside["NoNewPrivs"] == "1" {
		r.Controls[sandbox.ControlSeccomp] = c.Guest.Kernel + " takes the system calls, and is itself held by a filter: Seccomp=2"
		r.Controls[sandbox.ControlNoPrivs] = c.Guest.Kernel + " has NoNewPrivs=1"
	} else {
		fail(sandbox.ControlSeccomp, fmt.Sprintf("its process has Seccomp=%s NoNewPrivs=%s", outside["Seccomp"], outside["NoNewPrivs"]))
	}
	// Real, effective, saved and of the file system.
	if ids := strings.Fields(outside["Uid"]); len(ids) == 4 && !slices.Contains(ids, "0") {
		r.Controls[sandbox.ControlUser] = c.Guest.Kernel + " runs as host uid " + ids[1]
	} else {
		fail(sandbox.ControlUser, "its process has Uid "+cmp.Or(outside["Uid"], "(unknown)"))
	}
	root, ok := parseMountinfo(c.Guest.Shown("mountinfo"))["/"]
	if ok && slices.Contains(root.options, "ro") {
		r.Controls[sandbox.ControlRoot] += ", " + in + "/ is " + strings.Join(root.options, ",")
	} else {
		fail(sandbox.ControlRoot, fmt.Sprintf("/ is mounted %q", root.options))
	}
	if limits := c.Guest.Shown("limits"); len(limits) > 0 {
		errs = append(errs, c.fileLimit(r, limits))
	} else {
		r.Controls[sandbox.ControlNoFile] = fmt.Sprintf("%sRLIMIT_NOFILE=%d, as it was told: it has no /proc/self/limits", in, c.Limits.OpenFiles)
	}
	return errors.Join(append(errs, c.readScratch(r))...)
}

// readScratch checks the size of the one tmpfs that the writable places are in, as
// this host has it.
func (c Cell) readScratch(r sandbox.Receipt) error {
	if c.Guest.Scratch == "" { // the backend lacks the control
		return nil
	}
	page := sandbox.Bytes(os.Getpagesize())
	want := space{(cellspec.Disk(c.Limits) + page - 1) / page * page, c.Limits.Inodes}
	got := space{}
	if err := got.add(c.Guest.Scratch); err != nil {
		return fmt.Errorf("control %s: %w", sandbox.ControlDisk, err)
	}
	if got != want {
		return fmt.Errorf("control %s is not in force: the tmpfs has %v, want %v", sandbox.ControlDisk, got, want)
	}
	r.Controls[sandbox.ControlDisk] = fmt.Sprintf("1 tmpfs of %v, of this host", got)
	return nil
}
