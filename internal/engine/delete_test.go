package engine_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store/memory"
)

// An execution that another node owns ends, and is deleted before the waiting caller has looked at
// its end. The caller learns that the execution is gone.
func TestAwaitOfADeletedRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := common{memory.New(memory.Options{})}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 2)

		run := func(guest bool) *engine.Engine {
			e := engine.New(engine.Config{Store: st, Guest: guest})
			go func() { ended <- e.Run(ctx) }()
			if err := e.Ready(ctx); err != nil {
				t.Fatal(err)
			}
			return e
		}

		owner, guest := run(false), run(true)
		m := start("a")
		a, err := owner.Send(ctx, m)
		if err != nil {
			t.Fatal(err)
		}
		waited := make(chan error, 1)

		go func() {
			wait, stop := context.WithTimeout(ctx, time.Minute)
			defer stop()
			_, err := guest.Await(wait, m.To, model.RunID{})
			waited <- err
		}()

		// This is between two looks, in virtual time, so that the run is gone at the next look.
		time.Sleep(3500 * time.Millisecond)
		for _, m := range []*model.Message{
			{Kind: model.MessageTerminate, To: m.To}, {Kind: model.MessageDelete, To: m.To, Runs: []model.RunID{a.Run}},
		} {
			if _, err := owner.Send(ctx, m); err != nil {
				t.Fatal(err)
			}
		}

		if err := <-waited; !fault.Is(err, fault.NotFound) {
			t.Errorf("who waited heard %v", err)
		}
		cancel()

		for range 2 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	})
}
