package crashwalk_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// purse is an entity that records everything that was done to it.
type purse struct {
	Coins int
	Log   []string
}

// coins is an amount for a purse, and its sender.
type coins struct {
	By    string
	Coins int
	To    string // the purse to pass the coins on to
}

var (
	put = perdure.DeclareOperation[coins, int]("purse", "put")
	// pass takes coins from this purse, and sends them to another purse without waiting.
	pass = perdure.DeclareOperation[coins, int]("purse", "pass")
	// open starts a workflow and sends it a signal.
	open    = perdure.DeclareOperation[coins, int]("purse", "open")
	saver   = perdure.DeclareWorkflow[string, string]("saver")
	mover   = perdure.DeclareWorkflow[coins, int]("mover")
	keeper  = perdure.DeclareWorkflow[string, string]("keeper")
	comer   = perdure.DeclareWorkflow[time.Duration, string]("comer")
	opened  = perdure.DeclareWorkflow[string, string]("opened")
	welcome = perdure.NewSignal[int]("welcome")
)

func purseOf(key string) perdure.EntityRef { return perdure.EntityRef{Type: "purse", Key: key} }

// purses returns the code of purses, with some workflows.
func purses(more ...perdure.Definition) func(*world) perdure.Group {
	return func(*world) perdure.Group {
		e := perdure.NewEntity[purse]("purse", perdure.MaxIdle(time.Second))
		add := func(p *purse, by string, n int) (int, error) {
			p.Log = append(p.Log, fmt.Sprintf("%s %+d", by, n))
			p.Coins += n
			if p.Coins < 0 {
				return 0, errors.New("there are not so many")
			}
			return p.Coins, nil
		}

		return append(perdure.Group{
			e,
			perdure.BindOperation(e, put, func(_ perdure.EntityCtx, p *purse, c coins) (int, error) { return add(p, c.By, c.Coins) }),
			perdure.BindOperation(e, pass, func(ctx perdure.EntityCtx, p *purse, c coins) (int, error) {
				if err := put.Send(ctx, c.To, coins{By: ctx.Key(), Coins: c.Coins}); err != nil {
					return 0, err
				}
				return add(p, c.By, -c.Coins) // if this operation fails, nothing is sent
			}),
			perdure.BindOperation(e, open, func(ctx perdure.EntityCtx, p *purse, c coins) (int, error) {
				x, err := opened.Start(ctx, ctx.Key(), perdure.RawKey(ctx.Key()))
				if err != nil {
					return 0, err
				}
				if err := welcome.Send(ctx, x.Ref, c.Coins); err != nil {
					return 0, err
				}
				return add(p, c.By, c.Coins)
			}),
		}, more...)
	}
}

// entityScenarios are about entities: every call, send, start and lock takes effect once, whichever
// process dies.
func entityScenarios() []*scenario {
	putBy := func(d *driver, key string, c coins, want int) error {
		return d.patiently(func() error {
			got, err := put.Call(d.client(), key, c, perdure.RequestID(c.By))
			if err == nil && got != want {
				return wrong("%s of %s is answered %d, want %d", c.By, key, got, want)
			}
			return d.cause(0, err)
		})
	}

	return []*scenario{
		{
			name:     "calls of an entity by a workflow",
			selfless: true,
			stages: alone(purses(saver.Bind(func(ctx perdure.WorkflowCtx, key string) (string, error) {
				sum, err := put.Call(ctx, key, coins{By: "saver", Coins: 5})
				if err != nil {
					return "", err
				}
				_, refused := put.Call(ctx, key, coins{By: "saver", Coins: -7})
				if err := put.Send(ctx, key, coins{By: "later", Coins: 1}); err != nil {
					return "", err
				}
				again, err := put.Call(ctx, key, coins{By: "again", Coins: 2})
				return fmt.Sprint(sum, " ", refused, " ", again), err
			})), ending(saver, "a", "k", "5 there are not so many 8")),
			check: inPurses(map[string]string{"a": "saver +5, later +1, again +2"}),
		},
		{
			name:  "one-way calls and calls of clients",
			lanes: 2,
			stages: alone(purses(), func(d *driver) error {
				send := func(key string, c coins) func() error {
					return func() error {
						return d.patiently(func() error {
							return d.cause(0, pass.Send(d.client(), key, c, perdure.RequestID("pass "+c.By)))
						})
					}
				}

				return inOrder(
					func() error { return putBy(d, "a", coins{By: "first", Coins: 10}, 10) },
					send("a", coins{By: "some", Coins: 4, To: "b"}),
					send("a", coins{By: "more", Coins: 3, To: "b"}),
					// This operation fails, so b gets nothing.
					send("a", coins{By: "too many", Coins: 9, To: "b"}),
					func() error { return putBy(d, "a", coins{By: "last", Coins: 1}, 4) },
					// The repeated request gets the same answer and has no effect.
					func() error { return putBy(d, "a", coins{By: "first", Coins: 10}, 10) },
				)
			}),
			check: inPurses(map[string]string{"a": "first +10, some -4, more -3, last +1", "b": "a +4, a +3"}),
		},
		{
			name: "an entity starts a workflow",
			stages: alone(purses(opened.Bind(func(ctx perdure.WorkflowCtx, key string) (string, error) {
				n, err := welcome.Receive(ctx)
				return fmt.Sprintf("%s has %d", key, n), err
			})), func(d *driver) error {
				err := d.patiently(func() error {
					_, err := open.Call(d.client(), "a", coins{By: "client", Coins: 3}, perdure.RequestID("open"))
					return d.cause(0, err)
				})
				if err != nil {
					return err
				}
				return d.eventually(func() error { return result(d, opened.Execution(perdure.RawKey("a")), "a has 3") })
			}),
			check: inPurses(map[string]string{"a": "client +3"}),
		},
		{
			name:     "locked transfers in both directions",
			lanes:    2,
			selfless: true,
			loose:    true, // the order depends on the time
			stages: alone(purses(mover.Bind(func(ctx perdure.WorkflowCtx, c coins) (left int, err error) {
				return left, ctx.Lock(perdure.LockSet{purseOf(c.To), purseOf(c.By)}, func(ctx perdure.WorkflowCtx) (err error) {
					if left, err = put.Call(ctx, c.By, coins{By: "to " + c.To, Coins: -c.Coins}); err != nil {
						return err
					}
					_, err = put.Call(ctx, c.To, coins{By: "from " + c.By, Coins: c.Coins})
					return err
				})
			})), func(d *driver) error {
				move := func(from, to string, n int) func() error {
					return func() error {
						x, err := start(d, mover, coins{By: from, To: to, Coins: n}, from+to)
						if err != nil {
							return err
						}
						_, err = x.Result(d.client())
						return d.cause(0, err)
					}
				}

				err := inOrder(
					func() error { return putBy(d, "a", coins{By: "a", Coins: 10}, 10) },
					func() error { return putBy(d, "b", coins{By: "b", Coins: 10}, 10) },
				)
				if err != nil {
					return err
				}

				return together(move("a", "b", 3), move("b", "a", 4))
			}),
			check: movedOnce,
		},
		{
			name:  "a lock that is withdrawn by a timeout, and one that ends with its run",
			lanes: 2,
			stages: alone(purses(
				keeper.Bind(func(ctx perdure.WorkflowCtx, key string) (word string, err error) {
					return word, ctx.Lock(perdure.LockSet{purseOf(key)}, func(ctx perdure.WorkflowCtx) (err error) {
						if _, err = put.Call(ctx, key, coins{By: "keeper", Coins: 1}); err != nil {
							return err
						}
						word, err = enough.Receive(ctx)
						return err
					})
				}),
				comer.Bind(func(ctx perdure.WorkflowCtx, patience time.Duration) (string, error) {
					err := ctx.WithTimeout(patience).Lock(perdure.LockSet{purseOf("a"), purseOf("b")}, func(ctx perdure.WorkflowCtx) error {
						_, err := put.Call(ctx, "b", coins{By: "comer", Coins: 1})
						return err
					})
					if errors.Is(err, perdure.ErrTimeout) {
						return "too late", nil
					}
					return "had it", err
				}),
			), func(d *driver) error {
				x, err := start(d, keeper, "b", "k")
				if err != nil {
					return err
				}
				return inOrder(
					func() error { return d.awaitEvent(x.Ref, model.EventAnswered, "") },
					func() error { return ending(comer, 700*time.Millisecond, "first", "too late")(d) },
					func() error {
						// The first workflow has released its locks, so this call does not have to
						// wait.
						return putBy(d, "a", coins{By: "client", Coins: 1}, 1)
					},
					func() error {
						err := d.ps[0].App.Executions().Terminate(d.ctx(), x.Ref, "enough")
						if errors.Is(err, perdure.ErrConflict) {
							return nil // an earlier drive has done it
						}
						return d.cause(0, err)
					},
					func() error { return ending(comer, time.Hour, "second", "had it")(d) },
				)
			}),
			// How far the workflow gets before its time-out varies.
			ignore: []model.EventKind{model.EventLockGranted, model.EventTimerFired, model.EventWithdrawn},
			check:  inPurses(map[string]string{"a": "client +1", "b": "keeper +1, comer +1"}),
		},
	}
}

// purse reads the stored state of a purse directly from the memory store.
func (w *world) purse(key string) (p purse, err error) {
	a := model.Address{Tenant: model.DefaultTenant, Type: model.EntityPrefix + "purse", Key: key}
	got, err := w.mem.LoadEntity(context.Background(), store.EntityKey{Shard: a.Shard(shards), Address: a}, 1, 1)
	if err != nil || got.Entity == nil {
		return p, err
	}
	return p, json.Unmarshal(got.Entity.State.Data, &p)
}

// inPurses checks what was done to purses, in order.
func inPurses(want map[string]string) func(*world, *histories) error {
	return func(w *world, _ *histories) error {
		for key, log := range want {
			p, err := w.purse(key)
			if err != nil {
				return err
			}
			if got := strings.Join(p.Log, ", "); got != log {
				return wrong("purse %s says %q, want %q", key, got, log)
			}
		}
		return nil
	}
}

// movedOnce checks that both transfers were made once, and that no other booking is between the two
// halves of a transfer.
func movedOnce(w *world, _ *histories) error {
	sum := 0
	var logs [2][]string
	for i, key := range []string{"a", "b"} {
		p, err := w.purse(key)
		if err != nil {
			return err
		}
		sum += p.Coins
		logs[i] = p.Log[1:]
	}

	first := [2][]string{{"to b -3", "from b +4"}, {"from a +3", "to a -4"}}
	second := [2][]string{{"from b +4", "to b -3"}, {"to a -4", "from a +3"}}
	same := func(want [2][]string) bool { return slices.Equal(logs[0], want[0]) && slices.Equal(logs[1], want[1]) }
	if sum != 20 || !same(first) && !same(second) {
		return wrong("the purses hold %d, want 20; they say %q", sum, logs)
	}

	return nil
}

// restlessEntities returns which entities are locked or have waiting calls. The test calls it when
// all runs have ended.
func (w *world) restlessEntities() error {
	ctx := context.Background()
	boxes, err := w.mem.LoadMailboxes(ctx, allShards(), store.EntityKey{}, 10)
	if err != nil {
		return err
	}
	if len(boxes) > 0 {
		return fmt.Errorf("something waits for %s", boxes[0].Address)
	}

	page, err := w.mem.ListEntities(ctx, store.EntityQuery{Tenant: model.DefaultTenant, Locked: true, Limit: 10})
	if err != nil {
		return err
	}

	if len(page.Entities) > 0 && len(w.current.open) == 0 {
		n := &page.Entities[0]
		return fmt.Errorf("%s is locked by %s of %s", n.Address, n.Holder.ID, n.Holder.Address)
	}

	return nil
}
