package claims

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// open opens paths and closes them at the test's end.
func open(t *testing.T, stdin io.Reader, paths ...string) []Source {
	t.Helper()
	sources, err := Open(paths, stdin)
	if err != nil {
		t.Fatalf("Open(%q): %v", paths, err)
	}
	t.Cleanup(func() {
		if err := Close(sources); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return sources
}

func idsOf(got []Claim) (ids []string) {
	for _, c := range got {
		ids = append(ids, c.ID)
	}
	return ids
}

const one = `{"rung":1}` + "\n"

func TestOpenDirectory(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{
		"b.jsonl": one, "a/x.jsonl": one, "a/z.YAML": "rung: 1", "c/x.jsonl": one, "d.json": "[" + one + "]",
		"README.md": "# no claim", "p.markdown": "---\nrung: 1\n---\n", "data.csv": "1", "noext": one, "n.ndjson": one,
	})
	if err := os.Symlink("../b.jsonl", filepath.Join(dir, "a", "link.jsonl")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(".", filepath.Join(dir, "loop.jsonl")); err != nil {
		t.Fatal(err)
	}
	want := []string{"link.jsonl:1", filepath.Join(dir, "a/x.jsonl") + ":1", "z.YAML:1", "b.jsonl:1", filepath.Join(dir, "c/x.jsonl") + ":1", "d.json:1", "n.ndjson:1", "p.markdown:1"}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, link} {
		got, errs := collect(open(t, nil, path)...)
		want := strings.Split(strings.ReplaceAll(strings.Join(want, "\n"), dir, path), "\n")
		if diff := cmp.Diff(want, idsOf(got)); diff != "" || len(errs) > 0 {
			t.Errorf("Read(%s) errors %v (-want +got):\n%s", path, errs, diff)
		}
	}
}

func TestDirectoriesWithoutClaims(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"none/x.csv": "", "pages/a.md": "# a", "pages/b.md": "# b", "mixed/a.md": "# a", "mixed/e.jsonl": "", "good/c.md": "---\nrung: 1\n---\n"})
	at := func(name string) string { return filepath.Join(dir, name) }
	if s, err := Open([]string{at("none")}, nil); err == nil || !strings.Contains(err.Error(), at("none")+": the directory holds no file of claims") {
		t.Errorf("Open(a directory without claims) = %v, %v, want an error that names it", s, err)
	}
	got, errs := collect(open(t, nil, at("pages"), at("good"), at("mixed"))...)
	if len(got) != 1 {
		t.Errorf("Read = %v, want the one claim of good", idsOf(got))
	}
	matchErrors(t, "directories", errs, []string{at("pages") + ": no page in the directory…", at("mixed/e.jsonl") + ": …empty"})
}

func TestOpenReportsAll(t *testing.T) {
	dir := t.TempDir()
	sources, err := Open([]string{filepath.Join(dir, "a.jsonl"), "-", "-", dir, filepath.Join(dir, "b")}, strings.NewReader(one))
	if err == nil || sources != nil {
		t.Fatalf("Open(missing files) = %v, %v, want an error alone", sources, err)
	}
	for _, part := range []string{"a.jsonl: no such file", "standard input can be named only once", dir + ": the directory", "b: no such file"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("Open(missing files) = %v, want %q in it", err, part)
		}
	}
	if _, err := Open(nil, nil); err == nil {
		t.Error("Open(nothing) = nil, want an error")
	}
	if _, err := Open([]string{"-"}, failing{io.ErrUnexpectedEOF}); err == nil || !strings.Contains(err.Error(), "keep stdin") {
		t.Errorf("Open(standard input that fails) = %v, want an error on stdin", err)
	}
}

func TestOpenMissingLink(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink("nowhere", filepath.Join(dir, "x.jsonl")); err != nil {
		t.Fatal(err)
	}
	if _, err := Open([]string{dir}, nil); err == nil || !strings.Contains(err.Error(), "x.jsonl") {
		t.Errorf("Open(a directory with a link to nowhere) = %v, want an error that names it", err)
	}
}

// What can be read only once is read again from an unnamed file.
func TestReadTwice(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	pipe := filepath.Join(t.TempDir(), "pipe.yaml")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	fed := make(chan error, 1)
	go func() { fed <- os.WriteFile(pipe, []byte("rung: 1\n"), 0o600) }() // ends when Open reads the pipe
	sources := open(t, strings.NewReader(one+one), pipe, "-")
	if err := <-fed; err != nil {
		t.Fatal(err)
	}
	for pass := range 3 {
		got, errs := collect(sources...)
		if diff := cmp.Diff([]string{"pipe.yaml:1", "stdin:1", "stdin:2"}, idsOf(got)); diff != "" || len(errs) > 0 {
			t.Errorf("pass %d: errors %v (-want +got):\n%s", pass, errs, diff)
		}
	}
	left, err := os.ReadDir(tmp)
	if err != nil || len(left) > 0 {
		t.Errorf("the directory for temporary files holds %v, %v, want nothing", left, err)
	}
	if got, want := sources[1].Name(), "stdin"; got != want {
		t.Errorf("Name() = %q, want %q", got, want)
	}
}

func TestSameFileTwice(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"c.jsonl": one})
	path := filepath.Join(dir, "c.jsonl")
	got, errs := collect(open(t, nil, path, path)...)
	if len(got) != 1 {
		t.Errorf("Read(one file twice) = %v, want its claim once", idsOf(got))
	}
	matchErrors(t, "one file twice", errs, []string{path + ":1: id: …at " + path + ":1 already"})
}

// generated is a stream that is made as it is read and never held.
type generated struct {
	rest []byte
	n    int
	next func(n int) []byte // nil is the end
}

func (g *generated) Read(p []byte) (int, error) {
	if len(g.rest) == 0 {
		g.rest = g.next(g.n)
		g.n++
	}
	if g.rest == nil {
		return 0, io.EOF
	}
	n := copy(p, g.rest)
	g.rest = g.rest[n:]
	return n, nil
}

func generatedSource(name string, next func(n int) []byte) Source {
	s := textSource(name, "")
	s.open = func() (io.ReadCloser, error) { return io.NopCloser(&generated{next: next}), nil }
	return s
}

// A stream of 10 MB grows the heap by what is kept of the ids, and no more.
func TestMemoryIsFlat(t *testing.T) {
	const claims, most = 10_000, 128 // bytes a claim
	pad := strings.Repeat("x", 1000)
	for name, frame := range map[string][3]string{"c.jsonl": {"", "\n", ""}, "c.json": {"[\n", ",\n", "]"}} {
		s := generatedSource(name, func(n int) []byte {
			text := fmt.Sprintf(`{"rung":1,"check":"%s%d"}`, pad, n)
			switch {
			case n == 0:
				text = frame[0] + text
			case n < claims:
				text = frame[1] + text
			case n == claims:
				text = frame[2] + "\n"
			default:
				return nil
			}
			return []byte(text)
		})
		before, peak, n := heap(), int64(0), 0
		for _, err := range Read(t.Context(), []Source{s}) {
			if err != nil {
				t.Fatal(err)
			}
			if n++; n%(claims/5) == 0 {
				peak = max(peak, heap()-before)
			}
		}
		if n != claims || peak > claims*most {
			t.Errorf("Read(%s of %d claims) yields %d and holds up to %d bytes, want at most %d", name, claims, n, peak, claims*most)
		}
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A claim that is far too long costs no more than the largest one that is read,
// and where lines can be told the next one is read.
func TestLongClaimIsNotHeld(t *testing.T) {
	const most, chunks = 1 << 20, 400
	chunk := []byte(strings.Repeat("x", 64<<10))
	next := func(n int) []byte {
		switch {
		case n == 0:
			return []byte(`{"rung":1,"check":"`)
		case n <= chunks:
			return chunk
		case n == chunks+1:
			return []byte("\"}\n{\"rung\":1}\n")
		}
		return nil
	}
	for _, tt := range []struct {
		name   string
		claims int
		want   string
	}{
		{"c.jsonl", 1, "c.jsonl:1: line 1 is longer than the limit of 1048576 bytes"},
		{"c.json", 0, "c.json:1: the claim is longer than the limit of 1048576 bytes"},
		{"c.yaml", 0, "c.yaml: larger than 1048576 bytes; …JSON Lines"},
		{"c.md", 0, "c.md: larger than 1048576 bytes"},
	} {
		var before, after runtime.MemStats
		s := generatedSource(tt.name, next)
		s.most = most
		runtime.ReadMemStats(&before)
		got, errs := collect(s)
		runtime.ReadMemStats(&after)
		if len(got) != tt.claims {
			t.Errorf("Read(%s with 25 MiB in a line) = %v, want %d claims", tt.name, idsOf(got), tt.claims)
		}
		matchErrors(t, tt.name, errs, []string{tt.want})
		// Growing a buffer by steps allocates several times its last size in all.
		if used := after.TotalAlloc - before.TotalAlloc; used > 8*most {
			t.Errorf("Read(%s with 25 MiB in a line) allocates %d bytes, want at most %d", tt.name, used, 8*most)
		}
	}
}

// The limit is of one claim: that many bytes are read, one more are not, and
// what came before does not count.
func TestClaimLimit(t *testing.T) {
	line := func(size int) string {
		const frame = `{"rung":1,"check":""}`
		return `{"rung":1,"check":"` + strings.Repeat("x", size-len(frame)) + `"}`
	}
	const most = 4096
	for _, tt := range []struct {
		name, text string
		claims     int
		errs       int
	}{
		{"c.jsonl", strings.Repeat(line(most-1)+"\n", 3), 3, 0},
		{"c.jsonl", line(most) + "\n" + one, 1, 1},
		{"c.json", "[" + strings.Repeat(line(most/2)+",", 20) + line(most/2) + "]", 21, 0},
		{"c.json", "[" + line(2*most) + "," + one + "]", 0, 1},
		{"c.yaml", line(most), 1, 0},
		{"c.yaml", line(most + 1), 0, 1},
	} {
		s := textSource(tt.name, tt.text)
		s.most = most
		got, errs := collect(s)
		if len(got) != tt.claims || len(errs) != tt.errs {
			t.Errorf("Read(%s of %d bytes, limit %d) = %d claims, %q, want %d and %d errors", tt.name, len(tt.text), most, len(got), errorTexts(errs), tt.claims, tt.errs)
		}
	}
	dir := t.TempDir()
	write(t, dir, map[string]string{"c.jsonl": one})
	for _, s := range open(t, strings.NewReader(one), filepath.Join(dir, "c.jsonl"), "-") {
		if s.most != 64<<20 {
			t.Errorf("Open gives %s the limit %d, want 64 MiB", s.name, s.most)
		}
	}
}

func TestLargeCheckIsRead(t *testing.T) {
	text := `{"rung":1,"check":"` + strings.Repeat("x", 5<<20) + `"}`
	for _, name := range []string{"c.jsonl", "c.json", "c.yaml", "stdin"} {
		got, errs := readText(name, text)
		if len(got) != 1 || len(errs) > 0 || len(got[0].Evidence.Check) != 5<<20 {
			t.Errorf("Read(%s of 5 MiB) = %d claims, %q, want one with its check", name, len(got), errorTexts(errs))
		}
	}
}

func TestAliasesCannotFillMemory(t *testing.T) {
	var b strings.Builder
	b.WriteString("rung: 1\na0: &a0 [x,x,x,x,x,x,x,x,x,x]\n")
	for i := 1; i < 12; i++ {
		fmt.Fprintf(&b, "a%d: &a%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d,", i-1), 10), ","))
	}
	s := textSource("c.yaml", b.String())
	s.most = 1 << 20
	_, errs := collect(s)
	matchErrors(t, "aliases of aliases", errs, []string{"c.yaml:1: line …aliases…longer than the limit of 1048576 bytes"})
}

func TestReadIsRepeatable(t *testing.T) {
	s := textSource("c.jsonl", one+one)
	seq := Read(context.Background(), []Source{s})
	for pass := range 2 {
		n := 0
		for range seq {
			n++
		}
		if n != 2 {
			t.Errorf("pass %d over one sequence yields %d, want 2", pass, n)
		}
	}
}
