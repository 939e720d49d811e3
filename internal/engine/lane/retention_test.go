package lane_test

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

const kept = time.Hour

// newExpiringRig returns a rig with one closed run at each address. The retention time of the runs
// is over, and the addresses are not in memory.
func newExpiringRig(t *testing.T, addresses ...model.Address) (*rig, []model.RunID) {
	t.Helper()
	r := newRig(t, func(c *lane.Config) { c.Retention = kept })
	r.join(1)
	var runs []model.RunID
	for _, a := range addresses {
		runs = append(runs, r.startRun(a))
		r.turn(a, model.Turn{Close: done()})
		r.settle()
	}
	r.now = r.now.Add(2 * kept)
	if n := r.l.Entries(); n != 0 {
		t.Fatalf("%d addresses are in memory", n)
	}
	return r, runs
}

// find lets the lane look for runs to remove. The lane removes them when the pause is over.
func (r *rig) find() {
	r.t.Helper()
	r.flush()
	if !slices.ContainsFunc(r.loads, func(ld lane.Load) bool { return ld.Kind == lane.LoadExpired }) {
		r.t.Fatal("the lane does not look for runs whose time is over")
	}
	r.read()
}

// expire lets the lane remove the page of runs that it found. If no other batch is in flight, this
// also sends the batch with the removals.
func (r *rig) expire() {
	r.t.Helper()
	r.now = r.now.Add(50 * time.Millisecond)
	r.flush()
}

// atRest checks that nothing is left of a removal, and that the store could take every batch.
func (r *rig) atRest() {
	r.t.Helper()
	if len(r.turnedDown) > 0 {
		r.t.Errorf("the store had to refuse a batch: %v", r.turnedDown)
	}
	if r.l.PendingBytes() != 0 || !r.l.Idle() || r.l.Full() {
		r.t.Errorf("%d bytes held, idle %v, full %v; want the lane at rest", r.l.PendingBytes(), r.l.Idle(), r.l.Full())
	}
	at := r.l.Wake()
	if at == 0 || at > r.now.Add(time.Minute) {
		r.t.Errorf("the next look is at %s; now is %s", at, r.now)
	}
}

func reuse(a model.Address, id string) model.Message {
	return model.Message{Kind: model.MessageStart, To: a, Reuse: model.ReuseAlways, RequestID: id}
}

// busy puts an unrelated batch in flight, so that the next inputs go into the batch behind it.
func (r *rig) busy() {
	r.t.Helper()
	r.start(key("busy"), fmt.Sprint("busy at ", r.now))
	r.flush()
	if r.commit == nil {
		r.t.Fatal("nothing is in flight")
	}
}

// A start replaces a run that the lane is about to remove. The removal waits for the commit of the
// start, whichever batch the start is in. The store would refuse a batch with both, because a batch
// deletes rows before it writes rows.
func TestRemovalBehindStart(t *testing.T) {
	t.Parallel()
	for _, inFlight := range []bool{false, true} {
		t.Run(fmt.Sprint("in flight ", inFlight), func(t *testing.T) {
			t.Parallel()
			a := key("a")
			r, runs := newExpiringRig(t, a)
			r.find()
			if !inFlight {
				r.busy()
			}
			r.send(reuse(a, "q"), "start")
			r.flush()
			r.read() // whether the store has an answer to the request
			r.read() // the run
			r.expire()
			if !inFlight {
				r.commitNow()
			}
			if r.commit == nil || len(r.commit.Starts) != 1 || r.commit.Starts[0].Replaces != runs[0] || len(r.commit.Deletes) != 0 {
				t.Fatalf("in flight: %+v, want a start in place of the old run, and nothing that is deleted", r.commit)
			}

			r.commitNow()
			if r.commit == nil || len(r.commit.Deletes) != 1 || r.row(runs[0]) == nil {
				t.Fatalf("in flight: %+v, want the removal", r.commit)
			}
			r.settle()
			r.wantAnswer("start", "")
			if cur := r.current(a); cur == nil || cur.Start.Run != r.answers["start"].Answer.Run || r.row(runs[0]) != nil || r.holder(a) == 0 {
				t.Errorf("current is %+v, held by %d; the old run: %v", cur, r.holder(a), r.row(runs[0]))
			}
			r.atRest()
		})
	}
}

// Inputs for an address wait while the lane removes its run. Then the lane decides about them from
// the rows that are left. The decision must not depend on the removed run.
func TestInputsDuringRemoval(t *testing.T) {
	t.Parallel()
	a := key("a")
	start := model.Message{Kind: model.MessageStart, To: a}
	for name, c := range map[string]struct {
		m      model.Message
		answer string
		begins bool
	}{
		"start":                     {start, "", true},
		"start with a signal":       {model.Message{Kind: model.MessageStart, To: a, RequestID: "w", With: []model.Event{{Name: "s"}}}, "", true},
		"start that may reuse":      {reuse(a, ""), "", true},
		"start that is remembered":  {reuse(a, "q"), "", true},
		"signal":                    {request(a, "s", ""), "not_found", false},
		"signal that is remembered": {request(a, "s", "q"), "not_found", false},
		"terminate":                 {model.Message{Kind: model.MessageTerminate, To: a}, "not_found", false},
		"update":                    {model.Message{Kind: model.MessageUpdate, To: a, Name: "u", RequestID: "u"}, "not_found", false},
		"query":                     {model.Message{Kind: model.MessageQuery, To: a, Name: "q"}, "not_found", false},
	} {
		for when, arrange := range map[string]func(r *rig){
			// the removal comes while the read for the message is in flight, so it waits behind the
			// message
			"before": func(r *rig) {
				r.send(c.m, "asked")
				r.expire()
			},
			"in the same batch": func(r *rig) {
				r.busy()
				r.expire()
				r.send(c.m, "asked")
				r.flush()
				r.read()
				r.commitNow()
			},
			"in flight": func(r *rig) {
				r.expire()
				r.send(c.m, "asked")
				r.flush()
				if len(r.loads) > 0 {
					r.t.Errorf("something is read before the commit: %+v", r.loads)
				}
				r.wantSilence("asked")
			},
			"after": func(r *rig) {
				r.expire()
				r.commitNow()
				r.send(c.m, "asked")
			},
			"while it is unknown whether it landed": func(r *rig) {
				r.expire()
				r.fail(store.Unknown)
				r.send(c.m, "asked")
				r.flush()
				r.wantSilence("asked")
			},
			"while the batch is refused for another address": func(r *rig) {
				bad := key("bad")
				r.startRun(bad)
				r.refuse = poison("poison")
				r.turn(bad, steps("poison"))
				r.expire()
				r.send(c.m, "asked")
				r.flush()
				r.commitNow() // the store refuses the batch
				r.wantSilence("asked")
			},
			"behind a batch that is refused": func(r *rig) {
				bad := key("bad")
				r.startRun(bad)
				r.refuse = poison("poison")
				r.turn(bad, steps("poison"))
				r.flush()
				r.expire()
				r.send(c.m, "asked")
				r.commitNow() // the store refuses the batch
				r.wantSilence("asked")
			},
		} {
			t.Run(name+" "+when, func(t *testing.T) {
				t.Parallel()
				r, runs := newExpiringRig(t, a)
				r.find()
				arrange(r)
				r.settle()

				for len(r.recalls) > 0 { // a worker replays the run, which may be removed already
					r.recall("recalled")
					r.settle()
				}

				r.pass(time.Second)
				want, begins := c.answer, c.begins
				if when == "before" {
					switch { // the input finds the run, as it should
					case c.m.Kind == model.MessageStart && c.m.Reuse == model.ReturnExisting:
						want, begins = kindOf(r.answers["asked"].Err), !r.answers["asked"].Answer.Existing && r.answers["asked"].Err == nil
					case !begins:
						want = kindOf(r.answers["asked"].Err)
					}
				}

				r.wantAnswer("asked", want)
				if r.row(runs[0]) != nil {
					t.Error("the run is still there")
				}
				cur := r.current(a)
				if begins && (cur == nil || cur.Start.Run != r.answers["asked"].Answer.Run || cur.Outcome.Status != model.Running || r.holder(a) == 0) {
					t.Errorf("current is %+v, held by %d, want the run that was begun", cur, r.holder(a))
				}
				if !begins && cur != nil {
					t.Errorf("current is %+v", cur)
				}
				if begins && when != "before" && !cur.Start.Replaced.IsZero() {
					t.Errorf("it took the place of %s, which was gone", cur.Start.Replaced)
				}
				r.atRest()
			})
		}
	}
}

// The lane reads the run for an earlier input, and then removes the run. Inputs behind the removal
// find the address free, in the same batch.
func TestInputsBehindRemovalOfKnownRun(t *testing.T) {
	t.Parallel()
	a := key("a")
	for name, m := range map[string]model.Message{"plain": {Kind: model.MessageStart, To: a}, "reuse": reuse(a, "")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, runs := newExpiringRig(t, a)
			r.find()
			r.signal(a, "s", "signal")
			r.flush()
			r.expire()
			r.send(m, "start")
			r.flush()
			if r.commit != nil {
				t.Fatalf("in flight: %+v while the run is read", r.commit)
			}

			r.read()
			if r.commit == nil || len(r.commit.Deletes) != 1 || len(r.commit.Starts) != 1 || !r.commit.Starts[0].Replaces.IsZero() {
				t.Fatalf("in flight: %+v, want the removal and a start in a free place", r.commit)
			}
			r.signal(a, "s2", "signal 2")
			r.settle()
			r.wantAnswer("signal", "conflict")
			r.wantAnswer("start", "")
			r.wantAnswer("signal 2", "")
			if cur := r.current(a); r.row(runs[0]) != nil || cur == nil || cur.Start.Run != r.answers["start"].Answer.Run || !cur.Start.Replaced.IsZero() {
				t.Errorf("current is %+v; the old run: %v", cur, r.row(runs[0]))
			}
			r.wantEvents(a, "signal_received s2")
			r.atRest()
		})
	}
}

// A request was served before its run was removed. A repetition gets the same answer, and starts
// nothing.
func TestRepetitionDuringRemoval(t *testing.T) {
	t.Parallel()
	for name, arrange := range map[string]func(r *rig, again func()){
		"before":    func(r *rig, again func()) { again(); r.flush(); r.expire() },
		"in flight": func(r *rig, again func()) { r.expire(); again() },
		"after":     func(r *rig, again func()) { r.expire(); r.commitNow(); again() },
		"refused":   func(r *rig, again func()) { r.expire(); again(); r.fail(store.Refused) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := key("a")
			r := newRig(t, func(c *lane.Config) { c.Retention = kept })
			r.join(1)
			r.send(reuse(a, "q"), "first")
			r.settle()
			r.turn(a, model.Turn{Close: done()})
			r.settle()

			r.now = r.now.Add(2 * kept)
			r.find()
			arrange(r, func() { r.send(reuse(a, "q"), "again") })
			r.settle()
			r.pass(2 * time.Minute)
			r.wantAnswer("again", "")
			if got, want := r.answers["again"].Answer.Run, r.answers["first"].Answer.Run; got != want {
				t.Errorf("answered with %s, want %s as the first time", got, want)
			}
			if cur := r.current(a); cur != nil {
				t.Errorf("current is %+v, want nothing", cur)
			}

			r.atRest()
		})
	}
}

// The quarantine of an address ends while the removal of its current run is in flight. So the lane
// reads the run for a worker, and the read may still return the run. The lane must not use that
// result.
func TestCureDuringRemoval(t *testing.T) {
	t.Parallel()
	for name, late := range map[string]bool{"read before the commit": false, "told after the commit": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := key("a")
			r, runs := newExpiringRig(t, a)

			r.reads = func(ld *lane.Load) *lane.LoadResult {
				if ld.Kind == lane.LoadRun {
					return &lane.LoadResult{Err: fault.New(fault.Corrupt, "a flipped bit")}
				}
				return nil
			}

			r.signal(a, "s", "signal")
			r.flush()
			r.find()
			r.wantAnswer("signal", "blocked")
			r.reads = nil
			r.expire()
			if r.commit == nil || len(r.commit.Deletes) != 1 {
				t.Fatalf("in flight: %+v, want the removal: a row goes whatever is in it", r.commit)
			}

			r.now = r.now.Add(61 * time.Second) // the quarantine is over
			r.flush()
			r.send(reuse(a, "q"), "start")
			r.flush()

			if late { // the earlier read returns later
				i := slices.IndexFunc(r.loads, func(ld lane.Load) bool { return ld.Kind == lane.LoadRun })
				if i < 0 {
					t.Fatal("the run is not read for a worker")
				}
				id, found := r.loads[i].ID, lane.LoadResult{Execution: r.row(runs[0])}
				r.loads = slices.Delete(r.loads, i, i+1)
				r.commitNow()
				r.l.FinishLoad(r.now, id, found)
				r.flush()
			} else {
				r.read()
				r.read()
				r.read()
				r.wantSilence("start")
				r.commitNow()
			}

			r.settle()
			r.wantAnswer("start", "")
			if cur := r.current(a); cur == nil || cur.Start.Run != r.answers["start"].Answer.Run || !cur.Start.Replaced.IsZero() || r.holder(a) == 0 {
				t.Errorf("current is %+v, held by %d", cur, r.holder(a))
			}
			if r.row(runs[0]) != nil {
				t.Error("the old run is still there")
			}
			r.atRest()
		})
	}
}

// The lane removes an old run of an address. The current run is open and not in memory, and a
// worker gets it at the same time. The worker keeps it.
func TestRemovalBesideOpenRun(t *testing.T) {
	t.Parallel()
	a := key("a")
	r := newRig(t, func(c *lane.Config) { c.Retention = kept })
	r.join(1)
	old := r.startRun(a)
	r.turn(a, model.Turn{Close: done()})
	r.settle()
	r.send(reuse(a, ""), "start")
	r.settle()
	r.release(a, "s")
	r.settle()
	r.restart()
	r.settle()
	r.now = r.now.Add(2 * kept)
	r.find()
	r.expire()
	if r.commit == nil || len(r.commit.Deletes) != 1 || r.commit.Deletes[0].Run != old {
		t.Fatalf("in flight: %+v, want the removal of the old run", r.commit)
	}

	r.join(2)
	r.signal(a, "s", "signal")
	r.flush()
	r.settle()
	r.wantAnswer("signal", "")
	r.wantEvents(a, "signal_received s")
	if r.holder(a) != 2 || r.row(old) != nil {
		t.Errorf("held by %d; the old run: %v", r.holder(a), r.row(old))
	}
	r.atRest()
}

// The store refuses the removal itself. No address is quarantined, inputs that waited behind the
// removal continue, and a later look tries the removal again.
func TestRemovalThatIsRefused(t *testing.T) {
	t.Parallel()
	bad, other := key("bad"), key("other")
	r, runs := newExpiringRig(t, bad, other)
	refusals := 0

	r.refuse = func(b *store.Batch) error {
		if slices.ContainsFunc(b.Deletes, func(k store.RunKey) bool { return k.Run == runs[0] }) {
			refusals++
			return store.Errorf(store.Refused, "commit", "it stays")
		}
		return nil
	}

	r.find()
	r.expire()
	r.signal(bad, "s", "signal")
	r.start(bad, "start")
	r.settle()
	r.pass(time.Second)
	r.wantAnswer("signal", "conflict")
	r.wantAnswer("start", "")
	if a := r.answers["start"].Answer; !a.Existing || a.Run != runs[0] {
		t.Errorf("the start is answered %+v", a)
	}
	if r.row(runs[0]) == nil || r.row(runs[1]) != nil {
		t.Errorf("the run that stays: %v; the other: %v", r.row(runs[0]), r.row(runs[1]))
	}
	if _, sick := r.l.Explain(bad); sick || refusals > 2 {
		t.Errorf("%d refusals in a second; quarantined: %v", refusals, sick)
	}
	r.atRest()
	r.refuse = nil
	r.pass(2 * time.Minute)
	if r.row(runs[0]) != nil {
		t.Error("it is not tried again")
	}
	r.atRest()
}

// The shard moves to another node while the lane finds its old runs, while they wait for their
// turn, or while the lane removes them. Runs whose removal is not in flight stay, and the lane
// continues with other shards.
func TestRemovalWhileTheShardLeaves(t *testing.T) {
	t.Parallel()
	for name, arrange := range map[string]func(r *rig){
		"found":              func(*rig) {},
		"found, and it lags": func(r *rig) { r.startRun(in(1, 1)) }, // the lane waits for a step
		"in flight":          func(r *rig) { r.expire() },
		"waiting":            func(r *rig) { r.signal(in(1, 0), "s", "signal"); r.flush(); r.expire() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, runs := newExpiringRig(t, in(1, 0), in(2, 0))
			r.find()
			arrange(r)
			r.giveUp(1)
			r.expire()
			r.settle()

			r.pass(10 * time.Second)
			if gone := r.row(runs[0]) == nil; gone != (name == "in flight") {
				t.Errorf("of the shard that left, gone: %v", gone)
			}
			if !slices.Equal(r.freed, []model.ShardID{1}) {
				t.Errorf("freed: %v", r.freed)
			}
			r.pass(2 * time.Minute)
			next := r.startRun(in(2, 1))
			r.turn(in(2, 1), model.Turn{Close: done()})
			r.settle()

			r.pass(2 * kept)
			if r.row(runs[1]) != nil || r.row(next) != nil {
				t.Errorf("of the other shard: %v, %v", r.row(runs[1]), r.row(next))
			}
			r.atRest()
		})
	}
}

// old is a store with many old runs that stay, and a few that the lane removes. Positions count
// from 1.
type old struct {
	stay   int
	expire map[int]bool
	reads  []int // positions where reads began
	limits []int
	ends   int // rounds that reached their end
}

func (o *old) read(ld *lane.Load) *lane.LoadResult {
	if ld.Kind != lane.LoadExpired {
		return nil
	}
	from := int(binary.BigEndian.Uint64(ld.After.Run[8:]))
	o.reads, o.limits = append(o.reads, from), append(o.limits, ld.Limit)
	to := min(from+ld.Limit, o.stay)
	var page store.Expired
	page.Walked = to - from

	for i := from + 1; i <= to; i++ {
		if o.expire[i] {
			delete(o.expire, i)
			h := store.RunHead{Address: in(1, 0)}
			h.Shard = 1
			binary.BigEndian.PutUint64(h.Run[8:], uint64(i))
			page.Runs = append(page.Runs, h)
		}
	}

	if page.Walked == ld.Limit {
		page.Next.Shard = 1
		binary.BigEndian.PutUint64(page.Next.Run[8:], uint64(to))
	} else {
		o.ends++
	}

	return &lane.LoadResult{Expired: page}
}

// A lane that must keep everything does not look for runs to remove until KeepAll(false).
func TestKeepAll(t *testing.T) {
	t.Parallel()
	o := &old{stay: 10, expire: map[int]bool{3: true}}
	r := newRig(t, func(cfg *lane.Config) { cfg.Retention, cfg.RetainEvery = kept, 2*time.Minute })
	r.reads = o.read
	r.l.KeepAll(true)
	r.pass(10 * time.Minute)
	if len(o.reads) != 0 {
		t.Errorf("%d reads for runs to remove", len(o.reads))
	}
	r.l.KeepAll(false)
	r.pass(10 * time.Minute)
	if len(o.reads) == 0 || len(o.expire) != 0 {
		t.Errorf("%d reads after everything may be removed again", len(o.reads))
	}
}

// However many old runs stay, a round takes at most about an hour, in reads of a thousand runs. If
// only a few stay, the round is little work.
func TestWalkOverRunsThatStay(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		stay           int
		atMost, atEach time.Duration
	}{{0, time.Minute, time.Minute}, {900, time.Minute, time.Minute}, {10_000, 10 * time.Minute, 0}, {100_000, 40 * time.Minute, 0}, {3_000_000, 65 * time.Minute, 0}} {
		t.Run(fmt.Sprint(c.stay), func(t *testing.T) {
			t.Parallel()
			o := &old{stay: c.stay}
			// This is the slowest case: sixty looks per hour.
			r := newRig(t, func(cfg *lane.Config) { cfg.Retention, cfg.RetainEvery = kept, 2*time.Minute })
			r.reads = o.read
			r.pass(2 * time.Minute)
			o.reads, o.limits, o.ends = nil, nil, 0

			begun := r.now
			for o.ends < 2 {
				r.pass(time.Minute)
				if r.now > begun.Add(10*time.Hour) {
					t.Fatal("the round does not end")
				}
			}

			if took := r.now.Std().Sub(begun.Std()) / 2; took > c.atMost+time.Minute {
				t.Errorf("a round took %s", took)
			}
			if m := slices.Max(o.limits); m > 1000 {
				t.Errorf("a read of %d", m)
			}
			if c.atEach > 0 && len(o.reads) > 4 {
				t.Errorf("%d reads in two rounds", len(o.reads))
			}

			last := -1
			// each read continues where the last one stopped, and after the end the walk starts
			// again
			for _, from := range o.reads {
				if from <= last && from != 0 {
					t.Fatalf("reads from %d after %d", from, last)
				}
				last = from
			}
		})
	}
}

// As long as reads find runs to remove, the look continues. After that it stops where it is.
func TestWalkGoesOnWhileItFinds(t *testing.T) {
	t.Parallel()
	o := &old{stay: 100_000, expire: map[int]bool{}}
	for i := range 20 { // one in each of the first twenty reads
		o.expire[1000*i+500] = true
	}
	r := newRig(t, func(cfg *lane.Config) { cfg.Retention = kept })
	r.reads = o.read
	r.pass(45 * time.Second)
	if len(o.reads) != 21 || len(o.expire) != 0 {
		t.Errorf("%d reads in the first look, from %v; %d runs are left", len(o.reads), o.reads, len(o.expire))
	}
	if got := len(r.removed); got != 20 {
		t.Errorf("%d runs were removed", got)
	}
	r.pass(30 * time.Second)
	if len(o.reads) < 22 || o.reads[21] != 21_000 {
		t.Errorf("the next look reads from %v", o.reads[21:])
	}
}

// Every read returns runs with their own retention time, wherever the walk is. If there are more
// such runs than one read returns, the same look continues. If the store refuses to remove runs,
// the lane does not try them again immediately.
func TestManyRunsWithATimeOfTheirOwn(t *testing.T) {
	t.Parallel()
	own, far := 2500, &old{stay: 100_000}
	r := newRig(t, func(cfg *lane.Config) { cfg.Retention = kept })
	refusals, walks := 0, false

	r.refuse = func(b *store.Batch) error {
		if walks && len(b.Deletes) > 0 {
			refusals++
			return store.Errorf(store.Refused, "commit", "it stays")
		}
		own -= len(b.Deletes)
		return nil
	}

	r.reads = func(ld *lane.Load) *lane.LoadResult {
		if ld.Kind != lane.LoadExpired {
			return nil
		}
		page := store.Expired{}
		if walks {
			page = far.read(ld).Expired
		}
		for i := range min(own, ld.Limit) {
			h := store.RunHead{Address: in(1, 0)}
			h.Shard = 1
			binary.BigEndian.PutUint64(h.Run[8:], uint64(i+1))
			page.Runs = append(page.Runs, h)
		}
		return &lane.LoadResult{Expired: page}
	}

	r.pass(45 * time.Second)
	if own != 0 {
		t.Errorf("%d runs are left after a look", own)
	}
	own, walks = 1, true
	r.pass(30 * time.Second)
	if refusals == 0 || refusals > 1 {
		t.Errorf("%d refusals in a look", refusals)
	}
	r.pass(30 * time.Second)
	if refusals != 2 {
		t.Errorf("%d refusals in two looks", refusals)
	}
}
