package native

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// The launcher and its supervisor talk over a pair of SOCK_SEQPACKET sockets:
// one JSON value a packet, descriptors beside it.

const maxPacket = 64 << 10

// sendPacket sends v and fds; the descriptors stay the caller's.
func sendPacket(sock int, v any, fds ...int) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("send to launcher: %w", err)
	}
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	for {
		err = unix.Sendmsg(sock, b, rights, nil, unix.MSG_NOSIGNAL)
		if err != unix.EINTR {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("send to launcher: %w", err)
	}
	return nil
}

// receivePacket reads one packet into v and returns the descriptors beside it,
// closed on exec. It is io.EOF when the other side is gone.
func receivePacket(sock int, v any) ([]int, error) {
	b, oob := make([]byte, maxPacket), make([]byte, unix.CmsgSpace(16*4))
	var n, oobn, flags int
	var err error
	for {
		n, oobn, flags, _, err = unix.Recvmsg(sock, b, oob, unix.MSG_CMSG_CLOEXEC)
		if err != unix.EINTR {
			break
		}
	}
	switch {
	case err == unix.ECONNRESET || (err == nil && n == 0):
		return nil, io.EOF
	case err != nil:
		return nil, fmt.Errorf("receive: %w", err)
	case flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0:
		return nil, fmt.Errorf("receive: a packet of more than %d bytes", maxPacket)
	}
	fds, err := rightsOf(oob[:oobn])
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(b[:n], v); err != nil {
		closeAll(fds)
		return nil, fmt.Errorf("receive: %w", err)
	}
	return fds, nil
}

func rightsOf(oob []byte) ([]int, error) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, fmt.Errorf("receive descriptors: %w", err)
	}
	var fds []int
	for _, m := range messages {
		got, err := unix.ParseUnixRights(&m)
		if err != nil {
			closeAll(fds)
			return nil, fmt.Errorf("receive descriptors: %w", err)
		}
		fds = append(fds, got...)
	}
	return fds, nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd) // nothing was written through them
	}
}

// memoryFile returns an anonymous file that holds the parts, read from its start.
func memoryFile(name string, parts ...[]byte) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make memory file %s: %w", name, err)
	}
	f := os.NewFile(uintptr(fd), name)
	for _, part := range parts {
		if _, err := f.Write(part); err != nil {
			f.Close()
			return nil, fmt.Errorf("fill memory file %s: %w", name, err)
		}
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		f.Close()
		return nil, fmt.Errorf("rewind memory file %s: %w", name, err)
	}
	return f, nil
}
