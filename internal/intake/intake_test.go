package intake

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/checkcell/checkcell/grade"
	"github.com/checkcell/checkcell/images"
	"github.com/checkcell/checkcell/internal/claims"
	"github.com/checkcell/checkcell/sandbox"
	"github.com/checkcell/checkcell/sandbox/sandboxtest"
	"github.com/google/go-cmp/cmp"
)

// prints is a step that prints out and exits with code.
func prints(out string, code uint8) sandboxtest.Behaviour {
	return sandboxtest.Behaviour{Stdout: []byte(out), End: sandbox.EndExited(code)}
}

// passing is a backend on which every check prints "rows=17" and exits 0.
func passing() *sandboxtest.Fake {
	return &sandboxtest.Fake{Syntax: sandboxtest.Exit0(), Check: prints("rows=17\n", 0)}
}

func pathTo(b sandbox.Backend, jobs int) Path {
	return Path{Runner: &sandbox.Runner{Backend: b}, Limits: sandbox.DefaultLimits(), Jobs: jobs}
}

func claim(id string) claims.Claim {
	return claims.Claim{ID: id, Evidence: grade.Evidence{Rung: 4, Check: "./count.sh", Expect: "rows=17"}}
}

func TestOne(t *testing.T) {
	at := func(rung int, check, expect string) claims.Claim {
		return claims.Claim{ID: "c", Evidence: grade.Evidence{Rung: rung, Check: check, Expect: expect}}
	}
	asks := func(image string) claims.Claim {
		c := claim("c")
		c.Settings.Image = claims.Set(image)
		return c
	}
	whole := []string{"create", "start syntax pass", "start check", "kill", "collect", "destroy"}
	syntaxOnly := []string{"create", "start syntax pass", "kill", "collect", "destroy"}
	lateStreams := sandboxtest.Exit0()
	lateStreams.KeepOpen = true
	tests := []struct {
		name          string
		claim         claims.Claim
		fake          *sandboxtest.Fake
		verdict       grade.Verdict
		kind          grade.NoteKind
		parse, result bool
		calls         []string // of the backend; collect is called once a step
	}{
		{"verified", claim("c"), passing(), grade.Verified, grade.NoNote, true, true, whole},
		{"contradicted", claim("c"), &sandboxtest.Fake{Syntax: sandboxtest.Exit0(), Check: prints("rows=9", 0)}, grade.Contradicted, grade.NoNote, true, true, whole},
		{"silent", claim("c"), &sandboxtest.Fake{Syntax: sandboxtest.Exit0(), Check: prints("", 0)}, grade.SilentCheck, grade.NoNote, true, true, whole},
		{"constant emitter", at(4, "echo rows=17", "rows=17"), passing(), grade.Uncheckable, grade.ConstantEmitter, false, false, nil},
		{"no check at rung 4", at(4, "", "rows=17"), passing(), grade.Uncheckable, grade.NoCheck, false, false, nil},
		{"self-certifying", at(5, "./x.sh | grep rows=17", "rows=17"), passing(), grade.Uncheckable, grade.SelfCertifying, false, false, nil},
		{"no check below rung 4", at(3, "", "rows=17"), passing(), grade.Unrunnable, grade.NoNote, false, false, nil},
		{"blank check below rung 4", at(1, " \t", ""), passing(), grade.Unrunnable, grade.NoNote, false, false, nil},
		{"blank check at rung 4 is run", at(4, "   ", "rows=17"), &sandboxtest.Fake{Syntax: sandboxtest.Exit0(), Check: prints("", 0)}, grade.SilentCheck, grade.NoNote, true, true, whole},
		{"constant below rung 4 is run", at(3, "true", ""), passing(), grade.Verified, grade.NoNote, true, true, whole},
		{"syntax", claim("c"), &sandboxtest.Fake{Syntax: prints("", 2)}, grade.Uncheckable, grade.InvalidShellSyntax, true, false, syntaxOnly},
		{"syntax below rung 4", at(2, "if", ""), &sandboxtest.Fake{Syntax: prints("", 2)}, grade.Uncheckable, grade.InvalidShellSyntax, true, false, syntaxOnly},
		{"syntax pass lost", claim("c"), &sandboxtest.Fake{}, grade.Unrunnable, grade.UnknownStatus, true, false, syntaxOnly},
		{"syntax pass not started", claim("c"), &sandboxtest.Fake{Syntax: sandboxtest.Behaviour{StartErr: errors.New("no bash")}}, grade.Unrunnable, grade.NotStarted, true, false, syntaxOnly},
		{"syntax pass ends, its streams don't", claim("c"), &sandboxtest.Fake{Syntax: lateStreams}, grade.Unrunnable, grade.NotStarted, true, false, syntaxOnly},
		{"no cell", claim("c"), &sandboxtest.Fake{CreateErr: errors.New("no cgroup")}, grade.Unrunnable, grade.NotStarted, false, true, []string{"create"}},
		{"NUL in the check", at(4, "a\x00b", "rows"), passing(), grade.Unrunnable, grade.NotStarted, false, true, nil},
		{"cell not removed", claim("c"), &sandboxtest.Fake{Syntax: sandboxtest.Exit0(), Check: prints("rows=17", 0), DestroyErr: errors.New("busy")}, grade.Unrunnable, grade.CleanupFailed, true, true, whole},
		{"the host view by name", asks("host"), passing(), grade.Verified, grade.NoNote, true, true, whole},
		{"a directory of the host as image", asks("/srv/root"), passing(), grade.Unrunnable, grade.NotStarted, false, true, nil},
		{"the host's root as image", asks("/"), passing(), grade.Unrunnable, grade.NotStarted, false, true, nil},
		{"a file of the host as image", asks("docker-archive:/srv/a.tar"), passing(), grade.Unrunnable, grade.NotStarted, false, true, nil},
		{"an image that is none", asks("../root"), passing(), grade.Unrunnable, grade.NotStarted, false, true, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := pathTo(tt.fake, 1)
			p.Limits.Parse = 20 * time.Millisecond // what the streams of a syntax pass are waited for
			got := p.One(t.Context(), tt.claim)
			if got.Grade.Verdict != tt.verdict || got.Grade.NoteKind != tt.kind {
				t.Errorf("One(%+v) = %v %v (%s), want %v %v", tt.claim.Evidence, got.Grade.Verdict, got.Grade.NoteKind, got.Grade.Note, tt.verdict, tt.kind)
			}
			if (got.Grade.Note != "") != (tt.kind != grade.NoNote) {
				t.Errorf("One(%+v) has kind %v with note %q, want both or none", tt.claim.Evidence, got.Grade.NoteKind, got.Grade.Note)
			}
			if (got.Parse != nil) != tt.parse || (got.Result != nil) != tt.result {
				t.Errorf("One(%+v) has a syntax pass: %v, a result: %v; want %v, %v", tt.claim.Evidence, got.Parse != nil, got.Result != nil, tt.parse, tt.result)
			}
			if diff := cmp.Diff(tt.calls, once(tt.fake.Calls())); diff != "" {
				t.Errorf("calls of the backend, want - got +:\n%s", diff)
			}
		})
	}
}

// once drops what was called before.
func once(calls []string) []string {
	var out []string
	for _, c := range calls {
		if i := slices.Index(out, c); i >= 0 {
			out = slices.Delete(out, i, i+1) // its last call counts
		}
		out = append(out, c)
	}
	return out
}

// The result of a claim that was refused on the way is a whole one.
func TestNeverStartedIsWhole(t *testing.T) {
	c := claim("c7")
	c.Settings.Image = claims.Set("/etc")
	got := pathTo(passing(), 1).One(t.Context(), c).Result
	if got == nil {
		t.Fatal("One(a claim with a host directory) has no result")
	}
	n, known := got.Leftovers.Value()
	if got.ID != "c7" || got.Backend != "fake" || got.Started.IsZero() || got.Ended.IsZero() || !known || n != 0 {
		t.Errorf("One(a claim with a host directory).Result = %+v, want id, backend, times and no leftovers", *got)
	}
	if got.Success() || got.Terminal() != "start_failed" {
		t.Errorf("its terminal is %s, success %v, want start_failed, false", got.Terminal(), got.Success())
	}
	if detail := got.Outcome.Detail(); !strings.Contains(detail, "/etc") || !strings.Contains(detail, "--image") {
		t.Errorf("its detail is %q, want one that names the directory and the flag", detail)
	}
}

// catcher is a backend that keeps the last spec and makes no cell.
type catcher struct {
	sandboxtest.Fake
	spec sandbox.Spec
}

func (c *catcher) Create(_ context.Context, spec sandbox.Spec) (sandbox.Box, error) {
	c.spec = spec
	return nil, errors.New("no cell here")
}

func TestSpec(t *testing.T) {
	var b catcher
	p := pathTo(&b, 1)
	p.Image, p.Workspace = images.Dir("/srv/root"), "/srv/work"
	p.Env = map[string]string{"A": "b"}
	p.AllowMissing = []sandbox.Control{sandbox.ControlCPU}
	c := claim("id-1")
	c.Files = []sandbox.File{{Path: "in.csv", Content: []byte("1,2")}}
	c.Settings.Timeout = claims.Set(2 * time.Second)
	p.One(t.Context(), c)
	limits := sandbox.DefaultLimits()
	limits.Wall = 2 * time.Second
	want := sandbox.Spec{
		ID: "id-1", Root: images.Dir("/srv/root"), Check: "./count.sh", SyntaxPass: true, Workspace: "/srv/work",
		Files: c.Files, Env: p.Env, Limits: limits, AllowMissing: p.AllowMissing,
	}
	if diff := cmp.Diff(want, b.spec, cmp.AllowUnexported(images.Ref{}, images.Digest{}), limitComparer[time.Duration](), limitComparer[float64](),
		limitComparer[sandbox.Bytes](), limitComparer[int64]()); diff != "" {
		t.Errorf("One gave the backend another spec, want - got +:\n%s", diff)
	}
}

func limitComparer[T ~int64 | ~float64]() cmp.Option {
	return cmp.Comparer(func(a, b sandbox.Limit[T]) bool { return a == b })
}

func TestClamp(t *testing.T) {
	most := sandbox.Limits{
		Wall: 10 * time.Second, Parse: 2 * time.Second, CPUTime: sandbox.At(5 * time.Second), CPUs: sandbox.At(2.0),
		Memory: sandbox.At(64 * sandbox.MiB), Processes: sandbox.At[int64](50), Stdout: 1000, Stderr: 2000,
		Disk: sandbox.MiB, Inodes: 100, OpenFiles: 64,
	}
	open := most
	open.CPUTime, open.CPUs = sandbox.Unlimited[time.Duration](), sandbox.Unlimited[float64]()
	open.Memory, open.Processes = sandbox.Unlimited[sandbox.Bytes](), sandbox.Unlimited[int64]()
	tests := []struct {
		name string
		ask  func(s *claims.Settings, more int) // at most what most has where more is 0, else more than that
		get  func(l sandbox.Limits) any
		less any // what is got where more is 0
	}{
		{"timeout", func(s *claims.Settings, more int) { s.Timeout = claims.Set(time.Duration(3+9*more) * time.Second) },
			func(l sandbox.Limits) any { return l.Wall }, 3 * time.Second},
		{"parse-timeout", func(s *claims.Settings, more int) { s.ParseTimeout = claims.Set(time.Duration(1+9*more) * time.Second) },
			func(l sandbox.Limits) any { return l.Parse }, time.Second},
		{"cpu-time", func(s *claims.Settings, more int) {
			s.CPUTime = claims.Set(sandbox.At(time.Duration(3+9*more) * time.Second))
		}, func(l sandbox.Limits) any { return l.CPUTime }, sandbox.At(3 * time.Second)},
		{"cpus", func(s *claims.Settings, more int) { s.CPUs = claims.Set(sandbox.At(0.5 + float64(9*more))) },
			func(l sandbox.Limits) any { return l.CPUs }, sandbox.At(0.5)},
		{"memory", func(s *claims.Settings, more int) {
			s.Memory = claims.Set(sandbox.At(sandbox.Bytes(1+99*more) * sandbox.MiB))
		}, func(l sandbox.Limits) any { return l.Memory }, sandbox.At(sandbox.MiB)},
		{"pids", func(s *claims.Settings, more int) { s.PIDs = claims.Set(sandbox.At(int64(1 + 99*more))) },
			func(l sandbox.Limits) any { return l.Processes }, sandbox.At[int64](1)},
		{"stdout-cap", func(s *claims.Settings, more int) { s.StdoutCap = claims.Set(sandbox.Bytes(999 + 2*more)) },
			func(l sandbox.Limits) any { return l.Stdout }, sandbox.Bytes(999)},
		{"stderr-cap", func(s *claims.Settings, more int) { s.StderrCap = claims.Set(sandbox.Bytes(1999 + 2*more)) },
			func(l sandbox.Limits) any { return l.Stderr }, sandbox.Bytes(1999)},
		{"disk", func(s *claims.Settings, more int) { s.Disk = claims.Set(sandbox.Bytes(1+more) * sandbox.MiB) },
			func(l sandbox.Limits) any { return l.Disk }, sandbox.MiB},
		{"inodes", func(s *claims.Settings, more int) { s.Inodes = claims.Set(int64(99 + 2*more)) },
			func(l sandbox.Limits) any { return l.Inodes }, int64(99)},
		{"nofile", func(s *claims.Settings, more int) { s.NoFile = claims.Set(int64(63 + 2*more)) },
			func(l sandbox.Limits) any { return l.OpenFiles }, int64(63)},
	}
	for _, tt := range tests {
		var less, more claims.Settings
		tt.ask(&less, 0)
		tt.ask(&more, 1)
		if got, cut := clamp(most, less); tt.get(got) != tt.less || cut != nil {
			t.Errorf("clamp(most, %s below it) = %v, %q, want %v, none", tt.name, tt.get(got), cut, tt.less)
		}
		if got, cut := clamp(most, more); got != most || !slices.Equal(cut, []string{tt.name}) {
			t.Errorf("clamp(most, %s above it) = %+v, %q, want %+v, %q", tt.name, got, cut, most, tt.name)
		}
		if got, cut := clamp(open, less); tt.get(got) != tt.less || cut != nil {
			t.Errorf("clamp(unlimited, %s) = %v, %q, want %v, none", tt.name, tt.get(got), cut, tt.less)
		}
	}
	if got, cut := clamp(most, claims.Settings{}); got != most || cut != nil {
		t.Errorf("clamp(most, nothing) = %+v, %q, want %+v, none", got, cut, most)
	}
}

// A claim that asks for no limit gets one where the caller has one.
func TestClampUnlimited(t *testing.T) {
	asks := claims.Settings{
		CPUTime: claims.Set(sandbox.Unlimited[time.Duration]()), CPUs: claims.Set(sandbox.Unlimited[float64]()),
		Memory: claims.Set(sandbox.Unlimited[sandbox.Bytes]()), PIDs: claims.Set(sandbox.Unlimited[int64]()),
	}
	most := sandbox.DefaultLimits()
	most.CPUTime = sandbox.At(time.Second)
	all := []string{"cpu-time", "cpus", "memory", "pids"}
	if got, cut := clamp(most, asks); got != most || !slices.Equal(cut, all) {
		t.Errorf("clamp(bounded, unlimited) = %+v, %q, want %+v, %q", got, cut, most, all)
	}
	open := asks.Over(most)
	if got, cut := clamp(open, asks); got != open || cut != nil {
		t.Errorf("clamp(unlimited, unlimited) = %+v, %q, want %+v, none", got, cut, open)
	}
	if got, cut := clamp(open, claims.Settings{}); got != open || cut != nil {
		t.Errorf("clamp(unlimited, nothing) = %+v, %q, want %+v, none", got, cut, open)
	}
}

func TestOneSaysWhatWasClamped(t *testing.T) {
	c := claim("c")
	c.Settings.Memory = claims.Set(sandbox.Unlimited[sandbox.Bytes]())
	got := pathTo(passing(), 1).One(t.Context(), c)
	if !slices.Equal(got.Clamped, []string{"memory"}) || got.Grade.Verdict != grade.Verified {
		t.Errorf("One(a claim with unlimited memory) = %v, clamped %q, want verified, memory", got.Grade.Verdict, got.Clamped)
	}
}
