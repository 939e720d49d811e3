package oracle

import (
	"context"
	"slices"
	"strings"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/sim/kernel"
	"github.com/perdure/perdure/internal/sim/scenario"
	"github.com/perdure/perdure/internal/store"
)

// In some simulations users misuse request ids: they send another signal under the id of an
// accepted signal. The owner must refuse the second signal, no matter through which node it comes,
// and that signal must be in no history. As in production, nodes forget request ids after a certain
// time. They forget no id earlier, and in the end they have forgotten all ids.

// SweepEvery is how often nodes forget request ids.
const SweepEvery = 100 * kernel.Millisecond

// CheckMisuse fails if a request is accepted under an id that belongs to another request.
func (s *Oracle) CheckMisuse(o *Op) {
	if o.Misuses && !s.IsForgotten(o) {
		s.Fail("A1: %s was accepted, and its id belongs to another request", o)
	}
}

// IsForgotten reports whether the store has forgotten the first use of the request's id. Any
// request may use the id after that.
func (s *Oracle) IsForgotten(o *Op) bool {
	m := &o.Message
	return s.Ledger.forgotten[store.RequestKey{Shard: s.ShardOf(m.To), Address: m.To, ID: m.RequestID}]
}

// Forget records which requests of some shards the store has forgotten, and checks that all of them
// are old.
func (l *ledger) Forget(shards []model.ShardID) {
	keep := l.s.KeepIDs().Microseconds()
	for k := range l.replies {
		if !slices.Contains(shards, k.Shard) {
			continue
		}
		if found, err := l.s.Store.LoadReplies(context.Background(), []store.RequestKey{k}); err != nil || len(found) > 0 {
			continue
		}
		if age := int64(l.s.StoreTime() - l.replied[k]); age < keep-2*l.s.skew() {
			l.Fail("A2: request %s of %s is forgotten after %s, and kept for %s", k.ID, k.Address, kernel.Microseconds(age), kernel.Microseconds(keep))
		}
		delete(l.replies, k)
		l.forgotten[k] = true
	}
}

// CheckForgotten waits until all request ids are old, and checks that the store has forgotten them.
func (s *Oracle) CheckForgotten() {
	if !s.Plan.Forgets || s.Has(scenario.ClockJumps) { // the wait takes too long
		return
	}

	left := func() (n int) {
		for k := range s.Ledger.replies {
			if found, _ := s.Store.LoadReplies(context.Background(), []store.RequestKey{k}); len(found) > 0 {
				n++
			}
		}
		return n
	}

	keep := s.KeepIDs().Microseconds()
	s.RunUntil(s.Now+keep+keep/20+20*SweepEvery+kernel.Second, nil)
	if n := left(); n > 0 {
		s.Fail("A2: %d request ids are remembered for longer than %s", n, s.KeepIDs())
	}
	s.Did(scenario.OpForgotten)
}

// RecordAnswer records that the caller of a request has its answer. If the engine has drawn the
// request id, the caller cannot ask again under that id.
func (l *ledger) RecordAnswer(m *model.Message) {
	if m.Drawn {
		l.told[m.RequestID] = true
	}
}

// RecordReceipt records that a server knows that its client has the answer to a request.
func (l *ledger) RecordReceipt(id string) { l.told[id] = true }

// ApplyAcknowledgements applies the removal of remembered answers that their callers have received.
func (l *ledger) ApplyAcknowledgements(keys []store.RequestKey) {
	for _, k := range keys {
		if _, refusal := strings.CutPrefix(k.ID, model.RefusedIDs); !refusal && !l.told[k.ID] {
			l.Fail("A3: the answer to request %s of %s is removed, and its caller has not heard it", k.ID, k.Address)
		}
		if _, ok := l.replies[k]; ok {
			delete(l.replies, k)
			l.forgotten[k] = true
			l.s.Did(scenario.OpAcknowledged)
		}
	}
}
