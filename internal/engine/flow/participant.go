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

// Life is one life of a node, from its registration to its end, as far as a Participant needs it.
type Life interface {
	// KnownShards returns the shards whose claims the board knows completely. ok is false if this
	// life ends.
	KnownShards(ctx context.Context) (shards []model.ShardID, ok bool, err error)
	// LookAround makes the node look at the members soon. It never waits.
	LookAround()
}

// Participant is one life of a node as one of the nodes that share limits. It tells the ledger
// which nodes are alive. The permits of a dead node become free when all owners of shards have
// counted the claims of that node. When this node ends in order, it returns its own permits.
type Participant struct {
	flow  *Flow
	place limit.Place
	board Board
	life  Life

	searching atomic.Bool // search runs, which looks for claims of dead nodes
	// listed holds the places that were on pages of the ledger at the last view. Only UpdateMembers
	// uses it.
	listed map[limit.Place]bool
	// stated holds the places that had settings at the last view: statements about claims of dead
	// nodes, or answers about limits. Only UpdateMembers uses it.
	stated map[limit.Place]bool
}

// NewParticipant returns the participant for a new life. The place is the epoch of that life.
func (f *Flow) NewParticipant(place limit.Place, b Board, life Life) *Participant {
	return &Participant{flow: f, place: place, board: b, life: life}
}

// status returns the state of the breakers and queues of this node.
func (s *Participant) status(now model.Time) (breakers []gate.BreakerStatus, queues queue.Stats) {
	s.board.Look(func(k *BoardGate, tasks *queue.Board) { breakers, queues = k.Breakers(now), tasks.Stats() })
	return breakers, queues
}

// uses returns the limits that tasks of this node hold or wait for.
func (s *Participant) uses() (list []LimitUse) {
	s.board.Look(func(k *BoardGate, tasks *queue.Board) { list = k.Uses(tasks) })
	return list
}

// duePages returns the pages that may have to be written now.
func (s *Participant) duePages() (pages []int) {
	now := s.flow.node.Now()
	s.board.Look(func(k *BoardGate, _ *queue.Board) { pages = k.Book.DuePages(now) })
	return pages
}

// found is a statement that a node stores while the ledger names dead nodes. It says that the node
// has read the claims of these shards, and that stored pages count the claims of the dead nodes
// among them. When the owners of all shards have made this statement, the permits of the dead nodes
// are free.
type found struct {
	Shards []model.ShardID
	Dead   []limit.Place
}

func foundKey(place limit.Place) store.SettingKey {
	return store.SettingKey{Kind: settingFound, Name: strconv.FormatInt(int64(place), 10)}
}

// UpdateMembers updates the limits with the members of the cluster, after a lease renewal. owned is
// the number of shards that this node owns. UpdateMembers reports whether the node should look at
// the members again soon. The caller must not call it concurrently.
func (s *Participant) UpdateMembers(v *store.View, owned int) (again bool) {
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

	gone := s.findGone(alive)
	now := f.node.Now()
	var dead []limit.Place
	s.board.Change(now, func(k *BoardGate, tasks *queue.Board) (moved bool) {
		k.Book.SetAlone(len(v.Members) == 1)
		k.Inherit(now, ids, tasks)
		places := k.Book.Places()
		for p := range places {
			switch {
			case alive[p]:
			case s.listed[p]:
				// The node was on a page, so it had registered before. This view is later and does
				// not list the node, so the node is dead.
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
			if err := s.search(ctx, gone, dead, owned); err == nil {
				f.searches.OK()
			} else if ctx.Err() == nil {
				f.searches.Fail(err)
			}
		}) {
			s.searching.Store(false)
		}
	}

	return again
}

// findGone returns the places that are gone and have left settings. These places had settings at
// the last view, so they had registered before it. The present view is later and does not list
// them, so they are dead. A place that got its settings later may be newer than the present view.
func (s *Participant) findGone(alive map[limit.Place]bool) map[limit.Place]bool {
	stated, gone := s.flow.statedPlaces(), map[limit.Place]bool{}
	for p := range stated {
		if !alive[p] && s.stated[p] {
			gone[p] = true
		}
	}
	s.stated = stated
	return gone
}

// clean returns the dead places whose claims the owners of all shards have found.
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

// search stores the statement that stored pages count the claims of dead nodes in the shards of
// this node (see found). If there are no dead nodes, it removes the statement of this node instead,
// and the settings of places that are gone.
func (s *Participant) search(ctx context.Context, gone map[limit.Place]bool, dead []limit.Place, owned int) error {
	f := s.flow
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	if len(dead) == 0 {
		return f.forgetFound(ctx, s.place, gone)
	}

	var shards []model.ShardID
	for try := 0; ; try++ {
		known, ok, err := s.life.KnownShards(ctx)
		if err != nil || !ok {
			return err
		}
		if shards = known; len(shards) >= owned || try == maxTries {
			break
		}
		if !f.node.Pause(ctx, 20*time.Millisecond) { // the lanes are still reading some shards
			return nil
		}
	}

	// The claims that the board has found must be on stored pages before this node stores its
	// statement.
	var mark ledger.Mark
	s.board.Look(func(k *BoardGate, _ *queue.Board) {
		k.Book.Post()
		mark = k.Book.Mark()
	})

	for try, landed := 0, false; ; try++ {
		if err := f.flush(ctx); err != nil {
			return err
		}
		if s.board.Look(func(k *BoardGate, _ *queue.Board) { landed = k.Book.Landed(&mark) }); landed {
			break
		}
		if try == maxTries {
			return nil // the next renewal tries again
		}
	}

	slices.Sort(shards)
	body, err := json.Marshal(found{shards, dead})
	if err != nil {
		return fault.New(fault.Internal, "store the claims of dead nodes: %w", err)
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
		s.life.LookAround() // so that other nodes see the statement
	}
	return err
}

// forgetFound removes this node's statement about claims of dead nodes, because no dead nodes are
// left. It also removes the settings of places that are gone.
func (f *Flow) forgetFound(ctx context.Context, place limit.Place, gone map[limit.Place]bool) error {
	obsolete := func() []store.Setting {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.obsolete(place, gone)
	}
	if len(obsolete()) == 0 {
		return nil
	}

	leave, err := f.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()

	// Now that this goroutine has the turn, the settings may be different.
	for _, s := range obsolete() {
		_, err := f.store.DeleteSetting(ctx, s.SettingKey, s.Version)
		if conflict := (*store.VersionError)(nil); errors.As(err, &conflict) {
			// Another node has changed the setting. Without the refresh this node would never see
			// the change.
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

// Leave returns the permits of this node before an orderly end. If it fails, the other nodes find
// out later that this node is gone.
func (s *Participant) Leave(ctx context.Context) {
	f := s.flow
	if !f.store.Info().Shared {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), f.leaveTimeout)
	defer cancel()
	now := f.node.Now()
	s.board.Look(func(k *BoardGate, _ *queue.Board) { k.Book.Leave(now) })

	for range maxTries {
		if err := f.flush(ctx); err != nil {
			f.log.Warn("cannot give back permits; other nodes wait until they notice that this node is gone", "error", err)
			return
		}
		if len(s.duePages()) == 0 {
			return
		}
	}
}
