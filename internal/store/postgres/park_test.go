package postgres_test

import (
	"testing"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/postgres"
	"github.com/perdure/perdure/internal/store/storetest"
)

// A run that parks and wakes updates its row and no index, although its reason is stored and
// blocked runs have an index.
func TestParkingLeavesTheIndexesAlone(t *testing.T) {
	t.Parallel()
	postgres.Sequential(t)
	// Use a private server: on a shared one, sessions of other tests keep old versions alive for a
	// moment.
	base := pgtest.Start(t, pgtest.Options{}).NewDatabase(t)
	s := openURL(t, base)
	f := storetest.New(t, s)
	l := f.Join(1).Lanes[0]
	const runs, rounds = 20, 10
	var subjects []storetest.Subject

	l.Write(func(b *store.Batch) {
		for range runs {
			a := f.Subject()
			subjects, b.Starts = append(subjects, a), append(b.Starts, a.StartRow())
		}
	})

	_ = s.Close()
	before := statistics(t, base)
	s = openURL(t, base)
	f.Store = s

	for i := range rounds {
		l.Write(func(b *store.Batch) {
			for _, a := range subjects {
				m := a.Unpark()
				if i%2 == 0 {
					m = a.Park()
					m.Waits[0].Code = []model.ReasonCode{model.WaitSignal, model.WaitTimer}[i/2%2]
				}
				b.Marks = append(b.Marks, m)
			}
		})
	}

	_ = s.Close()
	got := statistics(t, base)["executions"].minus(before["executions"])
	if got.Updated != runs*rounds || got.Hot < got.Updated*7/10 {
		t.Errorf("%d of %d updates were heap-only, want nearly all of %d", got.Hot, got.Updated, runs*rounds)
	}
}
