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
	one  *onlyPosting       // nil when there is no task, or many is used
	many map[string]posting // nil until there is a second task
}

// onlyPosting is the posting of a run with one task.
type onlyPosting struct {
	id string // of the task
	posting
}

func (p *postings) len() int {
	if p.one != nil {
		return 1
	}
	return len(p.many)
}

func (p *postings) get(id string) (posting, bool) {
	if o := p.one; o != nil {
		return o.posting, o.id == id
	}
	t, ok := p.many[id]
	return t, ok
}

// set notes what the board knows about a task.
func (p *postings) set(id string, t posting) {
	switch o := p.one; {
	case o != nil && o.id == id:
		o.posting = t
		return
	case o == nil && p.many == nil:
		p.one = &onlyPosting{id, t}
		return
	case o != nil:
		p.many = map[string]posting{o.id: o.posting}
		p.one = nil
	}
	p.many[id] = t
}

func (p *postings) remove(id string) {
	if p.one != nil && p.one.id == id {
		p.one = nil
		return
	}
	delete(p.many, id)
}

// ids returns the tasks in a deterministic order. It appends them to the given slice.
func (p *postings) ids(spare []string) []string {
	if p.one != nil {
		return append(spare, p.one.id)
	}
	for id := range p.many {
		spare = append(spare, id)
	}
	slices.Sort(spare)
	return spare
}
