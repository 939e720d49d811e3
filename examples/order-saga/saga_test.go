package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/perduretest"
)

// ledger simulates the services of the shop. Like real services, it recognises a repeated request
// by its key.
type ledger struct {
	mu   sync.Mutex
	done map[string]bool
	sum  int
}

func (l *ledger) book(ctx context.Context, amount int, what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if key := perdure.IdempotencyKey(ctx); !l.done[key] {
		l.done[key] = true
		l.sum += amount
		perduretest.Effect(ctx, what)
	}
}

func (l *ledger) definitions(noAddress error) perdure.Group {
	return perdure.Group{
		orders.Bind(process),
		reserve.Bind(func(ctx context.Context, o order) (booking, error) {
			l.book(ctx, 1, "reserve "+o.ID)
			return booking{"stock-" + o.ID}, nil
		}),
		release.Bind(func(ctx context.Context, b booking) (perdure.Void, error) {
			l.book(ctx, -1, "release "+b.ID)
			return perdure.Void{}, nil
		}),
		charge.Bind(func(ctx context.Context, o order) (booking, error) {
			if perdure.Attempt(ctx) == 1 {
				return booking{}, errors.New("the payment service does not answer")
			}
			l.book(ctx, 100, "charge "+o.ID)
			return booking{"payment-" + o.ID}, nil
		}),
		refund.Bind(func(ctx context.Context, b booking) (perdure.Void, error) {
			l.book(ctx, -100, "refund "+b.ID)
			return perdure.Void{}, nil
		}),
		ship.Bind(func(_ context.Context, o order) (booking, error) {
			if o.Address == "" {
				return booking{}, perdure.Permanent(noAddress)
			}
			return booking{"parcel-" + o.ID}, nil
		}),
	}
}

// TestSagaSurvivesCrashes kills the process at every moment of an order that fails. In every case
// everything is undone exactly once.
func TestSagaSurvivesCrashes(t *testing.T) {
	t.Parallel()
	perduretest.Explore(t, func() perduretest.Scenario[string] {
		l := &ledger{done: map[string]bool{}}
		return perduretest.Scenario[string]{
			Definitions: l.definitions(errors.New("there is no address")),
			Drive: func(env *perduretest.Env) (string, error) {
				parcel, err := orders.Run(env.With(), order{ID: "o-1"})
				if failed := (*perdure.RemoteError)(nil); errors.As(err, &failed) {
					return failed.Message, nil // the scenario expects the order to fail
				}
				return parcel, err
			},
			Check: func() error {
				if l.sum != 0 {
					return fmt.Errorf("%d are left in the books", l.sum)
				}
				return nil
			},
		}
	})
}
