package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/checkcell/checkcell/internal/attack"
)

func TestAttackLines(t *testing.T) {
	findings := []attack.Finding{
		{Case: attack.Case{Name: "a", Family: "escape"}, Standing: attack.Held},
		{Case: attack.Case{Name: "b", Family: "resources"}, Standing: attack.Limited, Detail: "refused forks: 7"},
		{Case: attack.Case{Name: "c", Family: "escape"}, Standing: attack.GotThrough, Detail: "it printed \x1b[2J"},
		{Case: attack.Case{Name: "d", Family: "escape"}, Detail: "no python3"},
	}
	tests := []struct {
		json bool
		want string
	}{
		{false, "held         escape          a\n" +
			"limited      resources       b  (refused forks: 7)\n" +
			`got through  escape          c  (it printed \x1b[2J)` + "\n" +
			"not tried    escape          d  (no python3)\n" +
			"4 attacks: 1 held, 1 limited, 1 got through, 1 not tried\n"},
		{true, `{"name":"a","family":"escape","standing":"held","detail":""}` + "\n" +
			`{"name":"b","family":"resources","standing":"limited","detail":"refused forks: 7"}` + "\n" +
			`{"name":"c","family":"escape","standing":"got through","detail":"it printed \u001b[2J"}` + "\n" +
			`{"name":"d","family":"escape","standing":"not tried","detail":"no python3"}` + "\n" +
			`{"summary":{"held":1,"limited":1,"got_through":1,"not_tried":1}}` + "\n"},
	}
	for _, tt := range tests {
		var out bytes.Buffer
		counts, err := attackLines(streams{nil, &out, nil}, slices.Values(findings), tt.json)
		if out.String() != tt.want || err != nil || counts != (attackCounts{1, 1, 1, 1}) {
			t.Errorf("attackLines(json %v) = %+v, %v and prints\n%s, want\n%s", tt.json, counts, err, out.String(), tt.want)
		}
		if _, err := attackLines(streams{nil, fullWriter{}, nil}, slices.Values(findings), tt.json); err == nil {
			t.Errorf("attackLines(json %v) to a full disk has no error", tt.json)
		}
		if _, err := attackLines(streams{nil, fullWriter{}, nil}, slices.Values(findings[:0]), tt.json); err == nil {
			t.Errorf("the summary of attackLines(json %v) to a full disk has no error", tt.json)
		}
	}
}

func TestAttackCode(t *testing.T) {
	tests := []struct {
		counts attackCounts
		want   int
	}{
		{attackCounts{Held: 1}, exitOK},
		{attackCounts{Limited: 1}, exitOK},
		{attackCounts{Held: 1, Limited: 1, GotThrough: 1}, exitContradicted},
		{attackCounts{GotThrough: 1, NotTried: 1}, exitContradicted},
		{attackCounts{Held: 1, NotTried: 1}, exitCannot},
		{attackCounts{NotTried: 1}, exitCannot},
		{attackCounts{}, exitCannot},
	}
	for _, tt := range tests {
		if got := tt.counts.code(); got != tt.want {
			t.Errorf("%+v.code() = %d, want %d", tt.counts, got, tt.want)
		}
	}
}

// Flags of the cell mean nothing to a trial cell, and bad ones nothing at all.
func TestDoctorRefuses(t *testing.T) {
	tests := []struct {
		args []string
		want string
	}{
		{[]string{"doctor", "--memory=64MiB", "--pids=7"}, "--memory is for --attack"},
		{[]string{"doctor", "--memory=64MiB", "--pids=7"}, "--pids is for --attack"},
		{[]string{"doctor", "--attack", "--memory=0"}, "--memory"},
		{[]string{"doctor", "--attack", "--workspace=/tmp"}, "the attacks bring their own"},
		{[]string{"doctor", "--attack", "--network=host"}, "--network"},
		{[]string{"doctor", "everything"}, "everything"},
	}
	for _, tt := range tests {
		var out, errs bytes.Buffer
		code := run(t.Context(), tt.args, streams{strings.NewReader(""), &out, &errs})
		if code != exitUsage || !strings.Contains(errs.String(), tt.want) || out.Len() != 0 {
			t.Errorf("run(%q) = %d with stderr %q, stdout %q, want %d, %q, nothing", tt.args, code, errs.String(), out.String(), exitUsage, tt.want)
		}
	}
}
