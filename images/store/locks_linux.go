package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"

	"github.com/checkcell/checkcell/images"
	"golang.org/x/sys/unix"
)

// claim is what a range of the file of locks stands for. Together with a key
// it is one byte of that file, which need not be that long (fcntl(2)).
//
// Locks are of an open file description: they end with the process that holds
// them, and two within one process exclude each other as any others do. Who
// waits for several takes them in the order that they are listed in.
type claim uint8

const (
	claimPull   claim = iota + 1 // an image by its manifest: exclusive for who fetches it
	claimUnpack                  // a tree: exclusive for who unpacks it
	claimTree                    // a tree: shared by whoever uses it, exclusive to remove it
	claimStage                   // a directory below tmp: exclusive for who made it
	claimStore                   // everything: shared for a moment to add, exclusive to remove
)

// keyBits is how much of a key counts: an offset has 63 bits, a claim some of
// them. Two keys that agree so far wait for each other, and nothing worse.
const keyBits = 56

// lockKey is a key of claims, hexadecimal.
type lockKey string

func keyOf(d images.Digest) lockKey { return lockKey(d.Hex()) }

// hold is a lock that is held until release. The zero value holds nothing.
type hold struct{ f *os.File }

func (h hold) release() {
	if h.f != nil {
		h.f.Close() // a file that was only locked has nothing to lose
	}
}

// lock waits for a lock, or until ctx is done.
func (s *Store) lock(ctx context.Context, c claim, key lockKey, exclusive bool) (hold, error) {
	h, ok, err := s.tryLock(c, key, exclusive)
	if ok || err != nil {
		return h, err
	}
	f, where, err := s.lockRange(c, key, exclusive)
	if err != nil {
		return hold{}, err
	}
	locked := make(chan error, 1)
	// It ends with the lock of the other, at the latest with this process.
	go func() { locked <- setLock(f, unix.F_OFD_SETLKW, where) }()
	select {
	case err := <-locked:
		if err != nil {
			return hold{}, errors.Join(fmt.Errorf("lock image store: %w", err), f.Close())
		}
		return hold{f}, nil
	case <-ctx.Done():
		go func() {
			<-locked
			f.Close() // the lock came too late
		}()
		return hold{}, fmt.Errorf("wait for another process that uses the image store: %w", context.Cause(ctx))
	}
}

// tryLock takes a lock if nobody is in the way.
func (s *Store) tryLock(c claim, key lockKey, exclusive bool) (h hold, ok bool, err error) {
	f, where, err := s.lockRange(c, key, exclusive)
	if err != nil {
		return hold{}, false, err
	}
	err = setLock(f, unix.F_OFD_SETLK, where)
	if err == nil {
		return hold{f}, true, nil
	}
	f.Close() // not locked
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return hold{}, false, nil
	}
	return hold{}, false, fmt.Errorf("lock image store: %w", err)
}

func setLock(f *os.File, cmd int, where *unix.Flock_t) error {
	for {
		if err := unix.FcntlFlock(f.Fd(), cmd, where); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

func (s *Store) lockRange(c claim, key lockKey, exclusive bool) (*os.File, *unix.Flock_t, error) {
	var low uint64
	if key != "" {
		var err error
		if low, err = strconv.ParseUint(string(key[:min(len(key), keyBits/4)]), 16, 64); err != nil {
			return nil, nil, fmt.Errorf("lock image store: key %q: %w", key, err)
		}
	}
	f, err := os.OpenFile(s.path("locks"), os.O_RDWR, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("lock image store: %w", err)
	}
	where := &unix.Flock_t{Type: unix.F_RDLCK, Whence: unix.SEEK_SET, Start: int64(c)<<keyBits | int64(low), Len: 1}
	if exclusive {
		where.Type = unix.F_WRLCK
	}
	return f, where, nil
}
