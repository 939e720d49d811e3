package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/perdure/perdure"
)

const (
	// lanes is how many rounds a client makes at the same time.
	lanes = 2
	// accountCount is the number of accounts of all clients.
	accountCount = 6
)

// client makes rounds until the process gets SIGTERM.
type client struct {
	app     *perdure.App
	name    string
	workers []string
	rounds  atomic.Int64
}

// work makes rounds until ctx ends. It prints the number of each finished round, and every error.
func (c *client) work(ctx context.Context) {
	var all sync.WaitGroup
	for lane := range lanes {
		all.Go(func() {
			key := fmt.Sprintf("%s-%d", c.name, lane)
			n := 0
			for ; n == 0 || ctx.Err() == nil; n++ {
				c.report(c.round(key, n))
				fmt.Printf("round %d.\n", c.rounds.Add(1))
			}
			c.report(c.finishMarathon(key, n))
		})
	}
	all.Wait()
	fmt.Printf("rounds %d.\n", c.rounds.Load())
}

// report prints an error.
func (c *client) report(err error) {
	if err != nil {
		fmt.Println("caller got:", err)
	}
}

// round makes every kind of call once, and visits every worker. A call that has started ends even
// if the process gets SIGTERM.
func (c *client) round(lane string, i int) error {
	p := c.app.With(context.Background())
	key := fmt.Sprintf("%s-%d", lane, i)
	todo := []func() error{
		func() error { return c.chain(p, "c-"+key) },
		func() error { return c.family(p, "f-"+key) },
		func() error { return c.gate(p, "g-"+key) },
		func() error { return c.talk(p, "t-"+key) },
		func() error { return c.count(p, lane, i) },
		func() error { return c.transfer(p, "b-"+key, i) },
		func() error { return c.runLeg(p, lane, i) },
	}
	for _, w := range c.workers {
		todo = append(todo, func() error { return c.visit(p, "v-"+w+"-"+key, w) }, func() error { return c.task(p, "j-"+w+"-"+key, w) })
	}

	errs := make([]error, len(todo))
	var wg sync.WaitGroup
	for n, do := range todo {
		wg.Go(func() { errs[n] = do() })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// expect returns an error if a call has failed, or has another result than the expected one.
func expect[T comparable](what string, want, got T, err error) error {
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", what, err)
	case got != want:
		return fmt.Errorf("%s = %v, want %v", what, got, want)
	}
	return nil
}

// confirm is expect for the result of an execution. It records that the client has the result.
func confirm[T comparable](what string, want, got T, err error) error {
	if err := expect(what, want, got, err); err != nil {
		return err
	}
	return ledgerOf().ended(what)
}

// squares is the result of a chain.
func squares() (total int) {
	for i := range chainSteps {
		total += i * i
	}
	return total
}

func (c *client) chain(p perdure.Client, key string) error {
	n, err := chains.Run(p, key, perdure.RawKey(key))
	return confirm("chain/"+key, squares(), n, err)
}

func (c *client) family(p perdure.Client, key string) error {
	n, err := families.Run(p, key, perdure.RawKey(key))
	return confirm("family/"+key, 2*squares(), n, err)
}

// gate sends three signals and resolves a promise.
func (c *client) gate(p perdure.Client, key string) error {
	x, err := gates.Start(p, key, perdure.RawKey(key))
	for n := 1; n <= 3 && err == nil; n++ {
		err = open.Send(p, x, n)
	}
	if err == nil {
		err = word.Resolve(p, x, "open")
	}
	if err != nil {
		return fmt.Errorf("gate/%s: %w", key, err)
	}
	got, err := x.Result(p)
	return confirm("gate/"+key, "open 6", got, err)
}

// talk makes two updates and a query.
func (c *client) talk(p perdure.Client, key string) error {
	x, err := talks.Start(p, key, perdure.RawKey(key))
	if err != nil {
		return fmt.Errorf("talk/%s: %w", key, err)
	}
	total := 0
	for n := 1; n <= 2; n++ {
		total += n
		got, err := plus.Call(p, x, n)
		if err := expect(fmt.Sprintf("update %d of talk/%s", n, key), total, got, err); err != nil {
			return err
		}
	}
	got, err := sum.Ask(p, x, perdure.Void{})
	if err := expect("query of talk/"+key, total, got, err); err != nil {
		return err
	}

	if err := word.Resolve(p, x, "bye"); err != nil {
		return fmt.Errorf("talk/%s: %w", key, err)
	}
	got, err = x.Result(p)
	return confirm("talk/"+key, total, got, err)
}

// count adds 1 to a counter that no other lane uses, and reads the counter in two ways.
func (c *client) count(p perdure.Client, lane string, i int) error {
	n, err := add.Call(p, lane, 1)
	if err := expect("call of counter "+lane, i+1, n, err); err != nil {
		return err
	}
	n, err = look.Call(p, lane, perdure.Void{})
	if err := expect("view of counter "+lane, i+1, n, err); err != nil {
		return err
	}
	n, _, err = counters.Get(p, lane)
	return expect("state of counter "+lane, i+1, n, err)
}

func (c *client) transfer(p perdure.Client, key string, i int) error {
	t := transfer{From: fmt.Sprint("a", i%accountCount), To: fmt.Sprint("a", (i+1+i/accountCount%(accountCount-1))%accountCount)}
	out, err := transfers.Run(p, t, perdure.RawKey(key))
	return confirm("transfer/"+key, perdure.Void{}, out, err)
}

func (c *client) visit(p perdure.Client, key, worker string) error {
	got, err := visitOf(worker).Run(p, visit{key, worker}, perdure.RawKey(key))
	return confirm(visitName(worker)+"/"+key, worker, got, err)
}

// task runs a task that belongs to no workflow.
func (c *client) task(p perdure.Client, key, worker string) error {
	//perdure:allow constname each worker has a queue of its own
	x, err := job.Submit(p, key, perdure.RawKey(key), perdure.OnQueue(queueOf(worker)))
	if err != nil {
		return fmt.Errorf("task %s: %w", key, err)
	}
	got, err := x.Result(p)
	return expect("task "+key, worker, got, err)
}

// runLeg sends the next signal to the marathon of a lane. It starts the marathon in round 0.
func (c *client) runLeg(p perdure.Client, lane string, i int) error {
	if i == 0 {
		if _, err := marathons.Start(p, legs{Key: marathonKey(lane)}, perdure.RawKey(marathonKey(lane))); err != nil {
			return fmt.Errorf("marathon of %s: %w", lane, err)
		}
	}
	if err := leg.Send(p, marathons.Execution(perdure.RawKey(marathonKey(lane))), i); err != nil {
		return fmt.Errorf("leg %d of %s: %w", i, lane, err)
	}
	return nil
}

func marathonKey(lane string) string { return "m-" + lane }

// finishMarathon ends the marathon of a lane. The marathon must have received one signal per round,
// in order.
func (c *client) finishMarathon(lane string, rounds int) error {
	p := c.app.With(context.Background())
	x := marathons.Execution(perdure.RawKey(marathonKey(lane)))
	if err := leg.Send(p, x, lastLeg); err != nil {
		return fmt.Errorf("end of the marathon of %s: %w", lane, err)
	}
	got, err := x.Result(p)
	if err != nil {
		return fmt.Errorf("marathon of %s: %w", lane, err)
	}
	want := make([]int, rounds)
	for i := range want {
		want[i] = i
	}
	return confirm("marathon/"+marathonKey(lane), fmt.Sprint(want), fmt.Sprint(got), nil)
}
