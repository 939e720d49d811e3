package sim

import (
	"slices"
	"strings"

	"github.com/perdure/perdure/internal/engine/queue"
	"github.com/perdure/perdure/internal/model"
)

// board is the task board of an incarnation, with the part of engine/board.go around it: it has lanes decide about what it proposes, and rings.
type board struct {
	inc   *incarnation
	b     *queue.Board
	names map[queue.WorkerID]string
	ids   map[string]*hand
	moved bool
	alarm int64 // when it rings; 0 when it does not
}

func newBoard(inc *incarnation) *board {
	return &board{inc: inc, b: queue.New(queue.Config{Grace: inc.p.s.plan.grace}), names: map[queue.WorkerID]string{}, ids: map[string]*hand{}}
}

// Reserve is for lanes; see lane.Board.
func (b *board) Reserve(now model.Time, it *queue.Item) (queue.WorkerID, string, bool) {
	id, ok := b.b.Reserve(now, it)
	return id, b.names[id], ok
}

// Add is for lanes.
func (b *board) Add(now model.Time, it queue.Item) {
	b.b.Add(now, it)
	b.moved = true
}

// Held is for lanes.
func (b *board) Held(now model.Time, it queue.Item, claim int64, id queue.WorkerID) {
	b.b.Held(now, it, model.ClaimRef{TaskRef: it.Ref, Claim: claim}, id)
	b.moved = true
}

// Remove is for lanes.
func (b *board) Remove(now model.Time, ref model.TaskRef, how queue.Outcome) {
	b.b.Remove(now, ref, how)
	b.moved = true
}

// Find is for lanes.
func (b *board) Find(name string, claim model.ClaimRef) (id queue.WorkerID, has bool) {
	worker, _, _ := strings.Cut(name, "@")
	if h := b.ids[worker]; h != nil {
		return h.id, h.held[claim] != nil || h.reported[claim] != nil
	}
	return 0, false
}

// Elsewhere is for lanes.
func (b *board) Elsewhere(name string) bool {
	_, node, _ := strings.Cut(name, "@")
	return node != b.inc.self.ID.String() && slices.Contains(b.inc.alive, node)
}

// Dropped is for lanes. Nodes do not ask each other here.
func (b *board) Dropped(string, model.ClaimRef) bool { return false }

// RetryAfter is for lanes. There are no breakers here.
func (b *board) RetryAfter(model.Time, *queue.Item, model.Time) {}

// Explain is for lanes.
func (b *board) Explain(ref model.TaskRef) (model.Reason, bool) { return b.b.Explain(ref) }

func (b *board) join(h *hand) {
	now := b.inc.p.now()
	if _, ok := b.names[h.id]; ok {
		b.b.Slots(now, h.id, h.offer.Slots)
	} else {
		b.b.Join(now, h.id, h.offer)
		b.names[h.id], b.ids[h.offer.Name] = h.offer.Name+"@"+b.inc.self.ID.String(), h
	}
	b.moved = true
	b.propose()
}

func (b *board) leave(h *hand) {
	b.b.Leave(b.inc.p.now(), h.id)
	delete(b.names, h.id)
	delete(b.ids, h.offer.Name)
	b.moved = true
	b.propose()
}

// propose has lanes decide about what the board would like.
func (b *board) propose() {
	if !b.moved || b.inc.ended {
		return
	}
	b.moved = false
	s, p := b.inc.p.s, b.inc.p
	now := p.now()
	matches := b.b.Match(now)
	var due []queue.Due
	wake := b.b.Wake()
	if wake != 0 && wake <= now {
		due = b.b.Due(now)
		wake = b.b.Wake()
	}
	for _, m := range matches {
		s.mix(7, uint64(m.Worker))
		sh, name := b.inc.shells[m.Lane], b.names[m.Worker]
		sh.result(func(now model.Time) { sh.lane.Claim(now, m.Ref, m.Worker, name) })
	}
	for _, d := range due {
		s.mix(8, uint64(d.Kind))
		sh, claimed := b.inc.shells[d.Lane], d.Kind == queue.DueSilence || d.Kind == queue.DueToClose || d.Kind == queue.DueLost
		sh.result(func(now model.Time) { sh.lane.Expire(now, d.Ref, claimed, d.Claim, d.Kind.String()) })
	}
	if wake == 0 {
		return
	}
	at := s.now + max(int64(float64(wake-now)/p.rate)+1, 1)
	if b.alarm != 0 && b.alarm <= at {
		return
	}
	b.alarm = at
	s.at(at, p, func() {
		if b.alarm == at {
			b.alarm, b.moved = 0, true
			b.propose()
		}
	})
}

// left tells what is left on a board that nothing should be on.
func (b *board) left() string {
	st := b.b.Stats()
	for _, q := range st.Queues {
		if q.Waiting+q.Delayed+q.Claimed > 0 {
			return "tasks of queue " + q.Queue
		}
	}
	for _, w := range st.Workers {
		if w.Held > 0 {
			return "a slot of worker " + b.names[w.ID]
		}
	}
	return ""
}
