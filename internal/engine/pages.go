package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/perdure/perdure/internal/core/breaker"
	"github.com/perdure/perdure/internal/core/limit"
	"github.com/perdure/perdure/internal/core/rule"
	"github.com/perdure/perdure/internal/engine/gate"
	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/engine/ledger"
	"github.com/perdure/perdure/internal/engine/queue"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// pageKey is the setting of a page of the ledger.
func pageKey(n int) store.SettingKey {
	return store.SettingKey{Kind: settingPage, Name: fmt.Sprintf("%02d", n)}
}

func pageNumber(key store.SettingKey) (n int, ok bool) {
	n, err := strconv.Atoi(key.Name)
	return n, err == nil && n >= 0 && n < ledger.Pages
}

// seen has the book look at a page. It is called with the lock.
func (b *board) seen(now model.Time, n int, body []byte) {
	if b.gate.book == nil {
		return
	}
	if err := b.gate.book.Seen(now, n, body); err != nil {
		b.inc.eng.cfg.Log.Error("the limits of tasks cannot be read; what waits for them goes on waiting", "page", n, "error", err)
	}
	b.moved = true
}

// ask has pages and breakers that nodes share written, soon: with what there is to tell, or because a page is due. It never waits.
func (f *Flow) ask(asks []gate.Ask) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, a := range asks {
		f.asks[a.Breaker] = append(f.asks[a.Breaker], a.ToOwner)
	}
	f.begin()
}

// nudged is told by another node that it has changed settings.
func (f *Flow) nudged() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.look = true
	f.begin()
}

// writePages writes what is due. It is called in turn.
func (f *Flow) writePages(ctx context.Context) error {
	b := f.board()
	if b == nil || b.gate.book == nil {
		return nil
	}
	b.mu.Lock()
	due := b.gate.book.Due(f.eng.clock.now())
	b.mu.Unlock()
	for _, n := range due {
		if err := f.writePage(ctx, b, n); err != nil {
			return err
		}
	}
	b.mu.Lock()
	b.moved = b.moved || len(due) > 0 // when to look again may be another time now
	b.mu.Unlock()
	b.propose()
	return nil
}

func (f *Flow) writePage(ctx context.Context, b *board, n int) error {
	now := f.eng.clock.now()
	b.mu.Lock()
	body, needed, err := b.gate.book.Compose(now, n)
	b.mu.Unlock()
	if err != nil {
		f.log.Error("the limits of tasks cannot be read; what waits for them goes on waiting", "page", n, "error", err)
		return nil
	}
	if !needed {
		return nil
	}
	switch landed, err := f.put(ctx, store.Setting{SettingKey: pageKey(n), Body: body}); {
	case err != nil:
		return err
	case landed:
		b.mu.Lock()
		b.seen(now, n, body)
		b.settle(now)
		b.mu.Unlock()
	}
	f.mu.Lock()
	f.again = true // there may be more, and if somebody else was faster, it is all still to be written
	f.mu.Unlock()
	return nil
}

// put writes a setting that nodes write by themselves, if it is still the one that is known; otherwise that is read and applied. It is called in turn.
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
	f.mu.Unlock()
	f.hint()
	return true, nil
}

// askOne applies what views of this node tell a breaker that nodes share. It is called in turn.
func (f *Flow) askOne(ctx context.Context, id rule.BreakerID) error {
	b := f.board()
	key := store.SettingKey{Tenant: id.Tenant, Kind: settingState, Name: id.Name}
	f.mu.Lock()
	told := f.asks[id]
	row, stored := f.all[key]
	config := f.rules.BreakerConfig(id)
	f.mu.Unlock()
	if len(told) == 0 || b == nil {
		return nil
	}
	now := f.eng.clock.now()
	x := breaker.New(config, now)
	if stored {
		var err error
		if x, err = breaker.Decode(row.Body); err != nil {
			f.log.Error("the state of a circuit breaker cannot be read; it begins anew", "breaker", id.Name, "error", err)
			x = breaker.New(config, now)
		}
		if x.Status(now).Config != config {
			x.Configure(now, config)
		}
	}
	var probe breaker.Permit
	changed, asked := false, false
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
		if !landed {
			f.mu.Lock()
			f.again = true
			f.mu.Unlock()
			return nil
		}
	}
	f.mu.Lock()
	if rest := f.asks[id][len(told):]; len(rest) > 0 {
		f.asks[id], f.again = rest, true
	} else {
		delete(f.asks, id)
	}
	f.mu.Unlock()
	b.mu.Lock()
	defer b.propose()
	defer b.mu.Unlock()
	b.gate.Told(id, len(told))
	if changed {
		if err := b.gate.Adopt(now, id, body); err != nil {
			return err
		}
	}
	if asked {
		b.gate.Answer(now, id, probe)
	}
	b.settle(now)
	b.moved = true
	return nil
}

// found is what a node says while the ledger names nodes that are no more: it has looked at the claims of these shards, and counts those that the dead have made; that stands on pages which are stored. When all
// owners of shards have said so, the permits of the dead are free.
type found struct {
	Shards []model.ShardID
	Dead   []limit.Place
}

func foundKey(place limit.Place) store.SettingKey {
	return store.SettingKey{Kind: settingFound, Name: strconv.FormatInt(int64(place), 10)}
}

// viewed brings the limits up to date with who there is, after a renewal.
func (inc *incarnation) viewed(v *store.View) {
	b, f := inc.board, inc.eng.flow
	if b.gate.book == nil {
		return
	}
	alive := map[limit.Place]bool{}
	ids := map[string]bool{}
	for i := range v.Members {
		alive[limit.Place(v.Members[i].Epoch)] = true
		ids[v.Members[i].ID.String()] = true
	}
	now := inc.eng.clock.now()
	b.mu.Lock()
	b.gate.book.SetAlone(len(v.Members) == 1)
	b.adopt(now, ids)
	places := b.gate.book.Places()
	var dead []limit.Place
	for p := range places {
		switch {
		case alive[p]:
		case inc.listed[p]: // a node that is on a page was a member before; this view was taken after it was seen there
			dead = append(dead, p)
		default:
			inc.member.Nudge()
		}
	}
	inc.listed = places
	slices.Sort(dead)
	b.gate.book.Clean(f.clean(v, alive, dead))
	b.settle(now)
	b.mu.Unlock()
	f.ask(nil)
	if inc.searching.CompareAndSwap(false, true) {
		owned := inc.member.Owned()
		if !inc.eng.beside.run(func(ctx context.Context) {
			defer inc.searching.Store(false)
			if err := inc.search(ctx, alive, dead, len(owned)); err != nil && ctx.Err() == nil {
				inc.eng.cfg.Log.Warn("cannot store which claims of dead nodes were found; the next renewal tries again", "error", err)
			}
		}) {
			inc.searching.Store(false)
		}
	}
}

// adopt has this node count the claims in its shards that were made by nodes which are no more. It is called with the lock.
func (b *board) adopt(now model.Time, alive map[string]bool) {
	var gone map[model.TaskRef]ours
	for ref, c := range b.gate.foreign {
		if !alive[c.node] {
			if gone == nil {
				gone = map[model.TaskRef]ours{}
			}
			gone[ref] = c.ours
			delete(b.gate.foreign, ref)
		}
	}
	if gone != nil {
		b.b.Taken(func(it *queue.Item) {
			if c, mine := gone[it.Ref]; mine {
				b.gate.Hold(now, it)
				b.gate.held(it.Ref, c.claim, c.worker) // it goes on to count here when the run moves once more
			}
		})
	}
}

// clean are those of the dead whose claims have been found by the owners of all shards.
func (f *Flow) clean(v *store.View, alive map[limit.Place]bool, dead []limit.Place) map[limit.Place]bool {
	if len(dead) == 0 {
		return nil
	}
	said := map[limit.Place]found{}
	f.mu.Lock()
	for p := range alive {
		var x found
		if s, ok := f.all[foundKey(p)]; ok && json.Unmarshal(s.Body, &x) == nil {
			said[p] = x
		}
	}
	f.mu.Unlock()
	all := map[limit.Place]bool{}
	for _, d := range dead {
		if !slices.ContainsFunc(v.Owners, func(o store.ShardOwner) bool {
			x, ok := said[limit.Place(o.Epoch)]
			return !ok || o.Node.IsZero() || !slices.Contains(x.Dead, d) || !slices.Contains(x.Shards, o.Shard)
		}) {
			all[d] = true
		}
	}
	return all
}

// search says which claims of the dead this node has found; nothing when there are none.
func (inc *incarnation) search(ctx context.Context, alive map[limit.Place]bool, dead []limit.Place, owned int) error {
	f, b := inc.eng.flow, inc.board
	ctx, cancel := context.WithTimeout(ctx, inc.eng.cfg.CommitTimeout)
	defer cancel()
	if len(dead) == 0 {
		return f.forgetFound(ctx, limit.Place(inc.epoch), alive)
	}
	var shards []model.ShardID
	for try := 0; ; try++ {
		shards = shards[:0]
		for _, s := range inc.lanes {
			known := make(chan []model.ShardID, 1)
			if !s.inbox.result(func(l *lane.Lane, _ model.Time) { known <- l.Known() }) {
				return nil
			}
			select {
			case ids := <-known:
				shards = append(shards, ids...)
			case <-ctx.Done():
				return fault.New(fault.Timeout, "the lane does not answer: %w", context.Cause(ctx))
			}
		}
		if len(shards) >= owned || try == maxTries {
			break
		}
		if !inc.eng.pause(ctx, 20*time.Millisecond) { // they are being read
			return nil
		}
	}
	b.mu.Lock()
	b.gate.book.Post()
	mark := b.gate.book.Mark()
	b.mu.Unlock()
	for try := 0; ; try++ {
		if err := f.flush(ctx); err != nil {
			return err
		}
		b.mu.Lock()
		landed := b.gate.book.Landed(&mark)
		b.mu.Unlock()
		if landed {
			break
		}
		if try == maxTries {
			return nil // the next renewal tries again
		}
	}
	slices.Sort(shards)
	body, err := json.Marshal(found{shards, dead})
	if err != nil {
		return fault.New(fault.Internal, "claims of the dead: %w", err)
	}
	leave, err := f.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	key := foundKey(limit.Place(inc.epoch))
	f.mu.Lock()
	same := string(f.all[key].Body) == string(body)
	f.mu.Unlock()
	if same {
		return nil
	}
	if _, err = f.put(ctx, store.Setting{SettingKey: key, Body: body}); err == nil {
		inc.post(inc.member.Nudge) // to look at it
	}
	return err
}

// forgetFound removes what this node has said about claims of the dead, since there are none to be found, and what nodes have said that are no more.
func (f *Flow) forgetFound(ctx context.Context, place limit.Place, alive map[limit.Place]bool) error {
	f.mu.Lock()
	old := f.obsolete(place, alive)
	f.mu.Unlock()
	if len(old) == 0 {
		return nil
	}
	leave, err := f.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	for _, s := range old {
		var conflict *store.VersionError
		if _, err := f.store.DeleteSetting(ctx, s.SettingKey, s.Version); err != nil && !errors.As(err, &conflict) {
			return err
		}
		f.mu.Lock()
		delete(f.all, s.SettingKey)
		f.mu.Unlock()
	}
	return nil
}

// leaveLimits gives back what this node has, before it ends in order. When that does not succeed, others find out that it is no more.
func (inc *incarnation) leaveLimits(ctx context.Context) {
	b := inc.board
	if b.gate.book == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	b.mu.Lock()
	b.gate.book.Leave(inc.eng.clock.now())
	b.mu.Unlock()
	for range maxTries {
		if err := inc.eng.flow.flush(ctx); err != nil {
			inc.eng.cfg.Log.Warn("cannot give back permits; others wait until they have found out that this node is gone", "error", err)
			return
		}
		b.mu.Lock()
		left := len(b.gate.book.Due(inc.eng.clock.now()))
		b.mu.Unlock()
		if left == 0 {
			return
		}
	}
}
