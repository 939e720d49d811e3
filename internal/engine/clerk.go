package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/episode"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/notify"
	"github.com/perdure/perdure/internal/store"
)

const (
	storePause = 50 * time.Millisecond // between attempts while the store is away
	clerkPoll  = time.Second
	// clerkTrust is how long a caller waits before the clerk checks that the run still exists. A
	// deleted run never gets an outcome.
	clerkTrust = 10 * time.Second
)

// clerk sends requests to other owners through the store, and looks for their answers. It looks
// when a hint arrives, and once a second while a caller waits. One read of the store covers all
// waiting callers.
type clerk struct {
	eng     *Engine
	lookout *notify.Lookout

	mu      sync.Mutex
	replies map[store.RequestKey][]*call
	// acked has the requests whose callers have received their answers, see acknowledge.
	acked   []store.RequestKey
	tidied  time.Time // when the clerk last removed such answers; only the lookout uses it
	runs    map[store.RunKey][]*call
	listens map[model.Address]*listening // see taskdata.go
	puts    []puts                       // by part of the store
	// forgetting says that a timer is set that removes entries without listeners from listens.
	forgetting bool
}

func newClerk(e *Engine) *clerk {
	return &clerk{
		eng: e, lookout: notify.NewLookout(), puts: make([]puts, e.division.count()),
		replies: map[store.RequestKey][]*call{}, runs: map[store.RunKey][]*call{}, listens: map[model.Address]*listening{},
	}
}

// run looks for answers until ctx ends.
func (k *clerk) run(ctx context.Context) {
	k.lookout.Run(ctx, clerkPoll, k.isAwaiting, k.look)
	k.tidyLast(ctx)
}

// isAwaiting reports whether a caller waits, or acknowledged answers wait to be removed. A caller
// first registers and then calls Expect, so that the clerk misses no caller.
func (k *clerk) isAwaiting() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, l := range k.listens {
		if len(l.calls) > 0 {
			return true
		}
	}
	return len(k.replies)+len(k.runs)+len(k.acked) > 0
}

func (k *clerk) look(ctx context.Context) {
	defer k.tidy(ctx) // after the answers, because callers wait for the answers
	k.lookAgain()
	asked := k.awaited()
	k.lookFor(ctx, asked)
	// An answer may have named a run whose end the first read has not found. The run may have ended
	// in the meantime, or another run may have taken its address.
	k.lookFor(ctx, store.Awaited{Runs: k.runsBeside(asked.Runs)})
}

// awaited returns what callers wait for. A caller that does not know its run yet waits for a run at
// the address of its start.
func (k *clerk) awaited() (a store.Awaited) {
	k.mu.Lock()
	defer k.mu.Unlock()
	a.Requests = slices.AppendSeq(make([]store.RequestKey, 0, len(k.replies)), maps.Keys(k.replies))
	a.Runs = slices.AppendSeq(make([]store.RunKey, 0, len(k.runs)), maps.Keys(k.runs))
	for key, calls := range k.replies {
		awaitsEnd := func(c *call) bool { return c.ends != nil && c.run == (store.RunKey{}) }
		if !strings.HasPrefix(key.ID, model.RefusedIDs) && slices.ContainsFunc(calls, awaitsEnd) {
			a.Addresses = append(a.Addresses, store.AddressKey{Shard: key.Shard, Address: key.Address})
		}
	}
	return a
}

// runsBeside returns the runs whose ends callers await, without those that are in known.
func (k *clerk) runsBeside(known []store.RunKey) (runs []store.RunKey) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.runs) == 0 {
		return nil
	}
	skip := make(map[store.RunKey]bool, len(known))
	for _, run := range known {
		skip[run] = true
	}
	for run := range k.runs {
		if !skip[run] {
			runs = append(runs, run)
		}
	}
	return runs
}

// lookFor reads what callers wait for, without the lock: callers come and go during the read. One
// read serves all waiting callers of the process, however many there are.
func (k *clerk) lookFor(ctx context.Context, a store.Awaited) {
	if len(a.Requests)+len(a.Runs) == 0 {
		return
	}
	found, err := k.eng.cfg.Store.LoadAnswers(ctx, a)
	note(ctx, k.eng.others.answers, err)
	for _, r := range found.Replies {
		k.deliverReply(r) // the replies name the runs of the callers that wait for an end
	}
	for _, x := range found.Ended {
		k.deliverOutcome(store.RunKey{Shard: x.Shard, Run: x.Start.Run}, x.Outcome)
	}
}

// note tells an episode source whether a call to the store succeeded. A call that ended with its
// context says nothing about the store.
func note(ctx context.Context, s *episode.Source, err error) {
	switch {
	case err == nil:
		s.OK()
	case ctx.Err() == nil:
		s.Fail(err)
	}
}

// deliverReply finishes the calls that wait for a reply. If the reply belongs to another request
// with the same id, deliverReply finishes the calls with an error. If the caller of a start also
// waits for the end of the execution, deliverReply makes it wait for the end of the run that the
// reply names.
func (k *clerk) deliverReply(r store.Reply) {
	a := lane.RememberedAnswer(&r)
	k.mu.Lock()
	waiting := k.replies[r.RequestKey]
	delete(k.replies, r.RequestKey)
	if a.Err == nil {
		run := store.RunKey{Shard: r.Shard, Run: a.Answer.Run}
		for _, c := range waiting {
			if c.ends != nil && c.run == (store.RunKey{}) {
				c.run = run
				k.runs[run] = append(k.runs[run], c.ends)
			}
		}
	}
	k.mu.Unlock()
	for _, c := range waiting {
		told := a
		if f := core.MisuseOfAnswered(c.asked, &a.Answer); f != nil {
			told = lane.Answer{Answer: model.Answer{Failure: f}}
			told.Err = core.RefusalOf(told.Answer)
		}
		c.finishWith(&told, r.RequestKey)
	}
}

func (k *clerk) deliverOutcome(key store.RunKey, o model.Outcome) {
	k.mu.Lock()
	waiting := k.runs[key]
	delete(k.runs, key)
	k.mu.Unlock()
	for _, c := range waiting {
		c.finish(&lane.Answer{Result: &lane.Result{Run: key.Run, Outcome: o}})
	}
}

// put stores a request for the owner of an address under an id, and wakes the owner. It reports
// whether the store took the request at the first attempt. After a retry, an earlier attempt may
// still be on its way to the store.
func (k *clerk) put(ctx context.Context, id model.RunID, m *model.Message) (first bool, err error) {
	shard := k.eng.layout.Shard(m.To)
	m.Node = k.eng.guest
	// The owner sends a hint to this name when there is an answer.
	if inc := k.eng.current(); inc != nil {
		m.Node = inc.self.ID
	}

	row := store.InboxRow{Shard: shard, ID: id, Message: *m}
	for first = true; ; first = false {
		err := k.putRow(ctx, &row)
		if err == nil {
			k.eng.MailHint(shard) // this node may have become the owner in the meantime
			return first, nil
		}
		// The next attempt has the same id, so a repetition changes nothing.
		if !transient(err) || !k.eng.pause(ctx, storePause) {
			return false, fmt.Errorf("send %s to %s: %w", m.Kind, m.To, err)
		}
	}
}

// send asks the owner and waits for its answer. tried says what became of earlier attempts to send
// the request under the same id.
func (k *clerk) send(ctx context.Context, m *model.Message, tried attempt) (model.Answer, error) {
	return k.sendFor(ctx, newCall(), m, tried)
}

// sendFor does the same as send. The call c waits for the answer.
func (k *clerk) sendFor(ctx context.Context, c *call, m *model.Message, tried attempt) (model.Answer, error) {
	// Every request needs an id under which the owner remembers the answer. An id that the engine
	// draws belongs to this call alone, so the answer can be removed after it has arrived.
	asked, id := *m, newID()
	if asked.RequestID == "" {
		asked.RequestID, asked.Drawn, tried = newID().String(), true, attempt{}
	}
	asked.Linked = tried.link
	key := store.RequestKey{Shard: k.eng.layout.Shard(asked.To), Address: asked.To, ID: asked.RequestID}
	// refused is the key under which the owner stores two kinds of refusals: a refusal that is not
	// final, for example because there was no room, and the refusal of an id that belongs to
	// another request.
	refused := key
	refused.ID = model.RefusedIDs + id.String()
	keys := [...]store.RequestKey{key, refused}
	c.asked = &asked
	// Register before the request is stored. Otherwise the answer could arrive before the call
	// waits for it.
	k.mu.Lock()
	for _, key := range keys {
		k.replies[key] = append(k.replies[key], c)
	}
	k.mu.Unlock()
	k.lookout.Expect()

	defer func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		for _, key := range keys {
			forget(k.replies, key, c)
		}
	}()

	first, err := k.put(ctx, id, &asked)
	if err != nil {
		return model.Answer{}, err
	}
	if asked.Use() != nil {
		// The store does not take a request whose answer it already has, so no hint would arrive.
		k.lookout.LookNow()
	}
	look := time.NewTicker(clerkTrust)
	defer look.Stop()

	for {
		select {
		case <-c.done:
			// After a retry of the put, another copy of the request may still arrive. In that case
			// the remembered answer keeps the copy from taking effect a second time. The owner does
			// not remember a refusal, so after a refusal the copy may take effect.
			if asked.Drawn && first && !tried.taken && c.reply != nil {
				k.acknowledge(*c.reply)
			}
			k.eng.fillReceipt(ctx, &asked, c.answer.Err == nil && first && !tried.taken)
			return c.answer.Answer, unsure(c.answer.Err, !first)
		case <-look.C:
			if err := k.limitReached(ctx, &asked); err != nil {
				return model.Answer{}, err
			}
			continue
		case <-ctx.Done():
		case <-k.eng.stopped:
		}

		return model.Answer{}, k.eng.gaveUp(ctx, "send %s to %s: accepted, but not answered yet", m.Kind, m.To)
	}
}

// limitReached returns the error of an update that gets no answer because its run has reached a
// limit. It returns nil if the run has reached no limit, or if the clerk cannot find that out.
func (k *clerk) limitReached(ctx context.Context, m *model.Message) error {
	if m.Kind != model.MessageUpdate {
		return nil
	}
	row, err := k.eng.cfg.Store.LoadExecution(ctx, k.eng.layout.Shard(m.To), m.To, m.ToRun)
	if err != nil || row == nil {
		return nil //nolint:nilerr // the answer may still arrive
	}
	return core.LimitReached(m.To, row.Blocked)
}

// errOursNow says that this node has acquired the shard of an execution whose end a caller awaits.
var errOursNow = fault.New(fault.Unavailable, "this node owns the shard now")

// execute sends a start, and waits for the end of the run that the answer names. If the start has
// begun or found an open run, the owner sends only one hint, at the end of the run. Then one look
// finds both the answer to the start and the end. The result has no outcome if the caller must
// follow the run: after a while, when this node acquires the shard, and when another run may
// continue the run.
func (k *clerk) execute(ctx context.Context, m *model.Message, tried attempt) (lane.Result, error) {
	watched := *m
	watched.Watches = true
	c := newCall()
	c.ends = newCall()
	defer func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		forget(k.runs, c.run, c.ends)
	}()

	a, err := k.sendFor(ctx, c, &watched, tried)
	if err != nil {
		return lane.Result{}, unsure(err, tried.taken)
	}
	r, err := k.awaitCall(ctx, m.To, c.run.Shard, c.ends)
	// The answer to a request id of the caller may be an old one. Since then, an operator may have
	// retried the run.
	old := a.Existing || m.RequestID != "" && !m.Drawn
	switch {
	case err != nil && !errors.Is(err, errOursNow):
		return lane.Result{}, err
	case err != nil || old || !r.Outcome.Status.Closed() || r.Outcome.Status == model.Continued:
		return lane.Result{Run: a.Run}, nil
	}
	return r, nil
}

// await waits for the end of an execution that another node owns. When a run continues as new,
// await waits for the end of the next run. It returns errOursNow when this node acquires the shard,
// because the lane of this node answers sooner.
func (k *clerk) await(ctx context.Context, a model.Address, run model.RunID) (lane.Result, error) {
	shard := k.eng.layout.Shard(a)
	asked := false
	for {
		row, err := k.eng.cfg.Store.LoadExecution(ctx, shard, a, run)
		switch {
		case fault.Is(err, fault.Unavailable):
			if !k.eng.pause(ctx, storePause) { // the caller wants to wait, so try again
				return lane.Result{}, k.eng.gaveUp(ctx, "wait for %s", a)
			}
			continue
		case err != nil:
			return lane.Result{}, err
		case row == nil:
			return lane.Result{}, fault.New(fault.NotFound, "execution %s does not exist", a)
		case row.Outcome.Status.Closed() && (!run.IsZero() || row.Outcome.Status != model.Continued):
			return lane.Result{Run: row.Start.Run, Outcome: row.Outcome}, nil
		}

		if err := core.LimitReached(a, row.Blocked); err != nil {
			return lane.Result{}, err
		}

		// Ask the owner once to send a hint when the run closes. The wait below also works without
		// the hint, by looking again and again.
		if !asked {
			asked = true
			if _, err := k.put(ctx, newID(), &model.Message{Kind: model.MessageWatch, To: a, ToRun: run}); err != nil {
				return lane.Result{}, err
			}
		}

		// If the run continues as new, the loop waits for the next run.
		r, err := k.awaitRun(ctx, a, store.RunKey{Shard: shard, Run: row.Start.Run})
		if err != nil || r.Outcome.Status.Closed() && (!run.IsZero() || r.Outcome.Status != model.Continued) {
			return r, err
		}
	}
}

// awaitRun waits for the end of a run. After a while it returns an empty result, and the caller
// must check whether the run still exists.
func (k *clerk) awaitRun(ctx context.Context, a model.Address, key store.RunKey) (lane.Result, error) {
	c := newCall()
	k.mu.Lock()
	k.runs[key] = append(k.runs[key], c)
	k.mu.Unlock()
	k.lookout.Expect()
	k.lookout.LookNow()

	defer func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		forget(k.runs, key, c)
	}()
	return k.awaitCall(ctx, a, key.Shard, c)
}

// awaitCall does the same as awaitRun, for a call that is registered.
func (k *clerk) awaitCall(ctx context.Context, a model.Address, shard model.ShardID, c *call) (lane.Result, error) {
	trust := time.NewTimer(clerkTrust)
	defer trust.Stop()

	for {
		served := k.eng.served.listen()
		if inc := k.eng.current(); inc != nil && inc.lane(shard) != nil {
			return lane.Result{}, errOursNow
		}
		select {
		case <-c.done:
			return *c.answer.Result, nil
		case <-trust.C:
			return lane.Result{}, nil
		case <-served:
			continue
		case <-ctx.Done():
		case <-k.eng.stopped:
		}
		return lane.Result{}, k.eng.gaveUp(ctx, "wait for %s", a)
	}
}

func without(calls []*call, c *call) []*call {
	return slices.DeleteFunc(calls, func(other *call) bool { return other == c })
}

// forget removes a call from the calls that wait for the same key.
func forget[K comparable](waiting map[K][]*call, key K, c *call) {
	left := without(waiting[key], c)
	if len(left) == 0 {
		delete(waiting, key)
	} else {
		waiting[key] = left
	}
}
