package store

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/checkcell/checkcell/images"
)

// stage is a directory below tmp in which something is made. It is its
// maker's alone, and is gone when that one closes it or ends.
type stage struct {
	dir  string
	hold hold
}

// newStage makes an empty stage. Its sweepers keep out meanwhile: between its
// making and its lock it looks like one that a crash left.
func (s *Store) newStage(ctx context.Context) (*stage, error) {
	adding, err := s.lock(ctx, claimStore, "", false)
	if err != nil {
		return nil, err
	}
	defer adding.release()
	return s.stageLocked()
}

// stageLocked is newStage for who holds claimStore.
func (s *Store) stageLocked() (*stage, error) {
	var name [16]byte
	rand.Read(name[:]) // never fails (crypto/rand)
	key := hex.EncodeToString(name[:])
	st := &stage{dir: s.path("tmp", key)}
	if err := os.Mkdir(st.dir, 0o700); err != nil {
		return nil, fmt.Errorf("make a place for what is new: %w", err)
	}
	h, ok, err := s.tryLock(claimStage, lockKey(key), true)
	if err == nil && !ok {
		err = fmt.Errorf("lock %s: somebody else has it", st.dir)
	}
	if err != nil {
		return nil, errors.Join(err, os.Remove(st.dir))
	}
	st.hold = h
	return st, nil
}

// close removes the stage with all that is left in it.
func (st *stage) close() error {
	defer st.hold.release()
	return removeTree(st.dir)
}

func (st *stage) path(name string) string { return filepath.Join(st.dir, name) }

// blobPath is where the stage has a blob: the same file as in the store, or
// one that is on its way there.
func (st *stage) blobPath(d images.Digest) string { return st.path("blob-" + d.Hex()) }

// writeFile puts a whole file at path, over what was there, and has it on disk
// when it returns.
func (st *stage) writeFile(path string, content []byte) error {
	fresh := st.path("file")
	f, err := os.OpenFile(fresh, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", fresh, err)
	}
	if err := os.Rename(fresh, path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// sweep removes the stages of processes that have ended.
func (s *Store) sweep(ctx context.Context) error {
	entries, err := os.ReadDir(s.path("tmp"))
	if err != nil || len(entries) == 0 {
		return err
	}
	removing, err := s.lock(ctx, claimStore, "", true)
	if err != nil {
		return err
	}
	dead, err := s.deadStages()
	removing.release()
	for _, st := range dead {
		err = errors.Join(err, st.close())
	}
	if err != nil {
		return fmt.Errorf("remove what a crash left: %w", err)
	}
	return nil
}

func (s *Store) deadStages() ([]*stage, error) {
	entries, err := os.ReadDir(s.path("tmp"))
	if err != nil {
		return nil, err
	}
	var dead []*stage
	for _, e := range entries {
		if _, err := hex.DecodeString(e.Name()); err != nil {
			continue // not ours
		}
		h, ok, err := s.tryLock(claimStage, lockKey(e.Name()), true)
		if err != nil {
			return dead, err
		}
		if ok {
			dead = append(dead, &stage{s.path("tmp", e.Name()), h})
		}
	}
	return dead, nil
}

// removeTree removes path and what is below it. A directory that its owner may
// not search is opened first, as trees of ordinary users have them.
func removeTree(path string) error {
	err := os.RemoveAll(path)
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	walk := filepath.WalkDir(path, func(name string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() && err == nil {
			return os.Chmod(name, 0o700) // before it is read
		}
		return err
	})
	return errors.Join(walk, os.RemoveAll(path))
}

func syncDir(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("write out %s: %w", path, err)
	}
	return nil
}
