//go:build long

package chaos_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/perdure/perdure"
)

const (
	cellCount = 12
	// attemptTime bounds one attempt of a call. A client repeats the call until it has an answer.
	attemptTime = 5 * time.Second
)

// cellOp is an operation on a register, as its client saw it. The client repeats the operation
// under one request id, so the operation takes effect once, at some time between Call and Return.
type cellOp struct {
	Client       int
	Cell         int
	Do           string
	If, Then     int `json:",omitempty"`
	Got          int `json:",omitempty"`
	OK           bool
	Call, Return int64
}

// crowd has the clients, and what they found out.
type crowd struct {
	ctx      context.Context //nolint:containedctx // ends all calls
	ledger   ledger
	stopping chan struct{}
	people   sync.WaitGroup
	values   atomic.Int64 // counts values of registers, so that each value is used once

	done     [8]atomic.Int64 // by kind of work
	attempts atomic.Int64    // attempts that failed
	mu       sync.Mutex
	ops      []cellOp
	alarms   []string
	waiting  map[int]string // what a client works on

	// early is how much shorter a sleep may be until the time earlyUntil; see allowEarly.
	early      time.Duration
	earlyUntil time.Time
}

// The kinds of work of a client.
var errands = [...]string{"chain", "gate", "family", "carousel", "nap", "labour", "cell", "bank"}

func (w *crowd) alarm(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.alarms = append(w.alarms, fmt.Sprintf(format, args...))
}

// allowEarly says that the clock of the store was wrong by a few seconds for the time wrongFor. The
// nodes have followed the clock slowly, by at most a ninth of that time, and now they catch up
// slowly. If an execution moves to a node that starts before the others have caught up, its sleep
// is shorter by the difference, as docs/time.md says.
func (w *crowd) allowEarly(wrongFor time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.early += wrongFor / 9
	w.earlyUntil = time.Now().Add(200 * w.early) // nodes catch up by 0.5 %
}

// earliness returns how much shorter a sleep that ends now may be.
func (w *crowd) earliness() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if time.Now().After(w.earlyUntil) {
		w.early = 0
	}
	return w.early
}

func (w *crowd) stopped() bool { return isClosed(w.stopping) }

// note records what a client works on; empty for nothing.
func (w *crowd) note(client int, what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting[client] = what
}

// busy returns what clients still work on.
func (w *crowd) busy() (all []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, what := range w.waiting {
		if what != "" {
			all = append(all, what)
		}
	}
	slices.Sort(all)
	return all
}

// client is one of eight clients. Each has its own connection.
type client struct {
	*crowd

	id   int
	app  *perdure.App
	bank *bank
	rnd  *rand.Rand
	next int
}

// run makes errands until the crowd stops.
func (c *client) run() {
	for !c.stopped() {
		kind := c.rnd.IntN(len(errands))
		c.next++
		key := fmt.Sprintf("c%d-%d", c.id, c.next)
		c.note(c.id, errands[kind]+" "+key)
		if c.errand(errands[kind], key) {
			c.done[kind].Add(1)
		}
		c.note(c.id, "")
	}
}

// insist repeats an attempt until it succeeds. It returns false if the test ends first.
func (c *client) insist(what string, attempt func(perdure.Client) error) bool {
	for {
		limit := attemptTime
		if c.rnd.IntN(12) == 0 {
			limit = time.Duration(1+c.rnd.IntN(30)) * time.Millisecond
		}
		ctx, cancel := context.WithTimeout(c.ctx, limit)
		err := attempt(c.app.With(ctx))
		late := ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded)
		cancel()
		switch {
		case err == nil:
			return true
		case c.ctx.Err() != nil:
			return false
		case late, errors.Is(err, perdure.ErrUnavailable), errors.Is(err, perdure.ErrExhausted):
			c.attempts.Add(1)
		default:
			c.alarm("%s: %v", what, err)
			return false
		}
		select {
		case <-time.After(time.Millisecond):
		case <-c.ctx.Done():
			return false
		}
	}
}

// errand does one piece of work. It returns false if the work failed or the test ended first.
func (c *client) errand(kind, key string) bool {
	switch kind {
	case "chain":
		return c.insist("chain/"+key, func(p perdure.Client) error { return driveChain(p, c.ledger, key) })
	case "gate":
		return c.insist("gate/"+key, func(p perdure.Client) error { return driveGate(p, c.ledger, key) })
	case "family":
		return c.insist("family/"+key, func(p perdure.Client) error { return driveFamily(p, c.ledger, key) })
	case "carousel":
		return c.carousel(key)
	case "nap":
		return c.nap(key)
	case "labour":
		n := c.rnd.IntN(100)
		return c.insist("labour/"+key, func(p perdure.Client) error {
			got, err := labours.Run(p, n, perdure.RawKey(key))
			if want := n*n*n + (n+1)*(n+1)*(n+1); err == nil && got != want {
				c.alarm("labour/%s: %d, want %d", key, got, want)
			}
			return err
		})
	case "cell":
		for range 40 {
			if !c.cell() {
				return false
			}
		}
		return true
	default:
		return c.deed()
	}
}

// carousel sends signals one after the other to an execution that continues as new after a few
// signals. It checks that each signal has arrived once, in order.
func (c *client) carousel(key string) bool {
	what := "carousel/" + key
	var exec perdure.Execution[[]int]
	if !c.insist(what, func(p perdure.Client) (err error) {
		exec, err = carousels.Start(p, ride{}, perdure.RawKey(key))
		return err
	}) {
		return false
	}

	n := 1 + c.rnd.IntN(20)
	for i := range n + 1 {
		v := i
		if i == n {
			v = lastTicket
		}
		id := perdure.RequestID(key + "-" + strconv.Itoa(i))
		if !c.insist(fmt.Sprint(what, " signal ", i), func(p perdure.Client) error { return ticket.Send(p, exec, v, id) }) {
			return false
		}
	}
	var got []int
	if !c.insist(what+" result", func(p perdure.Client) (err error) {
		got, err = exec.Result(p)
		return err
	}) {
		return false
	}
	want := make([]int, n)
	for i := range want {
		want[i] = i
	}
	if !slices.Equal(got, want) {
		c.alarm("%s received %v, want %v", what, got, want)
	}
	return true
}

// nap checks that a timer does not fire early.
func (c *client) nap(key string) bool {
	d := time.Duration(c.rnd.IntN(2000)) * time.Millisecond
	begun := time.Now()
	ok := c.insist("nap/"+key, func(p perdure.Client) error {
		_, err := naps.Run(p, d, perdure.RawKey(key))
		return err
	})
	// The clock of a node may run up to 0.5 % too fast while it catches up with the store's clock.
	if took := time.Since(begun); ok && took < d-d/100-c.earliness() {
		c.alarm("nap/%s of %s took %s", key, d, took)
	}
	return ok
}

// cell makes an operation on a register.
func (c *client) cell() bool {
	o := cellOp{Client: c.id, Cell: c.rnd.IntN(cellCount), Call: time.Now().UnixNano()}
	key := "r" + strconv.Itoa(o.Cell)
	kind := c.rnd.IntN(10)
	id := perdure.RequestID(fmt.Sprintf("cell-%d-%d", c.id, c.values.Add(1)))

	ok := c.insist("cell/"+key, func(p perdure.Client) (err error) {
		switch {
		case kind < 3:
			if o.Do = "swap"; o.Then == 0 {
				o.Then = int(c.values.Add(1))
			}
			o.Got, err = swap.Call(p, key, o.Then, id)
		case kind < 6:
			if o.Do = "swapIf"; o.Then == 0 {
				if o.If, err = peek.Call(p, key, perdure.Void{}); err != nil {
					return err
				}
				o.Then, o.Call = int(c.values.Add(1)), time.Now().UnixNano()
			}
			o.OK, err = swapIf.Call(p, key, exchange{o.If, o.Then}, id)
		case kind < 8:
			o.Do, o.Call = "read", time.Now().UnixNano()
			o.Got, err = peek.Call(p, key, perdure.Void{})
		case kind < 9:
			o.Do, o.Call = "read", time.Now().UnixNano()
			o.Got, _, err = cells.Get(p, key)
		default:
			o.Do, o.Call = "read", time.Now().UnixNano()
			o.Got, err = readCell.Call(p, key, perdure.Void{})
		}
		return err
	})
	if !ok {
		return false
	}

	o.Return = time.Now().UnixNano()
	c.mu.Lock()
	c.ops = append(c.ops, o)
	c.mu.Unlock()
	return true
}

// deed makes a deed of the bank.
func (c *client) deed() bool {
	b := c.bank
	d := b.invent(b.prefix + strconv.FormatInt(b.begun.Add(1), 10))
	b.ledger.remark(remark{Asked: &d})
	r, ok := b.insist(c.ctx, d, func() bool { return c.ctx.Err() != nil })
	if ok {
		b.ledger.remark(remark{Told: &r})
	}
	return ok
}

// saveOps writes the operations on registers to a file.
func (w *crowd) saveOps(path string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	enc := json.NewEncoder(f)
	for i := range w.ops {
		if err := enc.Encode(&w.ops[i]); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	return f.Close()
}
