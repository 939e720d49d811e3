package perduretest_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/perduretest"
)

// TestEntities calls and locks entities, and calls a service. It does so in ordinary code, in a
// workflow, and as an operator.
func TestEntities(t *testing.T) {
	t.Parallel()
	shelves := perdure.NewEntity[int]("shelf")
	put := perdure.NewOperation(shelves, "put", func(_ perdure.EntityCtx, pieces *int, n int) (int, error) {
		*pieces += n
		return *pieces, nil
	})
	bells := perdure.NewService("bell")
	ring := perdure.NewRPC(bells, "ring", func(ctx perdure.EntityCtx, word string) (string, error) { return ctx.Key() + " " + word, nil })
	tidy := perdure.NewWorkflow("tidy", func(ctx perdure.WorkflowCtx, n int) (string, error) {
		later := put.Go(ctx, "far", n)
		if err := ctx.Lock(perdure.LockSet{shelves.Ref("near")}, func(ctx perdure.WorkflowCtx) error {
			if _, err := put.Call(ctx, "near", -n); err != nil {
				return err
			}
			_, err := poke.Receive(ctx)
			return err
		}); err != nil {
			return "", err
		}
		far, err := later.Get(ctx)
		if err != nil {
			return "", err
		}
		if err := ring.Send(ctx, "door", "hush"); err != nil {
			return "", err
		}
		rang, err := ring.Call(ctx, "door", "done")
		return fmt.Sprint(far, " ", rang), err
	})
	perduretest.Run(t, perdure.Group{shelves, bells, tidy}, func(t *testing.T, env *perduretest.Env) {
		if n, err := put.Call(env.With(), "near", 5); n != 5 || err != nil {
			t.Fatalf("%d, %v", n, err)
		}
		x, err := tidy.Start(env.With(), 2, perdure.RawKey("t"))
		if err != nil {
			t.Fatal(err)
		}
		env.Settle()
		env.Restart()
		ctx, app := env.Context(), env.App()
		if err := put.Send(env.With(), "near", 10); err != nil { // the call waits for the lock
			t.Fatal(err)
		}
		if err := put.Send(env.With(), "near", 5); err != nil {
			t.Fatal(err)
		}

		calls, err := collect(app.Mailboxes().List(ctx, shelves.Ref("near")))
		if err != nil || len(calls) != 2 || calls[0].Operation != "put" {
			t.Fatalf("%+v, %v", calls, err)
		}
		skipped, err := app.Mailboxes().Skip(ctx, shelves.Ref("near"), calls[0].ID)
		if err != nil || skipped.Position != 2 {
			t.Errorf("%+v, %v", skipped, err)
		}
		shown, err := app.Mailboxes().Describe(ctx, shelves.Ref("near"), calls[1].ID)
		if err := errors.Join(err, app.Mailboxes().Drop(ctx, shelves.Ref("near"), calls[1].ID)); err != nil || string(shown.Input) != "5" {
			t.Errorf("%+v, %v", shown, err)
		}
		info, err := app.Entities().Describe(ctx, shelves.Ref("near"))
		if err != nil || info.LockedBy.Key != "t" {
			t.Fatalf("%+v, %v", info, err)
		}

		locked := 0
		for info, err := range app.Locks().List(ctx, "shelf") {
			if locked++; err != nil || info.Ref != shelves.Ref("near") {
				t.Errorf("%+v, %v", info, err)
			}
		}
		if n, exists, err := shelves.Get(env.With(), "near"); n != 3 || !exists || err != nil || locked != 1 {
			t.Errorf("%d, %v, %v, %d are locked", n, exists, err, locked)
		}
		if err := app.Locks().Unlock(ctx, shelves.Ref("near"), info.Epoch); err != nil {
			t.Fatal(err)
		}
		env.Settle()
		if n, _, err := shelves.Get(env.With(), "near"); n != 13 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
		if err := poke.Send(env.With(), x, "go on"); err != nil {
			t.Fatal(err)
		}
		if got, err := x.Result(env.With()); got != "2 door done" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		n := 0
		for _, err := range app.Entities().List(ctx, "shelf", "") {
			if n++; err != nil {
				t.Error(err)
			}
		}
		var rows strings.Builder
		if err := app.Entities().ForceDelete(ctx, shelves.Ref("near"), &rows); err != nil || !strings.Contains(rows.String(), "entities") {
			t.Errorf("forced delete of an entity: %v, exported %q", err, rows.String())
		}
		if n != 2 {
			t.Errorf("%d shelves", n)
		}
	})
}

// TestRepairs finds, edits and interrupts entities as an operator.
func TestRepairs(t *testing.T) {
	t.Parallel()
	shelves := perdure.NewEntity[int]("shelf")
	put := perdure.NewOperation(shelves, "put", func(_ perdure.EntityCtx, pieces *int, n int) (int, error) {
		*pieces += n
		return *pieces, nil
	})
	hang := perdure.NewOperation(shelves, "hang", func(ctx perdure.EntityCtx, _ *int, _ int) (int, error) {
		<-ctx.Context().Done() //perdure:allow channel the test interrupts it
		return 0, context.Cause(ctx.Context())
	})
	perduretest.Run(t, perdure.Group{shelves}, func(t *testing.T, env *perduretest.Env) {
		ctx, app := env.Context(), env.App()
		for key, n := range map[string]int{"a": 1, "b": 2} {
			if _, err := put.Call(env.With(), key, n); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := put.Call(env.With(), "b", 1); err != nil {
			t.Fatal(err)
		}
		found, err := collect(app.Entities().Find(ctx, perdure.EntityFilter{Type: "shelf", MinVersion: 2}))
		if err != nil || len(found) != 1 || found[0].Ref != shelves.Ref("b") {
			t.Fatalf("%+v, %v", found, err)
		}
		if _, err := app.Entities().Edit(ctx, found[0].Ref, found[0].Version, []byte("7")); err != nil {
			t.Fatal(err)
		}
		if _, err := app.Entities().Edit(ctx, found[0].Ref, found[0].Version, []byte("8")); !errors.Is(err, perdure.ErrConflict) {
			t.Errorf("an edit of an old version: %v", err)
		}

		ended := make(chan error, 1)
		go func() {
			_, err := hang.Call(env.With(), "b", 0)
			ended <- err
		}()
		env.Settle()
		if calls, err := app.Mailboxes().Interrupt(ctx, shelves.Ref("b"), ""); err != nil || len(calls) != 1 || calls[0].Operation != "hang" {
			t.Errorf("%+v, %v", calls, err)
		}
		if err := <-ended; !errors.Is(err, perdure.ErrInterrupted) {
			t.Errorf("the call that was interrupted: %v", err)
		}
		if n, _, err := shelves.Get(env.With(), "b"); n != 7 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	})
}

// collect returns the items of a list.
func collect[T any](list iter.Seq2[T, error]) (all []T, err error) {
	for item, err := range list {
		if err != nil {
			return all, err
		}
		all = append(all, item)
	}
	return all, nil
}

// A stream runs in virtual time: its code sleeps for hours between two items.
func TestStreams(t *testing.T) {
	t.Parallel()
	tally := perdure.NewEntity[int]("tally")
	add := perdure.NewOperation(tally, "add", func(_ perdure.EntityCtx, s *int, n int) (int, error) { *s += n; return *s, nil })
	count := perdure.NewStream(tally, "count", func(_ context.Context, s, from int, send func(int) error) error {
		for n := from; n <= s; n++ {
			time.Sleep(time.Hour)
			if err := send(n); err != nil {
				return err
			}
		}
		return nil
	})

	perduretest.Run(t, perdure.Group{tally}, func(t *testing.T, env *perduretest.Env) {
		if _, err := add.Call(env.With(), "k", 4); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		var got []int
		for n, err := range count.Read(env.With(), "k", 2) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, n)
		}
		if want := []int{2, 3, 4}; !slices.Equal(got, want) || time.Since(begin) < 3*time.Hour {
			t.Errorf("the items are %v after %s, want %v", got, time.Since(begin), want)
		}
	})
}
