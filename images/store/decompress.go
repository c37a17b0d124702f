package store

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
)

// maxWindow is the memory that a zstd layer may ask for; 128 MiB is what the
// zstd command takes without being asked to.
const maxWindow = 128 << 20

// decompress opens a layer by its first bytes: gzip, zstd or a bare tar. The
// media type is not asked, since registries are known to be wrong about it.
func decompress(r io.Reader) (io.ReadCloser, error) {
	buffered := bufio.NewReaderSize(r, 64<<10)
	head, err := buffered.Peek(6)
	if err != nil && err != io.EOF {
		return nil, err
	}
	for _, other := range []struct{ magic, name string }{{"\xfd7zXZ\x00", "xz"}, {"BZh", "bzip2"}, {"\x04\x22\x4d\x18", "lz4"}} {
		if bytes.HasPrefix(head, []byte(other.magic)) {
			return nil, fmt.Errorf("%w: it is compressed with %s; known are gzip, zstd and none", ErrRefused, other.name)
		}
	}
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		return gzip.NewReader(buffered)
	case bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd}) || len(head) >= 4 && head[0]&0xf0 == 0x50 && bytes.Equal(head[1:4], []byte{0x2a, 0x4d, 0x18}):
		d, err := zstd.NewReader(buffered, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, err
		}
		return d.IOReadCloser(), nil
	}
	return io.NopCloser(buffered), nil
}

// capped ends a stream with an error once it is longer than most.
type capped struct {
	r     io.Reader
	read  int64
	most  int64
	limit string // that most comes of
}

func (c *capped) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	if c.read += int64(n); c.read > c.most {
		return 0, over(c.limit, c.most, "it unpacks to more bytes")
	}
	return n, err
}

// watched is a stream that ends with its context, and tells how far it is.
type watched struct {
	ctx  context.Context
	r    io.Reader
	done int64
	tell func(done int64) // may be nil
}

func (w *watched) Read(p []byte) (int, error) {
	if w.ctx.Err() != nil {
		return 0, context.Cause(w.ctx)
	}
	n, err := w.r.Read(p)
	if w.done += int64(n); w.tell != nil {
		w.tell(w.done)
	}
	return n, err
}
