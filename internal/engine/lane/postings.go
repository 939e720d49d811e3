package lane

import (
	"slices"

	"github.com/perdure/perdure/internal/engine/queue"
	"github.com/perdure/perdure/internal/model"
)

// posting is what the lane has told the board about a task.
type posting struct {
	held    bool
	claim   int64
	visible model.Time
	worker  queue.WorkerID
	warned  bool // the worker knows that its task is canceled
}

// postings are what the lane has told the board about the tasks of a run. Most runs with tasks are
// tasks without a workflow and have one task, which needs no map.
type postings struct {
	id   string // of the only task; empty when there is none, or many is used
	one  posting
	many map[string]posting // nil until there is a second task
}

func (p *postings) len() int {
	if p.id != "" {
		return 1
	}
	return len(p.many)
}

func (p *postings) get(id string) (posting, bool) {
	if p.id != "" {
		return p.one, p.id == id
	}
	t, ok := p.many[id]
	return t, ok
}

// set notes what the board knows about a task.
func (p *postings) set(id string, t posting) {
	switch {
	case p.id == id || p.len() == 0 && p.many == nil:
		p.id, p.one = id, t
		return
	case p.many == nil:
		p.many = map[string]posting{p.id: p.one}
		p.id, p.one = "", posting{}
	}
	p.many[id] = t
}

func (p *postings) remove(id string) {
	if p.id == id {
		p.id, p.one = "", posting{}
		return
	}
	delete(p.many, id)
}

// ids returns the tasks in a deterministic order. It appends them to the given slice.
func (p *postings) ids(spare []string) []string {
	if p.id != "" {
		return append(spare, p.id)
	}
	for id := range p.many {
		spare = append(spare, id)
	}
	slices.Sort(spare)
	return spare
}
