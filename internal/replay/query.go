package replay

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// QueryHandler answers a query from what the code has in memory. It must not wait, and must not
// change anything.
type QueryHandler func(model.Payload) (model.Payload, error)

// HandleQuery registers the handler for queries of the name.
func (x Ctx) HandleQuery(name string, h QueryHandler) {
	x.must("Handle")
	m := x.co.m
	if m.queries == nil {
		m.queries = map[string]QueryHandler{}
	}
	m.queries[name] = h
}

// query puts a query into the mailbox. The run answers it when its code is parked at the end of its
// history.
func (r *run) query(q model.Query) {
	r.mu.Lock()
	if r.evicted {
		r.mu.Unlock()
		return
	}
	r.queries = append(r.queries, q)
	r.wakeLocked()
}

// hasQueries reports whether there are queries to answer.
func (r *run) hasQueries() bool {
	if !r.mail.Load() {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.queries) > 0
}

// answerQueries answers the queries in the mailbox. The caller holds the baton and no coroutine
// runs, so handlers read the memory of the code while it does not change. Durable calls of a
// handler are refused.
func (r *run) answerQueries() {
	r.mu.Lock()
	queries := r.queries
	r.queries = nil
	r.mail.Store(len(r.inbox)+len(r.retries) > 0 || r.evicted || r.confirmed != r.durable)
	r.mu.Unlock()

	s := r.w.awaitSession()
	for _, q := range queries {
		out, err := r.m.answerQuery(&q)
		if s == nil {
			continue // the worker is closed
		}
		var f *model.Failure
		if err != nil {
			out, f = model.Payload{}, r.w.cfg.Failure(err)
		}
		s.Answer(r.start.Run, r.generation, q.ID, out, f)
	}

	r.m.turnOver(nil, false)
}

// answerQuery calls the handler. It warns if the handler blocks.
func (m *machine) answerQuery(q *model.Query) (out model.Payload, err error) {
	h := m.queries[q.Name]
	if h == nil {
		known := strings.Join(slices.Sorted(maps.Keys(m.queries)), ", ")
		if known == "" {
			known = "none"
		}
		return out, fault.New(fault.NotFound, "workflow %s does not handle query %s; it handles: %s", m.r.start.Address.Type, q.Name, known)
	}

	slow := time.AfterFunc(m.w.cfg.StuckAfter, func() {
		m.w.cfg.Logger.Warn("the handler of a query blocks its execution: a handler may not wait", "query", q.Name, "execution", addressText(m.r.start.Address))
	})
	defer slow.Stop()

	defer func() {
		if p := recover(); p != nil {
			out, err = model.Payload{}, PanicFailure(p)
		}
	}()

	return m.w.probeError(h(q.Input))
}
