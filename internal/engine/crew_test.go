package engine_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/notify"
	"github.com/perdure/perdure/internal/peerlink/lan"
	"github.com/perdure/perdure/internal/store/memory"
)

// coder runs one workflow whose only step takes a while. It outlives its owners as replay.Worker
// does: when an owner is lost, the body of a run continues, and the next activation uses its
// outcome.
type coder struct {
	session *engine.Session
	t       *testing.T
	takes   time.Duration
	loses   time.Duration // how long the loss of a run takes

	mu      sync.Mutex
	now     map[model.RunID]uint64    // generation of each run that the coder holds
	body    map[model.RunID]time.Time // when the body of a run ends or has ended
	begun   map[string]int            // bodies that began, by key
	most    int                       // most runs that it worked on at the same time
	working map[model.RunID]bool
}

func newCoder(t *testing.T, e *engine.Engine, workflow string, slots int, takes time.Duration) *coder {
	c := &coder{
		t: t, takes: takes, now: map[model.RunID]uint64{}, body: map[model.RunID]time.Time{}, begun: map[string]int{}, working: map[model.RunID]bool{},
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.session = e.Join(c, model.Offer{Tenant: model.DefaultTenant, Workflows: []string{workflow}, Slots: slots})
	return c
}

func (c *coder) Activate(a *model.Activation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	run := a.Start.Run
	if _, holds := c.now[run]; holds {
		delete(c.body, run) // the coder has not lost the run, so it keeps no body for the new owner
	}
	c.now[run] = a.Generation
	c.working[run] = true
	c.most = max(c.most, len(c.working))
	ends, kept := c.body[run]
	if !kept {
		c.begun[a.Start.Address.Key]++
		ends = time.Now().Add(c.takes)
		c.body[run] = ends
	}
	time.AfterFunc(time.Until(ends), func() { c.end(run, a.Generation) })
}

// end reports the end of a run, unless another activation of the run has begun.
func (c *coder) end(run model.RunID, generation uint64) {
	c.mu.Lock()
	held := c.now[run] == generation
	if held {
		delete(c.working, run) // the turn frees the slot
	}
	c.mu.Unlock()
	if held {
		_ = c.session.Report(c.t.Context(), model.Turn{Run: run, Generation: generation, Close: &model.Close{Status: model.Completed}})
	}
}

func (c *coder) take(run model.RunID, generation uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.now[run] == generation {
		delete(c.now, run)
		delete(c.working, run)
	}
}

func (c *coder) Evict(run model.RunID, generation uint64, _ string) {
	c.take(run, generation)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.body, run)
}

func (c *coder) Lose(run model.RunID, generation uint64) {
	time.Sleep(c.loses)
	c.take(run, generation)
}

func (c *coder) Deliver(model.RunID, uint64, []model.Event)                     {}
func (c *coder) Retry(model.RunID, uint64, string)                              {}
func (c *coder) Taken(model.RunID, uint64)                                      {}
func (c *coder) Recall(_ model.Address, _ model.RunID, _ uint64, _ model.Query) {}
func (c *coder) Query(run model.RunID, generation uint64, q model.Query) {
	c.session.Answer(run, generation, q.ID, model.Payload{Data: []byte("yes")}, nil)
}

// once checks that the body of each key began once.
func (c *coder) once(keys int) {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.begun) != keys {
		c.t.Errorf("bodies of %d keys began, want %d", len(c.begun), keys)
	}
	for key, n := range c.begun {
		if n != 1 {
			c.t.Errorf("the body of %s began %d times", key, n)
		}
	}
}

// startOf is a start of a workflow.
func startOf(workflow, key string) *model.Message {
	m := start(key)
	m.To.Type = workflow
	return m
}

// apart opens two nodes. Each has the code of a different workflow.
func apart(t *testing.T, linked bool, slots int, takes time.Duration) (r *ring, coders [2]*coder) {
	t.Helper()
	r = &ring{t: t, st: memory.New(memory.Options{}), hints: &notify.Local{}}
	if linked {
		r.lan = &lan.LAN{}
	}
	for i := range coders {
		m := r.join(0, nil)
		coders[i] = newCoder(t, m.Engine, fmt.Sprint("flow", i), slots, takes)
	}
	time.Sleep(15 * time.Second) // until each node owns a part of the shards
	return r, coders
}

// runAll starts executions of both workflows at both nodes and returns when they have been started.
// The returned function waits until all have ended.
func runAll(t *testing.T, r *ring, keys int) (await func()) {
	t.Helper()
	for i := range keys {
		for w := range 2 {
			if _, err := r.nodes[i%2].Send(t.Context(), startOf(fmt.Sprint("flow", w), fmt.Sprint("k", i))); err != nil {
				t.Error(err)
			}
		}
	}
	return func() {
		for i := range keys {
			for w := range 2 {
				for {
					res, err := r.nodes[1].Await(t.Context(), startOf(fmt.Sprint("flow", w), fmt.Sprint("k", i)).To, model.RunID{})
					if err == nil && res.Outcome.Status == model.Completed {
						break
					}
					time.Sleep(time.Second)
				}
			}
		}
	}
}

// Each of two nodes has the code of one workflow. All executions of both owners end, over a
// connection as well as through the store, and each body runs once.
func TestCodeOfAnotherNode(t *testing.T) {
	t.Parallel()
	for _, linked := range []bool{true, false} {
		t.Run(fmt.Sprint("linked ", linked), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r, coders := apart(t, linked, 3, time.Second)
				runAll(t, r, 40)()
				for _, c := range coders {
					c.once(40)
					if c.most > 3 {
						t.Errorf("a worker with 3 slots worked on %d runs at once", c.most)
					}
				}
				r.close()
			})
		})
	}
}

// The owner of runs dies, or leaves, while a worker of the other node runs their bodies. The other
// node becomes the owner, and no body begins again. This is also true if the worker needs a moment
// until it has lost the runs.
func TestOwnerOfRunningBodiesEnds(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"dies", "dies, and the worker is slow", "leaves"} {
		for _, linked := range []bool{true, false} {
			t.Run(fmt.Sprint(how, " linked ", linked), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					r, coders := apart(t, linked, 0, 40*time.Second)
					if how == "dies, and the worker is slow" {
						coders[1].loses = 20 * time.Millisecond
					}
					const keys = 30
					for i := range keys {
						if _, err := r.nodes[1].Send(t.Context(), startOf("flow1", fmt.Sprint("k", i))); err != nil {
							t.Error(err)
						}
					}
					time.Sleep(time.Second)

					if how == "leaves" {
						r.nodes[0].stop()
					} else {
						r.nodes[0].cut.Store(true)
					}
					for i := range keys {
						for {
							res, err := r.nodes[1].Await(t.Context(), startOf("flow1", fmt.Sprint("k", i)).To, model.RunID{})
							if err == nil && res.Outcome.Status == model.Completed {
								break
							}
							time.Sleep(time.Second)
						}
					}
					coders[1].once(keys)
					r.nodes[0].cut.Store(false)
					r.close()
				})
			})
		}
	}
}

// The node with the code ends while its worker runs bodies of runs that the other node owns. When
// another node with the code joins, the executions end. Until then they say that no node has their
// code.
func TestHostOfRunningBodiesEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, _ := apart(t, true, 0, time.Minute)
		const keys = 20
		for i := range keys {
			if _, err := r.nodes[0].Send(t.Context(), startOf("flow1", fmt.Sprint("k", i))); err != nil {
				t.Error(err)
			}
		}
		time.Sleep(time.Second)
		r.nodes[1].cut.Store(true)
		time.Sleep(time.Minute)

		for i := range keys {
			a := startOf("flow1", fmt.Sprint("k", i)).To
			if why, ok := r.nodes[0].Explain(t.Context(), a); !ok || why[0].Code != model.WaitWorker {
				t.Errorf("%s: %v, %v", a, why, ok)
			}
		}

		again := r.join(0, nil)
		c := newCoder(t, again.Engine, "flow1", 0, time.Second)
		r.nodes[1].cut.Store(false)
		for i := range keys {
			for {
				res, err := again.Await(t.Context(), startOf("flow1", fmt.Sprint("k", i)).To, model.RunID{})
				if err == nil && res.Outcome.Status == model.Completed {
					break
				}
				time.Sleep(time.Second)
			}
		}
		_ = c
		r.close()
	})
}
