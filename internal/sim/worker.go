package sim

import (
	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/model"
)

// worker runs programs in a process.
type worker struct {
	p       *proc
	id      lane.WorkerID
	offer   model.Offer
	bad     bool // cannot run any program
	leaving bool
	gone    bool
	held    map[model.RunID]*hold
}

// join adds a worker to a process. If workers have versions and none is given, the version is
// random.
func (p *proc) join(bad bool, version string) {
	p.nextID++
	w := &worker{p: p, id: p.nextID, bad: bad, held: map[model.RunID]*hold{}}
	w.offer = model.Offer{Name: "sim", Tenant: tenant, Workflows: workflows[:]}

	if bad {
		p.s.hurt(faultBadWorker)
	} else if !p.s.healed && p.s.chance(0.2) {
		w.offer.Workflows = workflows[:1+p.s.pick(2)]
	}

	if version == "" {
		w.drawVersion()
	} else {
		w.setVersion(version)
	}

	p.workers = append(p.workers, w)
	if p.inc != nil {
		p.inc.join(w)
	}
}

func (inc *incarnation) join(w *worker) {
	for _, sh := range inc.shells {
		sh.result(func(now model.Time) { sh.lane.Join(now, w.id, w.offer) })
	}
}

// leave takes a worker out of a process. First the worker gets nothing new. It leaves when it holds
// nothing, or after a while.
func (w *worker) leave() {
	s, p := w.p.s, w.p
	if w.leaving {
		return
	}
	w.leaving = true
	if s.opts.Trace {
		s.logf("%s worker %d leaves", p.name(), w.id)
	}

	if p.inc != nil {
		for _, sh := range p.inc.shells {
			sh.result(func(model.Time) { sh.lane.Withdraw(w.id) })
		}
	}

	end := s.now + s.between(0, 100)*millisecond
	var wait func()
	wait = func() {
		if len(w.held) > 0 && s.now < end {
			s.after(2*millisecond, p, wait)
			return
		}

		if p.inc != nil {
			for _, sh := range p.inc.shells {
				sh.result(func(now model.Time) { sh.lane.Leave(now, w.id) })
			}
		}

		w.gone = true
		for i, o := range p.workers {
			if o == w {
				p.workers = append(p.workers[:i], p.workers[i+1:]...)
				break
			}
		}

		s.did(opWorkerLeft)
	}

	s.after(2*millisecond, p, wait)
}

func (p *proc) worker(id lane.WorkerID) *worker {
	for _, w := range p.workers {
		if w.id == id {
			return w
		}
	}
	return nil
}

// call passes a call of a lane to a worker.
func (p *proc) call(c *lane.Call) {
	w := p.worker(c.Worker)
	if w == nil {
		return
	}

	if c.Kind == lane.CallRecall {
		// the worker may still hold the run whose end it has reported
		w.recall(c.Run, c.Generation, *c.Query)
		return
	}

	h := w.held[c.Run]
	if h != nil && h.gen != c.Generation {
		if c.Kind != lane.CallActivate {
			return
		}
		p.s.fail("worker %d of %s gets %s while it holds it already", w.id, p.name(), short(c.Run))
	}

	switch c.Kind {
	case lane.CallActivate:
		w.activate(c.Activation)
	case lane.CallDeliver:
		if h != nil {
			h.deliver(c.Events)
		}
	case lane.CallRetry:
		if h != nil {
			h.retry(c.ID)
		}
	case lane.CallQuery:
		if h != nil {
			h.query(*c.Query)
		}
	case lane.CallRecall: // see above
	case lane.CallEvict:
		p.s.did(opEvicted)
		if h != nil {
			if p.s.opts.Trace {
				p.s.logf("%s worker %d evicted %s: %s", p.name(), w.id, short(c.Run), c.Reason)
			}
			h.drop()
		}
	}
}

func (h *hold) drop() {
	h.dropped = true
	delete(h.w.held, h.run)
}

// report passes a turn to the current incarnation.
func (w *worker) report(t model.Turn) bool {
	inc := w.p.inc
	if inc == nil {
		return false
	}
	sh := inc.shells[t.Generation%uint64(len(inc.shells))]
	return sh.put(nil, func(now model.Time) { sh.lane.Turn(now, w.id, &t) })
}
