package e2e

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

const (
	maxFileLines = 400
	maxFuncLines = 70
)

// source is one Go file of the tree, its path relative to the module.
type source struct {
	path string
	fset *token.FileSet
	file *ast.File
}

func (s source) isTest() bool            { return strings.HasSuffix(s.path, "_test.go") }
func (s source) line(pos token.Pos) int  { return s.fset.Position(pos).Line }
func (s source) at(pos token.Pos) string { return fmt.Sprintf("%s:%d", s.path, s.line(pos)) }
func (s source) lines(node ast.Node) int { return s.line(node.End()) - s.line(node.Pos()) + 1 }
func (s source) inDir(dir string) bool   { return filepath.ToSlash(filepath.Dir(s.path)) == dir }
func parse(path string, text any) (source, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, text, parser.ParseComments)
	return source{path: path, fset: fset, file: file}, err
}

// files calls f for every file of the tree, hidden folders and bin aside.
func files(t *testing.T, f func(path string)) {
	t.Helper()
	seen := 0
	err := fs.WalkDir(os.DirFS(".."), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != "." && (strings.HasPrefix(d.Name(), ".") || path == "bin") {
			return fs.SkipDir
		}
		if d.Type().IsRegular() {
			seen++
			f(path)
		}
		return nil
	})
	if err != nil {
		t.Fatalf("walk the tree: %v", err)
	}
	if seen == 0 {
		t.Fatal("walk the tree: it is empty")
	}
}

// sources parses every Go file of the tree.
func sources(t *testing.T) []source {
	t.Helper()
	var all []source
	files(t, func(path string) {
		if !strings.HasSuffix(path, ".go") {
			return
		}
		text, err := os.ReadFile(filepath.Join("..", path))
		if err != nil {
			t.Fatal(err)
		}
		s, err := parse(path, text)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	})
	return all
}

// tooLong names the file, if it is, and its functions, tests aside.
func tooLong(s source) []string {
	if s.isTest() {
		return nil
	}
	var found []string
	if n := s.fset.File(s.file.Pos()).LineCount(); n > maxFileLines {
		found = append(found, fmt.Sprintf("%s has %d lines, want at most %d", s.path, n, maxFileLines))
	}
	for _, decl := range s.file.Decls {
		if f, ok := decl.(*ast.FuncDecl); ok && s.lines(f) > maxFuncLines {
			found = append(found, fmt.Sprintf("%s: %s has %d lines, want at most %d", s.at(f.Pos()), f.Name.Name, s.lines(f), maxFuncLines))
		}
	}
	return found
}

func TestSizes(t *testing.T) {
	for _, s := range sources(t) {
		for _, fault := range tooLong(s) {
			t.Error(fault)
		}
	}
}

// unseenSkips finds calls that skip a test outside internal/host, which alone
// notes them and fails where the machine must have what is missing.
func unseenSkips(s source) []string {
	if s.inDir("internal/host") {
		return nil
	}
	var found []string
	ast.Inspect(s.file, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if ok && slices.Contains([]string{"Skip", "Skipf", "SkipNow"}, sel.Sel.Name) {
			found = append(found, fmt.Sprintf("%s: %s, want host.Need", s.at(sel.Pos()), sel.Sel.Name))
		}
		return true
	})
	return found
}

// A script's skip, with or without conditions before it.
var scriptSkip = regexp.MustCompile(`(?m)^\s*(\[[^\]]*\]\s*)*(skip|stop)\b`)

func TestSkipsAreSeen(t *testing.T) {
	for _, s := range sources(t) {
		for _, fault := range unseenSkips(s) {
			t.Error(fault)
		}
	}
	files(t, func(path string) {
		if ext := filepath.Ext(path); !strings.Contains(path, "testdata/script") || ext != ".txt" && ext != ".txtar" {
			return
		}
		text, err := os.ReadFile(filepath.Join("..", path))
		if err != nil {
			t.Fatal(err)
		}
		if skip := scriptSkip.Find(text); skip != nil {
			t.Errorf("%s skips: %q, want host.Need in the test that runs it", path, skip)
		}
	})
}

// vague are words that say nothing of what a thing is.
func vague() []string {
	return []string{"util", "utils", "common", "helper", "helpers", "manager", "base"}
}

// words splits an identifier, or a name with dots, dashes or underscores.
func words(name string) []string {
	var all []string
	start := 0
	runes := []rune(name)
	add := func(end int) {
		if end > start {
			all = append(all, strings.ToLower(string(runes[start:end])))
		}
		start = end
	}
	for i, r := range runes {
		switch {
		case !unicode.IsLetter(r) && !unicode.IsDigit(r):
			add(i)
			start = i + 1
		case i > 0 && unicode.IsUpper(r) && (unicode.IsLower(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1])):
			add(i)
		}
	}
	add(len(runes))
	return all
}

func isVague(name string) bool {
	return slices.ContainsFunc(words(name), func(w string) bool { return slices.Contains(vague(), w) })
}

// vagueNames finds packages, declarations, methods and fields whose name has a
// vague word. Names inside functions are for review.
func vagueNames(s source) []string {
	var found []string
	check := func(what string, id *ast.Ident) {
		if id != nil && isVague(id.Name) {
			found = append(found, fmt.Sprintf("%s: %s %s", s.at(id.Pos()), what, id.Name))
		}
	}
	check("package", s.file.Name)
	for _, decl := range s.file.Decls {
		if f, ok := decl.(*ast.FuncDecl); ok {
			if !s.isTest() || f.Recv == nil || f.Name.Name != "Helper" { // a fake testing.TB has to have it
				check("function", f.Name)
			}
			continue
		}
		ast.Inspect(decl, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.TypeSpec:
				check("type", n.Name)
			case *ast.ValueSpec:
				for _, id := range n.Names {
					check("name", id)
				}
			case *ast.Field:
				for _, id := range n.Names {
					check("field", id)
				}
			}
			return true
		})
	}
	return found
}

func TestNamesSaySomething(t *testing.T) {
	for _, s := range sources(t) {
		for _, fault := range vagueNames(s) {
			t.Errorf("%s, want a name without %q", fault, vague())
		}
	}
	files(t, func(path string) {
		for part := range strings.SplitSeq(path, "/") {
			if isVague(part) && strings.HasSuffix(path, ".go") {
				t.Errorf("%s: a path has a word of %q", path, vague())
			}
		}
	})
}

func TestTooLong(t *testing.T) {
	function := func(lines int) string { return "package p\nfunc F() {" + strings.Repeat("\n", lines-1) + "}\n" }
	tests := []struct {
		name, path, text string
		want             int
	}{
		{"function at the limit", "x.go", function(70), 0},
		{"function over it", "x.go", function(71), 1},
		{"test function over it", "x_test.go", function(71), 0},
		{"file at the limit", "x.go", "package p\n" + strings.Repeat("\n", 399), 0},
		{"file over it", "x.go", "package p\n" + strings.Repeat("\n", 400), 1},
		{"both", "x.go", function(500), 2},
	}
	for _, tt := range tests {
		s, err := parse(tt.path, tt.text)
		if err != nil {
			t.Fatal(err)
		}
		if got := tooLong(s); len(got) != tt.want {
			t.Errorf("%s: tooLong = %q, want %d", tt.name, got, tt.want)
		}
	}
}

func TestUnseenSkips(t *testing.T) {
	tests := []struct {
		path, body string
		want       int
	}{
		{"grade/x_test.go", `t.Skip("no")`, 1},
		{"grade/x_test.go", `t.Skipf("no"); t.SkipNow()`, 2},
		{"grade/x_test.go", `f := t.Skip; f()`, 1},
		{"grade/x_test.go", `t.Log("t.Skip"); _ = fs.SkipDir`, 0},
		{"internal/host/host.go", `t.Skip("no")`, 0},
		{"internal/host/testrun/x_test.go", `t.Skip("no")`, 1},
	}
	for _, tt := range tests {
		s, err := parse(tt.path, "package p\nfunc TestX(t *testing.T) {"+tt.body+"}")
		if err != nil {
			t.Fatal(err)
		}
		if got := unseenSkips(s); len(got) != tt.want {
			t.Errorf("unseenSkips(%s: %s) = %q, want %d", tt.path, tt.body, got, tt.want)
		}
	}
	scripts := []struct {
		text string
		want bool
	}{{"exec a\nskip\n", true}, {"[!root] skip 'no root'\n", true}, {"[a] [b] stop\n", true}, {"stdout skip\n# skip\nskipped\n", false}}
	for _, tt := range scripts {
		if got := scriptSkip.MatchString(tt.text); got != tt.want {
			t.Errorf("scriptSkip.MatchString(%q) = %v, want %v", tt.text, got, tt.want)
		}
	}
}

func TestVagueNames(t *testing.T) {
	tests := []struct {
		text string
		want int
	}{
		{`package util`, 1},
		{`package p; type T struct{}; func (T) Helper() {}`, 1},
		{`package p; func NewHelper() {}`, 1},
		{`package p; type RunManager struct { base int; Base64 string }`, 2},
		{`package p; type T struct{}; func (T) utilCount() {}`, 1},
		{`package p; var common_words = 1; const x, helperX = 1, 2`, 2},
		{`package p; import "path/filepath"; func F(p string) string { return filepath.Base(p) }`, 0},
		{`package p; func Utility() {}; var baseline, Managed, database = 1, 2, 3`, 0},
	}
	for _, tt := range tests {
		s, err := parse("x.go", tt.text)
		if err != nil {
			t.Fatal(err)
		}
		if got := vagueNames(s); len(got) != tt.want {
			t.Errorf("vagueNames(%s) = %q, want %d", tt.text, got, tt.want)
		}
	}
	if got, want := words("parseHTTPBase_url.go"), []string{"parse", "http", "base", "url", "go"}; !slices.Equal(got, want) {
		t.Errorf("words(parseHTTPBase_url.go) = %q, want %q", got, want)
	}
}
