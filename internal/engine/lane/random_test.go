package lane_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// TestRandomLife drives the lane with random inputs and faults: commits that fail in every way,
// poison, slow and failing reads, workers that come and go, shards that move. Then all faults end.
// Every execution must reach its end, with each step, each accepted signal and each message exactly
// once.
func TestRandomLife(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := newLife(t)
		actions := map[string]func(*rapid.T){
			"":         func(t *rapid.T) { p.r.t = t },
			"start":    p.start,
			"signal":   p.signal,
			"request":  p.request,
			"work":     p.work,
			"work 2":   p.work,
			"work 3":   p.work,
			"release":  p.release,
			"flush":    func(*rapid.T) { p.r.flush() },
			"commit":   p.commit,
			"commit 2": p.commit,
			"commit 3": p.commit,
			"refence":  p.refence,
			"read":     p.read,
			"read 2":   p.read,
			"worker":   p.worker,
			"shard":    p.shard,
			"sickness": p.sickness,
			"slowness": p.slowness,
			"time":     p.time,
			"mail":     func(*rapid.T) { p.r.l.MailWaits() },
		}

		for range 4 {
			t.Repeat(actions)
		}
		p.r.t = t
		p.heal(t)
	})
}

// life is a world of executions that each do two steps, sleep, send a signal to the next one, and
// end.
type life struct {
	r       *rig
	keys    []model.Address
	started map[model.Address]bool
	signals map[string]model.Address // by name: the signals sent, and their targets
	next    int
	sick    bool
	slow    bool
	here    map[lane.WorkerID]bool
	owned   map[model.ShardID]bool
	// reported are outcomes that a worker has reported, by generation. They must come back as
	// events before the worker continues.
	reported map[uint64][]string
	// waiting has the runs that only wait for a timer, by generation. The value is how many events
	// the worker knows.
	waiting map[uint64]int
	// terminated are the addresses whose runs may have been terminated.
	terminated map[model.Address]bool
	// nurse, when set, is called in every round of heal.
	nurse func()
}

func newLife(t *rapid.T) *life {
	p := &life{
		r: newRig(t, func(c *lane.Config) {
			c.Watched = true
			c.PerKey = rapid.IntRange(1, 4).Draw(t, "per key")
			c.MaxBatchRows = rapid.SampledFrom([]int{3, 10, 1000}).Draw(t, "rows")
			c.MaxBatchBytes = rapid.SampledFrom([]int{1, 500, 4 << 20}).Draw(t, "bytes")
			c.MaxMail = rapid.SampledFrom([]int{1, 1000, 16 << 20}).Draw(t, "mail")
			c.MaxLoads = rapid.IntRange(1, 4).Draw(t, "loads")
			c.TimerWindow = rapid.SampledFrom([]int{1, 3, 1000}).Draw(t, "window")
		}),
		started: map[model.Address]bool{}, signals: map[string]model.Address{}, here: map[lane.WorkerID]bool{}, owned: map[model.ShardID]bool{},
		reported: map[uint64][]string{}, waiting: map[uint64]int{}, terminated: map[model.Address]bool{},
	}
	for i := range 6 {
		p.keys = append(p.keys, key(fmt.Sprint("k", i)))
	}
	for s := range model.ShardID(shards) {
		p.owned[s] = true
	}

	p.r.refuse = func(b *store.Batch) error {
		// While sick is set, the store takes no event of the first execution. But it accepts the
		// reason of the quarantine.
		bad := p.sick && slices.ContainsFunc(b.Events, func(e store.EventRow) bool { return p.r.row(e.Run) != nil && p.r.row(e.Run).Start.Address == p.keys[0] })
		if bad {
			return store.Errorf(store.Refused, "commit", "poison")
		}
		if p.slow && b.Rows() > 3 {
			return store.Errorf(store.Unknown, "commit", "too slow")
		}
		return nil
	}

	p.r.limit = rapid.IntRange(0, 3).Draw(t, "slots")
	p.join(1)
	for range rapid.IntRange(0, 8).Draw(t, "starts") {
		p.start(t)
	}
	return p
}

func (p *life) join(w lane.WorkerID) {
	p.here[w] = true
	p.r.join(w)
}

func (p *life) key(t *rapid.T) model.Address { return rapid.SampledFrom(p.keys).Draw(t, "key") }

func (p *life) token(what string) string {
	p.next++
	return fmt.Sprintf("%s %d", what, p.next)
}

func (p *life) start(t *rapid.T) {
	a := p.key(t)
	p.started[a] = true
	p.r.start(a, p.token("start"))
}

func (p *life) signal(t *rapid.T) {
	a, token := p.key(t), p.token("signal")
	p.signals[token] = a
	p.r.signal(a, token, token)
}

// request sends a signal with a request id, twice.
func (p *life) request(t *rapid.T) {
	a, token := p.key(t), p.token("request")
	p.signals[token] = a
	p.r.send(request(a, token, token), token)
	if rapid.Bool().Draw(t, "between") {
		p.r.flush()
	}
	p.r.send(request(a, token, token), token+" again")
}

// holding returns a run that its worker can continue. It returns nil if there is none.
func (p *life) holding(t *rapid.T) *holding {
	var all []model.RunID
	for run, h := range p.r.held {
		n, waits := p.waiting[h.gen]
		if !p.hasOutstanding(h) && (!waits || len(h.events) > n) {
			all = append(all, run)
		}
	}
	if len(all) == 0 {
		return nil
	}
	slices.SortFunc(all, model.RunID.Compare)
	if t == nil {
		return p.r.held[all[0]]
	}
	return p.r.held[rapid.SampledFrom(all).Draw(t, "run")]
}

// hasOutstanding reports whether something that the worker reported has not come back.
func (p *life) hasOutstanding(h *holding) bool {
	return slices.ContainsFunc(p.reported[h.gen], func(id string) bool {
		return !slices.ContainsFunc(h.events, func(e model.Event) bool { return e.ID == id })
	})
}

// program is the code of the workflow. Its next turn depends only on the history.
func (p *life) program(h *holding) (t model.Turn) {
	has := func(kind model.EventKind, id string) bool {
		return slices.ContainsFunc(h.events, func(e model.Event) bool { return e.Kind == kind && e.ID == id })
	}
	t.Run, t.Generation, t.Seen = h.start.Run, h.gen, int64(len(h.events))
	if t.Commands = answerCommands(h); len(t.Commands) > 0 {
		return t
	}

	switch {
	case !has(model.EventStepCompleted, "one"):
		t.Commands = []model.Command{step("one")}
	case !has(model.EventStepCompleted, "two"):
		t.Commands = []model.Command{step("two"), timer("nap", p.r.now.Add(3*time.Second))}
		t.Ahead = 1
	case !has(model.EventTimerFired, "nap"):
		// again, as a replay does
		t.Commands = []model.Command{timer("nap", p.r.now.Add(3*time.Second))}
		t.Waits = []model.Reason{{Code: model.WaitTimer}}
	case !has(model.EventSent, "hello"):
		i := slices.Index(p.keys, h.start.Address)
		to := p.keys[(i+1)%len(p.keys)]
		t.Commands = []model.Command{signalTo(to, "hello", "hello from "+h.start.Address.Key)}
	case !has(model.EventStepCompleted, "three"):
		t.Commands, t.Ahead, t.Close = []model.Command{step("three")}, 1, done()
	default:
		t.Close = done()
	}

	return t
}

func (p *life) work(t *rapid.T) {
	h := p.holding(t)
	if h == nil {
		return
	}
	p.report(h)
}

func (p *life) report(h *holding) {
	t := p.program(h)
	p.reported[h.gen] = nil
	delete(p.waiting, h.gen)
	for _, c := range t.Commands {
		if c.Kind != model.CommandStartTimer {
			p.reported[h.gen] = append(p.reported[h.gen], c.Event.ID)
		}
	}
	if len(t.Waits) > 0 {
		p.waiting[h.gen] = len(h.events)
	}
	p.r.l.Turn(p.r.now, h.worker, &t)
	p.r.take()
}

// release lets a worker give up a run. If the run waits, the release says what it waits for.
func (p *life) release(t *rapid.T) {
	var all []model.RunID
	for run := range p.r.held {
		all = append(all, run)
	}
	if len(all) == 0 {
		return
	}
	slices.SortFunc(all, model.RunID.Compare)
	h := p.r.held[rapid.SampledFrom(all).Draw(t, "run")]
	var waits []model.Reason
	if n, ok := p.waiting[h.gen]; ok && n == len(h.events) && rapid.IntRange(0, 3).Draw(t, "gives back") > 0 {
		waits = []model.Reason{{Code: model.WaitTimer}}
	}
	p.r.l.Release(p.r.now, h.worker, &model.Turn{Run: h.start.Run, Generation: h.gen, Seen: int64(len(h.events)), Waits: waits})
	p.r.take()
}

func (p *life) commit(t *rapid.T) {
	if p.r.commit == nil {
		p.r.flush()
	}
	if p.r.commit == nil {
		return
	}

	switch rapid.IntRange(0, 9).Draw(t, "outcome") {
	case 0:
		p.r.fail(store.Retryable)
	case 1:
		p.r.fail(store.Away)
	case 2:
		p.r.fail(store.Unknown)
	case 3:
		if _, err := p.r.land(); err == nil || store.ClassOf(err) == store.Refused || store.ClassOf(err) == store.Unknown {
			p.r.l.FinishCommit(p.r.now, store.Committed{}, store.Errorf(store.Unknown, "commit", "connection lost"))
			p.r.flush()
		}
	default:
		p.r.commitNow()
	}
}

func (p *life) refence(t *rapid.T) {
	switch {
	case p.r.refence != nil && rapid.IntRange(0, 3).Draw(t, "fails") == 0:
		p.r.refence = nil
		p.r.l.FinishRefence(p.r.now, 0, 0, store.Errorf(store.Away, "refence", "injected"))
		p.r.flush()
	case p.r.refence != nil:
		p.r.refenceNow()
	case p.r.verify != nil:
		p.r.verifyNow()
	}
}

func (p *life) read(t *rapid.T) {
	if len(p.r.loads) == 0 {
		p.r.flush()
	}
	if len(p.r.loads) == 0 {
		return
	}
	i := rapid.IntRange(0, len(p.r.loads)-1).Draw(t, "load")
	ld := p.r.loads[i]
	p.r.loads = slices.Delete(slices.Clone(p.r.loads), i, i+1)
	if rapid.IntRange(0, 7).Draw(t, "fails") == 0 {
		p.r.l.FinishLoad(p.r.now, ld.ID, lane.LoadResult{Err: store.Errorf(store.Away, "read", "injected")})
	} else {
		p.r.readOne(ld)
	}
	p.r.take()
}

func (p *life) worker(t *rapid.T) {
	w := lane.WorkerID(rapid.IntRange(1, 2).Draw(t, "worker"))
	switch {
	case !p.here[w]:
		p.join(w)
	case rapid.Bool().Draw(t, "withdraws"):
		p.r.l.Withdraw(p.r.now, w)
		p.r.take()
	default:
		delete(p.here, w)
		p.r.l.Leave(p.r.now, w)
		p.r.take()
	}
}

func (p *life) shard(t *rapid.T) {
	s := model.ShardID(rapid.IntRange(0, shards-1).Draw(t, "shard"))
	if p.owned[s] {
		p.owned[s] = false
		p.r.l.GiveUp(p.r.now, []model.ShardID{s})
		p.r.take()
	} else if slices.Contains(p.r.freed, s) {
		p.takeBack(s)
	}
}

func (p *life) takeBack(s model.ShardID) {
	p.owned[s] = true
	p.r.freed = slices.DeleteFunc(p.r.freed, func(x model.ShardID) bool { return x == s })
	// The fence of the lane may have a newer epoch. The lease still has the epoch of the
	// registration.
	view, err := p.r.st.Members(p.r.t.Context())
	if err != nil || len(view.Members) != 1 {
		p.r.t.Fatalf("members = %+v, %v", view.Members, err)
	}
	got, err := p.r.st.Acquire(p.r.t.Context(), view.Members[0].ID, view.Members[0].Epoch, []model.ShardID{s})
	if err != nil || len(got) != 1 {
		p.r.t.Fatalf("acquire %d: %v, %v", s, got, err)
	}
	p.r.l.Acquire(p.r.now, got)
	p.r.take()
}

func (p *life) sickness(*rapid.T) { p.sick = !p.sick }

// slowness switches a slow path to the store on or off. On the slow path, the store never takes
// batches of more than a few rows in time.
func (p *life) slowness(*rapid.T) { p.slow = !p.slow }

func (p *life) time(t *rapid.T) {
	p.r.now = p.r.now.Add(time.Duration(rapid.IntRange(1, 70).Draw(t, "seconds")) * time.Second)
}

// heal ends all faults and lets everything come to its end.
func (p *life) heal(t *rapid.T) {
	r := p.r
	p.sick, p.slow = false, false
	for w := range lane.WorkerID(3) {
		if p.here[w] {
			r.l.Leave(r.now, w)
		}
	}

	p.join(9)
	for _, a := range p.keys {
		if p.started[a] {
			r.start(a, p.token("start")) // a quarantine may have refused the first start
		}
	}

	quiet := 0
	for round := 0; quiet < 3; round++ {
		if round > 3000 {
			t.Fatalf("no end in sight: %s", p.describe())
		}
		r.settle()
		if p.nurse != nil {
			p.nurse()
		}

		for s := range model.ShardID(shards) {
			if !p.owned[s] && slices.Contains(r.freed, s) {
				p.takeBack(s)
			}
		}

		if h := p.holding(nil); h != nil {
			p.report(h)
			quiet = 0
			continue
		}

		r.l.MailWaits()
		r.pass(61 * time.Second)
		if p.holding(nil) == nil {
			quiet++
		}
	}

	if r.dead != nil {
		t.Fatalf("the lane died: %v", r.dead)
	}
	r.wantFacts()
	r.wantFreeSlots()
	p.check(t)
}

func (p *life) describe() (s string) {
	for _, a := range p.keys {
		why, _ := p.r.l.Explain(a)
		s += fmt.Sprintf("%s: held by %d, %q, %d timers, %v\n", a.Key, p.r.holder(a), p.r.events(a), p.r.timers(a), why)
	}
	return s
}

func (p *life) check(t *rapid.T) {
	r := p.r
	for i, a := range p.keys {
		row := r.current(a)
		if row == nil {
			if p.started[a] {
				for token, ans := range r.answers {
					if strings.HasPrefix(fmt.Sprint(token), "start") && ans.Err == nil && r.row(ans.Answer.Run) == nil {
						t.Fatalf("%v was told of %s, which does not exist", token, ans.Answer.Run)
					}
				}
			}
			continue
		}

		if row.Outcome.Status == model.Terminated && p.terminated[a] {
			continue
		}
		if row.Outcome.Status != model.Completed {
			t.Fatalf("%s is %s and does not go on: %s", a.Key, row.Outcome.Status, p.describe())
		}

		count := map[string]int{}
		for j, e := range r.history(a, row.Start.Run) {
			if e.Seq != int64(j+1) {
				t.Fatalf("%s has event %d at position %d", a.Key, e.Seq, j+1)
			}
			count[fmt.Sprintf("%s %s%s", e.Kind, e.ID, e.Name)]++
		}

		for _, want := range []string{"step_completed one", "step_completed two", "timer_fired nap", "step_completed three", "sent hello"} {
			if n := count[want]; n != 1 {
				t.Fatalf("%s has %q %d times: %q", a.Key, want, n, r.events(a))
			}
		}

		if r.timers(a) != 0 {
			t.Fatalf("%s has timers left", a.Key)
		}
		before := p.keys[(i+len(p.keys)-1)%len(p.keys)]
		// each run sends the signal once
		if n := count["signal_received hello from "+before.Key]; n > r.runsOf(before) {
			t.Fatalf("%s heard from %s %d times", a.Key, before.Key, n)
		}

		for token, to := range p.signals {
			ans, answered := r.answers[token]
			if again, ok := r.answers[token+" again"]; ok && ans.Err != nil {
				ans = again // the first answer was a refusal, which the lane does not remember
			}
			n := count["signal_received "+token]
			switch {
			case !answered:
				t.Fatalf("%s was never answered", token)
			case to != a:
			case ans.Err == nil && n != 1, ans.Err != nil && n != 0:
				t.Fatalf("%s is in the history of %s %d times, answered %v", token, a.Key, n, ans.Err)
			}
		}
	}

	if len(r.held) != 0 {
		t.Fatalf("%d closed runs are still held", len(r.held))
	}
	if r.l.PendingBytes() != 0 || !r.l.Idle() {
		t.Fatalf("%d bytes are held by nothing, idle %v", r.l.PendingBytes(), r.l.Idle())
	}
	left, _, err := r.st.LoadMessages(t.Context(), []model.ShardID{0, 1, 2, 3}, 100, 1<<30)
	if err != nil || len(left) != 0 {
		t.Fatalf("messages left: %+v, %v", left, err)
	}
}
