package engine

import (
	"context"
	"errors"
	"slices"

	"github.com/perdure/perdure/internal/engine/feed"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

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
	}
}

// noteMove tells watchers that this node has acquired shards. Their last owner may have changed
// something that no watcher of this node has seen.
func (inc *incarnation) noteMove() {
	partial := false
	for s := range inc.owner {
		partial = partial || inc.owner[s].Load() == 0
	}
	inc.eng.feed.Miss()
	inc.eng.feed.SetPartial(partial)
}

// noteMembers tells watchers which code live processes have begun or ceased to offer. The view that
// came with a renewal has it for all nodes, this one included.
func (inc *incarnation) noteMembers(v *store.View) {
	was := inc.seen
	inc.seen = slices.DeleteFunc(slices.Clone(v.Members), func(m store.Member) bool { return m.Expires < v.Now })
	if was == nil || !inc.eng.feed.On() {
		return
	}

	changes := offered(nil, inc.seen, was, model.ChangeJoined, v.Now)
	if changes = offered(changes, was, inc.seen, model.ChangeLeft, v.Now); len(changes) > 0 {
		inc.eng.feed.Publish(changes)
	}
}

// offered adds a change for everything that the nodes in these offer, and those in others do not.
//
//arch:parameters two views, and how their difference is told
func offered(changes []model.Change, these, others []store.Member, kind model.ChangeKind, at model.Time) []model.Change {
	for i := range these {
		m := &these[i]
		var known []store.Served
		if j := slices.IndexFunc(others, func(o store.Member) bool { return o.ID == m.ID }); j >= 0 {
			known = others[j].Serves
		}

		for _, s := range m.Serves {
			same := func(o store.Served) bool {
				return o.Tenant == s.Tenant && o.Workflow == s.Workflow && o.Worker == s.Worker && o.Version == s.Version
			}
			if s.Tenant == "" || slices.ContainsFunc(known, same) {
				continue
			}
			c := model.Change{Class: model.ClassWorker, Kind: kind, Address: model.Address{Tenant: s.Tenant}, Node: m.ID, Name: s.Worker, Of: s.Workflow, At: at}
			changes = append(changes, c)
		}
	}
	return changes
}
