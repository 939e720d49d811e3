package crew

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/model"
)

// caller is a worker of entities that keeps its calls until the test ends them.
type caller struct {
	mu    sync.Mutex
	got   []model.Operations
	hands *EntityHands
	own   []model.Operated // what its own node got
	freed []model.Operated // calls that its own node got back
	held  map[uint64]bool
}

func (c *caller) Operate(o model.Operations) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.got = append(c.got, o)
}

// numbers returns how many hand-overs the worker has got.
func (c *caller) numbers() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.got)
}

// finish ends the calls of the hand-over with an index, with one result per call.
func (c *caller) finish(t *testing.T, i int) {
	t.Helper()
	c.mu.Lock()
	o := c.got[i]
	c.mu.Unlock()
	r := model.Operated{Entity: o.Entity, Generation: o.Generation, Results: make([]model.OperationResult, len(o.Calls))}
	if err := c.hands.FinishCalls(t.Context(), r); err != nil {
		t.Fatal(err)
	}
}

func newCaller() *caller {
	c := &caller{held: map[uint64]bool{}}
	note := func(held bool) func(model.RunID, uint64) {
		return func(_ model.RunID, g uint64) {
			c.mu.Lock()
			defer c.mu.Unlock()
			if held {
				c.held[g] = true
			} else {
				delete(c.held, g)
			}
		}
	}
	c.hands = NewEntityHands(c, model.EntityOffer{Tenant: "default", Types: []model.EntityType{{Type: "entity:e"}, {Type: "service:s"}}}, HandsConfig{
		Hold: note(true), Release: note(false), Slots: func() SharedSlots { return nil },
		Report: func(_ context.Context, r model.Operated) error { c.own = append(c.own, r); return nil },
		Return: func(r model.Operated) { c.freed = append(c.freed, r) },
	})
	return c
}

// callsOf returns a hand-over of calls with these numbers. A negative number makes a call that is
// only in memory.
func callsOf(kind string, generation uint64, numbers ...int64) model.Operations {
	o := model.Operations{Entity: model.Address{Tenant: "default", Type: kind, Key: "k"}, Generation: generation, State: model.TextPayload("s"), Exists: true}
	for _, n := range numbers {
		in := string(rune('a' + max(n, -n)))
		o.Calls = append(o.Calls, model.OperationCall{Name: "add", Input: model.TextPayload(in), Number: max(n, 0)})
	}
	return o
}

// movedCalls is a worker that runs calls for an owner from which their shard has moved.
type movedCalls struct {
	*office

	worker        *caller
	host          *HostSide
	first, second model.NodeID
	at, next      place
}

func (p *place) worker() CallWorker {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.callers) == 0 {
		return nil
	}
	return p.callers[len(p.callers)-1]
}

func (p *place) reports() []model.Operated {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.operated)
}

// moveCalls lets a worker run calls for the first owner. Then their shard moves to the second one,
// which asks what the worker holds.
func moveCalls(t *testing.T, handed ...model.Operations) *movedCalls {
	t.Helper()
	m := &movedCalls{office: &office{}, worker: newCaller(), first: nodeID(2), second: nodeID(3)}
	host := nodeID(1)
	m.host, _ = m.add(t, host, nil, func() []Hands { return []Hands{m.worker.hands} })
	m.add(t, m.first, &m.at, func() []Hands { return nil })
	m.add(t, m.second, &m.next, func() []Hands { return nil })
	m.owner = m.first
	m.host.SetMembers(view(host, m.first, m.second))
	until(t, "the worker joins", func() bool { return m.at.worker() != nil && m.next.worker() != nil })
	for i, o := range handed {
		m.at.worker().Operate(o)
		until(t, "the worker gets the calls", func() bool { return m.worker.numbers() == i+1 })
	}
	Ask(t.Context(), desk{m.office, m.second}, []model.NodeID{host})
	if n := len(m.worker.hands.Left()); n > 0 {
		t.Fatalf("the worker names %d entities, although their shard has not moved", n)
	}
	m.owner = m.second
	Ask(t.Context(), desk{m.office, m.second}, []model.NodeID{host})
	m.next.mu.Lock()
	defer m.next.mu.Unlock()
	if len(m.next.held) != 1 || m.next.held[0].Address != handed[0].Entity {
		t.Fatalf("the next owner knows of %v", m.next.held)
	}
	return m
}

// A shard moves to another live node while a worker runs calls of an entity. The next owner hands
// the same calls over, and further ones. The worker does not run them again: both owners get the
// results, and the first one frees its slot.
func TestNextOwnerGetsTheResultsOfRunningCalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := moveCalls(t, callsOf("entity:e", 7, 1, 2))
		m.next.worker().Operate(callsOf("entity:e", 70, 1, 2, 3))
		synctest.Wait()
		m.worker.finish(t, 0)
		until(t, "both owners get the results", func() bool { return len(m.next.reports()) == 1 && len(m.at.reports()) == 1 })
		got, old := m.next.reports()[0], m.at.reports()[0]
		if got.Generation != 70 || len(got.Results) != 2 || old.Generation != 7 {
			t.Errorf("the next owner gets %+v, and the last one gets %+v", got, old)
		}
		if n := m.worker.numbers(); n != 1 || len(m.worker.held) != 0 || len(m.worker.hands.Left()) != 0 {
			t.Errorf("%d hand-overs reached the worker; it holds %v and %v", n, m.worker.held, m.worker.hands.Left())
		}
	})
}

// The calls that the next owner of an entity hands over differ from the calls that still run, or
// have another state, or cannot be compared. They wait until the running calls have ended. A call
// of a service with another input does not wait.
func TestNextHandOverWaitsForRunningCalls(t *testing.T) {
	t.Parallel()
	changed := callsOf("entity:e", 70, 1)
	changed.State = model.TextPayload("other")
	for what, c := range map[string]struct {
		first, next model.Operations
		waits       bool
	}{
		"another call":                         {callsOf("entity:e", 7, 1), callsOf("entity:e", 70, 2), true},
		"fewer calls":                          {callsOf("entity:e", 7, 1, 2), callsOf("entity:e", 70, 1), true},
		"another state":                        {callsOf("entity:e", 7, 1), changed, true},
		"a call in memory":                     {callsOf("entity:e", 7, -1), callsOf("entity:e", 70, -1), true},
		"another call of a service":            {callsOf("service:s", 7, 1), callsOf("service:s", 70, 2), false},
		"the call of a service, from a server": {callsOf("service:s", 7, 1), renumbered(callsOf("service:s", 70, 1)), true},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m := moveCalls(t, c.first)
				m.next.worker().Operate(c.next)
				synctest.Wait()
				if n := m.worker.numbers(); (n == 1) != c.waits {
					t.Fatalf("%d hand-overs reached the worker while the first one runs", n)
				}

				m.worker.finish(t, 0)
				until(t, "the worker gets the calls", func() bool { return m.worker.numbers() == 2 })
				m.worker.finish(t, 1)
				until(t, "the next owner gets the results", func() bool { return len(m.next.reports()) == 1 })
				if got := m.next.reports()[0]; got.Generation != 70 || len(got.Results) != len(c.next.Calls) {
					t.Errorf("the next owner gets %+v", got)
				}
				if len(m.worker.held) != 0 || len(m.worker.hands.Left()) != 0 {
					t.Errorf("the worker holds %v and %v", m.worker.held, m.worker.hands.Left())
				}
			})
		})
	}
}

// renumbered gives calls the numbers of another kind of owner.
func renumbered(o model.Operations) model.Operations {
	for i := range o.Calls {
		o.Calls[i].Number += 1000
	}
	return o
}

// The shard moves on to a third node while the hand-over of the second one waits, for the end of
// other calls or for their results. The second owner gets its hand-over back, so it frees the slot.
// The calls run once for the third owner.
func TestWaitingHandOverOfALostOwner(t *testing.T) {
	t.Parallel()
	for what, number := range map[string]int64{"for the results": 1, "for the end": 2} {
		for _, own := range []bool{false, true} {
			t.Run(what, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					m := moveCalls(t, callsOf("entity:e", 7, 1))
					m.next.worker().Operate(callsOf("entity:e", 70, number))
					time.Sleep(time.Second) // the hand-over arrives before the shard moves

					// The third owner is the node of the worker, or the first owner again.
					m.owner = m.first
					if own {
						m.owner = nodeID(1)
					}
					if !m.host.Settle(t.Context()) {
						t.Fatal("the host does not know who is alive")
					}
					until(t, "the second owner gets its calls back", func() bool { return len(m.next.reports()) == 1 })
					if got := m.next.reports()[0]; got.Generation != 70 || len(got.Results) != 0 {
						t.Errorf("the second owner gets %+v", got)
					}
					if third := callsOf("entity:e", 700, number); own {
						m.worker.hands.Operate(third)
					} else {
						m.at.worker().Operate(third)
					}
					synctest.Wait()
					if n := m.worker.numbers(); n != 1 {
						t.Fatalf("%d hand-overs reached the worker while the first one runs", n)
					}

					want := 1
					m.worker.finish(t, 0)
					if number != 1 {
						want = 2
						until(t, "the worker gets the calls", func() bool { return m.worker.numbers() == 2 })
						m.worker.finish(t, 1)
					}
					synctest.Wait()
					isThird := func(r model.Operated) bool { return r.Generation == 700 && len(r.Results) == 1 }
					if own && number == 1 && !slices.ContainsFunc(m.worker.own, isThird) {
						t.Errorf("the own node gets %+v", m.worker.own)
					}
					if !own {
						until(t, "the third owner gets the results", func() bool { return slices.ContainsFunc(m.at.reports(), isThird) })
					}
					if n := m.worker.numbers(); n != want || len(m.next.reports()) != 1 {
						t.Errorf("%d hand-overs reached the worker, want %d; the second owner got %+v", n, want, m.next.reports())
					}
				})
			})
		}
	}
}

// A shard of the worker's own node moves to another node, which asks what the worker holds. The
// calls that still run count, and their results answer the next owner.
func TestOwnCallsOfAMovedShard(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &movedCalls{office: &office{}, worker: newCaller(), second: nodeID(3)}
		host := nodeID(1)
		m.host, _ = m.add(t, host, nil, func() []Hands { return []Hands{m.worker.hands} })
		m.add(t, m.second, &m.next, func() []Hands { return nil })
		m.owner = host
		m.worker.hands.Operate(callsOf("entity:e", 7, 1))
		time.Sleep(time.Second)
		Ask(t.Context(), desk{m.office, m.second}, []model.NodeID{host})
		if n := len(m.worker.hands.Left()); n > 0 {
			t.Fatalf("the worker names %d entities, although their shard has not moved", n)
		}
		m.owner = m.second
		Ask(t.Context(), desk{m.office, m.second}, []model.NodeID{host})
		until(t, "the worker joins", func() bool { return m.next.worker() != nil })
		m.next.worker().Operate(callsOf("entity:e", 70, 1))
		synctest.Wait()
		m.worker.finish(t, 0)
		until(t, "the next owner gets the results", func() bool { return len(m.next.reports()) == 1 })
		if got := m.next.reports()[0]; got.Generation != 70 || len(got.Results) != 1 || m.worker.numbers() != 1 {
			t.Errorf("the next owner gets %+v, and %d hand-overs reached the worker", got, m.worker.numbers())
		}
	})
}

// The incarnation of the worker's own node ends while calls of an entity run and others wait for
// their end. The next incarnation gets the results of the calls that still run, and the calls that
// waited are given up.
func TestOwnCallsOfAnEndedIncarnation(t *testing.T) {
	t.Parallel()
	c := newCaller()
	c.hands.Operate(callsOf("entity:e", 7, 1))
	c.hands.LoseOwn()
	c.hands.Operate(callsOf("entity:e", 70, 2))
	if got := c.hands.Unseen(nil); !slices.Equal(got, []uint64{70}) {
		t.Errorf("the worker has not seen %v", got)
	}
	c.hands.LoseOwn()
	c.hands.Operate(callsOf("entity:e", 700, 1))
	if got := c.hands.Running(700); got != 7 || c.numbers() != 1 {
		t.Fatalf("the worker runs the calls as %d, and got %d hand-overs", got, c.numbers())
	}
	c.finish(t, 0)
	if len(c.own) != 1 || c.own[0].Generation != 700 || c.numbers() != 1 || len(c.hands.Left()) != 0 {
		t.Errorf("the own node gets %+v, %d hand-overs reached the worker, and %v are left", c.own, c.numbers(), c.hands.Left())
	}
	c.hands.Operate(callsOf("entity:e", 7000, 2))
	if c.numbers() != 2 {
		t.Error("a call waits for calls that have ended")
	}
}

// The results of calls go to two owners. While the first one takes them, the session with the
// second one ends. The worker's own node does not get the results of the second one, whose numbers
// it does not know.
func TestOwnerIsLostWhileResultsAreOnTheWay(t *testing.T) {
	t.Parallel()
	c := newCaller()
	o := &outlet{deal: &deal{exchange: newExchange(nil, nodeID(2), model.RunID{1}, bySender)}, hands: c.hands}
	work := callsOf("entity:e", 7, 1)
	c.hands.accept(&handOver{by: o, entity: work.Entity, generation: 7}, work)
	c.hands.loseMoved(o, time.Now().Add(time.Hour), func(model.Address) bool { return true })
	c.hands.Operate(callsOf("entity:e", 70, 1))
	c.hands.report = func(_ context.Context, r model.Operated) error {
		c.own = append(c.own, r)
		c.hands.loseOwner(o)
		return nil
	}
	c.finish(t, 0)
	if len(c.own) != 1 || c.own[0].Generation != 70 {
		t.Errorf("the own node gets %+v", c.own)
	}
}

// A hand-over waits for the results of a lost one, and the lost one never reached the worker. So
// the worker has neither of them when it disappears.
func TestHandOverBehindAnUnseenOne(t *testing.T) {
	t.Parallel()
	for _, own := range []bool{false, true} {
		c := newCaller()
		first, next := &outlet{id: 1}, &outlet{id: 2}
		work := callsOf("entity:e", 7, 1)
		c.hands.accept(&handOver{by: first, entity: work.Entity, generation: 7}, work)
		c.hands.loseMoved(first, time.Now().Add(time.Hour), func(model.Address) bool { return true })
		unseen := []uint64{c.got[0].Generation}
		if own {
			c.hands.Operate(callsOf("entity:e", 70, 1))
			if got := c.hands.Unseen(unseen); !slices.Equal(got, []uint64{70}) {
				t.Errorf("the own node hears that the worker has not seen %v", got)
			}
		} else {
			c.hands.accept(&handOver{by: next, entity: work.Entity, generation: 70}, work)
			if got := c.hands.numbersFor(next, unseen); !slices.Equal(got, []uint64{70}) {
				t.Errorf("the next owner hears that the worker has not seen %v", got)
			}
		}
		if got := c.hands.numbersFor(first, unseen); !slices.Equal(got, []uint64{7}) {
			t.Errorf("the first owner hears that the worker has not seen %v", got)
		}
	}
}

// A node asks what a worker holds, and the session that tells the node ends before the node has
// heard it. The node does not get an answer, and asks again.
func TestAnswerThatDoesNotArrive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &movedCalls{office: &office{}, worker: newCaller(), first: nodeID(2), second: nodeID(3)}
		host := nodeID(1)
		m.host, _ = m.add(t, host, nil, func() []Hands { return []Hands{m.worker.hands} })
		m.add(t, m.first, &m.at, func() []Hands { return nil })
		m.add(t, m.second, &m.next, func() []Hands { return nil })
		m.owner = m.first
		m.host.SetMembers(view(host, m.first, m.second))
		until(t, "the worker joins", func() bool { return m.at.worker() != nil && m.next.worker() != nil })
		m.at.worker().Operate(callsOf("entity:e", 7, 1))
		until(t, "the worker gets the calls", func() bool { return m.worker.numbers() == 1 })
		m.mu.Lock()
		m.owner = m.second
		m.fate = func(to model.NodeID, _ []byte) fate {
			if to == m.second {
				return lostQuestion
			}
			return arrives
		}
		m.mu.Unlock()

		heard := make(chan int, 1)
		go func() {
			Ask(t.Context(), desk{m.office, m.second}, []model.NodeID{host})
			m.next.mu.Lock()
			defer m.next.mu.Unlock()
			heard <- len(m.next.held)
		}()
		time.Sleep(time.Second)
		m.host.mu.Lock()
		d := m.host.deals[m.second]
		m.host.mu.Unlock()
		d.end(errSilent)
		time.Sleep(time.Second)
		m.mu.Lock()
		m.fate = nil
		m.mu.Unlock()
		if n := <-heard; n == 0 {
			t.Error("the node has an answer and does not know what the worker holds")
		}
	})
}
