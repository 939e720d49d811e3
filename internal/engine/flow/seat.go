package flow

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/perdure/perdure/internal/core/limit"
	"github.com/perdure/perdure/internal/engine/gate"
	"github.com/perdure/perdure/internal/engine/ledger"
	"github.com/perdure/perdure/internal/engine/queue"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// Life is one life of a node, from its registration to its end, as far as a Seat has to do with it.
type Life interface {
	// Known are the shards of which every claim is known to the board. It reports false when this
	// life ends.
	Known(ctx context.Context) (shards []model.ShardID, ok bool, err error)
	// LookAround has the members looked at soon. It never waits.
	LookAround()
}

// Seat is the place of one life of a node among those that share limits. It brings the ledger up to
// date with who there is: what the dead had is free when everybody has counted their claims, and
// what this node has is given back when it ends in order.
type Seat struct {
	flow  *Flow
	place limit.Place
	board Board
	life  Life

	searching atomic.Bool // for claims of dead nodes
	// places that were on pages of the ledger when the last view came; only touched by Viewed
	listed map[limit.Place]bool
}

// NewSeat makes the seat of a life that begins. The place is its epoch.
func (f *Flow) NewSeat(place limit.Place, b Board, life Life) *Seat {
	return &Seat{flow: f, place: place, board: b, life: life}
}

// status is how breakers and queues stand here.
func (s *Seat) status(now model.Time) (breakers []gate.BreakerStatus, queues queue.Stats) {
	s.board.Look(func(k *Gatekeeper, tasks *queue.Board) { breakers, queues = k.Breakers(now), tasks.Stats() })
	return breakers, queues
}

// uses are the limits that tasks of this node hold or wait for.
func (s *Seat) uses() (list []LimitUse) {
	s.board.Look(func(k *Gatekeeper, tasks *queue.Board) { list = k.Uses(tasks) })
	return list
}

// due are the pages for which something may have to be written now.
func (s *Seat) due() (pages []int) {
	now := s.flow.node.Now()
	s.board.Look(func(k *Gatekeeper, _ *queue.Board) { pages = k.Book.Due(now) })
	return pages
}

// found is what a node says while the ledger names nodes that are no more: it has looked at the
// claims of these shards, and counts those that the dead have made; that stands on pages which are
// stored. When all owners of shards have said so, the permits of the dead are free.
type found struct {
	Shards []model.ShardID
	Dead   []limit.Place
}

func foundKey(place limit.Place) store.SettingKey {
	return store.SettingKey{Kind: settingFound, Name: strconv.FormatInt(int64(place), 10)}
}

// Viewed brings the limits up to date with who there is, after a renewal, when the node owns so
// many shards. It reports whether the members should be looked at again soon. One calls it at a
// time.
func (s *Seat) Viewed(v *store.View, owned int) (again bool) {
	f := s.flow
	if !f.store.Info().Shared {
		return false
	}
	alive := map[limit.Place]bool{}

	ids := map[string]bool{}
	for i := range v.Members {
		alive[limit.Place(v.Members[i].Epoch)] = true
		ids[v.Members[i].ID.String()] = true
	}

	now := f.node.Now()
	var dead []limit.Place
	s.board.Change(now, func(k *Gatekeeper, tasks *queue.Board) (moved bool) {
		k.Book.SetAlone(len(v.Members) == 1)
		k.Inherit(now, ids, tasks)
		places := k.Book.Places()
		for p := range places {
			switch {
			case alive[p]:
			case s.listed[p]:
				// a node that is on a page was a member before; this view was taken after it was
				// seen there
				dead = append(dead, p)
			default:
				again = true
			}
		}

		s.listed = places
		slices.Sort(dead)
		k.Book.Clean(f.clean(v, alive, dead))
		return false
	})

	f.WriteSoon()
	if s.searching.CompareAndSwap(false, true) {
		if !f.node.Beside(func(ctx context.Context) {
			defer s.searching.Store(false)
			if err := s.search(ctx, alive, dead, owned); err == nil {
				f.searches.OK()
			} else if ctx.Err() == nil {
				f.searches.Failed(err)
			}
		}) {
			s.searching.Store(false)
		}
	}

	return again
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
func (s *Seat) search(ctx context.Context, alive map[limit.Place]bool, dead []limit.Place, owned int) error {
	f := s.flow
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	if len(dead) == 0 {
		return f.forgetFound(ctx, s.place, alive)
	}

	var shards []model.ShardID
	for try := 0; ; try++ {
		known, ok, err := s.life.Known(ctx)
		if err != nil || !ok {
			return err
		}
		if shards = known; len(shards) >= owned || try == maxTries {
			break
		}
		if !f.node.Pause(ctx, 20*time.Millisecond) { // they are being read
			return nil
		}
	}

	var mark ledger.Mark
	s.board.Look(func(k *Gatekeeper, _ *queue.Board) {
		k.Book.Post()
		mark = k.Book.Mark()
	})

	for try, landed := 0, false; ; try++ {
		if err := f.flush(ctx); err != nil {
			return err
		}
		if s.board.Look(func(k *Gatekeeper, _ *queue.Board) { landed = k.Book.Landed(&mark) }); landed {
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
	key := foundKey(s.place)
	f.mu.Lock()
	same := string(f.all[key].Body) == string(body)
	f.mu.Unlock()
	if same {
		return nil
	}

	if _, err = f.put(ctx, store.Setting{SettingKey: key, Body: body}); err == nil {
		s.life.LookAround() // to look at it
	}
	return err
}

// forgetFound removes what this node has said about claims of the dead, since there are none to be
// found, and what nodes have said that are no more.
func (f *Flow) forgetFound(ctx context.Context, place limit.Place, alive map[limit.Place]bool) error {
	obsolete := func() []store.Setting {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.obsolete(place, alive)
	}
	if len(obsolete()) == 0 {
		return nil
	}

	leave, err := f.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()

	for _, s := range obsolete() { // as they are now that it is its turn
		_, err := f.store.DeleteSetting(ctx, s.SettingKey, s.Version)
		if conflict := (*store.VersionError)(nil); errors.As(err, &conflict) {
			// somebody has changed it; whoever forgot it here would not hear of it again
			err = f.refresh(ctx)
		} else if err == nil {
			f.mu.Lock()
			delete(f.all, s.SettingKey)
			f.mu.Unlock()
		}
		if err != nil {
			return err
		}
	}

	return nil
}

// Leave gives back what this node has, before it ends in order. When that does not succeed, others
// find out that it is no more.
func (s *Seat) Leave(ctx context.Context) {
	f := s.flow
	if !f.store.Info().Shared {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	now := f.node.Now()
	s.board.Look(func(k *Gatekeeper, _ *queue.Board) { k.Book.Leave(now) })

	for range maxTries {
		if err := f.flush(ctx); err != nil {
			f.log.Warn("cannot give back permits; others wait until they have found out that this node is gone", "error", err)
			return
		}
		if len(s.due()) == 0 {
			return
		}
	}
}
