package engine

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/engine/feed"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// settleTime is how long the first page of a watch waits for the other nodes to send their changes.
// Without the wait, almost every watch in a cluster would begin with a feed that is partial.
const settleTime = time.Second

// Watch calls take with pages of changes of a tenant until ctx ends, take returns an error or the
// engine ends. See api.Feed.
//
//arch:parameters a request of api.Feed, without the room api
func (e *Engine) Watch(ctx context.Context, tenant string, filter model.ChangeFilter, cursor string, take func(model.ChangePage) error) error {
	w, err := e.feed.Watch(tenant, filter, cursor)
	if err != nil {
		return err
	}
	defer w.Close()
	w.Settle(ctx, settleTime)

	for {
		page, err := w.Next(ctx)
		switch {
		case errors.Is(err, feed.ErrClosed):
			return e.gaveUp(ctx, "watch")
		case err != nil:
			return err
		}
		if err := take(page); err != nil {
			return err
		}
		if err := e.pauseWatch(ctx); err != nil {
			return err
		}
	}
}

// pauseWatch waits before a watcher looks for its next page. If there are many watchers, each gets
// fewer pages with more changes.
func (e *Engine) pauseWatch(ctx context.Context) error {
	pause := e.feed.Pause()
	if pause == 0 {
		return nil
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return fault.New(fault.KindOf(ctx.Err()), "watch: %w", context.Cause(ctx))
	}
}

// noteMembers tells watchers which code live processes have started or stopped offering. The view
// that comes with a renewal shows the code of all nodes, including this node.
func (inc *incarnation) noteMembers(v *store.View) {
	was := inc.seen
	inc.seen = slices.DeleteFunc(slices.Clone(v.Members), func(m store.Member) bool { return m.Expires < v.Now })
	if was == nil || !inc.eng.feed.On() {
		return
	}

	changes := compareOffers(was, inc.seen, v.Now)
	if len(changes) > 0 {
		inc.eng.feed.Publish(changes)
	}
}

// compareOffers returns the changes in the offers of the nodes.
func compareOffers(was, now []store.Member, at model.Time) (changes []model.Change) {
	add := func(kind model.ChangeKind, node model.NodeID, s *store.Served) {
		if s.Tenant != "" {
			changes = append(changes, model.Change{
				Class: model.ClassWorker, Kind: kind, Address: model.Address{Tenant: s.Tenant}, Node: node, Name: s.Worker, Of: s.Workflow, At: at,
			})
		}
	}

	for i := range now {
		m := &now[i]
		for j := range m.Serves {
			s := &m.Serves[j]
			switch old := findOffer(was, m.ID, s); {
			case old == nil:
				add(model.ChangeJoined, m.ID, s)
			case old.Workers != s.Workers || old.Slots != s.Slots || old.Draining != s.Draining:
				add(model.ChangeChanged, m.ID, s)
			}
		}
	}

	for i := range was {
		m := &was[i]
		for j := range m.Serves {
			if findOffer(now, m.ID, &m.Serves[j]) == nil {
				add(model.ChangeLeft, m.ID, &m.Serves[j])
			}
		}
	}
	return changes
}

// findOffer looks in a view for the offer s of a node. It returns nil if there is none. Remote
// workers with the same offer share one entry, which may have the name of any of them.
func findOffer(view []store.Member, node model.NodeID, s *store.Served) *store.Served {
	for i := range view {
		if view[i].ID != node {
			continue
		}
		for j := range view[i].Serves {
			o := &view[i].Serves[j]
			named := o.Worker == s.Worker || o.Workers > 0 && s.Workers > 0
			if named && o.Tenant == s.Tenant && o.Workflow == s.Workflow && o.Version == s.Version && slices.Equal(o.Queues, s.Queues) && slices.Equal(o.Activities, s.Activities) {
				return o
			}
		}
	}
	return nil
}
