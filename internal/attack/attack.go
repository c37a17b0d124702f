package attack

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"

	"github.com/checkcell/checkcell/sandbox"
)

// Standing is how the cell stood up to a case. The set is closed.
type Standing uint8

// The standings. The zero value is NotTried, which proves nothing.
const (
	NotTried   Standing = iota // the case could not run here
	Held                       // what it tried was refused, or came to nothing
	Limited                    // it was let run, and was ended or kept small by a limit
	GotThrough                 // it did what no check may
)

var standingWords = [...]string{"not tried", "held", "limited", "got through"}

// String returns the word for people and for JSON.
func (s Standing) String() string {
	if int(s) < len(standingWords) {
		return standingWords[s]
	}
	return fmt.Sprintf("Standing(%d)", s)
}

// Finding is what one case came to.
type Finding struct {
	Case     Case
	Standing Standing
	Detail   string // why it is not Held; "" for Held
}

// Attacker tries cases in cells of one kind.
type Attacker struct {
	Runner *sandbox.Runner

	// Spec is the kind of cell. Its check, files and name are the case's, and
	// its limits are the most that a case has.
	Spec sandbox.Spec

	// Bait lies outside the cells while cases are tried. It may be nil.
	Bait *Bait
}

// All tries cases one after the other, so that whoever reaches the bait is
// known. It ends early where the caller withdraws.
func (a Attacker) All(ctx context.Context, cases []Case) iter.Seq[Finding] {
	return func(yield func(Finding) bool) {
		lacking := map[string]string{} // program -> why it can't be used, or ""
		for _, c := range cases {
			f := Finding{Case: c}
			for _, program := range c.Needs {
				if _, known := lacking[program]; !known {
					lacking[program] = a.lacks(ctx, program)
				}
				f.Detail = lacking[program]
			}
			if f.Detail == "" {
				f = a.try(ctx, c)
			}
			if ctx.Err() != nil || !yield(f) {
				return
			}
		}
	}
}

// lacks says why no case in such a cell can use the program; "" if one can.
func (a Attacker) lacks(ctx context.Context, program string) string {
	spec := a.Spec
	spec.ID, spec.Args = "attack-needs-"+program, []string{program, "--version"}
	if r := a.Runner.Run(ctx, spec).Last(); !r.Success() {
		return fmt.Sprintf("the cell has no %s that works: %v", program, r.Outcome)
	}
	return ""
}

// try runs one case, and the run after it.
func (a Attacker) try(ctx context.Context, c Case) Finding {
	f := Finding{Case: c}
	spec := a.Spec
	limits, short, err := c.limits(spec.Limits)
	if err != nil || short != "" {
		f.Detail = strings.Join(append(lines(err), short), "")
		return f
	}
	spec.ID, spec.Check, spec.Args, spec.Files, spec.Limits = "attack-"+c.Name, c.Check, nil, c.files(), limits
	before := a.Bait.taken()
	f.Standing, f.Detail = standing(c.wants(), a.Runner.Run(ctx, spec).Last())
	if c.Next != nil && (f.Standing == Held || f.Standing == Limited) {
		spec.Check = c.Next.Check
		if s, detail := standing([]Want{*c.Next.Want}, a.Runner.Run(ctx, spec).Last()); s == GotThrough || s == NotTried {
			f.Standing, f.Detail = s, "the next run: "+detail
		}
	}
	if taken := a.Bait.taken(); len(taken) > len(before) {
		f.Standing, f.Detail = GotThrough, "the host was reached: "+strings.Join(taken[len(before):], ", ")
	}
	return f
}

// standing reads a result against the answers that are right, and says why it
// is not Held. It is pure.
func standing(wants []Want, r sandbox.Result) (Standing, string) {
	var all []string
	matched := false
	for _, want := range wants {
		err := want.match(r)
		matched = matched || err == nil
		all = append(all, lines(err)...)
	}
	switch kind := r.Outcome.Kind(); {
	case r.Cleanup.State != sandbox.CleanupDone:
		return GotThrough, fmt.Sprintf("the cell could not be removed: cleanup %v: %s", r.Cleanup.State, r.Cleanup.Detail)
	case !matched && (kind == sandbox.KindStartFailed || kind == sandbox.KindCanceled):
		return NotTried, r.Outcome.String()
	case !matched:
		return GotThrough, strings.Join(all, "; ")
	}
	if by := bounds(r); len(by) > 0 {
		return Limited, strings.Join(by, ", ")
	}
	return Held, ""
}

// bounds are the limits that r met.
func bounds(r sandbox.Result) []string {
	var by []string
	switch r.Outcome.Kind() {
	case sandbox.KindTimedOut, sandbox.KindLimitExceeded:
		by = append(by, r.Outcome.String())
	case sandbox.KindUnknown, sandbox.KindExited, sandbox.KindSignaled, sandbox.KindCanceled, sandbox.KindStartFailed:
	}
	u := r.Evidence.Usage
	for _, one := range []struct {
		have sandbox.Reading
		what string
	}{{u.PIDsMaxHits, "refused forks"}, {u.OOMKills, "OOM kills"}, {r.Leftovers, "processes left and killed"}} {
		if n, _ := one.have.Value(); n > 0 {
			by = append(by, fmt.Sprintf("%s: %d", one.what, n))
		}
	}
	return by
}

// lines are the parts of a joined error.
func lines(err error) []string {
	if err == nil {
		return nil
	}
	if joined := (interface{ Unwrap() []error })(nil); errors.As(err, &joined) {
		var all []string
		for _, one := range joined.Unwrap() {
			all = append(all, lines(one)...)
		}
		return all
	}
	return []string{err.Error()}
}
