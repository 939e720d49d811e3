package main

import (
	"context"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

// Health is an RPC group shared by several services.
type Health struct {
	Ping *perdure.RPC[perdure.Void, string]
}

func AddHealth(s *perdure.Service) Health {
	return Health{Ping: perdure.NewRPC(s, "ping", func(ctx perdure.EntityCtx, _ perdure.Void) (string, error) { return "ok " + ctx.Key(), nil })}
}

type (
	Get     struct{}
	Set     struct{ Name string }
	Profile struct{ Name string }
	Users   struct{ names map[string]string }
)

func (u *Users) profile(ctx perdure.EntityCtx, _ Get) (Profile, error) {
	return Profile{u.names[ctx.Key()]}, nil
}

func (u *Users) rename(ctx perdure.EntityCtx, in Set) (perdure.Void, error) {
	return perdure.Void{}, nil
}

func main() {
	u := &Users{}
	users := perdure.NewService("UserGateway", perdure.Concurrency(4), perdure.MaxIdle(2*time.Minute))
	profile := perdure.NewRPC(users, "get_profile", u.profile)
	rename := perdure.NewRPC(users, "update_profile", u.rename, perdure.Persisted())
	orders := perdure.NewService("OrderGateway")
	userHealth, orderHealth := AddHealth(users), AddHealth(orders)

	app := embedded.MustOpen("memory:", users, orders)
	defer app.Close()
	c := app.With(context.Background())
	_, _ = profile.Call(c, "u-1", Get{})
	_, _ = rename.Call(c, "u-1", Set{"eve"})
	_ = rename.Send(c, "u-1", Set{"eve"})
	_, _ = userHealth.Ping.Call(c, "u-1", perdure.Void{})
	_, _ = orderHealth.Ping.Call(c, "o-1", perdure.Void{})
}
