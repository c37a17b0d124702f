package claims

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/checkcell/checkcell/sandbox"
)

func settingsOf(t *testing.T, object string) (Settings, map[string]bool) {
	t.Helper()
	got, errs := readText("c.jsonl", object)
	if len(errs) > 0 || len(got) != 1 {
		t.Fatalf("Read(%s) = %d claims, %v", object, len(got), errs)
	}
	extra := map[string]bool{}
	for key := range got[0].Extra {
		extra[key] = true
	}
	return got[0].Settings, extra
}

func TestSettings(t *testing.T) {
	want := Settings{
		Image:        Set("py@sha256:0"),
		Timeout:      Set(90 * time.Second),
		ParseTimeout: Set(1500 * time.Millisecond),
		CPUTime:      Set(sandbox.At(20 * time.Second)),
		CPUs:         Set(sandbox.At(0.5)),
		Memory:       Set(sandbox.At(64 * sandbox.MiB)),
		PIDs:         Set(sandbox.At[int64](16)),
		StdoutCap:    Set(2 * sandbox.MiB),
		StderrCap:    Set(sandbox.Bytes(4096)),
		Disk:         Set(sandbox.GiB),
		Inodes:       Set[int64](1000),
		NoFile:       Set[int64](256),
	}
	for _, object := range []string{
		`{"rung":1,"image":"py@sha256:0","timeout":"1m30s","parse-timeout":"1.5s","cpu-time":"20s","cpus":"0.5","memory":"64MiB","pids":"16","stdout-cap":"2M","stderr-cap":"4096","disk":"1GiB","inodes":"1000","nofile":"256"}`,
		`{"rung":1,"image":"py@sha256:0","timeout":90,"parse_timeout":1.5,"cpu_time":20,"cpus":0.5,"memory":67108864,"pids":16,"stdout_cap":2097152,"stderr_cap":4096,"disk":1073741824,"inodes":1000,"nofile":256}`,
	} {
		got, extra := settingsOf(t, object)
		if got != want || len(extra) > 0 {
			t.Errorf("Read(%s).Settings = %+v with extra %v, want %+v", object, got, extra, want)
		}
	}
	l := want.Over(sandbox.DefaultLimits())
	wantLimits := sandbox.Limits{Wall: 90 * time.Second, Parse: 1500 * time.Millisecond, CPUTime: sandbox.At(20 * time.Second), CPUs: sandbox.At(0.5),
		Memory: sandbox.At(64 * sandbox.MiB), Processes: sandbox.At[int64](16), Stdout: 2 * sandbox.MiB, Stderr: 4096, Disk: sandbox.GiB, Inodes: 1000, OpenFiles: 256}
	if l != wantLimits {
		t.Errorf("Over(defaults) = %+v, want %+v", l, wantLimits)
	}
}

func TestSettingsUnlimitedAndAbsent(t *testing.T) {
	got, extra := settingsOf(t, `{"rung":1,"cpu-time":"unlimited","cpus":"unlimited","memory":"unlimited","pids":"unlimited","timeout":null,"time-out":"1s"}`)
	l := got.Over(sandbox.DefaultLimits())
	if l.CPUTime.String()+l.CPUs.String()+l.Memory.String()+l.Processes.String() != "unlimitedunlimitedunlimitedunlimited" {
		t.Errorf("Over(defaults) = %+v, want the four unlimited", l)
	}
	if _, set := got.Timeout.Value(); set || l.Wall != 30*time.Second {
		t.Errorf("timeout null: set %v, wall %v, want what was there", set, l.Wall)
	}
	if len(extra) != 1 || !extra["time-out"] {
		t.Errorf("extra keys %v, want time-out alone", extra)
	}
	var none Settings
	if got := none.Over(sandbox.DefaultLimits()); got != sandbox.DefaultLimits() {
		t.Errorf("zero Settings over the defaults = %+v, want the defaults", got)
	}
}

func TestScalars(t *testing.T) {
	for _, tt := range []struct {
		raw  string
		want time.Duration
		ok   bool
	}{
		{`"1h2m"`, 62 * time.Minute, true},
		{`0.25`, 250 * time.Millisecond, true},
		{`-2`, -2 * time.Second, true}, // refused later, by name
		{`1e2`, 100 * time.Second, true},
		{`9e9`, 9e9 * time.Second, true},
		{`1e10`, 0, false},
		{`"1e2"`, 0, false},
		{`""`, 0, false},
		{`[]`, 0, false},
		{`null`, 0, true},
	} {
		var got Setting[time.Duration]
		err := read(&got, json.RawMessage(tt.raw), duration)
		value, set := got.Value()
		if (err == nil) != tt.ok || value != tt.want || set != (tt.ok && tt.raw != "null") {
			t.Errorf("read(%s) = %v, %v, %v, want %v, without error: %v", tt.raw, value, set, err, tt.want, tt.ok)
		}
	}
	for _, tt := range []struct {
		raw  string
		want sandbox.Bytes
		ok   bool
	}{
		{`"1MiB"`, sandbox.MiB, true},
		{`"1kB"`, 1000, true},
		{`4096`, 4096, true},
		{`1e3`, 0, false},
		{`"much"`, 0, false},
		{`true`, 0, false},
	} {
		var got Setting[sandbox.Bytes]
		err := read(&got, json.RawMessage(tt.raw), size)
		if value, set := got.Value(); (err == nil) != tt.ok || value != tt.want || set != tt.ok {
			t.Errorf("read(%s) = %v, %v, %v, want %v, without error: %v", tt.raw, value, set, err, tt.want, tt.ok)
		}
	}
}
