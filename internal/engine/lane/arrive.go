package lane

import (
	"github.com/perdure/perdure/internal/model"
)

// Deliver passes a message of a client to the lane. The answer of the lane carries the token. fresh
// says that the request id has never been used before, so the lane does not look it up. After the
// answer ErrNotOwner the caller may repeat the message with the same request id: either the first
// message had no effect, or the repetition returns its answer.
func (l *Lane) Deliver(now model.Time, m *model.Message, fresh bool, token any) {
	l.receive(now, newMessageInput(m, fresh, token))
}

// Run passes a start to the lane. The caller of the start waits for the end of the execution. If
// the start begins a run, the caller gets the Result of the run. Otherwise it gets the answer to
// the start. Forget ends the wait.
func (l *Lane) Run(now model.Time, m *model.Message, fresh bool, token any) {
	in := newMessageInput(m, fresh, token)
	in.origin.awaits = true
	l.receive(now, in)
}

func newMessageInput(m *model.Message, fresh bool, token any) *messageInput {
	return &messageInput{
		inputBase: inputBase{address: &m.To},
		origin:    source{message: m, token: token},
		lookup:    lookup{fresh: fresh},
	}
}

// receive takes a message that does not come from the store: from a client of this process, or over
// a connection to another node.
func (l *Lane) receive(now model.Time, in *messageInput) {
	m, token := in.origin.message, in.origin.token
	if !m.Linked.IsZero() && l.lost.has(takeLink(m)) {
		in.lookup.fresh = false
	}
	e := l.entry(m.To)

	// While the lane gives up a shard, running tasks may still write data to their runs there.
	if l.dead != nil || e == nil || e.shard.draining && !(in.isWrite() && l.isWaitingFor(e.shard.id)) {
		l.answer(Answer{Token: token, Err: ErrNotOwner})
		return
	}
	if err := l.checkCrowd(now, e, in); err != nil {
		l.answer(Answer{Token: token, Err: err})
		return
	}

	w := waiter{token: token, early: true}
	if m.Kind == model.MessageUpdate || m.Kind == model.MessageCall && !m.OneWay && !m.Brief {
		in.origin.awaits, w.reply, w.drawn = true, m.RequestID, isDrawn(m)
	}
	if in.origin.awaits {
		l.waiters.add(m.To, w)
	}
	l.take(now, e, in)
}

// Turn tells the lane what a worker reports about a run that it holds.
func (l *Lane) Turn(now model.Time, w WorkerID, t *model.Turn) {
	if e := l.findHeld(w, t.Run, t.Generation); e != nil {
		l.take(now, e, &turnInput{inputBase{address: &e.address, run: t.Run}, t, w})
	}
}

// Release tells the lane that a worker wants to give up a parked run. The lane reads only Run,
// Generation, Seen and Waits of the turn. If a worker does not know what the run waits for, it
// gives no Waits, and the lane hands the run to another worker.
func (l *Lane) Release(now model.Time, w WorkerID, t *model.Turn) {
	if e := l.findHeld(w, t.Run, t.Generation); e != nil {
		l.take(now, e, &releaseInput{inputBase{address: &e.address, run: t.Run}, t, w})
	}
}

// findHeld finds the run that the worker holds in that generation. If the worker does not hold it,
// findHeld tells the worker so.
func (l *Lane) findHeld(w WorkerID, run model.RunID, gen uint64) *entry {
	if l.dead == nil {
		if e := l.runs[run]; e != nil && e.hold.by(w, gen) {
			return e
		}
	}
	l.evictStale(w, run, gen)
	return nil
}

// staleReport is why a worker loses a run that the lane has taken from it already.
const staleReport = "stale: the worker no longer holds the run"

// evictStale tells a worker that it no longer holds the run it is reporting on. A batch that is not
// committed yet may be about to take the run from the worker. In that case the lane tells the
// worker only after the commit, because it answers turns in their order and only when they are
// durable. Even if the store refuses that batch, the worker loses the run, because the lane has
// dropped this report.
func (l *Lane) evictStale(w WorkerID, run model.RunID, gen uint64) {
	for _, b := range [...]*building{l.flight, l.open} {
		if b == nil {
			continue
		}
		for i := range b.effects {
			if f := &b.effects[i]; f.kind == effEvict && f.call.Worker == w && f.call.Run == run && f.call.Generation == gen {
				f.moot = true
				return
			}
		}
	}
	l.out.Calls = append(l.out.Calls, Call{Kind: CallEvict, Worker: w, Run: run, Generation: gen, Reason: staleReport})
}
