package store

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

func (u *unpacker) dir(name string, h *tar.Header) error {
	if err := u.root.Mkdir(name, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return refused(err)
	}
	f, err := u.root.Open(name)
	if err != nil {
		return err
	}
	defer f.Close() // only read from
	mode := fs.FileMode(h.Mode & 0o777)
	if h.Mode&unix.S_ISVTX != 0 {
		mode |= fs.ModeSticky
	}
	u.dirs[name] = dirLook{mode, h.ModTime}
	return u.look(name, h, f)
}

func (u *unpacker) file(name string, h *tar.Header, content io.Reader) error {
	if h.Size > u.limits.File {
		return over("file", u.limits.File, fmt.Sprintf("it has %d bytes", h.Size))
	}
	if u.bytes += h.Size; u.bytes > u.limits.Bytes {
		return over("bytes", u.limits.Bytes, "the image unpacks to more bytes")
	}
	if u.bytes > u.most {
		return over(u.limit, u.most, "the layer unpacks to more bytes")
	}
	f, err := u.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return refused(err)
	}
	n, err := io.CopyBuffer(struct{ io.Writer }{f}, content, u.buffer)
	if err == nil && n != h.Size {
		err = refused(fmt.Errorf("it has %d bytes instead of %d", n, h.Size))
	}
	if err == nil {
		err = u.look(name, h, f)
	}
	if err == nil {
		err = f.Chmod(fs.FileMode(h.Mode & 0o777)) // after its owner
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	return u.root.Chtimes(name, h.ModTime, h.ModTime)
}

// look gives an open file or directory its owner and attributes, and notes
// what is not given.
func (u *unpacker) look(name string, h *tar.Header, f *os.File) error {
	a := u.note(name, h)
	if u.owners {
		if err := f.Chown(h.Uid, h.Gid); err != nil {
			return refused(fmt.Errorf("give it to %d:%d: %w", h.Uid, h.Gid, err))
		}
	}
	for _, record := range slices.Sorted(maps.Keys(h.PAXRecords)) {
		attr, ok := strings.CutPrefix(record, xattrRecord)
		if !ok {
			continue
		}
		kept := keptXAttr(attr)
		if kept {
			err := unix.Fsetxattr(int(f.Fd()), attr, []byte(h.PAXRecords[record]), 0)
			// Not every file system has room for them, and tmpfs none for these.
			kept = err == nil
			if err != nil && !slices.ContainsFunc(noRoom(), func(no unix.Errno) bool { return errors.Is(err, no) }) {
				return fmt.Errorf("set its attribute %q: %w", attr, err)
			}
		}
		if !kept {
			a.XAttrs = append(a.XAttrs, attr)
		}
	}
	u.aside[name] = a
	if a.isEmpty() {
		delete(u.aside, name)
	}
	return nil
}

// noRoom lists how a file system refuses an extended attribute (setxattr(2)).
func noRoom() []unix.Errno {
	return []unix.Errno{unix.ENOTSUP, unix.ENOSPC, unix.E2BIG, unix.ERANGE, unix.EPERM}
}

// note begins an Aside: owner and mode.
func (u *unpacker) note(name string, h *tar.Header) Aside {
	a := Aside{Path: name}
	if !u.owners && (h.Uid != 0 || h.Gid != 0) {
		a.Owner = fmt.Sprintf("%d:%d", h.Uid, h.Gid)
	}
	if h.Mode&(unix.S_ISUID|unix.S_ISGID) != 0 {
		a.Mode = fmt.Sprintf("%04o", h.Mode&0o7777)
	}
	return a
}

func (u *unpacker) symlink(name string, h *tar.Header) error {
	u.lastDir = [2]string{}
	dir := path.Dir(name)
	if err := checkLink(dir, h.Linkname); err != nil {
		return refused(err)
	}
	if err := u.root.Symlink(h.Linkname, name); err != nil {
		return refused(err)
	}
	if u.owners {
		if err := u.root.Lchown(name, h.Uid, h.Gid); err != nil {
			return refused(fmt.Errorf("give it to %d:%d: %w", h.Uid, h.Gid, err))
		}
	}
	// Its mode means nothing, and its times are set by way of its directory.
	if a := u.note(name, &tar.Header{Uid: h.Uid, Gid: h.Gid}); !a.isEmpty() {
		u.aside[name] = a
	}
	parent, err := u.root.Open(dir)
	if err != nil {
		return err
	}
	defer parent.Close() // only read from
	at := unix.NsecToTimespec(h.ModTime.UnixNano())
	return unix.UtimesNanoAt(int(parent.Fd()), path.Base(name), []unix.Timespec{at, at}, unix.AT_SYMLINK_NOFOLLOW)
}

func (u *unpacker) hardLink(name string, h *tar.Header) error {
	target, err := checkHardLink(h.Linkname)
	if err != nil {
		return refused(err)
	}
	dir, last := path.Split(target)
	if target, err = u.existing(path.Clean(dir), last); err != nil {
		return refused(err)
	}
	if to, err := u.root.Readlink(target); err == nil {
		if err := checkLink(path.Dir(name), to); err != nil { // from where it is now
			return refused(err)
		}
	}
	return refused(u.root.Link(target, name))
}

// existing returns the real path of a file that a hard link names.
func (u *unpacker) existing(dir, last string) (string, error) {
	if _, err := u.root.Stat(dir); err != nil {
		return "", fmt.Errorf("it is a hard link to %q: %w", path.Join(dir, last), err)
	}
	real, err := u.parent(dir)
	if err != nil {
		return "", err
	}
	target := path.Join(real, last)
	info, err := u.root.Lstat(target)
	if err != nil {
		return "", fmt.Errorf("it is a hard link to %q: %w", target, err)
	}
	if info.IsDir() {
		return "", fmt.Errorf("it is a hard link to the directory %q", target)
	}
	return target, nil
}
