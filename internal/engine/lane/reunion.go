package lane

import (
	"slices"
	"strings"

	"github.com/perdure/perdure/internal/model"
)

// reunion is the time after a server has taken over shards, in which the workers of the last owner
// come back. A worker outlives the server, and may still run steps of the runs and calls of the
// entities that it held. So the lane keeps these for it: another worker would run them a second
// time. A worker says with its offer what it holds. When the time is over, any worker gets the
// rest.
type reunion struct {
	until model.Time // zero when there is no reunion
	// What the last owner left and no worker has asked for yet. Entities have no run.
	waiting map[model.Address]model.RunID
	// Workers that hold what the lane has not given out since.
	holders map[model.HeldRun]WorkerID
}

func newReunion() reunion {
	return reunion{waiting: map[model.Address]model.RunID{}, holders: map[model.HeldRun]WorkerID{}}
}

// begin starts a reunion, or makes a running one longer.
func (r *reunion) begin(until model.Time) { r.until = max(r.until, until) }

// wake returns when the reunion ends; zero when nothing depends on it.
func (r *reunion) wake() model.Time {
	if len(r.waiting)+len(r.holders) == 0 {
		return 0
	}
	return r.until
}

// awaits reports whether an address is kept for the worker that holds it.
func (r *reunion) awaits(a model.Address) bool {
	_, ok := r.waiting[a]
	return ok
}

// leave forgets what a worker said that it holds.
func (r *reunion) leave(id WorkerID) {
	for h, w := range r.holders {
		if w == id {
			delete(r.holders, h)
		}
	}
}

// dropShard forgets what belongs to another owner now.
func (r *reunion) dropShard(s model.ShardID, shards int) {
	for a := range r.waiting {
		if a.Shard(shards) == s {
			delete(r.waiting, a)
		}
	}
}

// keepForHolder keeps what the last owner left at an address for the worker that held it. It
// returns false when any worker may have it: its holder is here, or the reunion is over. The server
// itself runs the built-in workflows, and the board finds workers for tasks.
func (l *Lane) keepForHolder(now model.Time, e *entry, run model.RunID) bool {
	r := &l.reunion
	if r.until == 0 || now >= r.until || e.isTask() || strings.HasPrefix(e.address.Type, model.ReservedPrefix) {
		return false
	}
	if _, here := r.holders[model.HeldRun{Address: e.address, Run: run}]; here {
		return false
	}
	r.waiting[e.address] = run
	return true
}

// meet notes what a worker that has joined holds, and gives it what waited for it.
func (l *Lane) meet(now model.Time, id WorkerID, held []model.HeldRun) {
	for _, h := range held {
		if l.runs[h.Run] != nil {
			continue // another worker has it by now
		}
		l.reunion.holders[h] = id
		if run, waits := l.reunion.waiting[h.Address]; waits && run == h.Run {
			l.endWait(now, h.Address)
		}
	}
}

// endWait gives out what waited for its worker.
func (l *Lane) endWait(now model.Time, a model.Address) {
	delete(l.reunion.waiting, a)
	if e := l.entry(a); e != nil {
		l.dispatch(now, e)
		l.maybeDrop(e)
	}
}

// endReunion gives out what no worker has come back for in time.
func (l *Lane) endReunion(now model.Time) {
	r := &l.reunion
	if r.until == 0 || now < r.until {
		return
	}
	r.until = 0
	late := make([]model.Address, 0, len(r.waiting))
	for a := range r.waiting {
		late = append(late, a)
	}
	slices.SortFunc(late, compareAddresses)
	for _, a := range late {
		l.endWait(now, a)
	}
	clear(r.holders)
}

// pickFor chooses a worker for a run: the one that holds it from before, if that is here.
func (l *Lane) pickFor(e *entry) WorkerID {
	h := model.HeldRun{Address: e.address, Run: e.run()}
	id, held := l.reunion.holders[h]
	delete(l.reunion.holders, h)
	if held && l.workers.canServe(id, e.kind(), e.x.Pin) {
		return id
	}
	return l.workers.pick(e.kind(), e.x.Pin)
}

// pickForCalls chooses a worker for calls of an entity in the same way. An entity may have several
// hand-overs, so its holder stays until the end of the reunion.
func (l *Lane) pickForCalls(e *entry) WorkerID {
	k := kind{e.address.Tenant, e.address.Type}
	if id, held := l.reunion.holders[model.HeldRun{Address: e.address}]; held && l.workers.canServe(id, k, "") {
		return id
	}
	return l.workers.pick(k, "")
}
