package engine

import (
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/perdure/perdure/internal/engine/queue"
	"github.com/perdure/perdure/internal/model"
)

// An inline attempt is an attempt of a step that runs in the process of its workflow. Inline
// attempts pass limits and breakers as tasks do. They wait on the board, in a queue that users
// cannot name, for a worker that always has room. When the board proposes an attempt to that
// worker, the attempt starts immediately, without a claim. It enters the history only when it has
// ended.
const inlineSlots = 1 << 30

// passages holds the attempts that wait on a board, and the offer of the inline worker.
type passages struct {
	waiting        map[model.TaskRef]passage
	tenants, kinds []string
}

// passage is an attempt that waits or runs.
type passage struct {
	spec  *model.TaskSpec
	input *model.Payload
	begin func()
}

// attempts holds the attempts that the boards of this process have admitted and whose bodies have
// not ended. They outlive an incarnation: a body continues for a while after the node has lost its
// lease, and keeps its permits until it has ended. A board locks its own mutex before the mutex of
// attempts.
type attempts struct {
	mu      sync.Mutex
	running map[model.TaskRef]passage
}

func (a *attempts) add(ref model.TaskRef, p passage) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.running == nil {
		a.running = map[model.TaskRef]passage{}
	}
	a.running[ref] = p
}

func (a *attempts) remove(ref model.TaskRef) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.running, ref)
}

// Pass gives an attempt to the board. The board calls begin, which must not block, as soon as the
// attempt may pass the limits and the breaker that its spec names. Pass does not wait for that, but
// the board may call begin before Pass returns. The attempt holds its permits until EndPass.
// EndPass also withdraws an attempt that has not started.
func (s *Session) Pass(ref model.TaskRef, spec *model.TaskSpec, input *model.Payload, begin func()) {
	if inc := s.eng.current(); inc != nil { // without an incarnation, the worker loses the run
		inc.board.beginPassage(s.own(ref), spec, input, begin)
	}
}

// own returns the name of an attempt on the board. Workers number their attempts themselves, so two
// workers that have had the same run may use one name. The attempt of the first worker may end long
// after the second worker has got the run.
func (s *Session) own(ref model.TaskRef) model.TaskRef {
	ref.ID += model.AttemptMark + strconv.Itoa(int(s.id))
	return ref
}

// EndPass ends an attempt that was passed to Pass. If the attempt failed with a retryAfter, its
// breaker refuses all calls for that time, up to the bound in the config of the breaker.
func (s *Session) EndPass(ref model.TaskRef, spec *model.TaskSpec, how model.Passage, retryAfter time.Duration) {
	ref = s.own(ref)
	// Remove the attempt first. A new board then either does not count the attempt, or learns below
	// that the attempt has ended.
	s.eng.attempts.remove(ref)
	if inc := s.eng.current(); inc != nil {
		inc.board.endPassage(ref, spec, how, retryAfter)
	}
}

// HeldBackBy returns what holds an attempt back, or false if nothing does. HeldBackBy may start
// attempts and call their begin functions, as Pass does.
func (s *Session) HeldBackBy(ref model.TaskRef) (model.Reason, bool) {
	inc := s.eng.current()
	if inc == nil {
		return model.Reason{}, false
	}
	ref, b := s.own(ref), inc.board
	// Some changes, such as new settings, open all groups until the board has tried to start their
	// attempts. So let the board try first.
	b.Propose()
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, waits := b.inline.waiting[ref]; !waits {
		return model.Reason{}, false
	}
	why, ok := b.b.Explain(ref)
	return why, ok && (why.Code == model.WaitPermit || why.Code == model.WaitRate || why.Code == model.WaitBreaker)
}

func (b *board) beginPassage(ref model.TaskRef, spec *model.TaskSpec, input *model.Payload, begin func()) {
	p := passage{spec: inlineSpec(spec), input: input, begin: begin}
	b.mu.Lock()
	now := b.inc.eng.clock.now()
	b.offerInline(now, ref.Address.Tenant, spec.Kind)
	if b.inline.waiting == nil {
		b.inline.waiting = map[model.TaskRef]passage{}
	}
	b.inline.waiting[ref] = p
	b.b.Add(now, p.item(now, ref))
	b.moved = true
	b.mu.Unlock()
	b.Propose()
}

// inlineSpec returns what the board needs to know about an attempt. It leaves out the time limits,
// because the worker measures them, and no lane could act on them.
func inlineSpec(spec *model.TaskSpec) *model.TaskSpec {
	return &model.TaskSpec{
		Kind: spec.Kind, Queue: model.InlineQueue, Priority: spec.Priority, Fair: spec.Fair, Weight: spec.Weight, Limits: spec.Limits, Breaker: spec.Breaker,
	}
}

func (p *passage) item(now model.Time, ref model.TaskRef) queue.Item {
	return queue.Item{Ref: ref, Spec: p.spec, Scheduled: now, Visible: now, Input: p.input}
}

// offerInline lets the worker of inline attempts take attempts of a tenant and a kind.
func (b *board) offerInline(now model.Time, tenant, kind string) {
	p := &b.inline
	newKind, newTenant := !slices.Contains(p.kinds, kind), !slices.Contains(p.tenants, tenant)
	if newKind {
		p.kinds = append(p.kinds, kind)
	}
	if newTenant {
		p.tenants = append(p.tenants, tenant)
	}
	if newKind || newTenant {
		b.b.Join(now, queue.InlineWorker, model.TaskOffer{Tenants: p.tenants, Queues: []string{model.InlineQueue}, Kinds: p.kinds, Slots: inlineSlots})
	}
}

// adopt counts the inline attempts and the lost claims of earlier incarnations whose code still
// runs. The engine calls it before a lane of the new incarnation starts anything.
func (b *board) adopt() {
	all := &b.inc.eng.attempts
	b.mu.Lock()
	defer b.mu.Unlock()
	all.mu.Lock()
	defer all.mu.Unlock()
	now := b.inc.eng.clock.now()
	b.adoptLingering(now)
	for ref, p := range all.running {
		b.offerInline(now, ref.Address.Tenant, p.spec.Kind)
		b.b.Hold(now, p.item(now, ref), queue.HeldClaim{Ref: model.ClaimRef{TaskRef: ref}, Worker: queue.InlineWorker})
	}
}

func (b *board) endPassage(ref model.TaskRef, spec *model.TaskSpec, how model.Passage, retryAfter time.Duration) {
	outcomes := [...]queue.Outcome{model.PassageNeither: queue.Neither, model.PassageSucceeded: queue.Succeeded, model.PassageFailed: queue.Failed}
	b.mu.Lock()
	now := b.inc.eng.clock.now()
	delete(b.inline.waiting, ref)
	if how == model.PassageFailed && retryAfter > 0 {
		b.gate.RetryAfter(now, &queue.Item{Ref: ref, Spec: spec}, now.Add(retryAfter))
	}
	b.b.Remove(now, ref, outcomes[how])
	b.leaveGate(now, ref)
	b.settle(now)
	b.moved = true
	b.mu.Unlock()
	b.Propose()
}

// startInline takes the inline attempts, which need no claim, out of the proposals, and returns the
// functions that start them.
func (b *board) startInline(matches []queue.Match) (others []queue.Match, begin []func()) {
	if len(b.inline.kinds) == 0 {
		return matches, nil
	}
	others = slices.DeleteFunc(matches, func(m queue.Match) bool {
		if m.Worker != queue.InlineWorker {
			return false
		}
		if p, waits := b.inline.waiting[m.Ref]; waits {
			delete(b.inline.waiting, m.Ref)
			b.inc.eng.attempts.add(m.Ref, p)
			begin = append(begin, p.begin)
		}
		return true
	})
	return others, begin
}
