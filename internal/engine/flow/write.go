package flow

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/core/rule"
	"github.com/perdure/perdure/internal/engine/gate"
	"github.com/perdure/perdure/internal/store"
)

// Collect takes from a gate the states of breakers that have changed, and the messages to shared
// limits and breakers. It schedules the writes that store them. The board calls Collect with its
// lock held, after each change of the gate. Collect never waits. It reports whether breakers have
// changed.
func (f *Flow) Collect(k *BoardGate) (breakers bool) {
	rows, err := k.Dirty()
	if err != nil {
		f.log.Error("the state of a circuit breaker cannot be stored", "error", err)
	}
	if len(rows) > 0 {
		f.save(rows)
	}
	if k.Book != nil {
		posted := k.Book.Post()
		if asks := k.Asks(); posted || len(asks) > 0 {
			f.ask(asks)
		}
	}
	return len(rows) > 0
}

// save schedules the write of breaker states. It never waits.
func (f *Flow) save(rows []gate.Row) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range rows {
		f.dirty[r.Breaker] = r.Data
	}
	f.begin()
}

// WriteSoon schedules the write of due pages and shared breakers. It never waits.
func (f *Flow) WriteSoon() { f.ask(nil) }

// ask adds messages to shared breakers. It schedules the write of these breakers and of the pages
// that are due. It never waits.
func (f *Flow) ask(asks []gate.Ask) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, a := range asks {
		f.asks[a.Breaker] = append(f.asks[a.Breaker], a.ToOwner)
	}
	f.begin()
}

// ReadSoon schedules a read of the settings, because another node says that they have changed. It
// never waits.
func (f *Flow) ReadSoon() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.look = true
	f.begin()
}

// begin starts saveAll unless it is already running. The caller must hold the lock.
func (f *Flow) begin() {
	if f.again = true; !f.saving {
		f.saving = f.node.Beside(f.saveAll)
	}
}

// saveAll stores everything that waits to be stored, until nothing is left.
func (f *Flow) saveAll(ctx context.Context) {
	for pause := time.Duration(0); ; {
		f.mu.Lock()
		if f.saving = f.again && ctx.Err() == nil; !f.saving {
			f.mu.Unlock()
			return
		}

		f.again = false
		f.mu.Unlock()
		brief, cancel := context.WithTimeout(ctx, f.timeout)
		err := f.flush(brief)
		cancel()

		if err == nil {
			f.saves.OK()
			pause = 0
			continue
		}

		pause = min(max(2*pause, 100*time.Millisecond), 5*time.Second)
		f.saves.Fail(err, "again_in", pause)
		f.mu.Lock()
		f.again, f.look = true, true // the write may have taken effect
		f.mu.Unlock()

		if !f.node.Pause(ctx, pause) {
			f.mu.Lock()
			f.saving = false
			f.mu.Unlock()
			return
		}
	}
}

// flush immediately stores everything that waits to be stored.
func (f *Flow) flush(ctx context.Context) error {
	leave, err := f.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	f.mu.Lock()
	look := f.look
	f.look = false
	ids := slices.Collect(maps.Keys(f.dirty))
	for id := range f.asks {
		ids = append(ids, id)
	}
	f.mu.Unlock()

	if look {
		if err := f.refresh(ctx); err != nil {
			f.mu.Lock()
			f.look = true // the next flush tries again
			f.mu.Unlock()
			return err
		}
	}

	slices.SortFunc(ids, compareBreakers)
	for _, id := range slices.Compact(ids) {
		if err := f.flushOne(ctx, id); err != nil {
			return err
		}
		if err := f.askOne(ctx, id); err != nil {
			return err
		}
	}

	if err := f.writePages(ctx); err != nil {
		return err
	}
	return f.reply(ctx)
}

func compareBreakers(a, b rule.BreakerID) int {
	return cmp.Or(strings.Compare(a.Tenant, b.Tenant), strings.Compare(a.Name, b.Name))
}

// put writes a setting that nodes maintain. If another node has changed the setting, put reads and
// applies that change instead, and landed is false. The caller must hold the turn (see enter).
func (f *Flow) put(ctx context.Context, s store.Setting) (landed bool, err error) {
	f.mu.Lock()
	version := f.all[s.SettingKey].Version
	f.mu.Unlock()
	s.Version, err = f.store.PutSetting(ctx, s, version)
	if conflict := (*store.VersionError)(nil); errors.As(err, &conflict) {
		return false, f.refresh(ctx)
	}
	if err != nil {
		return false, err
	}
	f.mu.Lock()
	f.all[s.SettingKey] = s
	news := f.changesOf(map[store.SettingKey]bool{s.SettingKey: true})
	f.mu.Unlock()
	f.announce(news)
	f.hint()
	return true, nil
}

// End stores everything that still waits to be stored when the node stops.
func (f *Flow) End() {
	ctx, cancel := context.WithTimeout(context.Background(), f.timeout)
	defer cancel()
	if err := f.flush(ctx); err != nil {
		f.log.Warn("the last changes of breakers and limits cannot be stored before the node stops, and may be lost", "error", err)
	}
}
