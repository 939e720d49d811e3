package flovyn

import (
	"cmp"
	"container/heap"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// flowQueue is the worker of one queue: the engine sees an api.Worker, and clients poll it.
type flowQueue struct {
	d  *Door
	at site

	joining sync.Mutex // held during join and leave
	session api.Session

	mu    sync.Mutex
	runs  map[model.RunID]*run
	byKey map[string]*run
	ready readyRuns
	polls []*flowPoll
	// listeners are notified when there is work.
	listeners map[chan struct{}]bool
	polled    time.Time
	gone      bool // the queue takes no further polls
	// acks are turns to report once the session is known.
	acks []model.Turn
}

// flowPoll is a call that waits for work. The channel has room for one run, because the call gets
// at most one.
type flowPoll struct {
	worker, client string
	got            chan *run
}

func newFlowQueue(d *Door, at site) *flowQueue {
	return &flowQueue{d: d, at: at, runs: map[model.RunID]*run{}, byKey: map[string]*run{}, listeners: map[chan struct{}]bool{}}
}

// runState says where a run is.
type runState uint8

const (
	idle   runState = iota // it waits for something from outside, or for notBefore
	ready                  // it waits for a worker
	handed                 // a worker has it
)

// run is an execution that the engine has given to the door.
type run struct {
	start      model.Start
	generation uint64
	// events are the history from position 1. They are empty if the door has no room for them. In
	// that case the door reads the events and the input from the store.
	events  []model.Event
	bytes   int64 // the size of the input and the events
	shed    bool  // the door has no room for the input and the events
	journal *journal
	state   runState
	place   int // the index among the ready runs
	// last is the position of the last event.
	last int64
	// claimed is the value of last at the first hand-over after the last submission that was
	// stored. It does not change if further workers get the run. A submission does not name its
	// worker, so it may come from the worker that got the run first.
	claimed int64
	owed    bool // a worker has got the run, and no submission has been stored since
	wasOwed bool // owed before the last hand-over
	// at is when the worker got the run, or when it first asked for the events after that. For an
	// idle run, at is when the door last found nothing to do for a worker. confirmed says that the
	// worker has asked for the events since it got the run. client is the connection of the worker,
	// and lostAt is when the door found that connection closed.
	at             time.Time
	worker, client string
	confirmed      bool
	lostAt         time.Time
	handings       int // how often the run was handed to a worker
	// submitting is set while a submission is applied.
	submitting *submission
	// refusals counts submissions in a row that could not be applied. After a refusal, the door
	// hands the run out again at notBefore.
	refusals  int
	notBefore time.Time
	releasing bool
	ended     bool // the door has reported the end of the run
	// evicted is closed when the door forgets the run, because the engine has taken the run back or
	// the run has ended.
	evicted chan struct{}
}

// submission is a turn on its way to the store.
type submission struct {
	mark string // the id of its last event
	done chan error
}

func (r *run) address() model.Address { return r.start.Address }

// readyRuns orders the runs for workers, the oldest first. A run with priority n counts as n
// seconds older than it is.
type readyRuns []*run

func (h readyRuns) Len() int { return len(h) }
func (h readyRuns) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(h[i].rank(), h[j].rank()), h[i].start.Run.Compare(h[j].start.Run)) < 0
}

func (h readyRuns) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

// Push implements heap.Interface.
func (h *readyRuns) Push(x any) {
	r := x.(*run) //nolint:forcetypeassert // the heap has nothing else
	r.place = len(*h)
	*h = append(*h, r)
}

// Pop implements heap.Interface.
func (h *readyRuns) Pop() any {
	old := *h
	r := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return r
}

func (r *run) rank() model.Time {
	return r.start.At.Add(-time.Duration(r.journal.env.Priority) * time.Second)
}

// join joins the engine, once.
func (q *flowQueue) join(ctx context.Context) error {
	q.joining.Lock()
	defer q.joining.Unlock()
	if q.session != nil {
		return nil
	}
	s, err := q.d.backend.Join(ctx, q, api.Offer{Name: "flovyn/" + q.at.queue, Tenant: q.at.tenant, Workflows: []string{Prefix + q.at.queue}, Slots: maxActive})
	if err != nil {
		return err
	}

	q.mu.Lock()
	q.session = s
	acks := q.acks
	q.acks = nil
	q.mu.Unlock()
	for i := range acks {
		_ = s.Report(q.d.open, acks[i]) // without the turn, the engine takes the run back
	}
	return nil
}

func (q *flowQueue) touch(now time.Time) {
	q.mu.Lock()
	q.polled = now
	q.mu.Unlock()
}

// poll waits until there is a run for the caller. It returns nil if there is none within the wait.
func (q *flowQueue) poll(ctx context.Context, worker string, wait time.Duration) (*run, error) {
	q.mu.Lock()
	if q.gone {
		q.mu.Unlock()
		return nil, nil
	}
	p := &flowPoll{worker: worker, client: clientOf(ctx), got: make(chan *run, 1)}
	if r := q.next(); r != nil {
		q.hand(r, p)
		q.mu.Unlock()
		return r, nil
	}
	if wait <= 0 {
		q.mu.Unlock()
		return nil, nil
	}
	if len(q.polls) >= maxPolls {
		q.mu.Unlock()
		return nil, fault.New(fault.Exhausted, "poll queue %s: %d polls wait for its work already, which is the maximum; poll again later, or connect fewer workers", q.at.queue, maxPolls)
	}
	q.polls = append(q.polls, p)
	q.mu.Unlock()

	timer := time.NewTimer(wait)
	defer timer.Stop()
	var err error
	select {
	case r := <-p.got:
		return r, nil
	case <-timer.C:
	case <-q.d.open.Done():
	case <-ctx.Done():
		err = ctx.Err()
	}

	q.mu.Lock()
	defer q.mu.Unlock()
	q.polled = time.Now()
	if i := slices.Index(q.polls, p); i >= 0 {
		q.polls = slices.Delete(q.polls, i, i+1)
		return nil, err
	}
	r := <-p.got // a run was handed over at the same moment
	if err != nil {
		r.owed = r.wasOwed
		q.putBack(r)
		return nil, err
	}
	return r, nil
}

// next takes the first run that is ready. The caller holds the lock.
func (q *flowQueue) next() *run {
	if len(q.ready) == 0 {
		return nil
	}
	r, _ := heap.Pop(&q.ready).(*run)
	return r
}

// hand gives a run to the worker that polls. The caller holds the lock.
func (q *flowQueue) hand(r *run, p *flowPoll) {
	if !r.owed {
		r.claimed = r.last
	}
	r.wasOwed, r.owed = r.owed, true
	r.state, r.at, r.worker, r.client, r.confirmed, r.lostAt = handed, time.Now(), p.worker, p.client, false, time.Time{}
	r.handings++
}

// makeReady offers a run to workers. The caller holds the lock.
func (q *flowQueue) makeReady(r *run) {
	if r.state == ready || r.ended || q.runs[r.start.Run] != r {
		return
	}
	if why := r.overlong(q.d.cfg.MaxLog); why != nil {
		q.fail(r, why)
		return
	}

	if time.Now().Before(r.notBefore) {
		r.state = idle // look makes it ready at notBefore
		return
	}

	if len(q.polls) > 0 {
		p := q.polls[0]
		q.polls = slices.Delete(q.polls, 0, 1)
		q.hand(r, p)
		p.got <- r
		return
	}

	r.state = ready
	heap.Push(&q.ready, r)
	for l := range q.listeners {
		select {
		case l <- struct{}{}:
		default:
		}
	}
}

// putBack takes a run back from a worker that is gone or never received the run. The caller holds
// the lock.
func (q *flowQueue) putBack(r *run) {
	if r.state == handed && r.submitting == nil {
		r.state = idle
		q.makeReady(r)
	}
}

// returnRun takes back a run whose hand-over failed, unless another worker has it by now.
func (q *flowQueue) returnRun(r *run, handing int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if r.handings == handing {
		r.owed = r.wasOwed
		q.putBack(r)
	}
}

// handing is what a worker gets with a run.
type handing struct {
	start   model.Start
	claimed int64
	shed    bool
	number  int // the number of the hand-over
}

// handing returns what a worker gets with a run that was handed to it.
func (q *flowQueue) handing(r *run) handing {
	q.mu.Lock()
	defer q.mu.Unlock()
	return handing{start: r.start, claimed: r.claimed, shed: r.shed, number: r.handings}
}

// drop forgets a run. The caller holds the lock.
func (q *flowQueue) drop(r *run) {
	if q.runs[r.start.Run] != r {
		return
	}
	delete(q.runs, r.start.Run)
	if q.byKey[r.start.Address.Key] == r {
		delete(q.byKey, r.start.Address.Key)
	}
	if r.state == ready {
		heap.Remove(&q.ready, r.place)
	}
	q.d.bytes.Add(-r.bytes)
	r.bytes = 0
	r.state = idle
	close(r.evicted)
}

// Activate takes a run from the engine.
func (q *flowQueue) Activate(a *api.Activation) {
	r := &run{start: *a.Start, generation: a.Generation, journal: newJournal(a.Start.Address.Key, false), evicted: make(chan struct{})}
	r.journal.bare = true
	r.journal.add(&model.Event{Kind: model.EventStarted, At: a.Start.Zero(), Input: a.Start.Input})
	q.d.places.put(a.Start.Address.Key, a.Start.Address)

	q.mu.Lock()
	defer q.mu.Unlock()
	if old := q.runs[a.Start.Run]; old != nil {
		q.drop(old)
	}
	q.runs[a.Start.Run], q.byKey[a.Start.Address.Key] = r, r
	q.keep(r, int64(a.Start.Input.Size()))
	q.take(r, a.Events)
	q.settle(r)
}

// Deliver takes further events of a run from the engine.
func (q *flowQueue) Deliver(id model.RunID, generation uint64, events []model.Event) {
	q.mu.Lock()
	defer q.mu.Unlock()
	r := q.runs[id]
	if r == nil || r.generation != generation {
		return
	}
	q.take(r, events)

	if s := r.submitting; s != nil {
		if !slices.ContainsFunc(events, func(e model.Event) bool { return s.mark != "" && e.ID == s.mark }) {
			return // these events came before the commit of the turn
		}
		r.submitting, r.state, r.refusals, r.owed = nil, idle, 0, false
		s.done <- nil
	}
	q.settle(r)
}

// take adds events to a run. The caller holds the lock.
func (q *flowQueue) take(r *run, events []model.Event) {
	r.releasing = false
	size := int64(0)
	for i := range events {
		r.journal.add(&events[i])
		r.last = events[i].Seq
		size += int64(events[i].Size())
	}
	if q.keep(r, size) {
		r.events = append(r.events, events...)
	}
}

// keep counts bytes of a run that the door keeps. If the door has no room for them, keep forgets
// the input and the events of the run, and reports false. The caller holds the lock.
func (q *flowQueue) keep(r *run, size int64) bool {
	if r.shed {
		return false
	}
	r.bytes += size
	if q.d.bytes.Add(size) <= q.d.cfg.MaxHistories {
		return true
	}
	q.d.bytes.Add(-r.bytes)
	r.bytes, r.shed, r.events, r.start.Input = 0, true, nil, model.Payload{}
	return false
}

// settle decides what a run needs after new events. The caller holds the lock.
func (q *flowQueue) settle(r *run) {
	if r.ended {
		return
	}
	if why := r.journal.cancel; why != nil {
		// No worker of the protocol reacts to a cancellation, so the door ends the run.
		r.ended = true
		q.report(model.Turn{Run: r.start.Run, Generation: r.generation, Seen: r.last, Close: &model.Close{
			Status: model.Canceled, Failure: &model.Failure{Kind: model.FailureCanceled, Message: *why},
		}})
		return
	}
	if why := r.misfit(); why != "" {
		q.fail(r, &model.Failure{Kind: model.FailureInvalid, Message: why})
		return
	}
	if r.state == ready && r.overlong(q.d.cfg.MaxLog) != nil {
		heap.Remove(&q.ready, r.place)
		r.state = idle
	}
	if r.state != idle {
		return
	}
	if r.journal.news {
		q.makeReady(r)
		return
	}

	// After events that could let code continue, the engine waits for a turn. No worker needs to
	// know these events, so the door reports the turn itself.
	r.at = time.Now()
	q.report(model.Turn{Run: r.start.Run, Generation: r.generation, Seen: r.last, Commands: q.refuseUpdates(r), Waits: r.journal.waits()})
}

// fail ends a run that no worker can continue. The caller holds the lock.
func (q *flowQueue) fail(r *run, why *model.Failure) {
	r.ended = true
	q.report(model.Turn{Run: r.start.Run, Generation: r.generation, Seen: r.last, Close: &model.Close{Status: model.Failed, Failure: why}})
}

// overlong returns why no worker can read the log of a run, or nil if workers can. A worker that
// cannot read the log does nothing, or starts the workflow from the beginning.
func (r *run) overlong(most int64) *model.Failure {
	if r.journal.bytes <= most {
		return nil
	}
	return &model.Failure{
		Kind: fault.Exhausted.String(), Type: model.FailureHistory, Permanent: true,
		Message: fmt.Sprintf("the event log of the execution has %d bytes, and workers of Flovyn workflows read at most %d, so they cannot continue it; "+
			"start it again with a workflow that stores less, for example references instead of contents", r.journal.bytes, most),
	}
}

// misfit says why workers of the protocol cannot execute a run. It returns an empty text if they
// can. Workers read a key that is not a UUID as an id of zeros, and would report on an execution
// that does not exist.
func (r *run) misfit() string {
	if _, err := parseID("workflow execution", r.start.Address.Key); err != nil {
		return "workers of Flovyn workflows cannot execute this: the key is not a UUID"
	}
	if r.journal.env.Kind == "" {
		return "workers of Flovyn workflows cannot execute this: it was not started over the Flovyn protocol, and has no kind"
	}
	return ""
}

// refuseUpdates refuses the updates that a run has received, because its workers do not know
// updates. The caller holds the lock.
func (q *flowQueue) refuseUpdates(r *run) []model.Command {
	var commands []model.Command
	for seq, name := range r.journal.updates {
		commands = append(commands, model.Command{Kind: model.CommandAnswer, Event: model.Event{
			ID: stepUpdate + name, Ref: seq, Failure: &model.Failure{Kind: model.FailureInvalid, Message: "workers of Flovyn workflows answer no updates"},
		}})
	}

	return commands
}

// report passes a turn of the door itself to the engine. It does so in the background, because the
// engine may be waiting for the caller. The caller holds the lock.
func (q *flowQueue) report(t model.Turn) {
	s := q.session
	if s == nil { // the engine calls before Join returns
		q.acks = append(q.acks, t)
		return
	}
	// If the engine does not get the turn, it takes the run back.
	q.d.beside(func() { _ = s.Report(q.d.open, t) })
}

// Taken does nothing. The turn of a submission ends the run, or records an event, which the engine
// passes to Deliver. No caller waits for the other turns of the door.
func (q *flowQueue) Taken(model.RunID, uint64) {}

// Retry does nothing, because the door has no steps that are repeated.
func (q *flowQueue) Retry(model.RunID, uint64, string) {}

// Evict forgets a run that the engine takes back.
func (q *flowQueue) Evict(id model.RunID, generation uint64, _ string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if r := q.runs[id]; r != nil && r.generation == generation {
		q.drop(r)
	}
}

// Query answers with an error, because workers of the protocol answer no queries.
func (q *flowQueue) Query(id model.RunID, generation uint64, ask model.Query) {
	q.refuseQuery(id, generation, ask)
}

// Recall answers as Query does.
func (q *flowQueue) Recall(_ model.Address, id model.RunID, generation uint64, ask model.Query) {
	q.refuseQuery(id, generation, ask)
}

func (q *flowQueue) refuseQuery(id model.RunID, generation uint64, ask model.Query) {
	q.mu.Lock()
	s := q.session
	q.mu.Unlock()
	if s != nil {
		q.d.beside(func() {
			s.Answer(id, generation, ask.ID, model.Payload{}, &model.Failure{Kind: model.FailureInvalid, Message: "workers of Flovyn workflows answer no queries"})
		})
	}
}

// look takes runs back from workers that have lost them, offers refused runs again at their
// notBefore, and releases runs that have waited for a long time. It reports whether the queue has
// had no poll for a long time.
func (q *flowQueue) look(now time.Time) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	cfg := &q.d.cfg
	for _, r := range q.runs {
		switch {
		case r.submitting != nil || r.ended:
		case r.state == handed:
			if q.isLost(r, now) {
				q.putBack(r)
			}
		case r.state == idle && r.journal.news:
			q.makeReady(r)
		case r.state == idle && !r.releasing && now.Sub(r.at) > cfg.Idle && q.session != nil:
			r.releasing = true
			s, id, generation, last, waits := q.session, r.start.Run, r.generation, r.last, r.journal.waits()
			q.d.beside(func() { s.Release(id, generation, last, waits) })
		}
	}

	busy := len(q.polls) > 0 || len(q.listeners) > 0 || slices.ContainsFunc(q.held(), func(r *run) bool { return r.state == handed })
	if busy {
		q.polled = now
	}
	q.gone = now.Sub(q.polled) > 12*cfg.Idle
	return q.gone
}

// isLost reports whether another worker should get a run: its worker is gone, has not asked for the
// events, or has had the run for longer than Config.Patience. The caller holds the lock.
func (q *flowQueue) isLost(r *run, now time.Time) bool {
	if r.lostAt.IsZero() && !q.d.connected(r.client) {
		r.lostAt = now
	}
	cfg, since := &q.d.cfg, now.Sub(r.at)
	switch {
	case since > cfg.Patience:
	case since > cfg.Unconfirmed && !r.confirmed:
	case !r.lostAt.IsZero() && now.Sub(r.lostAt) > cfg.Unconfirmed:
	case since > cfg.Silence && q.d.workers.silence(q.at.tenant, r.worker, now) > cfg.Silence:
	default:
		return false
	}
	return true
}

// held returns all runs. The caller holds the lock.
func (q *flowQueue) held() []*run {
	all := make([]*run, 0, len(q.runs))
	for _, r := range q.runs {
		all = append(all, r)
	}
	return all
}

// leave gives all runs back and leaves the engine.
func (q *flowQueue) leave(ctx context.Context) {
	q.joining.Lock()
	defer q.joining.Unlock()
	q.mu.Lock()
	q.gone = true
	s, all := q.session, q.held()
	q.mu.Unlock()
	if s == nil {
		return
	}
	for _, r := range all {
		s.Release(r.start.Run, r.generation, r.last, nil)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	_ = s.Leave(ctx) // the engine takes back what is still held
}

// listen returns a channel that receives a value when there is work, until the caller calls stop.
func (q *flowQueue) listen() (work <-chan struct{}, stop func()) {
	l := make(chan struct{}, 1)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.listeners[l] = true
	if len(q.ready) > 0 {
		l <- struct{}{}
	}
	return l, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		delete(q.listeners, l)
	}
}
