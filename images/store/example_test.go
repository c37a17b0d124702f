package store_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/checkcell/checkcell/images"
	"github.com/checkcell/checkcell/images/store"
)

// A program packs an image, and uses its tree as the root of what it starts.
func Example() {
	if err := use(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Output: usr/bin/true is there
}

func use(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "images-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	kept, err := store.Open(ctx, store.Config{Dir: filepath.Join(dir, "images")})
	if err != nil {
		return err
	}
	ref, err := images.Parse("localhost/true:1")
	if err != nil {
		return err
	}
	if _, err := kept.Pack(ctx, store.PackSpec{Programs: []string{"true"}, Name: ref}, nil); err != nil {
		return err
	}
	tree, err := kept.Tree(ctx, ref)
	if err != nil {
		return err
	}
	defer tree.Close()
	if _, err := os.Stat(filepath.Join(tree.Root, "usr/bin/true")); err != nil {
		return err
	}
	fmt.Println("usr/bin/true is there")
	return nil
}
