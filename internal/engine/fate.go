package engine

import (
	"bytes"
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// fateOf reads what has become of a claim: what lies behind it in the history of its run, as far as that is needed.
func fateOf(ctx context.Context, st store.Store, shard model.ShardID, ref model.ClaimRef) (core.Fate, error) {
	x, err := st.LoadExecution(ctx, shard, ref.Address, ref.Run)
	if err != nil || x == nil {
		return core.Fate{Over: err == nil}, err // it was deleted
	}
	var f core.Fate
	alone := x.Start.Task != nil
	for after := max(ref.Claim, int64(len(x.Start.Carried))); ; {
		page, err := st.LoadEvents(ctx, store.RunKey{Shard: shard, Run: ref.Run}, after, eventPage, eventPageBytes)
		if err != nil {
			return core.Fate{}, err
		}
		if len(page) == 0 || f.Follow(&ref, alone, page) {
			break
		}
		after = page[len(page)-1].Seq
	}
	f.End(&ref, alone, &x.Outcome)
	return f, nil
}

// maxAway bounds how many claims a round looks after; the next one goes on behind them.
const maxAway = 100

// lookAway finds out what has become of claims that workers of this node hold and that no lane of it knows, because their runs are those of other nodes by now: their owner
// cannot tell the worker that its task was cancelled, or taken away. It is done with every renewal of the lease, as far as there are such claims.
func (inc *incarnation) lookAway(ctx context.Context) {
	defer inc.looking.Store(false)
	sessions := inc.eng.taskWorkers.all()
	type away struct {
		s   *TaskSession
		ref model.ClaimRef
	}
	var all []away
	for _, s := range sessions {
		for _, ref := range s.claims() {
			if inc.lane(ref.Address.Shard(len(inc.owner))) == nil || !inc.board.holds(ref) {
				all = append(all, away{s, ref})
			}
		}
	}
	if len(all) == 0 {
		return
	}
	order := func(a, b model.ClaimRef) int {
		return cmp.Or(bytes.Compare(a.Run[:], b.Run[:]), strings.Compare(a.ID, b.ID), cmp.Compare(a.Claim, b.Claim))
	}
	slices.SortFunc(all, func(a, b away) int { return order(a.ref, b.ref) })
	first, _ := slices.BinarySearchFunc(all, inc.looked, func(a away, ref model.ClaimRef) int {
		return cmp.Or(order(a.ref, ref), -1) // behind the one that was the last
	})
	for i := range min(len(all), maxAway) {
		a := all[(first+i)%len(all)]
		f, err := fateOf(ctx, inc.eng.cfg.Store, a.ref.Address.Shard(len(inc.owner)), a.ref)
		if err != nil {
			return // the next round looks again
		}
		inc.looked = a.ref
		a.s.learn(a.ref, f)
	}
}

// claims are those that the worker holds.
func (s *TaskSession) claims() []model.ClaimRef {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.held))
}

// learn tells the worker what has become of a claim that it holds, if that is news.
func (s *TaskSession) learn(ref model.ClaimRef, f core.Fate) {
	s.mu.Lock()
	told, held := s.held[ref]
	s.mu.Unlock()
	switch {
	case held && f.Over:
		s.stop(ref, false)
	case held && f.Canceled && !told:
		s.stop(ref, true)
	}
}

// holds reports whether the board knows of a claim.
func (b *board) holds(ref model.ClaimRef) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Holds(ref)
}
