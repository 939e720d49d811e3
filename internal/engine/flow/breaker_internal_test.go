package flow

import (
	"log/slog"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/core/breaker"
	"github.com/perdure/perdure/internal/core/limit"
	"github.com/perdure/perdure/internal/core/rule"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/memory"
)

// The stored state of a breaker cannot be read, and a node asks for a probe. The node writes a new
// state in its place, even if the question alone changes nothing. Otherwise the node would learn
// nothing from the answer and ask again, without a pause.
func TestUnreadableBreakerIsReplaced(t *testing.T) {
	t.Parallel()
	ctx, id := t.Context(), rule.BreakerID{Tenant: model.DefaultTenant, Name: "mail"}
	st := &shared{Store: memory.New(memory.Options{})}
	key := store.SettingKey{Tenant: id.Tenant, Kind: settingState, Name: id.Name}
	if _, err := st.PutSetting(ctx, store.Setting{SettingKey: key, Body: []byte("no state")}, 0); err != nil {
		t.Fatal(err)
	}

	d := newDesk(limit.Place(1), oneAtATime(t))
	f := New(Config{Store: st, Log: slog.New(slog.DiscardHandler), Node: d, Timeout: time.Minute})
	d.participant = f.NewParticipant(1, d, quiet{})
	if err := f.Load(ctx, 1<<62); err != nil {
		t.Fatal(err)
	}
	f.asks[id] = []breaker.ToOwner{{Place: 1, Seq: 1, Ask: true, Lease: time.Second}}
	if err := f.flush(ctx); err != nil {
		t.Fatal(err)
	}

	list, err := st.ListSettings(ctx, id.Tenant, settingState)
	if err != nil || len(list) != 1 {
		t.Fatal(len(list), err)
	}
	x, err := breaker.Decode(list[0].Body)
	if err != nil {
		t.Fatalf("the row still has the state %q: %v", list[0].Body, err)
	}
	if a := x.Allow(deskTime, time.Second); !a.OK || a.Permit.Generation <= breaker.New(breaker.Config{}, deskTime).Allow(deskTime, time.Second).Permit.Generation {
		t.Errorf("the new breaker answers %+v: late reports about the lost breaker would count", a)
	}
	if len(f.asks) != 0 {
		t.Errorf("%d questions are left", len(f.asks))
	}
}
