package claims_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/checkcell/checkcell/grade"
	"github.com/checkcell/checkcell/internal/claims"
)

// The first pass finds every problem and what the claims share; nothing runs
// before it is over. The second one takes the claims one by one.
func Example() {
	stdin := strings.NewReader(`{"id":"a","title":"One","rung":4,"check":"./m","expect":"x=1"}
{"id":"b","title":"Two","rung":4,"check":"./m","expect":"x=1"}
{"id":"c","title":"Three","rung":4,"check":"echo x=1","expect":"x=1"}
`)
	sources, err := claims.Open([]string{"-"}, stdin)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() {
		if err := claims.Close(sources); err != nil {
			fmt.Println(err)
		}
	}()
	var batch grade.Batch
	for c, err := range claims.Read(context.Background(), sources) {
		if err != nil {
			fmt.Println(err)
			return
		}
		batch.Add(c.ID, c.Title, c.Evidence)
	}
	for c := range claims.Read(context.Background(), sources) {
		g, refused := grade.Refuse(c.Evidence)
		shared, _, _ := batch.Shared(c.Title, c.Evidence)
		fmt.Println(c.ID, refused, g.NoteKind, shared)
	}
	// Output:
	// a false  [a b]
	// b false  [a b]
	// c true CONSTANT_EMITTER []
}

func ExampleReadPage() {
	page := claims.ReadPage([]byte("---\nrung: 4\ncheck: cat /home/u/rows.txt\nexpect: 17\n---\n# Rows\n"))
	fmt.Println(page.HasClaim, page.Evidence.Check)
	for _, f := range page.Findings {
		fmt.Println(f)
	}
	// Output:
	// true cat /home/u/rows.txt
	// ungradeable-evidence:NO_EXPECTATION
	// missing-evidence-path
	// nonportable-evidence:check
}
