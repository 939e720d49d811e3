package perduretest_test

import (
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/perduretest"
)

// The state of an entity expires when its time is over, not earlier, even if the process restarts
// before that time. The state does not expire while a workflow holds the lock of the entity. Reads,
// lists and operations agree on whether the state exists.
func TestExpiry(t *testing.T) {
	t.Parallel()
	sessions := perdure.NewEntity[int]("session", perdure.IdleTTL(time.Hour), perdure.TTL(3*time.Hour))
	touch := perdure.NewOperation(sessions, "touch", func(_ perdure.EntityCtx, n *int, by int) (int, error) {
		*n += by
		return *n, nil
	})
	look := perdure.NewView(sessions, "look", func(n int, _ perdure.Void) (int, error) { return n, nil })
	hold := perdure.NewWorkflow("hold", func(ctx perdure.WorkflowCtx, d time.Duration) (n int, err error) {
		err = ctx.Lock(perdure.LockSet{sessions.Ref("b")}, func(ctx perdure.WorkflowCtx) error {
			if err := ctx.Sleep(d); err != nil {
				return err
			}
			n, err = touch.Call(ctx, "b", 1)
			return err
		})
		return n, err
	})

	perduretest.Run(t, perdure.Group{sessions, hold}, func(t *testing.T, env *perduretest.Env) {
		is := func(key string, want int, exists bool) {
			t.Helper()
			n, found, err := sessions.Get(env.With(), key)
			seen, viewed := look.Call(env.With(), key, perdure.Void{})
			if err != nil || viewed != nil || n != want || seen != want || found != exists {
				t.Fatalf("%s is %d, %t, %v, and a view sees %d, %v; want %d, %t", key, n, found, err, seen, viewed, want, exists)
			}
			listed, err := collect(env.App().Entities().List(env.Context(), "session", key))
			if err != nil || len(listed) > 0 != exists {
				t.Fatalf("the list has %+v, %v", listed, err)
			}
		}
		add := func(key string, want int) {
			t.Helper()
			if n, err := touch.Call(env.With(), key, 1); n != want || err != nil {
				t.Fatalf("touch of %s returns %d, %v; want %d", key, n, err, want)
			}
		}

		// Each operation extends the life of the state by an hour, even an operation that changes
		// nothing.
		add("a", 1)
		env.Advance(50 * time.Minute)
		if n, err := touch.Call(env.With(), "a", 0); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		env.Advance(50 * time.Minute)
		is("a", 1, true)
		add("a", 2)
		info, err := env.App().Entities().Describe(env.Context(), sessions.Ref("a"))
		if err != nil || info.Expires.Sub(info.Changed) != time.Hour {
			t.Errorf("%+v, %v", info, err)
		}

		// The process dies, and the next process lets the state expire at the same time.
		env.Restart()
		env.Advance(time.Hour - time.Second)
		is("a", 2, true)
		env.Advance(2 * time.Second)
		is("a", 0, false)
		add("a", 1)

		// The TTL limits the whole life of the state, and operations cannot extend it.
		for i := range 5 {
			env.Advance(35 * time.Minute)
			add("a", i+2)
		}
		env.Advance(6 * time.Minute)
		is("a", 0, false)

		// While a workflow holds the lock, the state stays. When the lock ends, the engine removes
		// the state.
		add("b", 1)
		run, err := hold.Start(env.With(), 5*time.Hour, perdure.RawKey("h"))
		if err != nil {
			t.Fatal(err)
		}
		env.Advance(4 * time.Hour)
		is("b", 1, true)
		if n, err := run.Result(env.With()); n != 2 || err != nil {
			t.Fatalf("the section finds %d, %v", n, err)
		}
		env.Settle()
		is("b", 0, false)
	})
}
