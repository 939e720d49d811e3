package engine

import (
	"context"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/engine/crew"
	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/engine/peer"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

const (
	// askFor is the longest time that a node with newly acquired shards waits for the other nodes
	// to say which runs and entities of the last owner their workers hold. Usually all of them
	// answer immediately.
	askFor = 2 * time.Second
	// lookEvery is how often a server checks whether the workers of the last owners have come back,
	// while it waits for them. It also checks when one of these workers has joined this server.
	lookEvery = 500 * time.Millisecond
)

// company has the live nodes.
type company struct {
	others []model.NodeID
	homes  []model.NodeID // the homes and the ids of all live nodes, see names.noteUnnamed
}

// noteCompany notes the live nodes of a view.
func (inc *incarnation) noteCompany(v *store.View) {
	c := &company{homes: []model.NodeID{inc.eng.names.home}}
	for i := range v.Members {
		m := &v.Members[i]
		if m.Expires < v.Now {
			continue
		}
		c.homes = append(c.homes, m.Home, m.ID)
		if m.ID != inc.self.ID {
			c.others = append(c.others, m.ID)
		}
	}
	c.homes = slices.DeleteFunc(c.homes, func(id model.NodeID) bool { return id.IsZero() })
	inc.company.Store(c)
	// A store that only one process can open keeps no homes, and has no other nodes.
	if inc.eng.cfg.Lane.Reunion > 0 && inc.eng.cfg.Store.Info().Shared {
		inc.eng.names.noteUnnamed(v.Members)
	}
}

// reunite finds out which workers hold runs and entities of the last owners of acquired shards.
// Until it knows that, the lanes do not hand over these runs and entities.
func (inc *incarnation) reunite() {
	server := inc.eng.cfg.Lane.Reunion > 0
	if !server && (inc.crewHost == nil || !inc.eng.mixed.Load()) {
		return
	}
	tenure := inc.tenure.Load()
	inc.eng.beside.run(func(ctx context.Context) {
		inc.meetOwn(ctx)
		inc.askOthers(ctx)
		inc.tellLanes(tenure, (*lane.Lane).EndReunion)
		if server {
			inc.awaitWorkers(ctx, tenure)
		}
	})
}

// meetOwn tells the lanes what the workers of this process hold of lost owners. A worker that is
// lent to an owner first has to lose the runs of this owner, which takes a moment after the owner
// has died. If that takes longer than askFor, meetOwn gives up, as askOthers does: a body that is
// still running then may run a second time.
func (inc *incarnation) meetOwn(ctx context.Context) {
	if inc.crewHost != nil {
		brief, cancel := context.WithTimeout(ctx, askFor)
		inc.crewHost.Settle(brief)
		cancel()
	}
	for _, s := range inc.eng.workers.all() {
		if !s.isAway() && s.isAdmitted() {
			inc.meet(s.id, s.hands.Left())
		}
	}
	for _, s := range inc.eng.entityWorkers.all() {
		if !s.isAway() && s.isAdmitted() {
			inc.meet(-s.id, s.hands.Left())
		}
	}
}

// tellLanes calls tell for each lane. It does nothing if this node has acquired shards since the
// given tenure, because that acquisition has started a reunion of its own.
func (inc *incarnation) tellLanes(tenure int64, tell func(*lane.Lane, model.Time)) {
	// Only the members loop gives shards to the lanes, so no shard can come between the check and
	// the call.
	inc.post(func() {
		if inc.tenure.Load() == tenure {
			inc.everywhere(tell)
		}
	})
}

// askOthers asks the other live nodes what their workers hold, and returns whether all of them have
// answered.
func (inc *incarnation) askOthers(ctx context.Context) bool {
	c := inc.company.Load()
	if c == nil || len(c.others) == 0 {
		return true
	}
	if inc.crewHost == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	return crew.Ask(ctx, peer.Crew{Post: inc.peers}, c.others)
}

// awaitWorkers ends the reunion as soon as no remote worker that holds something of the last owners
// can be on its way.
//
// A server names a worker before it hands anything over to the worker. The server removes the name
// when the worker no longer holds anything, or when the worker has joined another server. That
// server names the worker and knows what the worker holds. So if each name belongs to a live node,
// the live nodes together know what remote workers hold. awaitWorkers first reads the names and
// then asks the nodes. So it also asks a node that has taken over a name in between. If a node dies
// in between, it does not answer, and awaitWorkers looks again later. A while after the reunion,
// awaitWorkers drops the names of workers that have stayed away all the time.
func (inc *incarnation) awaitWorkers(ctx context.Context, tenure int64) {
	defer inc.eng.others.homes.Leave()
	var away []model.NodeID // the processes whose workers were missing at every look
	over := 0               // looks since the reunion
	for first := true; inc.eng.current() == inc && inc.tenure.Load() == tenure; {
		written := inc.eng.names.written.listen()
		missing, err := inc.missingHomes(ctx)
		if err != nil && ctx.Err() == nil {
			inc.eng.others.homes.Fail(err)
		}
		if err == nil {
			inc.eng.others.homes.OK()
			if len(missing) == 0 && inc.askOthers(ctx) {
				inc.tellLanes(tenure, (*lane.Lane).FinishReunion)
				return
			}
			away = slices.DeleteFunc(missing, func(id model.NodeID) bool { return !first && !slices.Contains(away, id) })
			first = false
			if inc.board.isReunited() {
				over++
			}
			if time.Duration(over)*lookEvery > inc.eng.cfg.Lane.Reunion/2 {
				inc.eng.names.drop(away)
				return
			}
		}

		t := time.NewTimer(lookEvery)
		select {
		case <-t.C:
		case <-written:
		case <-ctx.Done():
		}
		t.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// awaitsWorkers reports whether some remote workers of lost servers have not come back yet, as far
// as this server knows.
func (inc *incarnation) awaitsWorkers(ctx context.Context) bool {
	if inc.eng.cfg.Lane.Reunion == 0 {
		return false
	}
	missing, err := inc.missingHomes(ctx)
	return err != nil || len(missing) > 0
}

// missingHomes returns the processes that have ended and whose workers have not come back.
func (inc *incarnation) missingHomes(ctx context.Context) ([]model.NodeID, error) {
	ctx, cancel := context.WithTimeout(ctx, inc.eng.cfg.LeaseTTL/2)
	defer cancel()
	homes, err := inc.eng.cfg.Store.WorkerHomes(ctx)
	if err != nil {
		return nil, err
	}
	c := inc.company.Load()
	if c == nil {
		return homes, nil
	}
	return slices.DeleteFunc(homes, func(id model.NodeID) bool { return slices.Contains(c.homes, id) }), nil
}
