package store

import (
	"errors"
	"fmt"
)

// Limits bound what an image may unpack to. They are there for archives that
// are made to fill a disk; the defaults leave room for any honest image that a
// check would use.
type Limits struct {
	Bytes int64 // bytes of all files of all layers, also of those that a later layer removes
	Files int64 // entries of all layers
	File  int64 // bytes of one file
	Depth int   // parts of a path
	Ratio int64 // bytes that one byte of a compressed layer may become, beyond the first 64 MiB of each
}

// DefaultLimits returns the limits that hold where nothing else is said.
func DefaultLimits() Limits {
	return Limits{Bytes: 16 << 30, Files: 1_000_000, File: 4 << 30, Depth: 128, Ratio: 200}
}

// Validate names every limit that isn't positive.
func (l Limits) Validate() error {
	var errs []error
	for _, one := range []struct {
		name string
		n    int64
	}{{"bytes", l.Bytes}, {"files", l.Files}, {"file", l.File}, {"depth", int64(l.Depth)}, {"ratio", l.Ratio}} {
		if one.n <= 0 {
			errs = append(errs, fmt.Errorf("limit %s of unpacking: %d is not positive", one.name, one.n))
		}
	}
	return errors.Join(errs...)
}

// Sizes that no image has a reason to exceed.
const (
	ratioFree     = 64 << 20 // of each layer, whatever its ratio
	maxManifest   = 4 << 20  // the distribution specification asks registries for as much
	maxConfig     = 8 << 20
	maxLayers     = 512
	entryOverhead = 4 << 10 // of a tar, for an entry's headers and padding
)

// streamMax is how long the tar of a layer of size compressed bytes may be, and
// the limit that says so.
func (l Limits) streamMax(size int64) (most int64, name string) {
	most, name = l.Bytes+l.Files*entryOverhead, "bytes"
	if r := ratioFree + l.Ratio*size; r/l.Ratio >= size && r < most { // unless it overflows
		most, name = r, "ratio"
	}
	return most, name
}

// over is the error for content beyond a limit.
func over(name string, limit int64, what string) error {
	return fmt.Errorf("%w: %s, beyond the limit %s of %d; if you trust it, raise --limit-%s", ErrRefused, what, name, limit, name)
}
