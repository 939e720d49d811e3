package e2e_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/perdure/perdure"
)

// An operator finds an entity, interrupts its operation, reads its log and edits its state. On
// PostgreSQL the operator is another process, which neither owns the entity nor has its code.
func TestOperatorRepairsAnEntity(t *testing.T) {
	t.Parallel()
	onStores(t, kinds, func(t *testing.T, s *site) {
		began := make(chan struct{}, 1)
		tanks := perdure.NewEntity[int]("tank", perdure.OperationLog(5), perdure.OperationTimeout(time.Hour))
		fill := perdure.NewOperation(tanks, "fill", func(_ perdure.EntityCtx, liters *int, n int) (int, error) {
			*liters += n
			return *liters, nil
		})
		stir := perdure.NewOperation(tanks, "stir", func(ctx perdure.EntityCtx, liters *int, _ perdure.Void) (int, error) {
			*liters = -1
			began <- struct{}{}
			<-ctx.Context().Done()
			return 0, context.Cause(ctx.Context())
		})
		app := s.open(tanks)
		operator := app
		if s.kind == "postgres" {
			operator = s.open()
		}
		c, ctx, ref := caller(t, app), t.Context(), tanks.Ref("north")
		for _, key := range []string{"north", "south", "north"} {
			if _, err := fill.Call(c, key, 5); err != nil {
				t.Fatal(err)
			}
		}

		// Interrupt: only one call runs, and an edit must wait for its end.
		failed := make(chan error, 1)
		go func() {
			_, err := stir.Call(c, "north", perdure.Void{})
			failed <- err
		}()
		<-began
		seen, err := operator.Entities().Describe(ctx, ref)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := operator.Entities().Edit(ctx, ref, seen.Version, []byte("7")); !errors.Is(err, perdure.ErrConflict) {
			t.Errorf("an edit while an operation runs: %v", err)
		}
		running, err := operator.Mailboxes().Interrupt(ctx, ref, "")
		if err != nil || len(running) != 1 || running[0].Operation != "stir" {
			t.Fatalf("%+v, %v", running, err)
		}
		if err := <-failed; !errors.Is(err, perdure.ErrInterrupted) {
			t.Errorf("the interrupted call: %v", err)
		}
		if _, err := operator.Mailboxes().Interrupt(ctx, ref, ""); !errors.Is(err, perdure.ErrNotFound) {
			t.Errorf("an interrupt when nothing runs: %v", err)
		}

		// The log says what has happened, and the entity has the state of the last successful
		// operation.
		var log []perdure.OperationRecord
		for end, next := time.Now().Add(patience), backoff(); len(log) < 3; next() {
			if seen, err = operator.Entities().Describe(ctx, ref); err != nil || time.Now().After(end) {
				t.Fatalf("%+v, %v", seen, err)
			}
			log = seen.Log
		}
		if last := log[2]; last.Operation != "stir" || !errors.Is(last.Err, perdure.ErrInterrupted) || log[1].Err != nil || string(seen.State) != "10" {
			t.Errorf("the state is %s, the log %+v", seen.State, log)
		}

		// Edit.
		made, err := operator.Entities().Edit(ctx, ref, seen.Version, []byte("100"))
		if err != nil || made == seen.Version {
			t.Fatalf("%q, %v", made, err)
		}
		if _, err := operator.Entities().Edit(ctx, ref, seen.Version, []byte("1")); !errors.Is(err, perdure.ErrConflict) {
			t.Errorf("an edit of an old version: %v", err)
		}
		if _, err := operator.Entities().Edit(ctx, ref, made, []byte("1}")); !errors.Is(err, perdure.ErrInvalid) {
			t.Errorf("an edit with a bracket too many: %v", err)
		}
		if n, err := fill.Call(c, "north", 1); n != 101 || err != nil {
			t.Errorf("after the edit: %d, %v", n, err)
		}

		// Find.
		var found []string
		for info, err := range operator.Entities().Find(ctx, perdure.EntityFilter{Type: "tank", MinVersion: 2, ChangedFrom: time.Now().Add(-time.Hour)}) {
			if err != nil {
				t.Fatal(err)
			}
			found = append(found, info.Ref.Key)
		}
		if len(found) != 1 || found[0] != "north" {
			t.Errorf("found %q", found)
		}
	})
}

// An operator can find calls of entities whose code no process has.
func TestFindWaitingEntities(t *testing.T) {
	t.Parallel()
	onStores(t, kinds, func(t *testing.T, s *site) {
		app := s.open()
		c, ctx := caller(t, app), t.Context()
		fill := perdure.DeclareOperation[int, int]("tank", "fill")
		for _, key := range []string{"a", "b", "c"} {
			if err := fill.Send(c, key, 1); err != nil {
				t.Fatal(err)
			}
		}

		found := map[string]int{}
		for info, err := range app.Entities().Find(ctx, perdure.EntityFilter{Waiting: true}) {
			if err != nil || info.Exists {
				t.Fatalf("%+v, %v", info, err)
			}
			found[info.Ref.Key]++
		}
		if len(found) != 3 || found["a"] != 1 || found["b"] != 1 || found["c"] != 1 {
			t.Errorf("found %v", found)
		}
	})
}
