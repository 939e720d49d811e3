// Package queue is a stand-in.
package queue

import (
	"slices"

	"github.com/perdure/perdure/internal/model"
)

type WorkerID int
type Outcome uint8

const (
	Neither Outcome = iota
	Succeeded
	Failed
)

type Item struct {
	Ref                model.TaskRef
	Lane               int
	Spec               *model.TaskSpec
	Attempt            int
	Scheduled, Visible model.Time
}
type Config struct{}
type Match struct {
	Ref    model.TaskRef
	Lane   int
	Worker WorkerID
}
type Due struct {
	Ref   model.TaskRef
	Lane  int
	Held  bool
	Claim int64
	Kind  string
}
type worker struct {
	id    WorkerID
	offer model.TaskOffer
	used  int
}
type state struct {
	it     Item
	worker WorkerID
	taken  bool
	held   bool
	claim  int64
	since  model.Time
}
type Board struct {
	ws    []*worker
	tasks map[model.TaskRef]*state
	line  []model.TaskRef
}

func New(Config) *Board { return &Board{tasks: map[model.TaskRef]*state{}} }
func (b *Board) w(id WorkerID) *worker {
	for _, w := range b.ws {
		if w.id == id {
			return w
		}
	}
	return nil
}
func (b *Board) Join(_ model.Time, id WorkerID, o model.TaskOffer) {
	b.ws = append(b.ws, &worker{id: id, offer: o})
}
func (b *Board) Slots(_ model.Time, id WorkerID, n int) { b.w(id).offer.Slots = n }
func (b *Board) Leave(_ model.Time, id WorkerID) []model.ClaimRef {
	b.ws = slices.DeleteFunc(b.ws, func(w *worker) bool { return w.id == id })
	return nil
}
func (b *Board) find(it *Item) *worker {
	for _, w := range b.ws {
		if w.used < w.offer.Slots && slices.Contains(w.offer.Queues, it.Spec.Queue) && slices.Contains(w.offer.Kinds, it.Spec.Kind) {
			return w
		}
	}
	return nil
}
func (b *Board) Reserve(now model.Time, it *Item) (WorkerID, bool) {
	if len(b.line) > 0 {
		return 0, false
	}
	w := b.find(it)
	if w == nil {
		return 0, false
	}
	w.used++
	b.tasks[it.Ref] = &state{it: *it, worker: w.id, taken: true}
	return w.id, true
}
func (b *Board) Add(_ model.Time, it Item) {
	b.tasks[it.Ref] = &state{it: it}
	b.line = append(b.line, it.Ref)
}
func (b *Board) Held(now model.Time, it Item, c model.ClaimRef, id WorkerID) {
	s := b.tasks[it.Ref]
	if s == nil || s.worker != id {
		if w := b.w(id); w != nil {
			w.used++
		}
	}
	b.line = slices.DeleteFunc(b.line, func(r model.TaskRef) bool { return r == it.Ref })
	b.tasks[it.Ref] = &state{it: it, worker: id, taken: true, held: true, claim: c.Claim, since: now}
}
func (b *Board) Remove(_ model.Time, ref model.TaskRef, _ Outcome) {
	if s := b.tasks[ref]; s != nil {
		if w := b.w(s.worker); w != nil {
			w.used--
		}
		delete(b.tasks, ref)
		b.line = slices.DeleteFunc(b.line, func(r model.TaskRef) bool { return r == ref })
	}
}
func (b *Board) Match(now model.Time) (out []Match) {
	b.line = slices.DeleteFunc(b.line, func(r model.TaskRef) bool {
		s := b.tasks[r]
		if s.it.Visible > now {
			return false
		}
		if w := b.find(&s.it); w != nil {
			w.used++
			s.worker, s.taken = w.id, true
			out = append(out, Match{r, s.it.Lane, w.id})
			return true
		}
		return false
	})
	return out
}
func (b *Board) Beat(now model.Time, _ WorkerID, c model.ClaimRef) bool { return true }
func (b *Board) Due(now model.Time) (out []Due) {
	for r, s := range b.tasks {
		if s.held && s.it.Spec.ToClose > 0 && now > s.since.Add(s.it.Spec.ToClose) {
			out = append(out, Due{r, s.it.Lane, true, s.claim, model.TimeoutToClose})
		}
	}
	return out
}
func (b *Board) Wake() (t model.Time) {
	for _, s := range b.tasks {
		var at model.Time
		switch {
		case s.held && s.it.Spec.ToClose > 0:
			at = s.since.Add(s.it.Spec.ToClose) + 1
		case !s.taken:
			at = s.it.Visible
		}
		if at != 0 && (t == 0 || at < t) {
			t = at
		}
	}
	return t
}
