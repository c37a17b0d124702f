package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/checkcell/checkcell/images"
	"github.com/checkcell/checkcell/images/store"
	"github.com/checkcell/checkcell/sandbox"
	"github.com/spf13/cobra"
)

// exitFailed is that of an image command that could not do what was asked.
const exitFailed = 1

// imageSchema is what a line of --json is called.
const imageSchema = "checkcell.image/v1"

// imageFlags are those of every image command.
type imageFlags struct {
	dir    string
	json   bool
	limits store.Limits // the zero value is the default
}

func imageCommand(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "image",
		Short: "Keep root file systems for cells: pull, pack, list, remove",
		Long: `Keep images on this host: fetched from registries or files, or packed of this host's own
programs. An image is named by digest; a tag is looked up once, and what it stands for is
printed, and locked with --lock.

REF is one of
  [HOST/]REPOSITORY[:TAG][@sha256:…]   of a registry
  std:NAME                             a standard image; see checkcell image list --catalogue
  oci-layout:PATH[@sha256:…]           an OCI image layout
  docker-archive:PATH                  what docker save writes
  rootfs-tar:PATH, dir:PATH            a whole root, as a tar or a directory
  sha256:…                             what the store has already

Exit code: 0 done, 1 failed, 2 usage, 130 interrupted.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return exit(exitUsage, errors.New("want a command\n"+cmd.UsageString()))
		},
	}
	cmd.AddCommand(pullCommand(s), packCommand(s), listCommand(s), inspectCommand(s), removeCommand(s), gcCommand(s))
	return cmd
}

func (f *imageFlags) add(cmd *cobra.Command) {
	cmd.Flags().SortFlags = false
	cmd.Flags().StringVar(&f.dir, "store", "", "directory of the images (default: "+storeDir()+")")
	cmd.Flags().BoolVar(&f.json, "json", false, "print one JSON object a line on stdout, and nothing else there")
}

// addLimits adds the flags of commands that unpack.
func (f *imageFlags) addLimits(cmd *cobra.Command) {
	f.limits = store.DefaultLimits()
	flags, l := cmd.Flags(), &f.limits
	flags.Var(value[int64]{&l.Bytes, parseSize, showSize}, "limit-bytes", "bytes of all files that an image unpacks to")
	flags.Int64Var(&l.Files, "limit-files", l.Files, "entries that an image unpacks to")
	flags.Var(value[int64]{&l.File, parseSize, showSize}, "limit-file", "bytes of one file")
	flags.IntVar(&l.Depth, "limit-depth", l.Depth, "parts of a path")
	flags.Int64Var(&l.Ratio, "limit-ratio", l.Ratio, "bytes that one byte of a layer may unpack to, beyond 64MiB")
}

func parseSize(s string) (int64, error) {
	size, err := sandbox.ParseBytes(s)
	return int64(size), err
}

func showSize(n int64) string { return sandbox.Bytes(n).String() }

// storeDir is where images are kept by default: root's for all of the host,
// anybody else's where their other data is (XDG base directory specification).
func storeDir() string {
	if data := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(data) {
		return filepath.Join(data, "checkcell/images")
	}
	if os.Geteuid() == 0 {
		return "/var/lib/checkcell/images"
	}
	if home := os.Getenv("HOME"); filepath.IsAbs(home) {
		return filepath.Join(home, ".local/share/checkcell/images")
	}
	return ""
}

func (f *imageFlags) open(ctx context.Context) (*store.Store, error) {
	dir := f.dir
	if dir == "" {
		if dir = storeDir(); dir == "" {
			return nil, exit(exitUsage, errors.New("there is no HOME to keep images in; name a directory with --store"))
		}
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, exit(exitUsage, fmt.Errorf("--store: %w", err))
	}
	if f.limits != (store.Limits{}) {
		if err := f.limits.Validate(); err != nil {
			return nil, exit(exitUsage, err)
		}
	}
	kept, err := store.Open(ctx, store.Config{Dir: dir, Limits: f.limits})
	return kept, failed(ctx, err)
}

// failed gives an error of the store its exit code.
func failed(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return exit(exitInterrupted, err)
	}
	return exit(exitFailed, err)
}

// parseImages reads all references, or names all that are wrong.
func parseImages(args []string) ([]images.Ref, error) {
	var refs []images.Ref
	var errs []error
	for _, arg := range args {
		ref, err := parseImage(arg)
		refs, errs = append(refs, ref), append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, exit(exitUsage, err)
	}
	return refs, nil
}

// printJSON writes values, a line each.
func printJSON[T any](s streams, values ...T) error {
	enc := json.NewEncoder(s.out)
	enc.SetEscapeHTML(false)
	for _, v := range values {
		if err := enc.Encode(v); err != nil {
			return exit(exitFailed, fmt.Errorf("write the result: %w", err))
		}
	}
	return nil
}

// imageLine is an image as --json prints it.
type imageLine struct {
	Schema string `json:"schema"`
	store.Image
}

// pulledLine is what pull and pack print of one.
type pulledLine struct {
	imageLine
	Reference string        `json:"reference"` // as it was asked for, in full
	Resolved  images.Digest `json:"resolved"`  // what that stands for: the image, or an index that lists it
	Fresh     bool          `json:"fresh"`     // false where the store had it already
}

// asideLine is what inspect prints.
type asideLine struct {
	imageLine
	Aside []store.Aside `json:"aside"`
}
