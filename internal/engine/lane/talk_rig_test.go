package lane_test

import (
	"slices"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// notPaused checks that a run that a worker gets is not paused in the store.
func (r *rig) notPaused(h *holding, what string) {
	r.t.Helper()
	if paused(r.history(h.start.Address, h.start.Run)) {
		r.t.Fatalf("%s is %s while it is paused", h.start.Run, what)
	}
}

// paused reports whether a history says that the run is paused.
func paused(events []model.Event) (is bool) {
	for _, e := range events {
		switch e.Kind { //nolint:exhaustive // the others change nothing about it
		case model.EventPaused:
			is = true
		case model.EventResumed:
			is = false
		}
	}
	return is
}

// update sends an update under a request id.
func (r *rig) update(a model.Address, id string, token any) {
	r.send(model.Message{Kind: model.MessageUpdate, To: a, Name: "u", RequestID: id}, token)
}

// replyCommand returns the command that answers the update at a position.
func replyCommand(ref int64, text string) model.Command {
	return model.Command{Kind: model.CommandAnswer, Event: model.Event{ID: "answer " + text, Name: "u", Ref: ref, Output: model.Payload{Data: []byte(text)}}}
}

// wantOutput checks the answer of the code.
func (r *rig) wantOutput(token any, want string) {
	r.t.Helper()
	a, ok := r.answers[token]
	if !ok || a.Err != nil || string(a.Answer.Output.Data) != want {
		r.t.Errorf("%v is answered %q, %v (answered: %v), want %q", token, a.Answer.Output.Data, a.Err, ok, want)
	}
}

// query sends a query to the code.
func (r *rig) query(a model.Address, token any) {
	r.send(model.Message{Kind: model.MessageQuery, To: a, Name: "q"}, token)
}

// reply makes the worker that holds the run answer all its queries.
func (r *rig) reply(a model.Address, text string) int {
	r.t.Helper()
	for run, h := range r.held {
		if h.start.Address == a {
			asked := h.asked
			h.asked = nil
			for _, q := range asked {
				r.l.AnswerQuery(r.now, h.worker, lane.QueryAnswer{Run: run, Generation: h.gen, ID: q.ID, Output: model.Payload{Data: []byte(text)}})
			}
			r.take()
			return len(asked)
		}
	}
	r.t.Fatalf("no worker holds %s", a)
	return 0
}

// order sends an order of an operator to an execution.
func (r *rig) order(k model.MessageKind, a model.Address, token any) {
	r.send(model.Message{Kind: k, To: a, Failure: &model.Failure{Message: "because"}}, token)
}

// guest is another process that sends requests.
var guest = model.NodeID{15: 77}

// post puts a request of another process into the inbox and announces it.
func (r *rig) post(m model.Message, id string) store.RequestKey {
	r.t.Helper()
	k := r.put(m, id)
	r.l.MailWaits()
	r.take()
	return k
}

// put puts a request of another process into the inbox, without a notice to the lane.
func (r *rig) put(m model.Message, id string) store.RequestKey {
	r.t.Helper()
	m.RequestID, m.Node = id, guest
	row := store.InboxRow{Shard: m.To.Shard(shards), ID: r.newRun(), Message: m}
	if err := r.st.PutInbox(r.t.Context(), []store.InboxRow{row}); err != nil {
		r.t.Fatal(err)
	}
	return store.RequestKey{Shard: row.Shard, Address: m.To, ID: id}
}

// rememberedAnswer returns the stored answer to a request, or nil.
func (r *rig) rememberedAnswer(k store.RequestKey) *model.Answer {
	r.t.Helper()
	found, err := r.st.LoadReplies(r.t.Context(), []store.RequestKey{k})
	if err != nil {
		r.t.Fatal(err)
	}
	if len(found) == 0 {
		return nil
	}
	a, err := model.DecodeAnswer(found[0].Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return &a
}

// inboxCount returns how many requests of other processes the lane has not served.
func (r *rig) inboxCount() int {
	r.t.Helper()
	rows, _, err := r.st.LoadInbox(r.t.Context(), []model.ShardID{0, 1, 2, 3}, r.now.Add(1<<40), 100, 1<<30)
	if err != nil {
		r.t.Fatal(err)
	}
	return len(rows)
}

// startResting brings an execution to rest: no worker holds it and it is not in memory.
func (r *rig) startResting(a model.Address) model.RunID {
	r.t.Helper()
	run := r.startRun(a)
	r.turn(a, model.Turn{Waits: []model.Reason{{Code: model.WaitSignal, Name: "s"}}})
	r.settle()
	r.release(a, "s")
	r.settle()
	if r.holder(a) != 0 || r.l.Entries() != 0 {
		r.t.Fatalf("%s is held by %d, %d entries are in memory", a.Key, r.holder(a), r.l.Entries())
	}
	return run
}

// runsStep brings an execution to where its worker runs a step.
func (r *rig) runsStep(a model.Address) {
	r.t.Helper()
	r.startRun(a)
	r.turn(a, model.Turn{Running: true})
	r.settle()
}

// rest makes the worker that holds the run report that it waits for a signal.
func (r *rig) rest(a model.Address) {
	r.t.Helper()
	r.turn(a, model.Turn{Waits: []model.Reason{{Code: model.WaitSignal, Name: "s"}}})
	r.settle()
}

// wantEmpty checks that nothing is left in memory and that no caller waits.
func (r *rig) wantEmpty() {
	r.t.Helper()
	if n, w, q := r.l.Entries(), r.l.Waiters(), r.l.Queries(); n+w+q > 0 || r.l.PendingBytes() != 0 || !r.l.Idle() {
		r.t.Errorf("%d entries, %d waiters, %d queries, %d bytes are left, idle %v:\n%s", n, w, q, r.l.PendingBytes(), r.l.Idle(), r.l)
	}
}

func (r *rig) wantHint(a model.Address) {
	r.t.Helper()
	for _, h := range r.hints {
		if h.Address == a && h.Node == guest {
			return
		}
	}
	r.t.Errorf("node 77 got no hint about %s: %v", a.Key, r.hints)
}

// evictions returns the reasons why the lane took runs from workers.
func (r *rig) evictions() (why []string) {
	for _, c := range r.calls {
		if c.Reason != "" {
			why = append(why, c.Reason)
		}
	}
	return slices.Clip(why)
}

// mismatch is why a run is blocked.
var mismatch = model.Reason{Code: model.WaitMismatch, Detail: "recorded x, asked for y"}

// block makes the worker that holds the run report that the run is blocked. This report also
// releases the run.
func (r *rig) block(a model.Address) {
	r.t.Helper()
	why := mismatch
	r.turn(a, model.Turn{Blocked: &why})
	delete(r.held, r.current(a).Start.Run)
}

// startBlocked starts an execution and blocks it.
func (r *rig) startBlocked(a model.Address) {
	r.t.Helper()
	r.startRun(a)
	r.block(a)
	r.settle()
}

// wantBlocked checks that the store says that the run is blocked.
func (r *rig) wantBlocked(a model.Address) {
	r.t.Helper()
	if row := r.current(a); row.Blocked == nil || *row.Blocked != mismatch {
		r.t.Errorf("stored as blocked by %v", row.Blocked)
	}
}
