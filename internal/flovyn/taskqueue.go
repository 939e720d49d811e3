package flovyn

import (
	"context"
	"crypto/rand"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// taskQueue is the worker of the tasks of one queue: the engine sees an api.TaskWorker, and clients
// poll it. It has one slot for each poll, for each task that a client executes, and for each claim
// that waits for a poll.
type taskQueue struct {
	d  *Door
	at site

	joining sync.Mutex // held during join
	session api.TaskSession

	mu      sync.Mutex
	polls   []*taskPoll
	held    map[string]*heldTask
	settled map[model.ClaimRef]chan error // reports that wait for their commit
	spare   []model.Claim                 // claims that came before the session was known
	parked  []parkedClaim                 // claims that wait for the next poll
	slots   int
	polled  time.Time
	gone    bool
}

// taskPoll is a call that waits for a task. The channel has room for one task, because the call
// gets at most one.
type taskPoll struct {
	worker, client string
	got            chan *heldTask
}

// parkedClaim is a task that the engine has claimed for a poll that has ended in the meantime.
type parkedClaim struct {
	claim model.Claim
	at    time.Time
}

// heldTask is a task that a client executes.
type heldTask struct {
	claim          model.Claim
	worker, client string
	// The time at is when the worker got the task or last made a call about it. lostAt is when the
	// door found the connection of the worker closed.
	at, lostAt time.Time
	// reporting is set while a report is applied.
	reporting bool
	canceled  bool
	// items counts the items that the task has written.
	items int64
	write sync.Mutex
}

func (t *heldTask) id() string { return t.claim.Ref.Address.Key }

func newTaskQueue(d *Door, at site) *taskQueue {
	return &taskQueue{d: d, at: at, held: map[string]*heldTask{}, settled: map[model.ClaimRef]chan error{}, slots: 1}
}

// join joins the engine, once.
func (q *taskQueue) join(ctx context.Context) error {
	q.joining.Lock()
	defer q.joining.Unlock()
	if q.session != nil {
		return nil
	}

	s, err := q.d.backend.JoinTasks(ctx, q, model.TaskOffer{
		Name:    model.Cut("flovyn/"+q.at.queue, 150) + "/" + strings.ToLower(rand.Text()[:10]),
		Tenants: []string{q.at.tenant}, Queues: []string{Prefix + q.at.queue}, Kinds: []string{model.AnyKind}, Slots: 1,
	})
	if err != nil {
		return err
	}

	q.mu.Lock()
	q.session = s
	spare := q.spare
	q.spare = nil
	q.mu.Unlock()
	q.Execute(spare)

	return nil
}

func (q *taskQueue) touch(now time.Time) {
	q.mu.Lock()
	q.polled = now
	q.mu.Unlock()
}

// size tells the engine how many claims the queue may hold now. The caller holds the lock.
func (q *taskQueue) size() {
	if n := len(q.polls) + len(q.held) + len(q.parked); n != q.slots && q.session != nil {
		q.slots = n
		q.session.Slots(n)
	}
}

// poll waits until there is a task for the caller. It returns nil if there is none within the wait.
func (q *taskQueue) poll(ctx context.Context, worker string, wait time.Duration) (*heldTask, error) {
	if wait <= 0 {
		wait = 200 * time.Millisecond // the engine needs a moment to commit a claim
	}
	q.mu.Lock()
	if q.gone {
		q.mu.Unlock()
		return nil, nil
	}
	if len(q.polls) >= maxPolls {
		q.mu.Unlock()
		return nil, fault.New(fault.Exhausted, "poll queue %s: %d polls wait for its tasks already, which is the maximum; poll again later, or connect fewer workers", q.at.queue, maxPolls)
	}
	p := &taskPoll{worker: worker, client: clientOf(ctx), got: make(chan *heldTask, 1)}
	q.polls = append(q.polls, p)
	q.unpark()
	q.size()
	q.mu.Unlock()

	timer := time.NewTimer(wait)
	defer timer.Stop()
	var err error
	select {
	case t := <-p.got:
		return t, nil
	case <-timer.C:
	case <-q.d.open.Done():
	case <-ctx.Done():
		err = ctx.Err()
	}

	q.mu.Lock()
	q.polled = time.Now()
	if i := slices.Index(q.polls, p); i >= 0 {
		q.polls = slices.Delete(q.polls, i, i+1)
		q.size()
		q.mu.Unlock()
		return nil, err
	}
	q.mu.Unlock()
	t := <-p.got // a task was handed over at the same moment
	if err != nil {
		q.giveBack(t)
		return nil, err
	}
	return t, nil
}

// Execute takes claims from the engine.
func (q *taskQueue) Execute(claims []model.Claim) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.session == nil {
		q.spare = append(q.spare, claims...)
		return
	}

	for i := range claims {
		c := claims[i]
		if _, err := parseID("task", c.Ref.Address.Key); err != nil || c.Canceled {
			q.reject(&c)
			continue
		}
		q.parked = append(q.parked, parkedClaim{claim: c, at: time.Now()})
	}

	q.unpark()
	q.size()
}

// unpark hands the claims that wait to the polls that wait. The caller holds the lock.
func (q *taskQueue) unpark() {
	for len(q.polls) > 0 && len(q.parked) > 0 {
		p, c := q.polls[0], q.parked[0].claim
		q.polls, q.parked = slices.Delete(q.polls, 0, 1), slices.Delete(q.parked, 0, 1)
		t := &heldTask{claim: c, worker: p.worker, client: p.client, at: time.Now()}
		q.held[t.id()] = t
		q.d.places.put(t.id(), c.Ref.Address)
		p.got <- t
	}
}

// reject gives back a claim that no call has taken. If the task is cancelled, or if workers cannot
// execute it, reject ends the task instead. The caller holds the lock.
func (q *taskQueue) reject(c *model.Claim) {
	r := model.TaskReport{Ref: c.Ref, Returned: true}
	if c.Canceled {
		r = model.TaskReport{Ref: c.Ref, Failure: canceledTask()}
	} else if _, err := parseID("task", c.Ref.Address.Key); err != nil {
		// Workers would read the key as an id of zeros.
		r = model.TaskReport{Ref: c.Ref, Failure: &model.Failure{
			Kind: model.FailureInvalid, Message: "workers of Flovyn tasks cannot execute this: the key is not a UUID", Permanent: true,
		}}
	}
	s := q.session
	// If the session has ended, it has given the claim back.
	q.d.beside(func() { _ = s.Report(q.d.open, r) })
}

func canceledTask() *model.Failure {
	return &model.Failure{Kind: model.FailureCanceled, Message: "Task cancelled", Permanent: true}
}

// giveBack returns to the engine a task that its caller never got. This uses up no attempt of the
// task.
func (q *taskQueue) giveBack(t *heldTask) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(q.d.open), 10*time.Second)
	defer cancel()
	// Ignore the error: if the session has ended, the engine already has the claim back.
	_ = q.report(ctx, t, func(r *model.TaskReport) { r.Returned = true })
}

// Stop forgets a claim that the engine has taken back, or ends a task that is cancelled.
func (q *taskQueue) Stop(claim model.ClaimRef, why model.StopReason) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if i := slices.IndexFunc(q.parked, func(p parkedClaim) bool { return p.claim.Ref == claim }); i >= 0 {
		c := q.parked[i].claim
		q.parked = slices.Delete(q.parked, i, i+1)
		if why != model.StopLost {
			c.Canceled = true
			q.reject(&c)
		}
		q.size()
		return
	}
	t := q.held[claim.Address.Key]
	if t == nil || t.claim.Ref != claim {
		return
	}

	if why == model.StopLost {
		delete(q.held, t.id())
		q.size()
		return
	}

	// Clients do not learn of a cancellation, so the door ends the task.
	if !t.reporting {
		t.canceled = true
		q.d.beside(func() {
			// An error means that another report was first.
			_ = q.report(q.d.open, t, func(r *model.TaskReport) { r.Failure = canceledTask() })
		})
	}
}

// The engine calls Settle when it has stored or refused a report. Settle passes the outcome to the
// call that made the report.
func (q *taskQueue) Settle(claim model.ClaimRef, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if done := q.settled[claim]; done != nil {
		delete(q.settled, claim)
		done <- err
	}
	if t := q.held[claim.Address.Key]; t != nil && t.claim.Ref == claim {
		delete(q.held, t.id())
		q.size()
	}
}

// has returns a task that a client executes, or nil if the queue does not have it. The door calls
// has for each call about the task, which shows that the client has the task.
func (q *taskQueue) has(id string) (t *heldTask, worker string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	t = q.held[id]
	if t == nil {
		return nil, ""
	}
	t.at, t.lostAt = time.Now(), time.Time{}
	return t, t.worker
}

// isCanceled reports whether a task was cancelled while a client executes it.
func (q *taskQueue) isCanceled(t *heldTask) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return t.canceled
}

// report says how a task ended, and returns when that is durable. A later attempt of the same task
// is another heldTask, so this report has no effect on it.
func (q *taskQueue) report(ctx context.Context, t *heldTask, fill func(*model.TaskReport)) error {
	q.mu.Lock()
	if q.held[t.id()] != t || t.reporting {
		q.mu.Unlock()
		return fault.New(fault.Conflict, "task %s is not running", t.id())
	}
	t.reporting = true
	r := model.TaskReport{Ref: t.claim.Ref}
	fill(&r)
	done := make(chan error, 1)
	q.settled[r.Ref] = done
	s := q.session
	q.mu.Unlock()

	if err := s.Report(ctx, r); err != nil {
		q.mu.Lock()
		delete(q.settled, r.Ref)
		t.reporting = false
		q.mu.Unlock()
		return err
	}

	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// look fails the attempts of workers that have lost their tasks, and gives back the claims that no
// poll has taken within Config.Park. It reports whether the queue has had no poll for a long time.
func (q *taskQueue) look(now time.Time) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	cfg := &q.d.cfg
	for _, t := range q.held {
		why := q.whyLost(t, now)
		if t.reporting || why == "" {
			continue
		}
		q.d.beside(func() {
			// An error means that another report was first.
			_ = q.report(q.d.open, t, func(r *model.TaskReport) {
				r.Failure = &model.Failure{Type: model.FailureLost, Message: why}
			})
		})
	}

	for len(q.parked) > 0 && now.Sub(q.parked[0].at) >= cfg.Park {
		c := q.parked[0].claim
		q.parked = slices.Delete(q.parked, 0, 1)
		q.reject(&c)
	}
	q.size()

	if len(q.polls) > 0 || len(q.held) > 0 || len(q.parked) > 0 {
		q.polled = now
	}
	q.gone = now.Sub(q.polled) > 12*cfg.Idle
	return q.gone
}

// whyLost returns why the door believes that the worker of a task has lost the task. It returns an
// empty text if the worker still has it. Workers need not make calls while they execute a task,
// which may take long. The caller holds the lock.
func (q *taskQueue) whyLost(t *heldTask, now time.Time) string {
	if t.lostAt.IsZero() && !q.d.connected(t.client) {
		t.lostAt = now
	}
	cfg, since := &q.d.cfg, now.Sub(t.at)
	switch {
	case since >= cfg.Silence && q.d.workers.silence(q.at.tenant, t.worker, now) >= cfg.Silence:
		return "the worker that executed the task is silent"
	case !t.lostAt.IsZero() && now.Sub(t.lostAt) >= cfg.Patience:
		return "the worker that executed the task has closed its connection"
	case since >= max(q.longest(t), q.d.workers.timeout(q.at.tenant, t.worker, t.claim.Spec.Kind)+cfg.Silence):
		return "the worker that got the task has made no call about it for long"
	}
	return ""
}

// longest is how long a worker may have a task without a call about it. The caller holds the lock.
func (q *taskQueue) longest(t *heldTask) time.Duration {
	if t.client != "" && t.lostAt.IsZero() && isWorkerID(q.at.tenant, t.worker) {
		return max(q.d.cfg.Longest, q.d.cfg.LongestNative)
	}
	return q.d.cfg.Longest
}

// leave gives everything back and leaves the engine.
func (q *taskQueue) leave(ctx context.Context) {
	q.joining.Lock()
	defer q.joining.Unlock()
	q.mu.Lock()
	q.gone = true
	s := q.session
	q.mu.Unlock()
	if s == nil {
		return
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	cancel()
	_ = s.Leave(ctx) // it fails if tasks still run; the session gives them back
}
