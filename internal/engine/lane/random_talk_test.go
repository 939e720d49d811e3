package lane_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// answerCommands returns commands that answer all updates that the code has received and not
// answered yet.
func answerCommands(h *holding) (cs []model.Command) {
	for _, e := range h.events {
		if e.Kind == model.EventUpdateReceived && !slices.ContainsFunc(h.events, func(x model.Event) bool {
			return x.Kind == model.EventUpdateAnswered && x.Ref == e.Seq
		}) {
			cs = append(cs, replyCommand(e.Seq, fmt.Sprint("to ", e.RequestID)))
		}
	}
	return cs
}

// talk is a life (see random_test.go) with callers that send updates and queries, and operators
// that pause and terminate runs.
type talk struct {
	*life
	updates map[string]model.Address // by request id, which is also the token
	queries map[string]model.Address
	posted  map[string]store.RequestKey // requests of other processes
	gone    map[string]bool
	// how many events a waiting worker has reported as seen, by generation
	seen map[uint64]int
}

// TestRandomTalk is TestRandomLife with updates, queries, pauses and terminates, from this process
// and from others. Every caller gets an answer. Every update gets one value, however often its
// caller repeats it. In the end nothing is left in memory. The rig checks that no worker gets
// anything of a paused run.
func TestRandomTalk(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := &talk{life: newLife(t), updates: map[string]model.Address{}, queries: map[string]model.Address{}, posted: map[string]store.RequestKey{}, gone: map[string]bool{}, seen: map[uint64]int{}}
		actions := map[string]func(*rapid.T){
			"": func(t *rapid.T) { p.r.t = t }, "start": p.start, "signal": p.signal, "update": p.update, "update 2": p.update,
			"query": p.query, "query 2": p.query, "answer": p.answer, "answer 2": p.answer, "order": p.order, "order 2": p.order, "forget": p.forget,
			"hear": func(*rapid.T) { p.hear() }, "work": p.work, "work 2": p.work, "work 3": p.work, "release": p.release, "flush": func(*rapid.T) { p.r.flush() },
			"commit": p.commit, "commit 2": p.commit, "commit 3": p.commit, "refence": p.refence, "read": p.read, "read 2": p.read,
			"worker": p.worker, "shard": p.shard, "sickness": p.sickness, "slowness": p.slowness, "time": p.time,
		}
		for range 4 {
			t.Repeat(actions)
		}
		p.r.t = t
		p.nurse = p.healTalk
		p.heal(t)
		p.verify(t)
	})
}

func (p *talk) update(t *rapid.T) {
	a, token := p.key(t), p.token("update")
	if rapid.IntRange(0, 3).Draw(t, "by another process") == 0 {
		p.posted[token] = p.r.post(model.Message{Kind: model.MessageUpdate, To: a, Name: "u"}, token)
	}
	p.updates[token] = a
	p.r.update(a, token, token)
	if rapid.Bool().Draw(t, "again") {
		if rapid.Bool().Draw(t, "between") {
			p.commit(t)
		}
		p.updates[token+" again"] = a
		p.r.update(a, token, token+" again")
	}
}

func (p *talk) query(t *rapid.T) {
	a, token := p.key(t), p.token("query")
	if rapid.IntRange(0, 2).Draw(t, "by another process") == 0 {
		p.posted[token] = p.r.post(model.Message{Kind: model.MessageQuery, To: a, Name: "q"}, token)
		return
	}
	p.queries[token] = a
	p.r.query(a, token)
}

// answer lets a worker answer its queries and updates.
func (p *talk) answer(t *rapid.T) {
	if len(p.r.recalls) > 0 && rapid.Bool().Draw(t, "of a run that has ended") {
		p.r.recall("asked")
		return
	}
	asked := slices.DeleteFunc(slices.SortedFunc(maps.Keys(p.r.held), model.RunID.Compare), func(run model.RunID) bool { return len(p.r.held[run].asked) == 0 })
	if len(asked) > 0 {
		p.r.reply(p.r.held[rapid.SampledFrom(asked).Draw(t, "run")].start.Address, "asked")
	}
}

func (p *talk) order(t *rapid.T) {
	a := p.key(t)
	k := rapid.SampledFrom([]model.MessageKind{
		model.MessagePause, model.MessagePause, model.MessagePause, model.MessageResume, model.MessageResume, model.MessageTerminate,
	}).Draw(t, "order")
	if k == model.MessageTerminate {
		p.terminated[a] = true
	}
	token := p.token(k.String())
	p.r.send(model.Message{Kind: k, To: a, RequestID: token}, token)
}

func (p *talk) forget(t *rapid.T) {
	all := slices.Sorted(maps.Keys(p.updates))
	all = append(all, slices.Sorted(maps.Keys(p.queries))...)
	if len(all) == 0 {
		return
	}
	token := rapid.SampledFrom(all).Draw(t, "who")
	p.gone[token] = true
	a, ok := p.updates[token]
	if !ok {
		a = p.queries[token]
	}
	p.r.l.Forget(a, token)
}

// hear lets workers that wait for an outcome report the events that they have seen since. Real
// workers must do this too.
func (p *talk) hear() {
	for _, run := range slices.SortedFunc(maps.Keys(p.r.held), model.RunID.Compare) {
		h := p.r.held[run]
		if h == nil {
			continue
		}
		if n := len(h.events); p.hasOutstanding(h) && p.seen[h.gen] < n {
			p.seen[h.gen] = n
			p.r.l.Turn(p.r.now, h.worker, &model.Turn{Run: run, Generation: h.gen, Seen: int64(n), Waits: []model.Reason{{Code: model.WaitStep}}})
			p.r.take()
		}
	}
}

// healTalk resumes paused runs and lets workers answer.
func (p *talk) healTalk() {
	r := p.r
	p.hear()
	r.settle()

	for len(r.recalls) > 0 {
		r.recall("asked")
		r.settle()
	}

	for _, a := range p.keys {
		row := r.current(a)
		if row == nil || row.Outcome.Status.Closed() {
			continue
		}
		if paused(r.history(a, row.Start.Run)) {
			r.send(model.Message{Kind: model.MessageResume, To: a}, p.token("resume"))
			r.settle()
		}
		if w := r.holder(a); w != lane.WorkerID(0) {
			r.reply(a, "asked")
			r.settle()
		}
	}
}

func (p *talk) verify(t *rapid.T) {
	r := p.r
	for token, a := range p.updates {
		id := token
		if len(id) > 6 && id[len(id)-6:] == " again" {
			id = id[:len(id)-6]
		}
		ans, answered := r.answers[token]
		n := 0

		if row := r.current(a); row != nil {
			h := r.history(a, row.Start.Run)
			for _, e := range h {
				if e.Kind == model.EventUpdateAnswered && h[e.Ref-1].RequestID == id {
					n++
				}
			}
		}

		switch {
		case !answered && !p.gone[token]:
			t.Fatalf("%s was never answered", token)
		case n > 1:
			t.Fatalf("%s was answered by the code %d times", token, n)
		case answered && ans.Err == nil && (n != 1 || string(ans.Answer.Output.Data) != "to "+id):
			t.Fatalf("%s is told %q, and is answered in the history %d times", token, ans.Answer.Output.Data, n)
		}
	}

	for token := range p.queries {
		if _, answered := r.answers[token]; !answered && !p.gone[token] {
			t.Fatalf("%s was never answered", token)
		}
	}

	for token, k := range p.posted {
		if r.rememberedAnswer(k) == nil {
			t.Fatalf("%s of another process was never answered", token)
		}
	}

	if n := r.inboxCount(); n != 0 {
		t.Fatalf("%d requests are left in the inbox", n)
	}
	if n, w, q := r.l.Entries(), r.l.Waiters(), r.l.Queries(); n+w+q > 0 {
		t.Fatalf("%d entries, %d waiters, %d queries are left:\n%s", n, w, q, r.l)
	}
}
