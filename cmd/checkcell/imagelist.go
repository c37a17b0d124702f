package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/checkcell/checkcell/images"
	"github.com/checkcell/checkcell/images/store"
	"github.com/checkcell/checkcell/internal/report"
	"github.com/checkcell/checkcell/sandbox"
	"github.com/spf13/cobra"
)

func listCommand(s streams) *cobra.Command {
	var f imageFlags
	var catalogue bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the images of the store, or the standard ones",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if catalogue {
				return f.listCatalogue(s)
			}
			kept, err := f.open(cmd.Context())
			if err != nil {
				return err
			}
			all, err := kept.List(cmd.Context())
			if err != nil {
				return failed(cmd.Context(), err)
			}
			return f.list(s, all)
		},
	}
	f.add(cmd)
	cmd.Flags().BoolVar(&catalogue, "catalogue", false, "list the standard images, whether the store has them or not")
	return cmd
}

func (f *imageFlags) list(s streams, all []store.Image) error {
	if f.json {
		var lines []imageLine
		for _, img := range all {
			lines = append(lines, imageLine{imageSchema, img})
		}
		return printJSON(s, lines...)
	}
	w := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "DIGEST\tPLATFORM\tSIZE\tTREE\tUSED\tREFERENCES")
	for _, img := range all {
		fmt.Fprintf(w, "%.19s\t%s\t%s\t%s\t%s\t%s\n", img.Digest, report.Escape(img.Platform), report.Size(img.Bytes), report.Size(img.TreeBytes),
			img.Used.Format(time.DateTime), report.Escape(strings.Join(img.References, " ")))
	}
	return w.Flush()
}

func (f *imageFlags) listCatalogue(s streams) error {
	all, err := images.Catalogue()
	if err != nil {
		return exit(exitFailed, err)
	}
	if f.json {
		type line struct {
			Schema     string   `json:"schema"`
			Name       string   `json:"name"`
			Summary    string   `json:"summary"`
			From       string   `json:"from"`
			Programs   []string `json:"programs"`
			Dockerfile string   `json:"dockerfile"`
		}
		var lines []line
		for _, c := range all {
			lines = append(lines, line{"checkcell.standard-image/v1", "std:" + c.Name, c.Summary, c.From.String(), c.Programs, c.Dockerfile})
		}
		return printJSON(s, lines...)
	}
	w := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tSUMMARY\tFROM")
	for _, c := range all {
		fmt.Fprintf(w, "std:%s\t%s\t%s\n", c.Name, c.Summary, c.From)
	}
	return w.Flush()
}

func inspectCommand(s streams) *cobra.Command {
	var f imageFlags
	cmd := &cobra.Command{
		Use:   "inspect REF…",
		Short: "Print all that the store knows of images, as JSON",
		Long: `Print one JSON object a line: digests, references, settings, sizes, the path of the unpacked
root, and under aside what the layers say and the root does not have: owners (where an
ordinary user unpacked it), set-user-ID bits, attributes and devices.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.each(cmd.Context(), args, func(kept *store.Store, ref images.Ref) error {
				img, err := kept.Inspect(cmd.Context(), ref)
				if err != nil {
					return err
				}
				aside, err := kept.Aside(img)
				if err != nil {
					return err
				}
				return printJSON(s, asideLine{imageLine{imageSchema, img}, append([]store.Aside{}, aside...)})
			})
		},
	}
	f.add(cmd)
	return cmd
}

// each does something with every image, and says at the end what failed.
func (f *imageFlags) each(ctx context.Context, args []string, do func(*store.Store, images.Ref) error) error {
	refs, err := parseImages(args)
	if err != nil {
		return err
	}
	kept, err := f.open(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, ref := range refs {
		errs = append(errs, do(kept, ref))
	}
	return failed(ctx, errors.Join(errs...))
}

func removeCommand(s streams) *cobra.Command {
	var f imageFlags
	cmd := &cobra.Command{
		Use:   "rm REF…",
		Short: "Remove references, and images that have none left",
		Long: `Take references away, and with the last one of an image the image; by digest, an image with all
its references. An image that a cell uses stays, and the command fails.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.each(cmd.Context(), args, func(kept *store.Store, ref images.Ref) error {
				got, err := kept.Remove(cmd.Context(), ref)
				if err != nil {
					return err
				}
				return f.printCollected(s, got)
			})
		},
	}
	f.add(cmd)
	return cmd
}

func gcCommand(s streams) *cobra.Command {
	var f imageFlags
	var keep store.Keep
	var most sandbox.Bytes
	cmd := &cobra.Command{
		Use:   "gc",
		Short: "Remove images by age and size, and what belongs to none",
		Long: `Remove what belongs to no image; with --max-age also images that were not used for so long,
and with --max-size those that were used the longest ago, until the rest fits. What a cell
uses, or another process is pulling, stays.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for flag, bad := range map[string]bool{"max-age": keep.Age <= 0, "max-size": most <= 0} {
				if cmd.Flags().Changed(flag) && bad {
					return exit(exitUsage, fmt.Errorf("--%s is not positive; leave it out to go by something else", flag))
				}
			}
			kept, err := f.open(cmd.Context())
			if err != nil {
				return err
			}
			keep.Bytes = int64(most)
			got, err := kept.GC(cmd.Context(), keep)
			if err != nil {
				return failed(cmd.Context(), err)
			}
			return f.printCollected(s, got)
		},
	}
	f.add(cmd)
	cmd.Flags().DurationVar(&keep.Age, "max-age", 0, "remove images that were not used for longer, such as 720h")
	sizeFlag(cmd.Flags(), &most, "max-size", "remove images, the longest unused first, until the rest is no larger")
	return cmd
}

func (f *imageFlags) printCollected(s streams, got store.Collected) error {
	digests := func(all []store.Image) []images.Digest {
		list := []images.Digest{}
		for _, img := range all {
			list = append(list, img.Digest)
		}
		return list
	}
	if f.json {
		return printJSON(s, struct {
			Removed []images.Digest `json:"removed"`
			InUse   []images.Digest `json:"in_use"`
			Bytes   int64           `json:"bytes"`
		}{digests(got.Removed), digests(got.InUse), got.Bytes})
	}
	for _, img := range got.Removed {
		fmt.Fprintf(s.out, "removed  %s  %s\n", img.Digest, report.Escape(strings.Join(img.References, " ")))
	}
	for _, img := range got.InUse {
		fmt.Fprintf(s.out, "in use   %s  %s\n", img.Digest, report.Escape(strings.Join(img.References, " ")))
	}
	_, err := fmt.Fprintf(s.out, "%s removed, %s freed\n", counted(int64(len(got.Removed)), "image", "images"), report.Size(got.Bytes))
	return err
}
