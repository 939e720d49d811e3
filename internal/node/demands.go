package node

import (
	"cmp"
	"context"
	"time"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/postgres"
)

// Bounds that a server checks when it opens a shared store.
const (
	// mostSkew is how much the clocks of the store and of this machine may differ.
	mostSkew = 5 * time.Second
	// noticeSkew is a difference that the server logs.
	noticeSkew = 500 * time.Millisecond
	// tripsPerLease is how many round trips to the store must fit into a lease. A node renews its
	// lease at least whenever a fifth of the lease has passed, and may repeat each renewal once on
	// a new connection.
	tripsPerLease = 12
	// looks is the number of times that the server asks the store for the time when it compares
	// clocks. It uses the fastest answer.
	looks = 5
)

// checkStore refuses a store that a server cannot rely on. st is the store itself, and view is what
// Config.Wrap has made of it.
func (cfg *Config) checkStore(ctx context.Context, st, view store.Store) error {
	if !st.Info().Shared {
		return nil
	}
	if err := cfg.checkRole(ctx, st); err != nil {
		return err
	}
	skew, trip, err := compareClocks(ctx, view)
	if err != nil {
		return err
	}
	return cfg.judgeClock(skew, trip)
}

// checkRole refuses, in production, a role that may do everything in the database server.
func (cfg *Config) checkRole(ctx context.Context, st store.Store) error {
	inspected, ok := st.(store.Inspected)
	if !ok {
		return nil
	}
	about, err := inspected.Inspect(ctx)
	if err != nil || !about.Superuser {
		return err
	}
	if cfg.Production {
		return fault.WithHint(fault.New(fault.Invalid, "the store uses the role %s, which is a superuser of the database", about.Role),
			"create a role that only owns the schema of the store, or serve without --production")
	}
	cfg.Log.Warn("the store uses a superuser of the database; a role that owns its schema is enough", "role", about.Role)
	return nil
}

// compareClocks returns how far the clock of the store is ahead of the clock of this machine, and
// how long a round trip to the store takes.
func compareClocks(ctx context.Context, view store.Store) (skew, trip time.Duration, err error) {
	for i := range looks {
		sent := time.Now()
		seen, err := view.Members(ctx)
		if err != nil {
			return 0, 0, err
		}
		took := time.Since(sent)
		if i == 0 || took < trip {
			skew, trip = seen.Now.Std().Sub(sent.Add(took/2)), took
		}
	}
	return skew, trip, nil
}

// judgeClock refuses a clock that is wrong, and a lease that ends before a node can renew it. It
// ignores a difference that the round trip may explain.
func (cfg *Config) judgeClock(skew, trip time.Duration) error {
	sure := max(0, skew.Abs()-trip/2)
	switch {
	case sure > mostSkew:
		return fault.WithHint(fault.New(fault.Invalid, "the clocks of the store and of this machine differ by %s, must differ by <= %s", skew.Round(time.Millisecond), mostSkew),
			"synchronize both clocks, for example with chrony")
	case sure > noticeSkew:
		cfg.Log.Warn("the clocks of the store and of this machine differ", "by", skew.Round(time.Millisecond))
	}

	lease := cmp.Or(cfg.LeaseTTL, postgres.DefaultLease)
	if trip*tripsPerLease > lease {
		return fault.WithHint(fault.New(fault.Invalid, "a round trip to the store takes %s; a lease of %s is too short for it", trip.Round(time.Millisecond), lease),
			"set --lease to %s or more, or move the server closer to the store", (trip*tripsPerLease).Round(time.Second)+time.Second)
	}
	return nil
}
