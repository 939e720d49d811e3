package engine

import (
	"context"
	"slices"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/episode"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/telemetry"
)

// loader makes the reads that the lane asks for. It reads runs together that wait together.
func (s *laneShell) loader(ctx context.Context, source *episode.Source) {
	defer source.Leave()
	var runs []lane.Load
	for ld := range s.loads {
		other := []lane.Load{ld}
		runs = runs[:0]
		if ld.Kind == lane.LoadRun {
			runs, other = s.gather(append(runs, ld))
		}
		for _, left := range [][]lane.Load{runs, other} {
			for len(left) > 0 && ctx.Err() == nil {
				left = left[s.readPage(ctx, source, left):]
			}
		}
	}
}

// mostTogether is how many runs a loader reads at once.
const mostTogether = 64

// gather takes the reads of runs that wait, without waiting for more. It also returns the read of
// another kind that it has met.
func (s *laneShell) gather(runs []lane.Load) (all, other []lane.Load) {
	for len(runs) < mostTogether {
		select {
		case ld, ok := <-s.loads:
			switch {
			case !ok:
				return runs, nil
			case ld.Kind != lane.LoadRun:
				return runs, []lane.Load{ld}
			}
			runs = append(runs, ld)
		default:
			return runs, nil
		}
	}
	return runs, nil
}

// readPage makes the first of the reads, or several of them if they are reads of runs, and returns
// how many. It gives the results to the lane.
func (s *laneShell) readPage(ctx context.Context, source *episode.Source, loads []lane.Load) int {
	p := s.pages.open(ctx)
	if p == nil {
		return len(loads)
	}

	var results []lane.LoadResult
	if len(loads) > 1 {
		results = readRuns(ctx, s.eng.cfg.Store, loads, p.grow)
	} else {
		results = []lane.LoadResult{read(ctx, s.eng.cfg.Store, loads[0], s.eng.clock.now(), p.grow)}
	}
	s.noteRead(ctx, source, loads[0].Kind, results[0].Err)

	ids := make([]uint64, len(results))
	for i := range ids {
		ids[i] = loads[i].ID
	}
	heard := s.inbox.result(func(l *lane.Lane, now model.Time) {
		for i := range ids {
			l.FinishLoad(now, ids[i], results[i])
		}
		p.close()
	})
	if !heard {
		p.close()
	}
	return len(results)
}

// noteRead counts a read and logs its failure.
func (s *laneShell) noteRead(ctx context.Context, source *episode.Source, kind lane.LoadKind, err error) {
	switch {
	case store.Whole(err):
		source.OK()
		s.eng.cfg.Meter.Add(telemetry.Reads, 1, word(nil))
		s.passedOver(kind, err)
	case fault.Is(err, fault.Corrupt):
		// The store works. The lane sets the unreadable row aside with this reason.
		source.OK()
		s.eng.cfg.Meter.Add(telemetry.Reads, 1, word(err))
		s.log.Warn("read failed", "error", err)
	default:
		s.eng.cfg.Meter.Add(telemetry.Reads, 1, word(err))
		note(ctx, source, err)
	}
}

const (
	eventPage      = 2000
	eventPageBytes = 4 << 20

	openReads = 8 // reads whose results are in memory and not yet applied by the lane
)

// pages bounds the memory of reads for a lane: openReads results of one page, and one result of
// several pages. Readers wait until the lane has taken the results.
type pages struct {
	results chan struct{}
	large   chan struct{}
}

func newPages() pages { return pages{make(chan struct{}, openReads), make(chan struct{}, 1)} }

// open starts a read; nil if ctx has ended.
func (p *pages) open(ctx context.Context) *pageRead {
	select {
	case p.results <- struct{}{}:
		return &pageRead{pages: p, ctx: ctx}
	case <-ctx.Done():
		return nil
	}
}

// pageRead is one read.
type pageRead struct {
	pages *pages
	ctx   context.Context //nolint:containedctx // that of the read
	large bool
}

// grow waits until the read may have a further page in memory. It returns false if ctx has ended.
func (r *pageRead) grow() bool {
	if r.large {
		return true
	}
	select {
	case r.pages.large <- struct{}{}:
		r.large = true
	case <-r.ctx.Done():
	}
	return r.large
}

// close says that the lane has taken the result.
func (r *pageRead) close() {
	<-r.pages.results
	if r.large {
		<-r.pages.large
	}
}

// Read makes a read that a lane asks for.
func Read(ctx context.Context, st store.Store, ld lane.Load, now model.Time) lane.LoadResult {
	return read(ctx, st, ld, now, func() bool { return true })
}

// read makes a read, and calls grow before each further page.
//
//arch:parameters Read with one more, which tests and the simulator do not need
func read(ctx context.Context, st store.Store, ld lane.Load, now model.Time, grow func() bool) (r lane.LoadResult) {
	switch ld.Kind {
	case lane.LoadRun:
		r = readRun(ctx, st, ld, grow)
	case lane.LoadReply:
		var found []store.Reply
		found, r.Err = st.LoadReplies(ctx, []store.RequestKey{{Shard: ld.Shard, Address: ld.Address, ID: ld.RequestID}})
		if len(found) > 0 {
			r.Reply = &found[0]
		}
	case lane.LoadProgress:
		r.Data, r.Err = st.LoadTaskData(ctx, store.RunKey{Shard: ld.Shard, Run: ld.Run}, store.ProgressRange(ld.Task))
	case lane.LoadWritten:
		r.Data, r.Err = st.LoadTaskData(ctx, store.RunKey{Shard: ld.Shard, Run: ld.Run}, store.WrittenRange(ld.Task))
	case lane.LoadDeadTask:
		r.DeadTask, r.Err = st.LoadDead(ctx, store.DeadKey{RunKey: store.RunKey{Shard: ld.Shard, Run: ld.Run}, Task: ld.Task})
	case lane.LoadFate:
		r.Fate, r.Err = fateOf(ctx, st, ld.Shard, ld.Claim)
	case lane.LoadRunnable:
		r.Runnable, r.Err = st.LoadRunnable(ctx, ld.Shards, ld.After, ld.Limit)
	case lane.LoadExpired:
		r.Expired, r.Err = st.LoadExpired(ctx, store.ExpiredRequest{Shards: ld.Shards, ClosedBefore: ld.Before, Now: ld.Until, After: ld.After, Limit: ld.Limit})
	case lane.LoadTimers:
		r.Timers, r.Err = st.LoadTimers(ctx, ld.Shards, ld.Mark, ld.Until, ld.Limit)
	case lane.LoadEntity:
		r = readEntity(ctx, st, ld, grow)
	case lane.LoadMailbox:
		r = readMailbox(ctx, st, ld, grow)
	case lane.LoadMailboxes:
		r.Mailboxes, r.Err = st.LoadMailboxes(ctx, ld.Shards, ld.Behind, ld.Limit)
	case lane.LoadMail:
		r = readMail(ctx, st, ld, now)
	}

	return r
}

// readMail reads messages of other shards and requests of other processes.
func readMail(ctx context.Context, st store.Store, ld lane.Load, now model.Time) (r lane.LoadResult) {
	var more bool
	if r.Messages, r.MoreMail, r.Err = st.LoadMessages(ctx, ld.Shards, ld.Limit, ld.Bytes); r.Err == nil {
		r.Inbox, more, r.Err = st.LoadInbox(ctx, slices.Concat(ld.Shards, ld.Leaving), now, ld.Limit, ld.Bytes)
		r.MoreMail = r.MoreMail || more
	}
	return r
}

// readEntity reads an entity with its mailbox.
func readEntity(ctx context.Context, st store.Store, ld lane.Load, grow func() bool) (r lane.LoadResult) {
	key := store.EntityKey{Shard: ld.Shard, Address: ld.Address}
	r.Entity, r.Err = st.LoadEntity(ctx, key, eventPage, eventPageBytes)
	if r.Entity.More && r.Err == nil {
		r.Err = readItems(ctx, st, key, &r.Entity, grow)
	}
	return r
}

// readMailbox reads the mailbox of an entity that is to be removed. It reads only a fingerprint of
// the entity itself, which may be unreadable.
func readMailbox(ctx context.Context, st store.Store, ld lane.Load, grow func() bool) (r lane.LoadResult) {
	var print store.Fingerprint
	r.Err = st.ReadRaw(ctx, ld.Shard, ld.Address, model.RunID{}, func(row store.RawRow) error {
		print.Add(row)
		return nil
	})
	if r.Err != nil {
		return r
	}
	r.Print = print.Sum()
	r.Err = readItems(ctx, st, store.EntityKey{Shard: ld.Shard, Address: ld.Address}, &r.Entity, grow)
	return r
}

// readItems reads the rest of a mailbox.
//
//arch:parameters what a read of the store needs, and the callback that bounds its memory
func readItems(ctx context.Context, st store.Store, key store.EntityKey, to *store.LoadedEntity, grow func() bool) error {
	for {
		last := int64(0)
		if n := len(to.Mailbox); n > 0 {
			if !grow() {
				return context.Cause(ctx)
			}
			last = to.Mailbox[n-1].Seq
		}
		page, err := st.LoadMailbox(ctx, key, last, eventPage, eventPageBytes)
		if err != nil || len(page) == 0 {
			return err
		}
		to.Mailbox = append(to.Mailbox, page...)
	}
}

// groupEvents bounds the events of a run that is read together with others. Runs with more events
// are read alone.
const groupEvents = 100

// readRuns reads the first of several runs, as many as fit into a page. A run that does not fit is
// read alone, with all its pages.
func readRuns(ctx context.Context, st store.Store, loads []lane.Load, grow func() bool) []lane.LoadResult {
	if len(loads) == 1 {
		return []lane.LoadResult{readRun(ctx, st, loads[0], grow)}
	}
	keys := make([]store.AddressKey, len(loads))
	for i := range loads {
		keys[i] = store.AddressKey{Shard: loads[i].Shard, Address: loads[i].Address}
	}

	runs, err := st.LoadRuns(ctx, keys, groupEvents, eventPageBytes)
	if fault.Is(err, fault.Corrupt) { // one of them
		return readRuns(ctx, st, loads[:len(loads)/2], grow)
	}
	if err != nil {
		runs = make([]store.Run, len(loads))
	}

	results := make([]lane.LoadResult, 0, len(runs))
	for i := range runs {
		if runs[i].More {
			break
		}
		results = append(results, lane.LoadResult{Execution: runs[i].Execution, Events: runs[i].Events, Timers: runs[i].Timers, Err: err})
	}
	if len(results) == 0 {
		results = append(results, readRun(ctx, st, loads[0], grow))
	}
	return results
}

// readRun reads a run with its history and its timers.
func readRun(ctx context.Context, st store.Store, ld lane.Load, grow func() bool) (r lane.LoadResult) {
	run, err := st.LoadRun(ctx, ld.Shard, ld.Address, ld.Run, eventPage, eventPageBytes)
	r = lane.LoadResult{Execution: run.Execution, Events: run.Events, Timers: run.Timers, Err: err}
	for more := run.More && err == nil; more; {
		if !grow() {
			r.Err = context.Cause(ctx)
			break
		}
		page, err := st.LoadEvents(ctx, store.RunKey{Shard: run.Execution.Shard, Run: run.Execution.Start.Run}, r.Events[len(r.Events)-1].Seq, eventPage, eventPageBytes)
		if err != nil {
			r.Err = err
			break
		}
		r.Events, more = append(r.Events, page...), len(page) > 0
	}
	return r
}
