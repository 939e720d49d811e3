package lane

import (
	"cmp"
	"slices"
	"strings"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// entry is an address that the lane works on. It leaves memory as soon as it is idle. Each group of
// fields answers one question about the address; entryparts.go has the types.
type entry struct {
	address model.Address
	shard   *shard
	gone    bool // the entry has left memory: a late result for it changes nothing
	known   bool // x is valid, even if it is nil
	listed  bool // a page of the last owner's runs or entities has named the address
	// claimed says that the worker that held the run or the entity under the last owner has come
	// back in time. That worker gets the run or the entity, even if the reunion ends before the
	// lane can hand it over.
	claimed bool
	// callsOutlived is for the calls of an entity what outlived is for a run.
	callsOutlived bool

	x *core.Execution // the current run; nil when there is none, or before it has been read
	// version counts how often the lane dropped the state or read it for a worker. A read that
	// started under an older version is out of date.
	version    int32
	remembered int32  // answers that the lane began to remember; see lookup.served
	actor      *actor // the state of an entity or a service; nil for all other addresses

	backlog    backlog    // inputs that wait for the address
	pending    pending    // what is not committed yet
	reading    reading    // what is being read
	hold       holding    // which worker holds the run
	eviction   eviction   // how the worker loses the run
	wait       stall      // why the run does not move
	tasks      taskBook   // what the board and the workers know about its tasks
	quarantine quarantine // why the lane refuses inputs for it
	queries    []*query   // asked of its code and not answered
	// the run that this lane itself has started or given to a worker, see reunion
	ours model.RunID
	// outlived is the run that a worker held when it left because its server stops. The worker may
	// still run a step, so only the next owner hands the run over, after the worker has come back.
	outlived model.RunID
}

// isOutlived reports whether the current run, or the calls of the entity, wait for the next owner.
func (e *entry) isOutlived() bool {
	if e.callsOutlived {
		return true
	}
	return !e.outlived.IsZero() && (!e.known || e.x != nil && e.x.Open() && e.run() == e.outlived)
}

func (e *entry) run() model.RunID {
	if e.x == nil {
		return model.RunID{}
	}
	return e.x.Start.Run
}

// isPaused reports whether no worker may continue the run, as far as the lane knows: a user has
// paused it, or its start time has not come.
func (e *entry) isPaused() bool {
	return e.known && e.x != nil && (e.x.Withheld() != nil || e.pending.resuming > 0)
}

// isTask reports whether the address is a task without a workflow, for which no code runs.
func (e *entry) isTask() bool { return isStandalone(e.address) }

// isStandalone reports whether the address is a task without a workflow.
func isStandalone(a model.Address) bool { return strings.HasPrefix(a.Type, model.TaskPrefix) }

// kind returns the kind of workflow, entity or service of the address.
func (e *entry) kind() kind { return kind{e.address.Tenant, e.address.Type} }

// requeueReports puts reports that waited for the end of a quarantine at the front of the backlog.
func (e *entry) requeueReports() {
	all := make([]input, 0, len(e.quarantine.reports)+len(e.backlog.inputs))
	for _, in := range e.quarantine.reports {
		all = append(all, in)
	}
	e.backlog.inputs, e.quarantine.reports = append(all, e.backlog.inputs...), nil
}

// refusal returns an error that says that the address is quarantined.
func (e *entry) refusal() *fault.Error {
	return fault.New(fault.Blocked, "execution %s %s", e.address, e.quarantine.why)
}

// needsFate reports whether only the store knows the fate of a claim.
func (e *entry) needsFate(ref *model.ClaimRef) bool { return ref != nil && !e.x.HasFate(ref) }

// hasUnknownClaim reports whether a claim is open in the store although the lane does not know it.
func (e *entry) hasUnknownClaim(f *core.Fate, ref *model.ClaimRef) bool {
	return f != nil && !f.Over && !e.x.HasFate(ref)
}

// hasPassed reports whether the history of the run that the lane knows includes the position of a
// claim.
func (e *entry) hasPassed(run model.RunID, claim int64) bool {
	return e.x != nil && e.run() == run && claim < e.x.Next
}

func (e *entry) key() store.RunKey { return store.RunKey{Shard: e.shard.id, Run: e.run()} }

func (e *entry) dirty() bool { return e.pending.dirty() }

// ring is a queue of entries, served in turn.
type ring struct{ items []*entry }

func (r *ring) len() int { return len(r.items) }

func (r *ring) push(e *entry) {
	if !e.backlog.queued {
		e.backlog.queued = true
		r.items = append(r.items, e)
	}
}

// take empties the queue.
func (r *ring) take() []*entry {
	items := r.items
	r.items = nil
	for _, e := range items {
		e.backlog.queued = false
	}
	return items
}

// taskData is the stored data of a task while a claim writes it. The lane reads it when the claim
// writes for the first time. A task that writes nothing has no taskData.
type taskData struct {
	core.Written
	err error // why the lane cannot read the data; if it is set, the lane refuses further writes
}

// shard is a slice of the address space that this lane owns.
type shard struct {
	id model.ShardID
	// a new number for each acquisition: results of reads with an older number are out of date
	tenure   int
	since    model.Time              // when the lane acquired it
	received map[model.ShardID]int64 // committed cursors, by sender
	sent     map[model.ShardID]int64 // last committed position, by receiver
	underway map[model.ShardID]int   // messages in batches that are not committed, by receiver
	entries  map[*entry]struct{}
	tokens   tokens

	draining bool       // the lane is giving up the shard and takes no new work for it
	until    model.Time // when the lane stops waiting for running steps
	freeing  bool       // the batch that frees it is open or in flight
	gone     bool       // another lane owns it now
	// The last owner died; one of the calls that it was running may be the cause.
	crashed bool
	// how many suspects run alone without the note of a dead owner, see loneCalls
	lone   int
	listed bool // the lane has listed its runnable runs
	// the lane has listed its entities with calls
	mailListed bool
	foreign    bool // another incarnation owned it last
	handed     bool // see store.AcquiredShard
	answered   bool // the lane knows what the workers of the live nodes hold, see isAsking

	// The store refused a batch that frees the shard. The next batch that frees the shard does
	// nothing else.
	alone    bool
	refusals int        // of such batches
	again    model.Time // when the lane sends the next such batch
}

// sortedEntries lists the entries of the shard in a deterministic order.
func (s *shard) sortedEntries() []*entry {
	es := make([]*entry, 0, len(s.entries))
	for e := range s.entries {
		es = append(es, e)
	}
	slices.SortFunc(es, compareEntries)
	return es
}

// tokens are the fencing tokens of the entities of a shard. They come from the clock, in µs. When
// the row of an entity is deleted, its last token is lost, and the clock of the next owner may be
// behind. So the shard has a stored mark. A commit that gives out a token above the mark raises the
// mark well above that token, and the next owner starts above the mark.
type tokens struct {
	last     int64 // the highest token given out, or the mark that was found
	reserved int64 // the stored mark
}

func compareAddresses(x, y model.Address) int {
	return cmp.Or(cmp.Compare(x.Tenant, y.Tenant), cmp.Compare(x.Type, y.Type), cmp.Compare(x.Key, y.Key))
}

func compareEntries(x, y *entry) int {
	return cmp.Or(cmp.Compare(x.shard.id, y.shard.id), compareAddresses(x.address, y.address))
}
