package native

import (
	"fmt"
	"os"

	"github.com/checkcell/checkcell/sandbox"
	"github.com/checkcell/checkcell/sandbox/cellinit"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// request is what a cell is to be.
type request struct {
	Spec       *specs.Spec
	Root       string // the directory that the cell's root shows; "" for the host view
	HostUID    int    // what the check's user is outside
	HostGID    int    // what its group is outside
	Privileged bool   // we are root: sources are opened before privileges are given up
	Layout     cellinit.Layout
	Overlay    bool // the workspace is shown through an overlay; otherwise Layout holds its copy
	OwnerUID   int  // who owns all of the workspace, for Overlay
	OwnerGID   int
	Landlock   int // the version to use; 0: none
}

// layOut decides how the workspace is shown, and returns a memory file with the
// content of what is laid out in the working directory.
func (x *box) layOut(spec sandbox.Spec) (*os.File, error) {
	var s *cellinit.Survey
	var err error
	if spec.Workspace != "" {
		if s, err = cellinit.SurveyWorkspace(spec.Workspace); err != nil {
			return nil, fmt.Errorf("workspace: %w", err)
		}
		x.req.Overlay = x.req.Overlay && s.OneOwner && (x.req.Privileged || s.UID == x.req.HostUID)
		x.req.OwnerUID, x.req.OwnerGID = s.UID, s.GID
	}
	if x.req.Layout, err = cellinit.LayOut(spec, s, x.req.Overlay); err != nil {
		return nil, err
	}
	return memoryFile("checkcell-content", x.req.Layout.Content...)
}
