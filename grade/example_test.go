package grade_test

import (
	"fmt"

	"github.com/checkcell/checkcell/grade"
	"github.com/checkcell/checkcell/sandbox"
)

// The grade of a claim from its evidence and what its check did.
func ExampleFor() {
	evidence := grade.Evidence{Rung: 4, Check: "wc -l <rows.csv", Expect: "42"}
	for _, e := range []*grade.Execution{
		{Outcome: sandbox.Exited(0), Stdout: "42\n"},
		{Outcome: sandbox.Exited(0), Stdout: "41\n"},
		{Outcome: sandbox.Exited(0)},
		{Outcome: sandbox.Exited(1), Stderr: "bash: line 1: rows.csv: No such file or directory\n"},
		{Outcome: sandbox.Signaled(9), Stdout: "42\n"},
		{}, // nothing is known of the run
		nil,
	} {
		g := grade.For(evidence, e)
		fmt.Printf("%v %q\n", g.Verdict, g.NoteKind)
	}
	// Output:
	// verified ""
	// contradicted ""
	// silent-check ""
	// unrunnable "UNREACHED_INPUT"
	// unrunnable "SIGNALED"
	// unrunnable "UNKNOWN_STATUS"
	// unrunnable ""
}

// The note names what is at fault.
func ExampleFor_note() {
	g := grade.For(grade.Evidence{Rung: 4, Check: "./measure", Expect: "fast"},
		&grade.Execution{Outcome: sandbox.LimitExceeded(sandbox.ResourceMemory)})
	fmt.Println(g.Note)
	// Output:
	// the check used up its limit memory and was killed
}

// A check that comes out the same whatever is true is refused before it is run.
// Below rung 4 nothing is refused.
func ExampleRefuse() {
	for _, evidence := range []grade.Evidence{
		{Rung: 4, Check: "echo 'all tests pass'", Expect: "all tests pass"},
		{Rung: 4, Check: "make test; echo passed", Expect: "passed"},
		{Rung: 4, Check: "make test", Expect: "ok"},
		{Rung: 3, Check: "true"},
	} {
		g, refused := grade.Refuse(evidence)
		fmt.Printf("%v %q\n", refused, g.NoteKind)
	}
	// Output:
	// true "CONSTANT_EMITTER"
	// true "SELF_CERTIFYING"
	// false ""
	// false ""
}

// A claim can be looked at when it is recorded, before there is any execution.
func ExampleAtRecord() {
	g, refused := grade.AtRecord(grade.Evidence{Rung: 5, Check: "python3 derive.py", Expect: "a=1\nb=2"})
	fmt.Println(refused, g.NoteKind)
	fmt.Println(g.Note)
	// Output:
	// true MULTILINE_EXPECTATION
	// the expectation "a=1\nb=2" holds a line break; at rung 5 it must be one line
}

// Claims that say the same thing twice, and claims that lean on one check.
func ExampleBatch() {
	ev := grade.Evidence{Rung: 4, Check: "wc -l <rows.csv", Expect: "42"}
	claims := []struct{ id, title string }{{"a", "There are 42 rows"}, {"b", "There are  42 ROWS"}, {"c", "The import is complete"}}
	var batch grade.Batch
	for _, c := range claims {
		batch.Add(c.id, c.title, ev)
	}
	for _, c := range claims {
		of, duplicate := batch.Duplicate(c.id, c.title, ev, grade.Verified)
		shared, count, _ := batch.Shared(c.title, ev)
		fmt.Println(c.id, duplicate, of, shared, count)
	}
	fmt.Println(batch.SharedTotals())
	// Output:
	// a false  [a b c] 3
	// b true a [a b c] 3
	// c false  [a b c] 3
	// 3 1
}
