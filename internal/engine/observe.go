package engine

import (
	"strings"
	"time"

	"github.com/perdure/perdure/internal/core/breaker"
	"github.com/perdure/perdure/internal/core/rule"
	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/telemetry"
	"github.com/perdure/perdure/internal/telemetry/tracing"
)

// isObserved reports whether the engine counts or traces commits.
func (e *Engine) isObserved() bool { return e.cfg.Meter != nil || e.cfg.Tracer != nil || e.cfg.Series }

// observe counts facts that have become durable. It creates the spans of runs and tasks that have
// ended.
func (e *Engine) observe(facts []lane.Fact) {
	m, t := e.cfg.Meter, e.cfg.Tracer
	e.countSeries(facts)

	for i := range facts {
		f := &facts[i]
		switch f.Kind {
		case lane.FactBatch:
			m.Observe(telemetry.CommitInputs, float64(f.N))
		case lane.FactTurn:
			m.Add(telemetry.Turns, 1)
		case lane.FactStarted:
			m.Add(telemetry.RunsStarted, 1, f.Address.Type, f.Address.Tenant)
		case lane.FactClosed:
			m.Add(telemetry.RunsClosed, 1, f.Address.Type, f.Status.String(), f.Address.Tenant)
			m.Took(telemetry.RunSeconds, f.Took(), f.Address.Type, f.Address.Tenant)
			t.RecordRun(&tracing.Ended{
				Address: f.Address, Run: f.Run, Trace: f.Trace, Began: f.Since.Std(), Until: f.At.Std(), Status: f.Status, Failure: telemetry.FailureWord(f.Failure),
			})
		case lane.FactBlocked:
			m.Add(telemetry.RunsBlocked, 1, f.Address.Type, f.Word, f.Address.Tenant)
		case lane.FactStep:
			m.Add(telemetry.ActivityAttempts, 1, f.Name, outcomeWords[f.Outcome], f.Address.Tenant)
		case lane.FactSubmitted:
			m.Add(telemetry.TasksSubmitted, 1, f.Name, f.Queue, f.Address.Tenant)
		case lane.FactClaimed:
			m.Add(telemetry.TasksClaimed, 1, f.Name, f.Queue, f.Address.Tenant)
			m.Took(telemetry.TaskPickup, f.Took(), f.Name, f.Queue, f.Address.Tenant)
		case lane.FactAttempt:
			e.observeAttempt(f)
		case lane.FactTimedOut:
			m.Add(telemetry.TaskTimeouts, 1, f.Name, f.Queue, f.Word, f.Address.Tenant)
		case lane.FactDead:
			m.Add(telemetry.TasksDead, 1, f.Name, f.Queue, f.Address.Tenant)
		case lane.FactRequeued:
			m.Add(telemetry.DeadRequeued, 1, f.Name, f.Queue, f.Address.Tenant)
		case lane.FactPurged:
			m.Add(telemetry.DeadRemoved, 1)
		case lane.FactTimer:
			m.Add(telemetry.TimersFired, 1)
			m.Took(telemetry.TimerLateness, f.Took())
		case lane.FactMessage:
			e.observeMessage(f)
		case lane.FactRemoved:
			m.Add(telemetry.RunsRemoved, int64(f.N))
		case lane.FactCall:
			e.observeCall(f)
		case lane.FactHandOver:
			m.Took(telemetry.EntityHandOver, f.Took(), entityWord(f.Address.Type), f.Address.Tenant)
			m.Observe(telemetry.EntityHandOverCalls, float64(f.N), entityWord(f.Address.Type), f.Address.Tenant)
		case lane.FactLocked:
			m.Took(telemetry.LockWait, f.Took(), entityWord(f.Address.Type), f.Address.Tenant)
		case lane.FactUnlocked:
			m.Took(telemetry.LockHeld, f.Took(), entityWord(f.Address.Type), f.Word, f.Address.Tenant)
		}
	}
}

// outcomeWords name how attempts ended.
var outcomeWords = [...]string{
	lane.Completed: "completed", lane.Retried: "retried", lane.Failed: "failed", lane.TimedOut: "timed_out", lane.Lost: "lost",
	lane.Returned: "returned", lane.Canceled: "canceled", lane.Refused: "refused",
}

func (e *Engine) observeAttempt(f *lane.Fact) {
	m := e.cfg.Meter
	m.Add(telemetry.TaskAttempts, 1, f.Name, f.Queue, outcomeWords[f.Outcome], f.Address.Tenant)
	m.Took(telemetry.TaskSeconds, f.Took(), f.Name, f.Queue, f.Address.Tenant)
	if f.Outcome == lane.Failed || f.Outcome == lane.Lost {
		m.Add(telemetry.TaskFailures, 1, f.Name, f.Queue, telemetry.FailureWord(f.Failure), f.Address.Tenant)
	}
	if f.Again {
		m.Add(telemetry.TaskRetries, 1, f.Name, f.Queue, f.Address.Tenant)
	}
}

// entityWord returns the name of an entity or service for people, without the prefix of entities.
func entityWord(typ string) string { return strings.TrimPrefix(typ, model.EntityPrefix) }

func (e *Engine) observeCall(f *lane.Fact) {
	m, word := e.cfg.Meter, entityWord(f.Address.Type)
	m.Add(telemetry.EntityCalls, 1, word, f.Name, outcomeWords[f.Outcome], f.Address.Tenant)
	if f.Outcome == lane.Refused {
		return
	}
	m.Took(telemetry.EntityCallSeconds, f.Took(), word, f.Name, f.Address.Tenant)
	if t := e.cfg.Tracer; t != nil {
		t.RecordOperation(&tracing.Operation{
			Entity: f.Address, Name: f.Name, Trace: f.Trace, Came: f.Since.Std(), Handed: f.Handed.Std(), Ended: f.At.Std(), Failure: telemetry.FailureWord(f.Failure),
		})
	}
}

func (e *Engine) observeMessage(f *lane.Fact) {
	word := "applied"
	if f.Refused {
		word = "refused"
	}
	e.cfg.Meter.Add(telemetry.Messages, 1, f.Message.String(), word)
	if f.Refused {
		return
	}
	switch f.Message {
	case model.MessageSignal, model.MessageSettle, model.MessageUpdate:
		e.cfg.Tracer.RecordReceipt(&tracing.Receipt{Kind: f.Message, Name: f.Name, From: f.Trace, Address: f.Address, Run: f.Run, RunTrace: f.Of, At: f.At.Std()})
	default:
	}
}

// observeCommit counts a commit.
func (e *Engine) observeCommit(b *store.Batch, took time.Duration, err error) {
	m, word := e.cfg.Meter, ok
	if err != nil {
		word = store.ClassOf(err).String()
	}
	m.Add(telemetry.Commits, 1, word)
	m.Took(telemetry.CommitSeconds, took)
	if err == nil {
		m.Observe(telemetry.CommitRows, float64(b.Rows()))
	}
}

// ok is the word for a successful call of the store.
const ok = "ok"

// word returns the outcome of a call of the store, for metrics.
func word(err error) string {
	if err != nil {
		return "failed"
	}
	return ok
}

// newTrace returns the function with which lanes create traces. It returns nil without a tracer.
func (e *Engine) newTrace() func(model.Address) string {
	if e.cfg.Tracer == nil {
		return nil
	}
	return e.cfg.Tracer.StartTrace
}

// laneWait is how long the collection of metrics waits for a lane to report its state.
const laneWait = time.Second

// states reports the metrics of the node. A node that is not sure of its lease knows only what is
// in its memory. What the node knew about its shards, queues and limits may be wrong by now. So the
// gauges for shards, queues and limits have no value at such a time. A node without an incarnation
// owns no shards, and says so.
func (e *Engine) states(g *telemetry.States) {
	if logged, ok := e.cfg.Store.(store.Logged); ok {
		if bytes, _, err := logged.LogSize(); err == nil {
			g.Set(telemetry.StoreLog, float64(bytes))
		}
	}

	inc := e.current()
	if inc == nil {
		g.Set(telemetry.LeaseLeft, 0)
		g.Set(telemetry.ShardsOwned, 0)
		return
	}

	left := time.Duration(inc.validUntil.Load()) - e.clock.mono()
	g.Set(telemetry.LeaseLeft, max(left, 0).Seconds())
	serving := inc.isServing()
	for _, s := range inc.lanes {
		s.states(g, serving)
	}
	if !serving {
		return
	}

	g.Set(telemetry.ClockAhead, time.Duration(e.skew.Load()).Seconds())
	owned := 0
	for s := range inc.owner {
		if inc.owner[s].Load() > 0 {
			owned++
		}
	}

	g.Set(telemetry.ShardsOwned, float64(owned))
	if alive := inc.alive.Load(); alive != nil {
		g.Set(telemetry.Nodes, float64(len(*alive)))
	}
	inc.board.states(g)
}

// states reports the metrics of a lane. A lane that does not answer within laneWait is left out.
func (s *laneShell) states(g *telemetry.States, serving bool) {
	g.Set(telemetry.LaneInbox, float64(s.inbox.len()))
	told := make(chan lane.States, 1)
	if !s.inbox.result(func(l *lane.Lane, _ model.Time) { told <- l.States() }) {
		return
	}
	timer := time.NewTimer(laneWait)
	defer timer.Stop()

	select {
	case st := <-told:
		g.Set(telemetry.LaneBytes, float64(st.Bytes))
		if serving {
			setLaneStates(g, &st)
		}
	case <-timer.C:
	}
}

// setLaneStates reports what a lane knows about its shards.
func setLaneStates(g *telemetry.States, st *lane.States) {
	g.Set(telemetry.RunsQuarantined, float64(st.Quarantined))
	g.Set(telemetry.SlotWaiters, float64(st.RunsInLine), "workflow")
	g.Set(telemetry.SlotWaiters, float64(st.EntitiesInLine), "entity")
	for typ, n := range st.Entities {
		word := entityWord(typ)
		g.Set(telemetry.EntitiesLoaded, float64(n.Loaded), word)
		g.Set(telemetry.EntityCallsWaiting, float64(n.Calls), word)
		g.Set(telemetry.LocksHeld, float64(n.Locked), word)
		g.Set(telemetry.LockWaiters, float64(n.Waiters), word)
	}
}

// states reports the metrics of queues, limits and breakers.
func (b *board) states(g *telemetry.States) {
	now := b.inc.eng.clock.now()
	b.mu.Lock()
	limits, breakers, stats := b.gate.Limits(), b.gate.Breakers(now), b.b.Stats()
	b.mu.Unlock()

	type line struct{ queue, tenant string }
	oldest := map[line]model.Time{}
	for i := range stats.Queues {
		q := &stats.Queues[i]
		g.Set(telemetry.Tasks, float64(q.Waiting), q.Queue, "waiting", q.Tenant)
		g.Set(telemetry.Tasks, float64(q.Delayed), q.Queue, "delayed", q.Tenant)
		g.Set(telemetry.Tasks, float64(q.Claimed), q.Queue, "claimed", q.Tenant)
		g.Set(telemetry.QueueWorkers, float64(q.Workers), q.Queue, q.Tenant)
		g.Set(telemetry.QueueSlots, float64(q.Slots), q.Queue, q.Tenant)
		paused := 0.0
		if q.Paused {
			paused = 1
		}
		g.Set(telemetry.QueuePaused, paused, q.Queue, q.Tenant)
		at := line{queue: q.Queue}
		if g.ByTenant() {
			at.tenant = q.Tenant
		}
		if was, known := oldest[at]; q.Oldest != 0 && (!known || was == 0 || q.Oldest < was) || !known {
			oldest[at] = q.Oldest
		}
	}

	for at, since := range oldest {
		waits := 0.0
		if since != 0 {
			waits = max(now.Sub(since), 0).Seconds()
		}
		g.Set(telemetry.TaskOldest, waits, at.queue, at.tenant)
	}

	for i := range limits {
		l := &limits[i]
		g.Set(telemetry.LimitHolders, float64(len(l.Holders)), l.Resource.Name, l.Resource.Tenant)
		g.Set(telemetry.LimitWaiters, float64(len(l.Waiters)), l.Resource.Name, l.Resource.Tenant)
		g.Set(telemetry.LimitPermits, float64(l.Block), l.Resource.Name, l.Resource.Tenant)
	}

	for i := range breakers {
		s := &breakers[i]
		for _, state := range [...]breaker.State{breaker.Closed, breaker.Open, breaker.HalfOpen} {
			is := 0.0
			if s.State == state {
				is = 1
			}
			g.Set(telemetry.BreakerState, is, s.ID.Name, state.String(), s.ID.Tenant)
		}
	}
}

// watch counts the state changes of breakers that the gate has just stored or adopted.
func (b *board) watch(now model.Time) {
	m := b.inc.eng.cfg.Meter
	if m == nil {
		return
	}
	if b.told == nil {
		b.told = map[rule.BreakerID]breaker.State{}
	}
	for _, s := range b.gate.Breakers(now) {
		was, known := b.told[s.ID]
		if b.told[s.ID] = s.State; was != s.State && (known || s.State != breaker.Closed) {
			m.Add(telemetry.BreakerTransitions, 1, s.ID.Name, s.State.String(), s.ID.Tenant)
		}
	}
}
