package grade

import (
	"fmt"
	"strings"

	"github.com/checkcell/checkcell/sandbox"
)

// For grades ev by the execution of its check; nil is a check that was never
// executed. It follows the order of precedence of the grading rules, section 3.
func For(ev Evidence, e *Execution) Grade {
	if g, refused := Refuse(ev); refused {
		return g
	}
	if e == nil {
		return Grade{}
	}
	if g, stopped := e.stop("check", "the wall limit (timeout)"); stopped {
		return g
	}
	expect, output := decode(ev.Expect), e.output()
	code, known := e.Outcome.ExitCode()
	if !known {
		return e.unknown("check")
	}
	if code != 0 {
		return refutation(*e, expect, output)
	}
	if g, refused := refuseExpectation(ev); refused {
		return g
	}
	switch {
	case strings.Contains(output, expect): // also where nothing is expected
		return Grade{Verdict: Verified}
	case output == "":
		return Grade{Verdict: SilentCheck}
	}
	return refutation(*e, expect, output)
}

// ForSyntax grades the syntax pass. Where bash accepted the check, passed is
// true and g says nothing yet. The cell's cleanup is not looked at: the check
// runs in the same cell afterwards.
func ForSyntax(r sandbox.Result) (g Grade, passed bool) {
	const subject = "syntax pass"
	e := Observed(r)
	code, exited := e.Outcome.ExitCode()
	if exited && code == 0 {
		return Grade{}, true
	}
	if exited {
		said := because(e.Stderr)
		if said == "" {
			said = ", and bash said nothing"
		}
		g, _ = refuse(InvalidShellSyntax, "bash can't parse the check (bash -n ended with status %d)%s", code, said)
		return g, false
	}
	if g, stopped := e.stop(subject, "its wall limit (parse-timeout)"); stopped {
		return g, false
	}
	return e.unknown(subject), false
}

// refutation grades a check that ran to its end and did not bear out the claim:
// rule R7. An error that the expectation predicts is part of the claim; any
// other sign that the check did not reach its input, or met a limit, takes the
// word from it.
func refutation(e Execution, expect, output string) Grade {
	if _, predicted := findSignature(expect); predicted {
		return Grade{Verdict: Contradicted}
	}
	if at, found := findSignature(output); found {
		note := fmt.Sprintf("the check did not reach what it needs; it printed %q (%s)", cut(at.line), at.text)
		return Grade{Unrunnable, UnreachedInput, note}
	}
	if note, hit := e.hit(); hit {
		return Grade{Unrunnable, Limit, note}
	}
	return Grade{Verdict: Contradicted}
}
