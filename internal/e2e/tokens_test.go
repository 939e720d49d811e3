package e2e_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/crash"
	"github.com/perdure/perdure/internal/store/memory"
)

var (
	mutexes = perdure.NewEntity[perdure.Void]("mutex")
	fence   = perdure.NewActivity("fence", func(ctx context.Context, key string) (int64, error) {
		token, locked := perdure.Fence(ctx, mutexes.Ref(key))
		if !locked {
			return 0, fmt.Errorf("%s is not locked", key)
		}

		return token, nil
	})
	locker = perdure.NewWorkflow("locker", func(ctx perdure.WorkflowCtx, key string) (token int64, err error) {
		err = ctx.Lock(perdure.LockSet{mutexes.Ref(key)}, func(ctx perdure.WorkflowCtx) error {
			token, err = fence.Run(ctx, key)
			return err
		})

		return token, err
	})
)

// A mutex leaves no row behind, and yet its tokens always grow, even while the store's clock jumps
// and while owners end or die.
func TestTokensGrow(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		steps := rapid.SliceOfN(rapid.SampledFrom([]string{"lock", "lock", "close", "kill", "back", "forth"}), 3, 12).Draw(rt, "steps")
		var err error
		synctest.Test(t, func(t *testing.T) { err = tokensGrow(t.Context(), steps) })
		if err != nil {
			rt.Fatal(err)
		}
	})
}

func tokensGrow(ctx context.Context, steps []string) error {
	st := &steered{Store: memory.New(memory.Options{Shards: 1})}
	open := func() (*crash.Process, error) {
		return crash.Open(crash.Config{Store: st, Patience: time.Minute}, locker)
	}
	p, err := open()
	if err != nil {
		return err
	}
	last := map[string]int64{}
	for i, step := range append(steps, "lock", "close") {
		switch step {
		case "lock":
			for _, key := range []string{"a", "b"} {
				token, err := locker.Run(p.App.With(ctx), key, perdure.RawKey(fmt.Sprint(key, i)))
				if err != nil || token <= last[key] || token >= 1<<53 {
					_ = p.Bury()
					return fmt.Errorf("step %d: token %d of %s after %d, %w", i, token, key, last[key], err)
				}
				last[key] = token
			}
		case "close":
			if _, err = p.Close(); err == nil && i <= len(steps) {
				p, err = open()
			}
		case "kill":
			if err = p.Bury(); err == nil {
				time.Sleep(time.Minute)
				p, err = open()
			}
		case "back":
			st.move(-time.Hour)
		case "forth":
			st.move(20 * time.Minute)
		}

		if err != nil {
			return err
		}
	}

	return nil
}
