package store

import (
	"archive/tar"
	"errors"
	"fmt"
	"path"
	"strings"
)

// Names of whiteouts (image-spec layer.md, "Whiteouts"; the last of AUFS).
const (
	whiteout       = ".wh."
	whiteoutOpaque = ".wh..wh..opq"
	whiteoutMeta   = ".wh..wh."
)

// xattrRecord begins the PAX records of extended attributes.
const xattrRecord = "SCHILY.xattr."

// entryPath is the path of an entry below the root: clean, relative, "." for
// the root itself. A leading slash or "./" means nothing, as for tar itself.
func entryPath(name string, depth int) (string, error) {
	clean, err := confined(name)
	if err != nil {
		return "", err
	}
	if n := strings.Count(clean, "/") + 1; n > depth {
		return "", over("depth", int64(depth), fmt.Sprintf("its path has %d parts", n))
	}
	return clean, nil
}

func confined(name string) (string, error) {
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return "", errors.New("its path climbs with ..; that leads out of a root")
		}
	}
	if clean := path.Clean("/" + name)[1:]; clean != "" {
		return clean, nil
	}
	return ".", nil
}

// checkLink refuses the target of a symbolic link in directory dir that climbs
// out of the root. An absolute target is one below the root: the link is only
// followed inside a cell. We never follow it.
func checkLink(dir, target string) error {
	if target == "" || strings.IndexByte(target, 0) >= 0 {
		return fmt.Errorf("it is a link to %q", target)
	}
	level := 0
	if !path.IsAbs(target) && dir != "." {
		level = strings.Count(dir, "/") + 1
	}
	for part := range strings.SplitSeq(target, "/") {
		switch part {
		case "", ".":
		case "..":
			if level--; level < 0 {
				return fmt.Errorf("it is a link out of the root, to %q", target)
			}
		default:
			level++
		}
	}
	return nil
}

// checkHardLink returns the path below the root that a hard link names.
func checkHardLink(target string) (string, error) {
	if path.IsAbs(target) {
		return "", fmt.Errorf("it is a hard link to the absolute path %q", target)
	}
	clean, err := confined(target)
	if err != nil || clean == "." {
		return "", fmt.Errorf("it is a hard link out of the root, to %q", target)
	}
	return clean, nil
}

// cellDevices are the devices that a cell has of its own, over whatever the
// image has at their place.
func cellDevices() map[string][2]int64 {
	return map[string][2]int64{
		"dev/null": {1, 3}, "dev/zero": {1, 5}, "dev/full": {1, 7}, "dev/random": {1, 8}, "dev/urandom": {1, 9},
		"dev/tty": {5, 0}, "dev/console": {5, 1}, "dev/ptmx": {5, 2},
	}
}

// checkDevice returns what to note of a device or pipe that is left out. A
// device that a cell would not have anyway is refused: an image that brings
// one wants more than files.
func checkDevice(name string, h *tar.Header) (string, error) {
	if h.Typeflag == tar.TypeFifo {
		return "pipe", nil
	}
	what := "block"
	if h.Typeflag == tar.TypeChar {
		what = "character"
	}
	if known, ok := cellDevices()[name]; !ok || what != "character" || known != [2]int64{h.Devmajor, h.Devminor} {
		return "", fmt.Errorf("it is the %s device %d:%d", what, h.Devmajor, h.Devminor)
	}
	return fmt.Sprintf("%s device %d:%d", what, h.Devmajor, h.Devminor), nil
}

// keptXAttr reports whether an extended attribute goes into a tree. Capabilities
// give what no check may have. The others of security.* and trusted.* belong to
// this host. What starts user.overlay. steers the overlay that lies over the tree.
func keptXAttr(name string) bool {
	return strings.HasPrefix(name, "user.") && !strings.HasPrefix(name, "user.overlay.")
}

// Aside is what a layer says of one entry and the tree does not have.
type Aside struct {
	Path   string   `json:"path"`
	Owner  string   `json:"owner,omitempty"`  // "UID:GID", where the tree's owner is whoever unpacked it
	Mode   string   `json:"mode,omitempty"`   // octal, where set-user-ID or set-group-ID was dropped
	XAttrs []string `json:"xattrs,omitempty"` // names that were dropped
	Node   string   `json:"node,omitempty"`   // the device or pipe that was left out
}

func (a Aside) isEmpty() bool {
	return a.Owner == "" && a.Mode == "" && len(a.XAttrs) == 0 && a.Node == ""
}
