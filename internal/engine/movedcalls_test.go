package engine_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/notify"
	"github.com/perdure/perdure/internal/peerlink/lan"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/memory"
)

// ledgers notes the bodies of calls of all tellers, by input.
type ledgers struct {
	mu    sync.Mutex
	begun map[string]int
	runs  map[string]int // bodies that run now
	twice []string       // inputs of bodies that ran beside each other
}

// teller has the code of an entity whose state is a list. The body of a call takes a while.
type teller struct {
	t       *testing.T
	all     *ledgers
	session *engine.EntitySession
	joined  chan struct{} // closed when there is a session
	takes   time.Duration
}

func (r *ring) joinTeller(m *member, all *ledgers, takes time.Duration) *teller {
	c := &teller{t: r.t, all: all, joined: make(chan struct{}), takes: takes}
	defer close(c.joined)
	c.session = m.JoinEntities(c, model.EntityOffer{Tenant: model.DefaultTenant, Types: []model.EntityType{{Type: "entity:list"}}})
	return c
}

func (c *teller) Operate(o model.Operations) {
	go func() {
		<-c.joined
		res := model.Operated{Entity: o.Entity, Generation: o.Generation, State: o.State, Exists: true, Changed: true}
		for _, call := range o.Calls {
			in := string(call.Input.Data)
			c.all.begin(in)
			time.Sleep(c.takes)
			c.all.end(in)
			res.State = model.TextPayload(string(res.State.Data) + in + ";")
			res.Results = append(res.Results, model.OperationResult{Output: res.State})
		}
		_ = c.session.FinishCalls(c.t.Context(), res)
	}()
}

func (l *ledgers) begin(in string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.begun[in]++
	if l.runs[in]++; l.runs[in] > 1 {
		l.twice = append(l.twice, in)
	}
}

func (l *ledgers) end(in string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.runs[in]--
}

func newLedgers() *ledgers { return &ledgers{begun: map[string]int{}, runs: map[string]int{}} }

// add is a call that adds its key to the state of its entity.
func add(key string) *model.Message {
	return &model.Message{Kind: model.MessageCall, To: list(key), Name: "add", Input: model.TextPayload(key), RequestID: "r" + key}
}

// callAll makes calls of entities with different keys. The calls with even numbers are one-way, so
// they are stored before they run. Clients wait for the others. The returned function waits until
// all calls have ended.
func (r *ring) callAll(m *member, calls int) (await func()) {
	var wg sync.WaitGroup
	for i := range calls {
		call := add(fmt.Sprint("k", i))
		call.OneWay = i%2 == 0
		wg.Go(func() {
			for {
				ctx, cancel := context.WithTimeout(r.t.Context(), time.Hour)
				_, err := m.Call(ctx, call, false)
				cancel()
				if err == nil {
					return
				}
				time.Sleep(time.Second)
			}
		})
	}

	return func() {
		wg.Wait()
		for i := range calls {
			key := fmt.Sprint("k", i)
			for end := time.Now().Add(time.Hour); r.mailOf(key) > 0 && time.Now().Before(end); {
				time.Sleep(time.Second)
			}
			if got := stateOf(r.t, r.st, list(key)); got != key+";" {
				r.t.Errorf("the state of %s is %q", key, got)
			}
		}
	}
}

// A shard moves from one live node to another one, while a worker of a third node runs calls of its
// entities. The third node may be the next owner, and the next owner may have the code itself. No
// body begins beside the one that still runs. A call that was stored before it ran is not repeated.
func TestCallsOfAMovedEntity(t *testing.T) {
	t.Parallel()
	for _, next := range []string{"a node without the code", "a node with the code", "the node of the worker"} {
		for _, linked := range []bool{true, false} {
			t.Run(fmt.Sprint(next, " linked ", linked), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					r := &ring{t: t, st: memory.New(memory.Options{}), hints: &notify.Local{}}
					if linked {
						r.lan = &lan.LAN{}
					}
					all := newLedgers()
					first, host, third := r.join(0, nil), r.join(0, nil), r.join(0, nil)
					newCoder(t, first.Engine, "flow0", 0, time.Second)
					newCoder(t, third.Engine, "flow2", 0, time.Second) // a node without code gets no shards
					r.joinTeller(host, all, 30*time.Second)
					r.setDrained(host, true)
					r.setDrained(third, true)
					r.ownAll(first)
					time.Sleep(10 * time.Second) // until the worker has joined the owner
					const calls = 20
					await := r.callAll(first, calls)
					time.Sleep(time.Second)

					to := third
					switch next {
					case "a node with the code":
						r.joinTeller(third, all, time.Second)
					case "the node of the worker":
						to = host
					}
					time.Sleep(10 * time.Second)
					r.setDrained(to, false)
					r.setDrained(first, true)
					r.ownAll(to)
					await()
					all.check(t, calls)
					r.close()
				})
			})
		}
	}
}

// check checks that no body began beside another one with the same input. Calls that were stored
// before they ran have even numbers, and each of them ran once.
func (l *ledgers) check(t *testing.T, calls int) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.twice) > 0 {
		t.Errorf("bodies ran beside each other: %s", strings.Join(l.twice, " "))
	}
	for i := range calls {
		if n := l.begun[fmt.Sprint("k", i)]; n == 0 || i%2 == 0 && n != 1 {
			t.Errorf("the body of k%d began %d times", i, n)
		}
	}
}

// mailOf returns how many stored calls of an entity wait.
func (r *ring) mailOf(key string) int {
	a := list(key)
	got, err := r.st.LoadEntity(r.t.Context(), store.EntityKey{Shard: a.Shard(r.st.Info().Shards), Address: a}, 1000, 1<<20)
	if err != nil {
		r.t.Fatal(err)
	}
	return len(got.Mailbox)
}

// A shard moves from one live server to another one, while a worker of the first server runs calls
// of its entities. No body begins beside the one that still runs, and no call is repeated, because
// servers number all calls.
func TestCallsOfAnEntityMovedBetweenServers(t *testing.T) {
	t.Parallel()
	for _, coded := range []bool{false, true} {
		t.Run(fmt.Sprint("the next server has the code ", coded), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newServers(t)
				all := newLedgers()
				first, next := r.serve(), r.serve()
				r.joinTeller(first, all, 30*time.Second)
				r.setDrained(next, true)
				r.ownAll(first)
				time.Sleep(10 * time.Second)
				const calls = 20
				await := r.callAll(first, calls)
				time.Sleep(time.Second)

				if coded {
					r.joinTeller(next, all, time.Second)
				}
				time.Sleep(10 * time.Second)
				r.setDrained(next, false)
				r.setDrained(first, true)
				r.ownAll(next)
				await()
				all.check(t, calls)
				r.close()
			})
		})
	}
}

// A process loses its lease while its worker runs calls of entities, and registers again. No body
// begins beside the one that still runs, and a call that was stored before it ran is not repeated.
func TestCallsOfAnOwnerThatLosesItsLease(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"a program", "a server"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newServers(t)
				all := newLedgers()
				var owner *member
				if what == "a server" {
					owner = r.serve()
				} else {
					owner = r.join(0, nil)
				}
				r.joinTeller(owner, all, 30*time.Second)
				r.ownAll(owner)
				const calls = 20
				await := r.callAll(owner, calls)
				time.Sleep(time.Second)
				r.fence(owner)
				await()
				all.check(t, calls)
				r.close()
			})
		})
	}
}
