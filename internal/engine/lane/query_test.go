package lane_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// For a query, the lane hands a run that is not in memory to a worker. This writes nothing, so the
// run stays parked.
func TestQueryOfParkedRun(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	a := key("a")
	r.startResting(a)
	commits := r.commits
	r.query(a, "q")
	r.settle()
	r.wantSilence("q")
	if n := r.reply(a, "42"); n != 1 {
		t.Errorf("the code was asked %d times", n)
	}
	r.wantOutput("q", "42")
	if row := r.current(a); !row.Parked || r.commits != commits {
		t.Errorf("parked %v, %d commits", row.Parked, r.commits-commits)
	}
	r.rest(a)
	r.release(a, "s")
	r.settle()
	r.wantEmpty()
}

// A query waits for a run that is on its way to a worker, however the run gets there.
func TestQueryOnTheWay(t *testing.T) {
	t.Parallel()
	a := key("a")
	for name, prepare := range map[string]func(r *rig){
		"while it is held": func(r *rig) { r.park(a) },
		"while its history is read": func(r *rig) {
			r.startResting(a)
			r.signal(a, "s", "signal")
			r.flush()
		},
		"before it is durable": func(r *rig) { r.start(a, "start"); r.flush() },
		"while it is released": func(r *rig) { r.park(a); r.release(a, "s") },
		"while the release is in flight": func(r *rig) {
			r.park(a)
			r.release(a, "s")
			r.flush()
		},
		"while it continues": func(r *rig) {
			r.startRun(a)
			r.turn(a, model.Turn{Close: &model.Close{Status: model.Continued}})
			r.flush()
		},
		"while its worker leaves": func(r *rig) {
			r.park(a)
			r.join(2)
			r.l.Withdraw(r.now, 1)
			r.take()
		},
		"when its worker has left": func(r *rig) {
			r.park(a)
			r.leave(1)
			r.join(2)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.join(1)
			prepare(r)
			r.query(a, "q")
			r.settle()
			if name == "while its worker leaves" {
				r.release(a, "s")
				r.settle()
			}

			r.reply(a, "42")
			r.wantOutput("q", "42")
			if n := r.l.Queries(); n != 0 {
				t.Errorf("%d queries are left", n)
			}
		})
	}
}

// If the code cannot answer a query, the lane refuses the query with the reason and forgets it.
func TestQueryRefused(t *testing.T) {
	t.Parallel()
	a := key("a")
	for name, c := range map[string]struct {
		prepare    func(r *rig)
		kind, text string
	}{
		"nobody":    {func(r *rig) { r.join(1) }, "not_found", "does not exist"},
		"no worker": {func(r *rig) { r.startRun(a) }, "unavailable", "waits for a worker that offers workflow wf"},
		"closed, and no worker": {func(r *rig) {
			r.join(1)
			r.startRun(a)
			r.turn(a, model.Turn{Close: done()})
			r.settle()
			r.leave(1)
		}, "unavailable", "has ended (completed), and no worker"},
		"terminated, and no worker": {func(r *rig) { r.startRun(a); r.order(model.MessageTerminate, a, "t"); r.settle() }, "unavailable", "has ended (terminated), and no worker"},
		"paused": {func(r *rig) {
			r.join(1)
			r.park(a)
			r.order(model.MessagePause, a, "p")
			r.settle()
		}, "blocked", "paused: because"},
		"blocked": {func(r *rig) {
			r.join(1)
			r.startBlocked(a)
		}, "blocked", "asked for y"},
		"quarantined": {func(r *rig) {
			r.join(1)
			r.startRun(a)
			r.refuse = poison("bad")
			r.turn(a, steps("bad"))
			r.settle()
		}, "blocked", "quarantined"},
		"no worker of the version": {func(r *rig) {
			r.joinVersion(1, "one")
			r.startRun(a)
			r.turn(a, pinTo("one"))
			r.settle()
			r.leave(1)
			r.joinVersion(2, "two")
			r.settle()
		}, "unavailable", "version one of workflow wf"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			c.prepare(r)
			r.query(a, "q")
			k := r.post(model.Message{Kind: model.MessageQuery, To: a, Name: "q"}, "req-1")
			r.settle()
			r.wantAnswer("q", c.kind)
			if err := r.answers["q"].Err; err == nil || !strings.Contains(err.Error(), c.text) {
				t.Errorf("refused with %v, want %q in it", err, c.text)
			}

			// like everything else, the query waits in the inbox until the quarantine is over
			if name != "quarantined" {
				if ans := r.rememberedAnswer(k); ans == nil || ans.Failure == nil || ans.Failure.Kind != c.kind {
					t.Errorf("another process is told %+v", ans)
				}
			}

			if n := r.l.Queries(); n != 0 {
				t.Errorf("%d queries are left", n)
			}
		})
	}
}

// A run leaves its worker before the worker has answered. The caller gets an error after the
// commit, or asks again.
func TestQueryInterrupted(t *testing.T) {
	t.Parallel()
	a := key("a")
	for name, c := range map[string]struct {
		happens func(r *rig)
		kind    string // "" if the lane asks the next worker
	}{
		"closes":     {func(r *rig) { r.turn(a, model.Turn{Close: done()}) }, "unavailable"},
		"continues":  {func(r *rig) { r.turn(a, model.Turn{Close: &model.Close{Status: model.Continued}}) }, "unavailable"},
		"terminated": {func(r *rig) { r.order(model.MessageTerminate, a, "t") }, "unavailable"},
		"paused":     {func(r *rig) { r.order(model.MessagePause, a, "p") }, "unavailable"},
		"blocked": {func(r *rig) {
			r.block(a)
		}, "blocked"},
		"given back": {func(r *rig) {
			r.l.Release(r.now, 1, &model.Turn{Run: r.current(a).Start.Run, Generation: r.held[r.current(a).Start.Run].gen})
			r.take()
		}, ""},
		"released":          {func(r *rig) { r.release(a, "s") }, ""},
		"the worker leaves": {func(r *rig) { r.join(2); r.l.Leave(r.now, 1); r.held = map[model.RunID]*holding{}; r.take() }, ""},
		"the shard moves":   {func(r *rig) { r.giveUp(a.Shard(shards)) }, "unavailable"},
		"the lane dies":     {func(r *rig) { r.l.Die(errInjected); r.take() }, "unavailable"},
		"quarantined":       {func(r *rig) { r.refuse = poison("bad"); r.turn(a, steps("bad")) }, "blocked"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.join(1)
			r.park(a)
			r.query(a, "q")
			r.settle()
			c.happens(r)
			r.settle()

			if c.kind == "" {
				r.wantSilence("q")
				r.reply(a, "42")
				r.wantOutput("q", "42")
			} else {
				r.wantAnswer("q", c.kind)
			}

			if n := r.l.Queries(); n != 0 {
				t.Errorf("%d queries are left", n)
			}
		})
	}
}

// An answer of an earlier holder of the run, or to an answered query, changes nothing.
func TestStaleAnswer(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	a := key("a")
	run := r.park(a)
	r.query(a, "q")
	r.settle()
	old := *r.held[run]
	r.release(a, "s")
	r.settle()
	if old.gen == r.held[run].gen {
		t.Fatal("the run has not changed hands")
	}

	r.l.AnswerQuery(r.now, old.worker, lane.QueryAnswer{Run: run, Generation: old.gen, ID: old.asked[0].ID, Output: model.Payload{Data: []byte("old")}})
	r.take()
	r.wantSilence("q")
	r.reply(a, "new")
	r.wantOutput("q", "new")
	r.l.AnswerQuery(r.now, 1, lane.QueryAnswer{Run: run, Generation: r.held[run].gen, ID: old.asked[0].ID, Output: model.Payload{Data: []byte("again")}})
	r.take()
}

// A refused batch undoes a release: the worker that has the run again gets the queries that arrived
// in between.
func TestQueryAfterUndoneRelease(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	a, b := key("a"), key("b")
	r.park(a)
	r.startRun(b)
	r.refuse = poison("bad")
	r.release(a, "s")
	r.turn(b, steps("bad"))
	r.flush()
	r.query(a, "q") // no worker holds the run now
	r.settle()
	if n := r.reply(a, "42"); n == 0 {
		t.Fatal("no worker was asked")
	}

	r.wantOutput("q", "42")
}

// The lane forgets a caller that gives up.
func TestForgottenQuery(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	a := key("a")
	r.park(a)
	r.query(a, "gone")
	r.query(a, "q")
	r.settle()
	r.l.Forget(a, "gone")
	if n := r.l.Queries(); n != 1 {
		t.Errorf("%d queries are left, want 1", n)
	}
	r.reply(a, "42")
	r.wantOutput("q", "42")
	r.wantSilence("gone")
}

// A query of another process stays in the inbox until its answer is stored: if the owner dies
// before, the next owner asks the code again.
func TestQueryByInbox(t *testing.T) {
	t.Parallel()
	for _, dies := range []string{"", "before it is asked", "before it answers", "before the answer is stored"} {
		t.Run(dies, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.join(1)
			a := key("a")
			r.startResting(a)
			k := r.post(model.Message{Kind: model.MessageQuery, To: a, Name: "q"}, "req-1")
			if dies != "before it is asked" {
				r.settle()
			}
			if dies == "before the answer is stored" {
				r.reply(a, "41")
			}

			if dies != "" {
				r.restart()
				r.join(1)
				r.settle()
			}

			if r.inboxCount() != 1 || r.rememberedAnswer(k) != nil {
				t.Errorf("%d rows are left, the answer is %v", r.inboxCount(), r.rememberedAnswer(k))
			}
			r.l.MailWaits() // the code gets the query once
			r.settle()
			if n := r.reply(a, "42"); n != 1 {
				t.Errorf("the code was asked %d times", n)
			}
			r.settle()
			if ans := r.rememberedAnswer(k); r.inboxCount() != 0 || ans == nil || string(ans.Output.Data) != "42" {
				t.Errorf("%d rows are left, the answer is %v", r.inboxCount(), ans)
			}
			r.wantHint(a)
			r.rest(a)
			r.release(a, "s")
			r.settle()
			r.wantEmpty()
		})
	}
}

// The run leaves the worker before the worker has answered. The owner of the shard reads the row of
// the query again.
func TestQueryByInboxInterrupted(t *testing.T) {
	t.Parallel()
	a := key("a")
	for name, c := range map[string]struct {
		happens func(r *rig)
		kind    string
	}{
		"closes":      {func(r *rig) { r.turn(a, model.Turn{Close: done()}) }, "recalled"},
		"paused":      {func(r *rig) { r.order(model.MessagePause, a, "p") }, "blocked"},
		"terminated":  {func(r *rig) { r.order(model.MessageTerminate, a, "t") }, "recalled"},
		"no worker":   {func(r *rig) { r.leave(1) }, "unavailable"},
		"quarantined": {func(r *rig) { r.refuse = poison("bad"); r.turn(a, steps("bad")) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.join(1)
			r.park(a)
			k := r.post(model.Message{Kind: model.MessageQuery, To: a, Name: "q"}, "req-1")
			r.settle()
			c.happens(r)
			r.settle()

			if c.kind == "" {
				r.refuse = nil
				r.pass(2 * time.Minute)
				r.l.MailWaits()
				r.settle()
				r.reply(a, "42")
				r.settle()
			}

			if c.kind == "recalled" { // the lane reads the row again, and a worker replays the history
				c.kind = ""
				r.recall("42")
				r.settle()
			}

			ans := r.rememberedAnswer(k)
			got := ""
			if ans != nil && ans.Failure != nil {
				got = ans.Failure.Kind
			}
			if ans == nil || got != c.kind || r.inboxCount() != 0 || r.l.Queries() != 0 {
				t.Errorf("answered %+v, want %q; %d rows and %d queries are left", ans, c.kind, r.inboxCount(), r.l.Queries())
			}
		})
	}
}

// The lane refuses a query of another process, and the store refuses the batch with that refusal.
// When the lane serves the query again, it is giving up the shard. The next owner of the shard
// reads the row of the query, even if the next owner is the same lane.
func TestQueryByInboxWhileTheShardMoves(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	a, b := key("a"), key("b")
	r.park(a)
	r.startRun(b)
	r.leave(1)
	r.signal(a, "s", "signal")
	r.settle()

	r.signal(b, "first", "first")
	r.flush()
	k := r.post(model.Message{Kind: model.MessageQuery, To: a, Name: "q"}, "req-1")
	r.flush()
	r.read()
	r.signal(b, "bad", "bad")
	r.commitNow()
	if r.commit == nil || len(r.commit.Inbox) != 1 || len(r.commit.Events) == 0 {
		t.Fatalf("the batch is %+v", r.commit)
	}

	r.join(2)
	r.flush()
	for len(r.loads) > 0 {
		r.read()
		r.flush()
	}
	r.turn(a, model.Turn{Running: true})
	shard := r.cfg.Layout.Shard(a)
	r.giveUp(shard)
	r.refuse = poison("bad")
	r.commitNow()
	r.refuse = nil
	r.settle()
	r.rest(a)
	r.settle()
	if ans := r.rememberedAnswer(k); ans != nil || r.inboxCount() != 1 || r.l.Queries() != 0 {
		t.Fatalf("answered %+v; %d rows and %d queries are left", ans, r.inboxCount(), r.l.Queries())
	}

	r.acquire(shard)
	r.settle()
	r.reply(a, "42")
	r.settle()
	if ans := r.rememberedAnswer(k); ans == nil || string(ans.Output.Data) != "42" || r.inboxCount() != 0 {
		t.Errorf("answered %+v; %d rows are left", ans, r.inboxCount())
	}
}

// The number of unanswered queries is bounded, and they do not block other requests of other
// processes.
func TestTooManyQueries(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *lane.Config) { c.MaxBacklog = 300 })
	r.join(1)
	a, b := key("a"), key("b")
	r.park(a)
	r.startRun(b)
	var keys []store.RequestKey
	for i := range 600 {
		keys = append(keys, r.post(model.Message{Kind: model.MessageQuery, To: a, Name: "q"}, fmt.Sprint(i)))
	}
	last := r.post(model.Message{Kind: model.MessageSignal, To: b, Name: "s"}, "signal")
	r.settle()
	if r.rememberedAnswer(last) == nil {
		t.Error("a signal waits behind queries")
	}
	for i := range 60 {
		r.query(a, i)
	}
	r.settle()
	r.wantAnswer(59, "exhausted")
	if n := r.l.Queries(); n != 300 {
		t.Errorf("%d queries wait, want 300", n)
	}
	r.reply(a, "42")
	r.settle()
	r.wantOutput(0, "42")

	answered, refused := 0, 0
	for _, k := range keys {
		switch ans := r.rememberedAnswer(k); {
		case ans == nil:
		case ans.Failure == nil:
			answered++
		case ans.Failure.Kind == "exhausted":
			refused++
		}
	}

	if answered != 250 || refused != 350 {
		t.Errorf("%d queries of another process were answered and %d refused, want 250 and 350", answered, refused)
	}
	if n := r.l.Queries(); n != 0 || r.inboxCount() != 0 {
		t.Errorf("%d queries and %d requests are left", n, r.inboxCount())
	}
}

// For a query, a worker replays a run that has ended, whether the caller is in this process or
// another. The lane writes only the answer for another process.
func TestQueryOfClosedRun(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	a := key("a")
	r.startRun(a)
	r.turn(a, model.Turn{Close: done()})
	r.flush()
	r.query(a, "q") // while its end is on its way to the store
	if len(r.recalls) != 0 {
		t.Error("a worker reads the history of a run whose end is not stored")
	}
	r.settle()
	run, commits := r.current(a).Start.Run, r.commits
	r.wantSilence("q")
	r.answerRecall(1, a, run, "42")
	r.wantOutput("q", "42")
	if r.commits != commits {
		t.Errorf("%d commits", r.commits-commits)
	}

	k := r.post(model.Message{Kind: model.MessageQuery, To: a, Name: "q"}, "req-1")
	r.settle()
	r.answerRecall(1, a, run, "43")
	r.settle()
	if ans := r.rememberedAnswer(k); ans == nil || ans.Failure != nil || string(ans.Output.Data) != "43" {
		t.Errorf("another process is told %+v", ans)
	}

	// The worker leaves before it answers, and the caller asks again. The lane forgets a caller
	// that gives up.
	r.join(2)
	r.query(a, "again")
	r.settle()
	asked := r.recalls[0]
	r.leave(asked.Worker)
	r.settle()
	if err := r.answers["again"].Err; !errors.Is(err, lane.ErrAskAgain) {
		t.Errorf("the worker has left, and who asked hears %v", err)
	}
	r.recalls = nil
	r.query(a, "gives up")
	r.settle()
	r.l.Forget(a, "gives up")
	r.settle()
	r.recalls = nil

	// A query for a run that is not the current one names the id of the run.
	r.send(model.Message{Kind: model.MessageStart, To: a, Reuse: model.ReuseAlways}, "next")
	r.settle()
	r.l.Deliver(r.now, &model.Message{Kind: model.MessageQuery, To: a, ToRun: run, Name: "q"}, true, "earlier")
	r.settle()
	r.answerRecall(r.recalls[0].Worker, a, run, "44")
	r.wantOutput("earlier", "44")
	r.turn(a, model.Turn{Close: done()})
	r.settle()
	r.wantEmpty()
	if n := r.l.Queries(); n != 0 {
		t.Errorf("%d queries are left", n)
	}
}

// answerRecall answers the one question about a run that has ended.
func (r *rig) answerRecall(w lane.WorkerID, a model.Address, run model.RunID, out string) {
	r.t.Helper()
	if len(r.recalls) != 1 || r.recalls[0].Worker != w || r.recalls[0].Address != a || r.recalls[0].Run != run {
		r.t.Fatalf("workers are asked %+v", r.recalls)
	}
	r.recall(out)
}

// recall lets a worker answer the first question about a run that has ended.
func (r *rig) recall(out string) {
	c := r.recalls[0]
	r.recalls = r.recalls[1:]
	r.l.AnswerQuery(r.now, c.Worker, lane.QueryAnswer{Run: c.Run, Generation: c.Generation, ID: c.Query.ID, Output: model.Payload{Data: []byte(out)}})
	r.take()
}
