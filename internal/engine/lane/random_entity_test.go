package lane_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

var (
	ledgers = []string{"a", "b", "c"}
	lockers = []string{"w0", "w1", "w2"} // runs that lock and call
)

// asked is a call of a client.
type asked struct{ key, input, request string }

// village is a set of entities whose callers, workers and owners come and go.
type village struct {
	*rig
	n      int
	calls  map[any]*asked              // calls of clients, by token
	posted map[string]store.RequestKey // requests of other processes, by input
	briefs []string                    // inputs of calls that run at most once
	// commands that the holder of a run has issued, by generation
	issued map[uint64]int
	calm   bool // no batch has been refused
}

func newVillage(t *rapid.T) *village {
	v := &village{rig: newRig(t, func(c *lane.Config) {
		c.MaxMail = rapid.SampledFrom([]int{1, 1000, 16 << 20}).Draw(t, "mail")
		c.AheadWait = rapid.SampledFrom([]time.Duration{0, time.Millisecond}).Draw(t, "ahead")
	}), calls: map[any]*asked{}, posted: map[string]store.RequestKey{}, issued: map[uint64]int{}, calm: true}
	v.limit = rapid.IntRange(0, 3).Draw(t, "slots")
	v.previews = v.cfg.AheadWait > 0 && rapid.Bool().Draw(t, "previews")
	v.join(1)
	v.joinEntities(1)
	for _, k := range lockers {
		v.startRun(key(k))
	}
	return v
}

// join adds a worker of workflows, which takes any number of runs. Its id differs from the ids of
// workers of entities.
func (v *village) join(w lane.WorkerID) {
	limit := v.limit
	v.limit = 0
	v.rig.join(w + 10)
	v.limit = limit
}

// leave removes both workers with an id.
func (v *village) leave(w lane.WorkerID) {
	v.rig.leave(w)
	v.rig.leave(w + 10)
}

// draw makes a new input, and draws the entity to call.
func (v *village) draw(t *rapid.T, letter string) (input, key string) {
	v.n++
	return fmt.Sprint(letter, v.n), rapid.SampledFrom(ledgers).Draw(t, "key")
}

// requestID returns a new request id: either an id that a caller has chosen, or one that a client
// of a server draws.
func (v *village) requestID(t *rapid.T, input string) string {
	if rapid.Bool().Draw(t, "drawn") {
		return model.DrawnID("r"+input, v.l.Era())
	}
	return "r" + input
}

// call makes a call of a client with a request id.
func (v *village) call(c asked, name string, change ...func(*model.Message)) {
	v.n++
	v.calls[v.n] = &c
	v.operation(ledger(c.key), name, c.input, v.n, append(change, func(m *model.Message) { m.RequestID = c.request })...)
}

// oneOf does one of several things.
func oneOf(actions map[string]func(*rapid.T)) func(*rapid.T) {
	names := slices.Sorted(maps.Keys(actions))
	return func(t *rapid.T) { actions[rapid.SampledFrom(names).Draw(t, "do")](t) }
}

func (v *village) clients() func(*rapid.T) {
	actions := map[string]func(*rapid.T){}
	actions["call"] = func(t *rapid.T) {
		in, k := v.draw(t, "c")
		v.call(asked{key: k, input: in, request: v.requestID(t, in)}, "add")
	}

	actions["pass"] = func(t *rapid.T) {
		in, k := v.draw(t, "p")
		v.call(asked{key: k, input: in, request: v.requestID(t, in)}, "pass "+rapid.SampledFrom(ledgers).Draw(t, "to"), oneWay)
	}

	actions["repeat"] = func(t *rapid.T) {
		if c := v.calls[rapid.IntRange(0, v.n).Draw(t, "which")]; c != nil && strings.HasPrefix(c.input, "c") {
			v.call(asked{key: c.key, input: c.input, request: c.request}, "add")
		}
	}

	actions["forget"] = func(t *rapid.T) {
		token := rapid.IntRange(0, v.n).Draw(t, "which")
		if c := v.calls[token]; c != nil {
			v.forget(ledger(c.key), token)
		}
	}

	actions["fail"] = func(t *rapid.T) {
		_, k := v.draw(t, "f")
		v.operation(ledger(k), "fail", "", v.n)
	}

	actions["read"] = func(t *rapid.T) {
		_, k := v.draw(t, "v")
		v.operation(ledger(k), "read", "", v.n, brief)
	}

	actions["echo"] = func(t *rapid.T) {
		in, k := v.draw(t, "e")
		v.briefs = append(v.briefs, in)
		v.operation(echo(k), "echo", in, v.n, brief)
	}

	actions["post"] = func(t *rapid.T) { // from another process
		in, k := v.draw(t, "x")
		m := model.Message{Kind: model.MessageCall, To: ledger(k), Name: "add", Input: model.TextPayload(in)}
		if rapid.Bool().Draw(t, "brief") {
			m.Brief = true
			v.briefs = append(v.briefs, in)
			if rapid.Bool().Draw(t, "of a service") {
				m.To, m.Name = echo(k), "echo"
			}
		}
		v.posted[in] = v.post(m, "r"+in)
	}

	actions["take a lock away"] = func(t *rapid.T) {
		_, k := v.draw(t, "u")
		v.send(model.Message{Kind: model.MessageUnlock, To: ledger(k), RequestID: fmt.Sprint("r", v.n)}, v.n)
	}

	return oneOf(actions)
}

// section says how far the code of a run is.
type section struct {
	id    string
	locks []model.Address
	has   int // locks that are granted
	calls int // calls that are not answered
	own   int // events that its commands led to
}

func sectionIn(events []model.Event) (s section) {
	for _, e := range events {
		switch e.Kind {
		case model.EventLockAsked:
			s.id, s.locks, s.has = e.ID, e.Locks, 0
			s.own++
		case model.EventLockGranted:
			s.has++
		case model.EventUnlocked:
			s.id = ""
			s.own++
		case model.EventSent:
			s.calls++
			s.own++
		case model.EventAnswered:
			s.calls--
		default:
		}
	}

	return s
}

func (s *section) isGranted() bool { return s.id != "" && s.has == len(s.locks) }

// turnOf lets the code of a run act, if the worker of the run knows everything that the code has
// done.
func (v *village) turnOf(t *rapid.T, do func(run string, s *section) []model.Command) {
	name := rapid.SampledFrom(lockers).Draw(t, "run")
	k := key(name)
	for _, h := range v.held {
		if h.start.Address != k {
			continue
		}
		s := sectionIn(h.events)
		if _, known := v.issued[h.gen]; !known {
			v.issued[h.gen] = s.own
		}
		if v.issued[h.gen] != s.own {
			return
		}
		if commands := do(name, &s); commands != nil {
			v.issued[h.gen] += len(commands)
			v.turn(k, model.Turn{Commands: commands})
		}
		return
	}
}

func callOf(id, section, input string, to model.Address) model.Command {
	return model.Command{
		Kind: model.CommandSend, Event: model.Event{ID: id, Target: to, Section: section},
		Message: &model.Message{Kind: model.MessageCall, To: to, Name: "add", Input: model.TextPayload(input)},
	}
}

func (v *village) runs() func(*rapid.T) {
	actions := map[string]func(*rapid.T){}
	actions["begin"] = func(t *rapid.T) {
		v.n++
		v.send(model.Message{
			Kind: model.MessageStart, To: key(rapid.SampledFrom(lockers).Draw(t, "run")), Reuse: model.ReuseAlways, RequestID: fmt.Sprint("r", v.n),
		}, v.n)
	}

	actions["lock"] = func(t *rapid.T) {
		v.turnOf(t, func(_ string, s *section) []model.Command {
			if s.id != "" {
				return nil
			}
			v.n++
			var locks []model.Address
			for _, k := range rapid.SliceOfN(rapid.SampledFrom(ledgers), 1, 3).Draw(t, "locks") {
				locks = append(locks, ledger(k))
			}
			return []model.Command{{Kind: model.CommandLock, Event: model.Event{ID: fmt.Sprint("s", v.n), Locks: locks}}}
		})
	}

	actions["call of a run"] = func(t *rapid.T) {
		v.turnOf(t, func(run string, s *section) []model.Command {
			in, k := v.draw(t, "o"+run+".")
			switch {
			case s.id == "":
				return []model.Command{callOf(in, "", in, ledger(k))}
			case s.isGranted() && s.calls == 0:
				return []model.Command{callOf(in, s.id, in, rapid.SampledFrom(s.locks).Draw(t, "to"))}
			}
			return nil
		})
	}

	actions["unlock"] = func(t *rapid.T) {
		v.turnOf(t, func(_ string, s *section) []model.Command {
			if s.id == "" || rapid.Bool().Draw(t, "later") {
				return nil
			}
			return []model.Command{{Kind: model.CommandUnlock, Event: model.Event{Section: s.id}}}
		})
	}

	actions["terminate"] = func(t *rapid.T) {
		v.n++
		v.send(model.Message{
			Kind: model.MessageTerminate, To: key(rapid.SampledFrom(lockers).Draw(t, "run")), RequestID: fmt.Sprint("r", v.n),
			Failure: &model.Failure{Message: "enough"},
		}, v.n)
	}

	return oneOf(actions)
}

func (v *village) machinery() func(*rapid.T) {
	actions := map[string]func(*rapid.T){}
	actions["serve"] = func(t *rapid.T) {
		if len(v.operations) > 0 {
			i := rapid.IntRange(0, len(v.operations)-1).Draw(t, "which")
			v.operations[0], v.operations[i] = v.operations[i], v.operations[0]
			v.serve(1)
		}
	}

	actions["flush"] = func(*rapid.T) { v.flush() }
	actions["settle"] = func(*rapid.T) { v.settle() }
	actions["recover"] = func(*rapid.T) {
		switch {
		case v.refence != nil:
			v.refenceNow()
		case v.verify != nil:
			v.verifyNow()
		}
	}

	actions["load"] = func(*rapid.T) {
		if len(v.loads) > 0 {
			v.read()
		}
	}

	actions["commit"] = func(*rapid.T) {
		if v.commit != nil {
			v.commitNow()
		}
	}

	return oneOf(actions)
}

func (v *village) trouble() func(*rapid.T) {
	actions := map[string]func(*rapid.T){}
	leaves := func(t *rapid.T, w lane.WorkerID) { // with or without a report about its calls
		v.leave(w)
		if rapid.Bool().Draw(t, "silent") {
			v.operations = slices.DeleteFunc(v.operations, func(o lane.OperateCall) bool { return o.Worker == w })
		}
	}

	actions["worker"] = func(t *rapid.T) {
		leaves(t, 2)
		if rapid.Bool().Draw(t, "comes again") {
			v.joinEntities(2)
		}
	}

	actions["all workers"] = func(t *rapid.T) {
		for w := range lane.WorkerID(3) {
			leaves(t, w+1)
		}
	}

	actions["workers"] = func(t *rapid.T) {
		leaves(t, 1)
		v.join(1)
		v.joinEntities(1)
	}

	actions["another build"] = func(t *rapid.T) {
		leaves(t, 3)
		if rapid.Bool().Draw(t, "comes") {
			v.joinBuild(3)
		}
	}

	actions["dies"] = func(t *rapid.T) {
		if rapid.Bool().Draw(t, "knows it") {
			v.l.Die(errInjected)
			v.take()
		}
		v.crashFenced()
		v.operations, v.freed = nil, nil
		v.join(1)
		v.joinEntities(1)
	}

	actions["refuse"] = func(*rapid.T) {
		if v.commit != nil {
			v.calm = false
			v.fail(store.Refused)
		}
	}

	actions["unknown"] = func(t *rapid.T) {
		switch {
		case v.commit == nil:
		case rapid.Bool().Draw(t, "landed"):
			v.landUnheard()
			v.l.FinishCommit(v.now, store.Committed{}, store.Errorf(store.Unknown, "commit", "lost"))
			v.flush()
		default:
			v.fail(store.Unknown)
		}
	}

	actions["slow"] = func(*rapid.T) { // until the batch is split
		for range 4 {
			switch {
			case v.commit != nil:
				v.fail(store.Unknown)
			case v.refence != nil:
				v.refenceNow()
			}
		}
	}

	actions["time"] = func(t *rapid.T) {
		v.now = v.now.Add(time.Duration(rapid.IntRange(1, 90).Draw(t, "seconds")) * time.Second)
		v.flush()
	}

	actions["gives up"] = func(t *rapid.T) { v.giveUp(model.ShardID(rapid.IntRange(0, shards-1).Draw(t, "shard"))) }
	actions["acquires"] = func(*rapid.T) { v.acquireAgain() }
	return oneOf(actions)
}

// acquireAgain acquires again all shards that the lane has given up.
func (v *village) acquireAgain() {
	freed := v.freed
	v.freed = nil
	if len(freed) > 0 {
		v.acquire(freed...)
	}
}

// rest lets the lane finish everything that can finish.
func (v *village) rest() {
	v.t.Helper()
	for range 4 { // the lane tries quarantined addresses again
		v.l.MailWaits() // in production, each renewal of the lease reports this
		v.work()
		v.pass(v.cfg.QuarantineFor + 2*time.Minute)
		v.acquireAgain()
	}
	v.work()
}

// finish ends the runs, first the runs that have all the locks they asked for. If no run has its
// locks, then a lock or a grant is lost, and no run will ever get its locks.
func (v *village) finish() {
	v.t.Helper()
	for range len(lockers) + 1 {
		v.rest()
		var open, ready []model.Address
		for _, k := range lockers {
			row := v.current(key(k))
			if row == nil || row.Outcome.Status.Closed() {
				continue
			}
			s := sectionIn(v.history(row.Start.Address, row.Start.Run))
			if s.id == "" || s.isGranted() {
				ready = append(ready, key(k))
			}

			if s.calls != 0 && (s.id == "" || s.isGranted()) {
				free := true // calls without a lock wait for the section that holds the entity
				for _, a := range ledgers {
					free = free && !v.isLocked(ledger(a))
				}
				if free {
					v.t.Errorf("%d calls of %s are not answered", s.calls, k)
				}
			}

			open = append(open, key(k))
		}

		if len(open) == 0 {
			return
		}
		if len(ready) == 0 {
			v.t.Fatalf("%v wait for locks, and none has them", open)
		}
		v.n++
		v.send(model.Message{Kind: model.MessageTerminate, To: ready[0], RequestID: fmt.Sprint("r", v.n), Failure: &model.Failure{Message: "the end"}}, v.n)
	}

	v.t.Fatal("runs do not end")
}

func (v *village) isLocked(a model.Address) bool {
	v.t.Helper()
	got, err := v.st.LoadEntity(v.t.Context(), store.EntityKey{Shard: a.Shard(shards), Address: a}, 1, 1)
	if err != nil {
		v.t.Fatal(err)
	}
	return got.Entity != nil && got.Entity.Locked()
}

// count checks everything that the lane promises.
func (v *village) count() {
	v.t.Helper()
	made := map[string]int{}
	for _, k := range ledgers {
		last := map[string]int{} // by run
		for in := range strings.SplitSeq(strings.TrimSuffix(v.storedState(ledger(k)), ";"), ";") {
			made[in]++
			if run, at, ok := strings.Cut(in, "."); ok && v.calm {
				n, err := strconv.Atoi(at)
				if err != nil || n < last[run] {
					v.t.Errorf("%s was sent before %d and made after it: %v", in, last[run], err)
				}
				last[run] = n
			}
		}

		if v.isLocked(ledger(k)) {
			v.t.Errorf("%s is locked by a section that does not exist", k)
		}
		if n := len(v.mailbox(ledger(k))) + len(v.mailbox(echo(k))); n > 0 {
			v.t.Errorf("%d calls of %s are left", n, k)
		}
	}

	delete(made, "")
	for in, times := range made {
		if times != 1 {
			v.t.Errorf("%s was made %d times", in, times)
		}
	}

	for _, in := range v.briefs {
		if v.handed[in] > 1 {
			v.t.Errorf("%s is made at most once, and was handed to %d workers", in, v.handed[in])
		}
	}

	for token, c := range v.calls {
		a, ok := v.answers[token]
		switch {
		case !ok || a.Err != nil:
			// the lane gave up the call, or its owner died; the caller may repeat it
		case made[c.input] == 0 || strings.HasPrefix(c.input, "p") && made[c.input+"'"] == 0:
			v.t.Errorf("%s was accepted and not made: %v", c.input, made)
		case strings.HasPrefix(c.input, "c") && !strings.HasSuffix(string(a.Answer.Output.Data), c.input+";"):
			v.t.Errorf("%s is answered %q", c.input, a.Answer.Output.Data)
		}
	}

	for in, key := range v.posted {
		a := v.rememberedAnswer(key)
		lost := a != nil && a.Failure != nil && a.Failure.Message == core.Interrupted && slices.Contains(v.briefs, in)
		switch service := key.Address.Stateless(); {
		case a == nil:
			v.t.Errorf("%s is not answered", in)
		case a.Failure != nil && !lost:
			v.t.Errorf("%s is answered %v", in, a.Failure)
		case !service && lost == (made[in] == 1):
			v.t.Errorf("%s is answered %v and was made %d times", in, a.Failure, made[in])
		}
	}
}

// Whatever happens to workers, commits and owners, the following holds. An answered call ran once.
// An accepted call runs in the end. No call runs twice. Locks are free when no run asks for them.
// Nothing stays in memory.
func TestRandomEntities(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		v := newVillage(t)
		runs, machinery := v.runs(), v.machinery()
		t.Repeat(map[string]func(*rapid.T){
			"": func(*rapid.T) {}, "client": v.clients(), "run": runs, "another run": runs, "go on": machinery, "and on": machinery, "and on and on": machinery,
			"trouble": v.trouble(),
		})

		v.joinEntities(4)
		v.join(4)
		v.acquireAgain()
		v.finish()
		v.rest()
		v.count()
		v.wantFreeSlots()
		v.leave(1) // after that it must hold nothing
		v.pass(5 * time.Minute)
		if n := v.l.Entries(); n != 0 {
			t.Errorf("%d entries are left in memory", n)
		}
		if n := v.l.Waiters(); n != 0 {
			t.Errorf("callers wait for %d addresses", n)
		}
		if n := v.l.PendingBytes(); n != 0 {
			t.Errorf("%d bytes of inputs are held", n)
		}
	})
}
