// Command checkcell runs untrusted checks, each in a cell of its own, and
// grades the claims that they stand for.
package main

import (
	"context"
	"os"

	"github.com/checkcell/checkcell/sandbox/native"
)

// version is set by the linker; see the Makefile.
var version = "devel"

func main() {
	if code, was := native.RunLauncher(); was {
		os.Exit(code)
	}
	os.Exit(run(context.Background(), os.Args[1:], streams{os.Stdin, os.Stdout, os.Stderr}))
}
