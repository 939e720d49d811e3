package perdure

import (
	"context"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/episode"
	"github.com/perdure/perdure/internal/model"
)

// serveDatabases starts the background work of an app for databases of the user.
func (a *App) serveDatabases(r *registry) error {
	mailer := a.cfg.Backend
	a.host.scope = model.TenantScope(mailer.Cluster(), a.host.tenant)
	ctx, stop := context.WithCancel(context.Background())
	a.stop = stop
	if _, direct := a.inbox(); direct {
		a.hinter.shards = make(chan model.ShardID, 64)
		a.background.Go(func() { a.hinter.run(ctx, mailer) })
	}

	a.databases = r.databases()
	for _, db := range a.databases {
		if a.cfg.Checks == nil {
			a.background.Go(func() { a.sweep(ctx, db) })
		}
	}

	for _, d := range r.outboxes {
		if a.cfg.Checks != nil {
			d.every = max(d.every, rarely)
		}
		one := &relay{db: d.db, every: d.every, mailer: mailer, host: a.host, hinted: make(chan struct{}, 1)}
		one.trouble = episode.New(a.host.logger, "messages of transactions cannot be passed on yet", "messages of transactions are passed on again").Source()
		a.relays = append(a.relays, one)
		a.background.Go(func() { one.run(ctx) })
	}
	return nil
}

// rarely is the pause between two polls of an outbox in a test. Polling every second would be most
// of the work of a test in virtual time.
const rarely = 24 * time.Hour

func (a *App) stopBackground() {
	a.stop()
	a.background.Wait()
}

// inbox returns the inbox of the engine's own database, if transactions may use it.
func (a *App) inbox() (api.Inbox, bool) { return a.cfg.Backend.Inbox() }

// hinter wakes the owners of shards after transactions of this process have put messages into the
// engine's inbox. A transaction does not report its commit, so the app sends several hints with
// growing pauses. If the transaction commits after the last hint, the owners find its messages
// without a hint, because they read the inbox every two seconds.
type hinter struct{ shards chan model.ShardID }

// hint asks run to send hints to the owner of one shard. It drops the request when too many are
// queued.
func (h *hinter) hint(s model.ShardID) {
	select {
	case h.shards <- s:
	default:
	}
}

func (h *hinter) run(ctx context.Context, m api.Mailer) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	waiting := map[model.ShardID]int{} // how many hints each shard has got so far
	for {
		select {
		case <-ctx.Done():
			return
		case s := <-h.shards:
			waiting[s] = 0
		case <-timer.C:
			for s, n := range waiting {
				m.Hint(s)
				if waiting[s] = n + 1; n+1 == len(eager) {
					delete(waiting, s)
				}
			}
		}

		pause := time.Hour
		for _, n := range waiting {
			pause = min(pause, eager[n]*time.Millisecond)
		}
		timer.Reset(pause)
	}
}
