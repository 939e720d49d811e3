package cli_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
	"github.com/perdure/perdure/internal/model"
)

// An operator shows, skips and drops signals in a file that no program has open.
func TestSignalsOfAFile(t *testing.T) {
	t.Parallel()
	url := "file:" + filepath.Join(t.TempDir(), "signals.db")
	never, word := perdure.NewSignal[int]("never"), perdure.NewSignal[string]("word")
	waits := perdure.NewWorkflow("waits", func(ctx perdure.WorkflowCtx, _ string) (int, error) { return never.Receive(ctx) })
	app, err := embedded.Open(t.Context(), url, waits)
	if err != nil {
		t.Fatal(err)
	}
	x, err := waits.Start(app.With(t.Context()), "", perdure.RawKey("w"))
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"a", "b", "c", "d"} {
		if err := word.Send(app.With(t.Context()), x, text, perdure.RequestID(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := app.Close(); err != nil {
		t.Fatal(err)
	}

	do := on(t, url)
	list := func() (ids, requests []string) {
		t.Helper()
		return waitingOf(t, do("", 0, "workflow", "signals", "waits/w", "-o", "json"))
	}
	ids, _ := list()
	do(`"a"`, 0, "workflow", "signals", "show", "waits/w", ids[0])
	do("moved signal "+ids[0]+" of waits/w behind the others of its name; its new id is ", 0, "workflow", "signals", "skip", "waits/w", ids[0])
	for range 2 { // the same request, repeated
		do("dropped signal word "+ids[1]+" of waits/w", 0, "workflow", "signals", "drop", "waits/w", ids[1], "--reason", "twice", "--request-id", "r")
	}
	do("was used for", 4, "workflow", "signals", "drop", "waits/w", ids[2], "--reason", "twice", "--request-id", "r")
	do("no unread signal", 3, "workflow", "signals", "drop", "waits/w", ids[1])
	if _, requests := list(); strings.Join(requests, "") != "cda" {
		t.Errorf("%q are unread", requests)
	}
	do("add --yes", 2, "workflow", "signals", "drop", "waits/w", "--name", "word")
	do("the id of one signal, or", 2, "workflow", "signals", "drop", "waits/w")
	if out := do("dropped signal", 0, "workflow", "signals", "drop", "waits/w", "--name", "word", "--yes"); strings.Count(out, "dropped signal word ") != 3 {
		t.Errorf("%s", out)
	}
	do("no unread signal", 0, "workflow", "signals", "drop", "waits/w", "--name", "word", "--yes")
	dropMany(t, url, do, waits)
	do("twice", 0, "workflow", "show", "waits/w", "-o", "json")
}

// dropMany drops all signals of two names. Each name has more signals than one commit drops, and
// both together have more signals than a list shows.
func dropMany(t *testing.T, url string, do func(want string, code int, args ...string) string, waits *perdure.Workflow[string, int]) {
	t.Helper()
	app, err := embedded.Open(t.Context(), url, waits)
	if err != nil {
		t.Fatal(err)
	}
	const many = model.MailboxDropped + 10
	for _, name := range []string{"noise", "rest"} {
		var senders sync.WaitGroup
		for i := range 10 {
			senders.Go(func() {
				for range many / 10 {
					err := perdure.NewSignal[int](name).Send(app.With(t.Context()), waits.Execution(perdure.RawKey("w")), i)
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		senders.Wait()
	}
	if err := app.Close(); err != nil {
		t.Fatal(err)
	}

	for _, name := range []string{"rest", "noise"} { // first the name whose signals come last
		do(fmt.Sprintf("dropped %d signals %s of waits/w", many, name), 0, "workflow", "signals", "drop", "waits/w", "--name", name, "--yes")
		do("no unread signal", 0, "workflow", "signals", "drop", "waits/w", "--name", name, "--yes")
	}
}
