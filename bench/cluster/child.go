package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

// childVariable is the environment variable with the settings of a process that this command
// starts.
const childVariable = "PERDURE_CLUSTER_BENCH"

// child is one of the measured processes, as it sees itself.
type child struct {
	app    *perdure.App
	client perdure.Client
	// opens is when the process started to open its app, and open is when the app was open.
	opens, open time.Time

	mu  sync.Mutex // protects out
	out *json.Encoder
}

// handler executes an order.
type handler func(c *child, input json.RawMessage) (any, error)

// handlers has the code of all orders by their names. Each workload has its handlers in its own
// file.
var handlers = map[string]handler{
	"run":      handle((*child).run),
	"load":     handle((*child).load),
	"distance": handle((*child).distance),
	"fund":     handle((*child).fund),
	"audit":    handle((*child).audit),
	"chain":    handle((*child).chain),
}

// handle makes a handler of a function with a typed input.
func handle[I, O any](fn func(*child, I) (O, error)) handler {
	return func(c *child, input json.RawMessage) (any, error) {
		var in I
		if err := json.Unmarshal(input, &in); err != nil {
			return nil, err
		}
		return fn(c, in)
	}
}

// runChild runs as one of the measured processes, until its standard input ends.
func runChild(ctx context.Context) error {
	var s settings
	if err := json.Unmarshal([]byte(os.Getenv(childVariable)), &s); err != nil {
		return err
	}
	c := &child{opens: time.Now(), out: json.NewEncoder(os.Stdout)}
	app, err := embedded.Config{Schema: s.Schema, NoPeerLink: s.NoLink}.Open(ctx, s.URL, definitions(s)...)
	if err != nil {
		return err
	}
	c.app, c.client, c.open = app, app.With(ctx), time.Now()
	c.reply(0, nil, nil)

	return errors.Join(c.serve(os.Stdin), app.Close())
}

// definitions returns the code of all workloads.
func definitions(s settings) []perdure.Definition {
	return []perdure.Definition{double, three, account, transfer, newChain(s.CrashAt)}
}

// serve executes orders, many at the same time, until the input ends. Then it waits for the orders
// that still run.
func (c *child) serve(in io.Reader) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	for dec := json.NewDecoder(in); ; {
		var o order
		if err := dec.Decode(&o); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		wg.Go(func() {
			do, known := handlers[o.Do]
			if !known {
				c.reply(o.ID, nil, fmt.Errorf("unknown order %q", o.Do))
				return
			}
			out, err := do(c, o.Input)
			c.reply(o.ID, out, err)
		})
	}
}

// reply answers an order.
func (c *child) reply(id int, out any, err error) {
	r := reply{ID: id}
	if err == nil {
		r.Output, err = json.Marshal(out)
	}
	if err != nil {
		r.Error = err.Error()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.out.Encode(r) // if the parent is gone, the input ends too
}
