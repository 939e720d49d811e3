package engine

import (
	"context"
	"slices"
	"sync"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/episode"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/telemetry"
)

// loader makes the reads that the lane asks for, except for reads of runs.
func (s *laneShell) loader(ctx context.Context, source *episode.Source) {
	defer source.Leave()
	for ld := range s.loads {
		s.readOne(ctx, source, ld, nil)
	}
}

// runLoader reads runs. It reads the runs that wait at the same time together.
func (s *laneShell) runLoader(ctx context.Context, source *episode.Source) {
	defer source.Leave()
	for runs := s.runs.take(nil); len(runs) > 0; runs = s.runs.take(runs) {
		leave := sync.OnceFunc(s.runs.leave)
		s.readTogether(ctx, source, runs, leave)
		clear(runs)
		leave()
	}
}

// readTogether reads runs page by page. If a run does not fit into a page, readTogether makes a
// separate read for this run. Before it reads further pages of such a run, it calls long, which
// lets other readers start.
func (s *laneShell) readTogether(ctx context.Context, source *episode.Source, runs []lane.Load, long func()) {
	for len(runs) > 0 && ctx.Err() == nil {
		if len(runs) == 1 {
			s.readOne(ctx, source, runs[0], long)
			return
		}
		p := s.pages.open(ctx)
		if p == nil {
			return
		}
		page := ReadRuns(ctx, s.eng.cfg.Store, runs)
		runs = runs[len(page.Read)+len(page.Long):]

		if len(page.Read) == 0 {
			p.close()
		} else {
			s.noteRead(ctx, source, lane.LoadRun, page.Results[0].Err)
			s.handIn(p, page.Read, page.Results)
		}
		for i := range page.Long {
			s.readOne(ctx, source, page.Long[i], long)
		}
	}
}

// readOne makes one read. Before it reads further pages of a run, it calls long, unless long is
// nil.
func (s *laneShell) readOne(ctx context.Context, source *episode.Source, ld lane.Load, long func()) {
	if ctx.Err() != nil {
		return
	}
	p := s.pages.open(ctx)
	if p == nil {
		return
	}
	p.long = long
	result := read(ctx, s.eng.cfg.Store, ld, s.eng.clock.now(), p.grow)
	s.noteRead(ctx, source, ld.Kind, result.Err)
	s.handIn(p, []lane.Load{ld}, []lane.LoadResult{result})
}

// handIn gives the results of a read to the lane.
func (s *laneShell) handIn(p *pageRead, loads []lane.Load, results []lane.LoadResult) {
	ids := make([]uint64, len(loads))
	for i := range loads {
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

// open starts a read. It returns nil if ctx has ended.
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
	ctx   context.Context //nolint:containedctx // the context of the read
	large bool
	long  func() // if not nil, called before the first further page
}

// grow waits until the read may have a further page in memory. It returns false if ctx has ended.
func (r *pageRead) grow() bool {
	if r.large {
		return true
	}
	if r.long != nil {
		r.long()
	}
	select {
	case r.pages.large <- struct{}{}:
		r.large = true
	case <-r.ctx.Done():
	}
	return r.large
}

// close frees the room that the page takes, because the lane has taken the result.
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
	if len(ld.Shards) > 0 {
		r.Messages, r.MoreMail, r.Err = st.LoadMessages(ctx, ld.Shards, ld.Limit, ld.Bytes)
	}
	if r.Err == nil {
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

// readMailbox reads the mailbox of an entity that an operator removes. It reads only a fingerprint
// of the entity itself, which may be unreadable.
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

// groupEvents bounds the events of a run that is read together with others. A run with more events
// gets a read of its own.
const groupEvents = 100

// RunPage is the result of a read of several runs.
type RunPage struct {
	Read    []lane.Load
	Results []lane.LoadResult // as Read returns them
	// Long are runs that do not fit into the page, and runs that cannot be decoded. Each of them
	// needs a read of its own.
	Long []lane.Load
}

// ReadRuns reads runs that a lane asks for: the first ones in the list, as many as fit into a page.
func ReadRuns(ctx context.Context, st store.Store, loads []lane.Load) (p RunPage) {
	if len(loads) == 1 {
		return RunPage{Long: loads}
	}
	keys := make([]store.AddressKey, len(loads))
	for i := range loads {
		keys[i] = store.AddressKey{Shard: loads[i].Shard, Address: loads[i].Address}
	}

	runs, err := st.LoadRuns(ctx, keys, groupEvents, eventPageBytes)
	if fault.Is(err, fault.Corrupt) { // one of the runs is corrupt
		return ReadRuns(ctx, st, loads[:len(loads)/2])
	}
	if err != nil {
		runs = make([]store.Run, len(loads))
	}

	for i := range runs {
		if runs[i].More {
			p.Long = append(p.Long, loads[i])
			continue
		}
		p.Read = append(p.Read, loads[i])
		p.Results = append(p.Results, lane.LoadResult{Execution: runs[i].Execution, Events: runs[i].Events, Timers: runs[i].Timers, Err: err})
	}
	return p
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
