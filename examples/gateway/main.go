// Command gateway shows services: code without durable state that callers reach under many keys,
// here the ids of users and orders. The engine keeps the calls in memory only, except for one RPC
// whose calls must not get lost.
//
//	go run ./examples/gateway [store URL]
//
// Both services have the same health check. It is a group of RPCs that any service can add.
package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

// health is a group of RPCs that several services share.
type health struct {
	Ping *perdure.RPC[perdure.Void, string]
}

func addHealth(s *perdure.Service) health {
	return health{Ping: perdure.NewRPC(s, "ping", func(ctx perdure.EntityCtx, _ perdure.Void) (string, error) { return "ok " + ctx.Key(), nil })}
}

// directory simulates an external database that the service queries.
type directory struct {
	mu    sync.Mutex
	names map[string]string
}

func (d *directory) get(id string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.names[id]
}

func (d *directory) set(id, name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.names[id] = name
}

// gateway contains both services with their RPCs.
type gateway struct {
	users, orders           *perdure.Service
	profile                 *perdure.RPC[perdure.Void, string]
	rename                  *perdure.RPC[string, perdure.Void]
	userHealth, orderHealth health
}

func newGateway(d *directory) *gateway {
	g := &gateway{
		users:  perdure.NewService("UserGateway", perdure.Concurrency(4), perdure.MaxIdle(2*time.Minute)),
		orders: perdure.NewService("OrderGateway"),
	}
	g.profile = perdure.NewRPC(g.users, "get_profile", func(ctx perdure.EntityCtx, _ perdure.Void) (string, error) {
		return d.get(ctx.Key()), nil
	})
	// A call of this RPC survives a crash, so its code may run twice. The second run must be
	// harmless.
	g.rename = perdure.NewRPC(g.users, "update_profile", func(ctx perdure.EntityCtx, name string) (perdure.Void, error) {
		d.set(ctx.Key(), name)
		return perdure.Void{}, nil
	}, perdure.Persisted())
	g.userHealth, g.orderHealth = addHealth(g.users), addHealth(g.orders)
	return g
}

func main() {
	url := "memory:"
	if len(os.Args) > 1 {
		url = os.Args[1]
	}
	say := func(format string, args ...any) { fmt.Printf(format+"\n", args...) }
	if err := run(context.Background(), url, say); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url string, say func(format string, args ...any)) error {
	g := newGateway(&directory{names: map[string]string{"u-1": "eve"}})
	app, err := embedded.Open(ctx, url, g.users, g.orders)
	if err != nil {
		return err
	}
	defer app.Close()
	c := app.With(ctx)
	name, err := g.profile.Call(c, "u-1", perdure.Void{})
	if err != nil {
		return err
	}

	say("u-1 is %s", name)
	if _, err := g.rename.Call(c, "u-1", "adam"); err != nil {
		return err
	}
	if name, err = g.profile.Call(c, "u-1", perdure.Void{}); err != nil {
		return err
	}

	say("u-1 is %s", name)
	for _, ping := range []struct {
		of  health
		key string
	}{{g.userHealth, "u-1"}, {g.orderHealth, "o-1"}} {
		answer, err := ping.of.Ping.Call(c, ping.key, perdure.Void{})
		if err != nil {
			return err
		}
		say("%s", answer)
	}

	return nil
}
