package e2e

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/checkcell/checkcell/internal/host"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/rogpeppe/go-internal/testscript"
)

// The scripts about images. Each has a registry of its own on loopback.
func TestImageScripts(t *testing.T) {
	host.Need(t, host.Bash)
	leavesNothing(t)
	runScripts(t, "testdata/script/image", 4, func(env *testscript.Env) error {
		server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
		env.Defer(server.Close)
		env.Setenv("REGISTRY", strings.TrimPrefix(server.URL, "http://"))
		env.Setenv("XDG_DATA_HOME", filepath.Join(env.WorkDir, "data"))
		env.Setenv("DOCKER_CONFIG", env.WorkDir) // no credentials of whoever runs the tests
		env.Setenv("HOME", env.WorkDir)
		return writeImages(env.WorkDir)
	})
}

// push REF TEXT pushes an image with one file of that text.
func push(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: push REF TEXT")
	}
	tag, err := name.ParseReference(args[0])
	ts.Check(err)
	img, err := smallImage(args[1])
	ts.Check(err)
	ts.Check(remote.Write(tag, img))
}

// smallImage is an image of one file, for this machine.
func smallImage(text string) (v1.Image, error) {
	layer, err := tarOf(tar.Header{Name: "text", Mode: 0o644}, text)
	if err != nil {
		return nil, err
	}
	img, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{OS: "linux", Architecture: runtime.GOARCH})
	if err != nil {
		return nil, err
	}
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(layer)), nil })
	if err != nil {
		return nil, err
	}
	return mutate.AppendLayers(img, l)
}

func tarOf(h tar.Header, content string) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	h.Size = int64(len(content))
	if err := w.WriteHeader(&h); err != nil {
		return nil, err
	}
	if _, err := io.WriteString(w, content); err != nil {
		return nil, err
	}
	return b.Bytes(), w.Close()
}

// writeImages puts the image of the text "one" into dir as layout/ and
// archive.tar, and hostile roots as NAME.tar.
func writeImages(dir string) error {
	img, err := smallImage("one")
	if err != nil {
		return err
	}
	l, err := layout.Write(filepath.Join(dir, "layout"), empty.Index)
	if err == nil {
		err = l.AppendImage(img)
	}
	tag, tagErr := name.NewTag("localhost/one:1")
	if err == nil && tagErr == nil {
		err = tarball.WriteToFile(filepath.Join(dir, "archive.tar"), tag, img)
	}
	for file, h := range map[string]tar.Header{
		"climbing": {Name: "../evil"},
		"absolute": {Name: "hard", Typeflag: tar.TypeLink, Linkname: "/etc/passwd"},
		"outside":  {Name: "soft", Typeflag: tar.TypeSymlink, Linkname: "../../etc/passwd"},
		"device":   {Name: "dev/sda", Typeflag: tar.TypeBlock, Devmajor: 8},
	} {
		content, tarErr := tarOf(h, "")
		if err == nil {
			err = tarErr
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, file+".tar"), content, 0o644)
		}
	}
	if err == nil {
		err = tagErr
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "bomb.tar"), sparseTar("bomb", 10<<30), 0o644)
	}
	return err
}

// sparseTar is a tar with one file of that size, all of it a hole, in the form
// of GNU tar (its manual, "Storing Sparse Files", old format).
func sparseTar(name string, size int64) []byte {
	b := make([]byte, 512)
	copy(b, name)
	copy(b[100:], "0000644\x000000000\x000000000\x0000000000000\x0000000000000\x00        S")
	copy(b[257:], "ustar  \x00")
	copy(b[386:], fmt.Sprintf("%011o\x00%011o\x00", size, 0))
	copy(b[483:], []byte{0x80, 0, 0, 0, 0, 0, 0, byte(size >> 32), byte(size >> 24), byte(size >> 16), byte(size >> 8), byte(size)})
	sum := 0
	for _, c := range b {
		sum += int(c)
	}
	copy(b[148:], fmt.Sprintf("%06o\x00 ", sum))
	return append(b, make([]byte, 1024)...)
}
