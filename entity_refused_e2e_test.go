package perdure_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

func TestRefusedMessagesOfAnEntity(t *testing.T) {
	t.Parallel()
	sig, nobody := perdure.NewSignal[int]("sig"), perdure.DeclareWorkflow[string, string]("nobody")
	boxes := perdure.NewEntity[int]("box")

	send := perdure.NewOperation(boxes, "send", func(ctx perdure.EntityCtx, n *int, by int) (int, error) {
		*n += by
		return *n, sig.Send(ctx, nobody.Execution(perdure.RawKey("k")), by)
	})

	with(t, func(t *testing.T, c perdure.Client, app *perdure.App) {
		got, err := send.Call(c, "b", 3)
		want(t, got, err, 3)
		synctest.Wait()
		var found []string
		for l, err := range app.DeadLetters(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			found = append(found, fmt.Sprintf("%s to %s: %s", l.Kind, l.Target, l.Reason))
		}
		want(t, strings.Join(found, "; "), nil, "signal to nobody/k: execution nobody/k does not exist")
	}, boxes)
}

// The sender of a call learns only that the call is stored. So the call must not vanish if the
// build that receives it cannot run it.
func TestSentCallsThatABuildCannotMake(t *testing.T) {
	t.Parallel()
	url := "file:" + filepath.Join(t.TempDir(), "boxes.db")
	counts, names := perdure.NewEntity[int]("box"), perdure.NewEntity[string]("box")

	add := perdure.NewOperation(counts, "add", func(_ perdure.EntityCtx, n *int, by int) (int, error) {
		if *n += by; *n > 10 {
			return 0, errors.New("it is full") // the call ran, and its reply is dropped
		}
		return *n, nil
	})

	perdure.NewOperation(names, "add", func(_ perdure.EntityCtx, s *string, by int) (int, error) { return len(*s), nil })
	remove := perdure.DeclareOperation[int, int]("box", "remove")
	send := func(build perdure.Definition, op *perdure.Operation[int, int], n int) string {
		app, err := embedded.Open(t.Context(), url, build)
		if err != nil {
			t.Fatal(err)
		}
		defer app.Close()
		c := app.With(t.Context())
		if err := op.Send(c, "b", n); err != nil {
			t.Fatal(err)
		}

		_, _ = op.Call(c, "b", 0) // runs after the call above
		var found []string
		for l, err := range app.DeadLetters(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			found = append(found, fmt.Sprintf("%s to %s: %s", l.Kind, l.Target, l.Reason))
		}

		return strings.Join(found, "; ")
	}

	want(t, send(counts, add, 4), nil, "")
	want(t, send(counts, add, 40), nil, "")
	missing := `call to entity:box/b: box has no "remove" in this build: it has add`
	want(t, send(counts, remove, 1), nil, missing)
	unreadable := "; call to entity:box/b: the state of box/b cannot be read by this build, so it is not changed: "
	if got := send(names, add, 1); !strings.HasPrefix(got, missing+unreadable) {
		t.Errorf("dead letters: %s", got)
	}
}
