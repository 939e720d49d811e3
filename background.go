package perdure

import (
	"context"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
)

// serveDatabases begins what an app does in the background for databases of the user.
func (a *App) serveDatabases(r *registry) error {
	mailer, ok := a.cfg.Backend.(api.Mailer)
	if ok {
		a.host.cluster = mailer.Cluster()
	} else if len(r.outboxes) > 0 {
		return public(fault.New(fault.Invalid, "this backend takes nothing that leaves with a transaction, so it can have no outbox (%s)", r.outboxes[0].at))
	}
	ctx, stop := context.WithCancel(context.Background())
	a.stop = stop
	for _, d := range r.outboxes {
		one := &relay{db: d.db, every: d.every, mailer: mailer, host: a.host, hinted: make(chan struct{}, 1)}
		a.relays = append(a.relays, one)
		a.background.Go(func() { one.run(ctx) })
	}
	return nil
}

func (a *App) stopBackground() {
	a.stop()
	a.background.Wait()
}
