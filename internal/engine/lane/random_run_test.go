package lane_test

import (
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/perdure/perdure/internal/model"
)

// TestRandomRuns is TestRandomLife with callers that start a run and wait for its end in one
// request, with every policy. Some of them give up. Each of the others gets one answer: the end of
// the chain of runs that its own start began. In the end the lane has no waiter left.
func TestRandomRuns(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := newLife(t)
		asked, gone := map[string]model.Message{}, map[string]bool{}
		run := func(t *rapid.T) {
			a, token := p.key(t), p.token("run")
			p.started[a] = true
			m := model.Message{Kind: model.MessageStart, To: a, Reuse: rapid.SampledFrom([]model.ReusePolicy{
				model.ReturnExisting, model.ReuseAlways, model.ReuseIfFailed,
			}).Draw(t, "reuse")}
			if m.Reuse != model.ReturnExisting {
				m.RequestID = token
			}
			fresh := rapid.Bool().Draw(t, "fresh")
			asked[token] = m
			p.r.l.Run(p.r.now, &m, fresh, token)
			p.r.take()

			if m.RequestID != "" && rapid.IntRange(0, 2).Draw(t, "again") == 0 {
				m := m
				asked[token+" again"] = m
				p.r.l.Run(p.r.now, &m, false, token+" again")
				p.r.take()
			}
		}

		forget := func(t *rapid.T) {
			all := slices.Sorted(maps.Keys(asked))
			if len(all) == 0 {
				return
			}
			token := rapid.SampledFrom(all).Draw(t, "who")
			gone[token] = true
			p.r.l.Forget(asked[token].To, token)
		}

		actions := map[string]func(*rapid.T){
			"": func(t *rapid.T) { p.r.t = t }, "start": p.start, "run": run, "run 2": run, "run 3": run, "forget": forget,
			"work": p.work, "work 2": p.work, "work 3": p.work, "work 4": p.work, "release": p.release, "flush": func(*rapid.T) { p.r.flush() },
			"commit": p.commit, "commit 2": p.commit, "commit 3": p.commit, "refence": p.refence, "read": p.read, "read 2": p.read,
			"worker": p.worker, "shard": p.shard, "sickness": p.sickness, "slowness": p.slowness, "time": p.time,
		}
		for range 4 {
			t.Repeat(actions)
		}
		p.r.t = t
		p.heal(t)

		for token, m := range asked {
			ans, ok := p.r.answers[token]
			switch {
			case !ok && !gone[token]:
				t.Fatalf("%s was never answered", token)
			case ans.Result == nil:
			case m.RequestID != "" && p.r.row(ans.Result.Run).Start.RequestID != m.RequestID:
				t.Fatalf("%s hears of a run that %s began", token, p.r.row(ans.Result.Run).Start.RequestID)
			}
		}

		if n := p.r.l.Waiters(); n != 0 {
			t.Fatalf("the lane keeps waiters of %d addresses without a caller", n)
		}
	})
}
