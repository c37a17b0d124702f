package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/checkcell/checkcell/images"
	"github.com/checkcell/checkcell/images/store"
	"github.com/checkcell/checkcell/internal/report"
	"github.com/spf13/cobra"
)

type pullFlags struct {
	imageFlags
	lock     bool
	locked   bool
	lockFile string
}

func pullCommand(s streams) *cobra.Command {
	var f pullFlags
	cmd := &cobra.Command{
		Use:   "pull [flags] REF…",
		Short: "Fetch images and unpack them",
		Long: `Fetch each image into the store, unless that has it, and unpack it. REF is as checkcell image
--help says. Credentials for registries are those that docker login or podman login stored.

With --lock, what each tag stands for is written to the lock file. With --locked, a tag is
only taken as it stands there, and one that does not is refused.

Exit code: 0 all are in the store, 1 at least one is not, 2 usage or a lock file that can't
be read, 130 interrupted.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd.Context(), s, args) },
	}
	f.add(cmd)
	cmd.Flags().BoolVar(&f.lock, "lock", false, "write what the tags stand for to the lock file")
	cmd.Flags().BoolVar(&f.locked, "locked", false, "take tags as they stand in the lock file, and no others")
	cmd.Flags().StringVar(&f.lockFile, "lock-file", images.LockName, "the lock file")
	f.addLimits(cmd)
	cmd.MarkFlagsMutuallyExclusive("lock", "locked")
	return cmd
}

func (f *pullFlags) run(ctx context.Context, s streams, args []string) error {
	refs, err := parseImages(args)
	if err != nil {
		return err
	}
	var lock images.Lock
	if f.lock || f.locked {
		if lock, err = readLock(f.lockFile, f.lock); err != nil {
			return exit(exitUsage, err)
		}
	}
	if f.locked {
		if refs, err = pinned(lock, refs); err != nil {
			return exit(exitFailed, fmt.Errorf("%w\n%s was not changed, and nothing was pulled", err, f.lockFile))
		}
	}
	kept, err := f.open(ctx)
	if err != nil {
		return err
	}
	before := lock.String()
	var errs []error
	for _, ref := range refs {
		got, err := withProgress(s, func(p store.Progress) (store.Pulled, error) { return kept.Pull(ctx, ref, p) })
		if err == nil {
			err = f.print(s, ref, got)
		}
		if err == nil && f.lock && ref.IsTag() {
			var more images.Lock
			if more, err = lock.Add(ref, got.Resolved); err == nil {
				lock = more
			}
		}
		if errs = append(errs, err); ctx.Err() != nil {
			break
		}
	}
	if lock.String() != before { // of those that were pulled
		errs = append(errs, writeLock(f.lockFile, lock))
	}
	return failed(ctx, errors.Join(errs...))
}

// withProgress shows how far a pull or pack is.
func withProgress(s streams, do func(store.Progress) (store.Pulled, error)) (store.Pulled, error) {
	_, terminal := terminal(s.err)
	shown := report.NewPull(s.err, terminal)
	defer shown.Close()
	return do(shown.Event)
}

func (f *imageFlags) print(s streams, ref images.Ref, got store.Pulled) error {
	if f.json {
		return printJSON(s, pulledLine{imageLine{imageSchema, got.Image}, ref.String(), got.Resolved, got.Fresh})
	}
	state := "pulled"
	if !got.Fresh {
		state = "there already"
	}
	img := got.Image
	_, err := fmt.Fprintf(s.out, "%s\t%s\t%s in %d files\n", img.Digest, state, report.Size(img.TreeBytes), img.TreeFiles)
	return err
}

// pinned replaces tags by what the lock has for them.
func pinned(lock images.Lock, refs []images.Ref) ([]images.Ref, error) {
	var all []images.Ref
	var errs []error
	for _, ref := range refs {
		pin, err := lock.Pin(ref)
		all, errs = append(all, pin), append(errs, err)
	}
	return all, errors.Join(errs...)
}

func readLock(path string, mayBeMissing bool) (images.Lock, error) {
	text, err := os.ReadFile(path)
	if mayBeMissing && errors.Is(err, fs.ErrNotExist) {
		return images.Lock{}, nil
	}
	if err != nil {
		return images.Lock{}, fmt.Errorf("--lock-file: %w", err)
	}
	lock, err := images.ParseLock(string(text))
	if err != nil {
		return images.Lock{}, fmt.Errorf("--lock-file: %s: %w", path, err)
	}
	return lock, nil
}

// writeLock replaces the lock file as a whole.
func writeLock(path string, lock images.Lock) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("write the lock file: %w", err)
	}
	_, err = f.WriteString(lock.String())
	err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("write the lock file: %w", errors.Join(err, os.Remove(f.Name())))
	}
	return nil
}

func packCommand(s streams) *cobra.Command {
	var f imageFlags
	var fromHost bool
	var name string
	cmd := &cobra.Command{
		Use:   "pack --from-host [flags] PROGRAM…",
		Short: "Make an image of this host's own programs",
		Long: `Make an image of programs of this host and the libraries that they need, for hosts that reach
no registry. The same programs make the same image, with the same digest.

PROGRAM is a name, the absolute path of a file or of a whole directory, coreutils for all
programs of that package, or std:NAME for what resembles a standard image. python3 brings its
standard library. env, sh, the places that a cell mounts over, a minimal /etc and the locale
C.UTF-8 are there in any case.

Exit code: 0 packed, 1 failed, 2 usage, 130 interrupted.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			if !fromHost {
				return exit(exitUsage, errors.New("say --from-host: there is nothing else to pack from (to take in a directory: checkcell image pull dir:PATH)"))
			}
			ref, err := parseImage(name)
			if err != nil {
				return exit(exitUsage, fmt.Errorf("--name: %w", err))
			}
			kept, err := f.open(ctx)
			if err != nil {
				return err
			}
			spec := store.PackSpec{Programs: args, Name: ref}
			got, err := withProgress(s, func(p store.Progress) (store.Pulled, error) { return kept.Pack(ctx, spec, p) })
			if err != nil {
				return failed(ctx, err)
			}
			if ref.IsHost() {
				ref = images.Stored(got.Image.Digest)
			}
			return f.print(s, ref, got)
		},
	}
	f.add(cmd)
	cmd.Flags().BoolVar(&fromHost, "from-host", false, "pack programs of this host")
	f.addLimits(cmd)
	cmd.Flags().StringVar(&name, "name", "", "what to keep it as beside its digest, such as localhost/tools:1")
	return cmd
}
