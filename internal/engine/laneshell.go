package engine

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/episode"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/telemetry"
)

// laneShell runs one lane. It has three parts: a loop that passes inputs to the state machine and
// carries out its outputs, errands (the calls to the store that the lane asks for), and readers.
type laneShell struct {
	eng     *Engine
	inc     *incarnation
	index   int
	lane    *lane.Lane
	inbox   *inbox
	baton   chan *laneLoop             // capacity 1: the loop, for the goroutine that is free
	errands chan func(context.Context) // capacity 1: an errand, for the goroutine that is free
	ended   chan struct{}              // closed when the loop has ended
	remote  bool                       // a database server commits, see laneLoop.pass
	runs    *runReads                  // reads of runs
	loads   chan lane.Load             // other reads
	pages   pages
	log     *slog.Logger
	line    line    // ops of other nodes that have no room in the inbox
	notices notices // which unreadable rows were logged
	aside   asideLog
	// trouble is the error of the last commit. It is nil if that commit succeeded, or if the store
	// only refused a row. Callers that give up waiting get it.
	trouble atomic.Pointer[error]
	landed  bool // the loop has committed a batch itself, so there is more to do
	// era is the era in which clients draw ids. It is nil before the lane has begun.
	era atomic.Pointer[string]
	// unstored counts what was not stored when the lane ended. Other goroutines may read it when
	// run has returned.
	unstored lane.Unstored

	committing, refused *episode.Source
	reading             [loaders]*episode.Source
	refusedAt           time.Time // time of the last refusal; only the committing goroutine uses it

	// limit is the context of commits, see commitContext. Only the committing goroutine uses it,
	// and there is one such goroutine at a time.
	limit struct {
		ctx    context.Context //nolint:containedctx // the context of the last commit
		cancel context.CancelFunc
		renew  time.Time
	}
}

// loaders is the number of readers of a lane. runLoaders of these readers read runs, and the others
// make all other reads.
const (
	loaders    = 8
	runLoaders = 4
)

func newLaneShell(inc *incarnation, index int, cfg lane.Config) *laneShell {
	s := &laneShell{
		eng: inc.eng, inc: inc, index: index, lane: lane.New(cfg), inbox: newInbox(inc.eng.cfg.InboxLimit, inc.eng.cfg.InboxBytes),
		baton: make(chan *laneLoop, 1), errands: make(chan func(context.Context), 1), ended: make(chan struct{}),
		remote: inc.eng.cfg.Store.Info().Shared, pages: newPages(),
		runs: newRunReads(), loads: make(chan lane.Load, cfg.MaxLoads+loaders),
		log:        inc.eng.cfg.Log.With("lane", index),
		committing: inc.eng.trouble.Source("doing", "commit", "lane", index), refused: inc.eng.refusals.Source("lane", index),
	}
	for i := range s.reading {
		s.reading[i] = inc.eng.trouble.Source("doing", "read", "lane", index)
	}
	return s
}

// run serves the lane until the incarnation ends.
func (s *laneShell) run(ctx context.Context) {
	var wg sync.WaitGroup
	for range loopers {
		wg.Go(func() { s.serve(ctx) })
	}
	for i := range loaders {
		if i < runLoaders {
			wg.Go(func() { s.runLoader(ctx, s.reading[i]) })
		} else {
			wg.Go(func() { s.loader(ctx, s.reading[i]) })
		}
	}

	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	s.baton <- &laneLoop{laneShell: s, timer: timer}

	// The loop ends first. The other goroutines end after it. They may still work on calls that the
	// loop sent them.
	<-s.ended
	s.runs.close()
	close(s.loads)
	wg.Wait()
	if s.limit.cancel != nil {
		s.limit.cancel()
	}
	s.committing.Leave()
	s.refused.Leave()
}

// publishEra stores the name of the era in which clients draw ids. Servers tell this name to their
// clients. It runs before the answers of this round leave, so that callers with an answer learn the
// era.
func (s *laneShell) publishEra() {
	era := s.lane.Era()
	if known := s.era.Load(); known == nil || *known != era {
		s.era.Store(&era)
	}
}

// sleep waits for an input or the next timer. It returns false if the incarnation has ended.
func (s *laneShell) sleep(ctx context.Context, timer *time.Timer) bool {
	wait := time.Hour
	// Wake returns zero if only an input can move the lane. In that case the hour is only a safety
	// net.
	if at := s.lane.Wake(); at != 0 {
		wait = max(0, at.Sub(s.eng.clock.now()))
	}
	timer.Reset(wait)
	select {
	case <-s.inbox.wake:
	case <-timer.C:
	case <-ctx.Done():
		return false
	}
	return ctx.Err() == nil
}

// apply passes one input to the lane.
func (s *laneShell) apply(now model.Time, o *op) {
	switch {
	case o.awaits:
		s.lane.Run(now, o.message, s.isFresh(o), o.token)
	case o.message != nil:
		s.lane.Deliver(now, o.message, s.isFresh(o), o.token)
	case o.turn != nil:
		s.lane.Turn(now, o.worker, o.turn)
	case o.report != nil:
		s.lane.Report(now, o.task, o.report)
	default:
		o.do(s.lane, now)
	}
}

// isFresh reports whether the request id of a message was never used before. For a message of
// another node, it returns false in two cases. This node may have acquired shards since the sender
// certainly still used the connection, so another owner may have served a copy of the message in
// between. Or the lane may have forgotten that the connection of the message was lost.
func (s *laneShell) isFresh(o *op) bool {
	return o.fresh && (o.message.Linked.IsZero() || o.tenure == s.inc.tenure.Load() && o.arrived >= s.lane.LinksForgotten())
}

// carryOut does what the lane asks for, except errands to the store.
func (s *laneShell) carryOut(out *lane.Output) error {
	if len(out.Changes) > 0 {
		s.eng.feed.Publish(out.Changes)
	}
	if len(out.Facts) > 0 {
		s.eng.observe(out.Facts)
	}
	for _, a := range out.Aside {
		s.setAside(a.Why, a.Newer)
	}

	// Workers come before callers: when a caller has its answer, the worker has the events.
	for i := range out.Calls {
		s.eng.workers.call(&out.Calls[i], out.Dead != nil)
	}
	s.eng.entityWorkers.call(out.Operate)
	s.eng.entityWorkers.interrupt(out.Interrupts)
	s.inc.board.stopEarlier(out.TaskCalls)
	s.eng.giveBack(s.eng.taskWorkers.call(out.TaskCalls))

	for i := range out.Answers {
		a := &out.Answers[i]
		a.Token.(waiting).finish(a)
	}

	// A dead lane has answered its callers. The rest of its output must be ignored.
	if out.Dead != nil {
		return out.Dead
	}

	for i := range out.Large {
		run := &out.Large[i]
		s.eng.cfg.Meter.Add(telemetry.RunsLarge, 1, run.Address.Type, run.Address.Tenant)
		s.log.Warn("the history of a run is near its limit; the workflow should continue as new",
			"workflow", run.Address.Type, "key", run.Address.Key, "run", run.Run.String(), "bytes", run.Bytes, "limit", s.eng.cfg.Limits.Bytes)
	}

	if out.Removed > 0 {
		s.log.Debug("removed closed runs after their retention time", "runs", out.Removed)
	}
	for i := range out.Loads {
		if out.Loads[i].Kind == lane.LoadRun {
			s.runs.add(out.Loads[i])
		} else {
			s.loads <- out.Loads[i]
		}
	}
	if len(out.Mail) > 0 {
		s.inc.route(out.Mail)
	}
	if len(out.Hints) > 0 {
		s.inc.hint(out.Hints)
	}
	if len(out.Freed) > 0 {
		s.inc.handleFreed(out.Freed)
	}

	return nil
}

// abandon answers the inputs that were still in the inbox when the incarnation ended.
func (s *laneShell) abandon(why error) {
	s.unstored = s.lane.Unstored()
	// Callers of requests get an error that tells them to ask the next owner. The sessions of task
	// workers send their reports to the next owner. Turns are lost, and the next owner lets the
	// steps run again.
	for _, o := range s.inbox.close(lane.ErrNotOwner) {
		switch {
		case o.message != nil:
			s.unstored.Request(o.message.To)
		case o.turn != nil:
			s.unstored.Outcome(model.Address{})
		case o.report != nil:
			s.unstored.Outcome(o.report.Ref.Address)
		}
		if c, ok := o.token.(waiting); ok {
			c.finish(&lane.Answer{Err: lane.ErrNotOwner})
		}
		if w := s.eng.taskWorkers.get(o.task); w != nil {
			w.settleReport(o.report.Ref, lane.ErrNotOwner)
		}
	}

	s.log.Debug("lane ended", "reason", why)
}

// commit asks the store to commit a batch. A final error ends the incarnation. The process that
// opens the store again finds out whether the batch has landed.
func (s *laneShell) commit(ctx context.Context, b *store.Batch) (store.Committed, error) {
	var begun time.Time
	if s.eng.cfg.Meter != nil {
		begun = time.Now()
	}
	// After a suspension the lease may be gone. Without the wait for its renewal, the fence might
	// refuse the commit.
	s.inc.awaitLease(ctx)
	limited, cancel := s.commitContext(ctx, b)
	res, err := s.eng.cfg.Store.Commit(limited, b)
	cancel()
	if s.eng.cfg.Meter != nil {
		s.eng.observeCommit(b, time.Since(begun), err)
	}
	s.trouble.Store(nil)
	// A refusal is only about a row of the batch. The store itself works.
	if err != nil && store.ClassOf(err) != store.Refused {
		s.trouble.Store(&err)
	}
	s.logCommit(ctx, b, err)
	if store.Final(err) {
		s.inc.end(err)
	}

	return res, err
}

// calmAfter is how long an episode of refusals lasts after the last refused commit. A successful
// commit does not end the episode, because other commits succeed while the lane looks for the
// refused row.
const calmAfter = time.Minute

// logCommit logs the outcome of a commit, as part of an episode.
func (s *laneShell) logCommit(ctx context.Context, b *store.Batch, err error) {
	if err == nil {
		s.committing.OK()
		if !s.refusedAt.IsZero() && time.Since(s.refusedAt) > calmAfter {
			s.refusedAt = time.Time{}
			s.refused.OK()
		}
		return
	}

	class := store.ClassOf(err)
	s.log.Debug("commit failed", "class", class.String(), "batch", b.Number, "error", err)
	switch class {
	case store.Refused:
		s.committing.OK()
		s.refusedAt = time.Now()
		s.refused.Fail(err, "batch", b.Number)
	case store.Fenced: // ends the incarnation, which logs it
	case store.Retryable, store.Away, store.Unknown:
		if ctx.Err() == nil {
			s.committing.Fail(err, "class", class.String())
		}
	}
}

// commitContext returns a context with the time limit for a commit. The limit may be up to a
// quarter shorter, because several commits share a context: a new context for each commit would
// make a step 2 % slower. A batch with many bytes, or one that ran out of time before, gets a limit
// of its own.
func (s *laneShell) commitContext(ctx context.Context, b *store.Batch) (context.Context, context.CancelFunc) {
	limit := s.eng.cfg.CommitTimeout
	if b.Bytes > fewBytes || b.Patience > 0 {
		return context.WithTimeout(ctx, b.Within(limit))
	}
	if now := time.Now(); s.limit.ctx == nil || now.After(s.limit.renew) {
		if s.limit.cancel != nil {
			s.limit.cancel()
		}
		s.limit.ctx, s.limit.cancel = context.WithTimeout(ctx, limit)
		s.limit.renew = now.Add(limit / 4)
	}
	return s.limit.ctx, func() {}
}

// refence moves the fence of the lane after a commit with an unknown outcome, and tells the lane
// whether the batch has landed.
func (s *laneShell) refence(ctx context.Context, ref store.LaneRef) {
	brief, cancel := context.WithTimeout(ctx, s.eng.cfg.CommitTimeout)
	epoch, landed, err := s.eng.cfg.Store.Refence(brief, ref)
	cancel()
	s.eng.cfg.Meter.Add(telemetry.Refences, 1)

	if err == nil {
		s.log.Debug("fence moved after an unknown commit", "epoch", epoch, "landed", landed)
	} else {
		s.log.Debug("fence could not be moved after an unknown commit, or may have been moved without an answer", "error", err)
	}

	if err != nil && ctx.Err() == nil && store.ClassOf(err) != store.Fenced {
		s.committing.Fail(err, "class", store.ClassOf(err).String())
	}

	if store.Final(err) {
		s.inc.end(err)
		return
	}

	s.inbox.result(func(l *lane.Lane, now model.Time) { l.FinishRefence(now, epoch, landed, err) })
}

// verify reads the current executions at the addresses of starts, and gives them to the lane.
func (s *laneShell) verify(ctx context.Context, starts []store.StartRow) {
	rows := make([]*store.Execution, len(starts))
	var err error
	for i := range starts {
		rows[i], err = s.eng.cfg.Store.LoadExecution(ctx, starts[i].Shard, starts[i].Start.Address, model.RunID{})
		// An execution that cannot be read exists all the same. So the lane refuses the start, and
		// the rest of the batch continues.
		if fault.Is(err, fault.Corrupt) {
			unread := store.Unread(starts[i].Shard, starts[i].Start.Address, err)
			rows[i], err = &unread, nil
		}
		if err != nil {
			break
		}
	}
	s.inbox.result(func(l *lane.Lane, now model.Time) { l.FinishVerify(now, rows, err) })
}

// forget tells the lane that a caller no longer waits for the end of an execution, or for an
// answer.
func (s *laneShell) forget(a model.Address, token any) {
	s.inbox.follow(op{do: func(l *lane.Lane, _ model.Time) { l.Forget(a, token) }})
}

// gaveUp returns the error of a caller that no longer waits. If the caller waited because of an
// error of the store, it includes that error.
func (s *laneShell) gaveUp(ctx context.Context, what string) error {
	if t := s.trouble.Load(); t != nil {
		return fault.New(fault.Unavailable, "%s: the store accepts no commits (%v): %w", what, *t, context.Cause(ctx))
	}
	return fault.New(fault.KindOf(ctx.Err()), "%s: %w", what, context.Cause(ctx))
}
