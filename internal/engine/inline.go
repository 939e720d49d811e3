package engine

import (
	"slices"
	"time"

	"github.com/perdure/perdure/internal/engine/queue"
	"github.com/perdure/perdure/internal/model"
)

// Attempts of steps that run where their workflow runs pass limits and breakers as tasks do. They
// wait on the board, in a queue that users cannot name, for a worker that always has room. An
// attempt that the board proposes to that worker starts at once, without a claim: it enters the
// history only when it has ended.
const inlineSlots = 1 << 30

// passages holds the attempts that wait, and the offer of the inline worker.
type passages struct {
	begin          map[model.TaskRef]func() // of the waiting attempts
	tenants, kinds []string
}

// Pass waits until an attempt may pass the limits and the breaker that its spec names, and then
// calls begin, which must not block. The attempt holds its permits until Passed. Passed also
// withdraws an attempt that has not started.
func (s *Session) Pass(ref model.TaskRef, spec *model.TaskSpec, input *model.Payload, begin func()) {
	if inc := s.eng.current(); inc != nil { // otherwise the worker loses the run
		inc.board.pass(ref, spec, input, begin)
	}
}

// Passed ends what Pass started. If the attempt failed with a retryAfter, its breaker refuses all
// calls for that long.
func (s *Session) Passed(ref model.TaskRef, spec *model.TaskSpec, how model.Passage, retryAfter time.Duration) {
	if inc := s.eng.current(); inc != nil {
		inc.board.passed(ref, spec, how, retryAfter)
	}
}

// Keeps returns what holds an attempt back; false if nothing does.
func (s *Session) Keeps(ref model.TaskRef) (model.Reason, bool) {
	inc := s.eng.current()
	if inc == nil {
		return model.Reason{}, false
	}
	b := inc.board
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.inline.begin[ref] == nil {
		return model.Reason{}, false
	}
	why, ok := b.b.Explain(ref)
	return why, ok && (why.Code == model.WaitPermit || why.Code == model.WaitRate || why.Code == model.WaitBreaker)
}

func (b *board) pass(ref model.TaskRef, spec *model.TaskSpec, input *model.Payload, begin func()) {
	// The inline worker must offer the kind and the tenant of the attempt.
	own := *spec
	own.Queue = model.InlineQueue
	b.mu.Lock()
	now := b.inc.eng.clock.now()
	p := &b.inline
	if p.begin == nil {
		p.begin = map[model.TaskRef]func(){}
	}
	newKind, newTenant := !slices.Contains(p.kinds, own.Kind), !slices.Contains(p.tenants, ref.Address.Tenant)
	if newKind {
		p.kinds = append(p.kinds, own.Kind)
	}
	if newTenant {
		p.tenants = append(p.tenants, ref.Address.Tenant)
	}
	if newKind || newTenant {
		b.b.Join(now, queue.InlineWorker, model.TaskOffer{Tenants: p.tenants, Queues: []string{model.InlineQueue}, Kinds: p.kinds, Slots: inlineSlots})
	}
	p.begin[ref] = begin
	b.b.Add(now, queue.Item{Ref: ref, Spec: &own, Scheduled: now, Visible: now, Input: input})
	b.moved = true
	b.mu.Unlock()
	b.Propose()
}

func (b *board) passed(ref model.TaskRef, spec *model.TaskSpec, how model.Passage, retryAfter time.Duration) {
	outcomes := [...]queue.Outcome{model.PassageNeither: queue.Neither, model.PassageSucceeded: queue.Succeeded, model.PassageFailed: queue.Failed}
	b.mu.Lock()
	now := b.inc.eng.clock.now()
	delete(b.inline.begin, ref)
	if how == model.PassageFailed && retryAfter > 0 {
		b.gate.RetryAfter(now, &queue.Item{Ref: ref, Spec: spec}, now.Add(retryAfter))
	}
	b.b.Remove(now, ref, outcomes[how])
	b.leaves(now, ref)
	b.settle(now)
	b.moved = true
	b.mu.Unlock()
	b.Propose()
}

// begun takes the inline attempts, which need no claim, out of the proposals, and returns the
// functions that start them.
func (b *board) begun(matches []queue.Match) (others []queue.Match, begin []func()) {
	if len(b.inline.kinds) == 0 {
		return matches, nil
	}
	others = slices.DeleteFunc(matches, func(m queue.Match) bool {
		if m.Worker != queue.InlineWorker {
			return false
		}
		if do := b.inline.begin[m.Ref]; do != nil {
			delete(b.inline.begin, m.Ref)
			begin = append(begin, do)
		}
		return true
	})
	return others, begin
}
