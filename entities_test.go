package perdure_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/perdure/perdure"
)

// Operators can list entities, read their states, and find out why calls wait for an entity.
func TestEntityInfo(t *testing.T) {
	t.Parallel()
	shelf := perdure.NewEntity[[]string]("shelf")
	put := perdure.NewOperation(shelf, "put", func(_ perdure.EntityCtx, s *[]string, in string) (int, error) {
		*s = append(*s, in)
		return len(*s), nil
	})
	later := perdure.DeclareOperation[string, int]("box", "put")
	onStores(t, perdure.Group{shelf}, func(t *testing.T, c perdure.Client, app *perdure.App) {
		ctx := t.Context()
		for i := range 130 { // more than a page
			if _, err := put.Call(c, fmt.Sprintf("s-%03d", i), "lamp"); err != nil {
				t.Fatal(err)
			}
		}
		list := func(entity, prefix string) (keys []string) {
			t.Helper()
			for n, err := range app.Entities().List(ctx, entity, prefix) {
				if err != nil {
					t.Fatal(err)
				}
				if !n.Exists || string(n.State) != `["lamp"]` || n.StateIs != "8 bytes of json" || n.Created.IsZero() || n.Changed.Before(n.Created) || n.LockedBy != (perdure.Ref{}) {
					t.Errorf("%+v", n)
				}
				keys = append(keys, n.Ref.Type+"/"+n.Ref.Key)
			}
			return keys
		}
		if all := list("", ""); len(all) != 130 || all[0] != "shelf/s-000" || all[129] != "shelf/s-129" {
			t.Errorf("%d entities: %v", len(all), all)
		}
		if some := list("shelf", "s-12"); len(some) != 10 || some[0] != "shelf/s-120" {
			t.Errorf("those that begin with s-12 are %v", some)
		}
		if none := list("box", ""); len(none) != 0 {
			t.Errorf("boxes: %v", none)
		}
		for n, err := range app.Locks().List(ctx, "") {
			t.Errorf("%+v is locked: %v", n, err)
		}

		box := perdure.EntityRef{Type: "box", Key: "b"}
		if n, err := app.Entities().Describe(ctx, box); err != nil || n.Exists || n.Waiting != 0 || n.Reason != "" {
			t.Errorf("a box that was never called: %+v, %v", n, err)
		}
		if err := later.Send(c, "b", "lamp"); err != nil {
			t.Fatal(err)
		}
		n, err := app.Entities().Describe(ctx, box)
		if err != nil || n.Ref != box || n.Exists || n.Waiting != 1 || len(n.Waiters) != 0 || n.Reason != "waits for a worker that offers entity box: no live process has its code" {
			t.Errorf("%+v, %v", n, err)
		}

		for want, err := range map[string]error{
			"is not locked":     app.Locks().Unlock(ctx, box, 7),
			"epoch of the lock": app.Locks().Unlock(ctx, box, 0),
			"is empty":          app.Locks().Unlock(ctx, perdure.EntityRef{Type: "box"}, 7),
		} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v lacks %q", err, want)
			}
		}
		if err := app.Locks().Unlock(ctx, box, 7); !errors.Is(err, perdure.ErrNotFound) {
			t.Error(err)
		}
		if _, err := app.Entities().Describe(ctx, perdure.EntityRef{Key: "b"}); !errors.Is(err, perdure.ErrInvalid) {
			t.Error(err)
		}
		for _, err := range app.Entities().List(ctx, "a\x00", "") {
			if !errors.Is(err, perdure.ErrInvalid) {
				t.Error(err)
			}
		}
	})
}
