package flow

import (
	"context"
	"errors"

	"github.com/perdure/perdure/internal/core/breaker"
	"github.com/perdure/perdure/internal/core/rule"
	"github.com/perdure/perdure/internal/engine/queue"
	"github.com/perdure/perdure/internal/store"
)

// flushOne stores the state of a breaker. If another node has written first, flushOne adopts the
// state of that node instead. The caller must hold the turn.
func (f *Flow) flushOne(ctx context.Context, id rule.BreakerID) error {
	key := store.SettingKey{Tenant: id.Tenant, Kind: settingState, Name: id.Name}
	f.mu.Lock()
	row, ok := f.dirty[id]
	version := f.all[key].Version
	delete(f.dirty, id)
	f.mu.Unlock()
	if !ok {
		return nil
	}

	s := store.Setting{SettingKey: key, Body: row}
	var err error
	s.Version, err = f.store.PutSetting(ctx, s, version)
	if conflict := (*store.VersionError)(nil); errors.As(err, &conflict) {
		return f.refresh(ctx)
	}
	f.mu.Lock()
	defer f.mu.Unlock()

	if err != nil {
		if _, newer := f.dirty[id]; !newer {
			f.dirty[id] = row
		}
		return err
	}

	f.all[key] = s
	return nil
}

// askOne applies the reports of this node to a shared breaker and stores the breaker. The caller
// must hold the turn.
func (f *Flow) askOne(ctx context.Context, id rule.BreakerID) error {
	s := f.participant()
	key := store.SettingKey{Tenant: id.Tenant, Kind: settingState, Name: id.Name}
	f.mu.Lock()
	told := f.asks[id]
	row, stored := f.all[key]
	config := f.rules.BreakerConfig(id)
	f.mu.Unlock()
	if len(told) == 0 || s == nil {
		return nil
	}

	now := f.node.Now()
	x := breaker.New(config, now)
	changed, asked := false, false
	if stored {
		var err error
		if x, err = breaker.Decode(row.Body); err != nil {
			// The new state must replace the row even if no report changes it. Otherwise the views
			// would keep the last state that they know, and an open view would ask for a probe
			// again and again.
			f.log.Error("the state of a circuit breaker cannot be read; the breaker starts closed", "breaker", id.Name, "error", err)
			x, changed = breaker.NewInPlaceOf(row.Version, config, now), true
		}
		if x.Status(now).Config != config {
			x.Configure(now, config)
		}
	}

	var probe breaker.Permit
	for i := range told {
		p, c := x.Receive(now, &told[i])
		changed, asked = changed || c, asked || told[i].Ask
		if p.Probe != 0 {
			probe = p
		}
	}

	body := row.Body
	if changed {
		var err error
		if body, err = x.Encode(); err != nil {
			return err
		}
		landed, err := f.put(ctx, store.Setting{SettingKey: key, Body: body})
		if err != nil {
			return err
		}
		// Another node has written first. put has read the state that the other node wrote, and
		// saveAll calls askOne again.
		if !landed {
			f.mu.Lock()
			f.again = true
			f.mu.Unlock()
			return nil
		}
	}

	// Later asks may have arrived during the write. They stay for the next round.
	f.mu.Lock()
	if rest := f.asks[id][len(told):]; len(rest) > 0 {
		f.asks[id], f.again = rest, true
	} else {
		delete(f.asks, id)
	}

	f.mu.Unlock()
	var err error
	s.board.Change(now, func(k *BoardGate, _ *queue.Board) (moved bool) {
		k.ConfirmAsks(id, len(told))
		if changed {
			if err = k.Adopt(now, id, body); err != nil {
				return false
			}
		}
		if asked {
			k.Answer(now, id, probe)
		}
		return true
	})

	s.board.Propose()
	return err
}
