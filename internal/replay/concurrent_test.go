package replay_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/replay"
)

// busy is an engine with its own goroutines. For each run, one goroutine commits turns, and another
// sends signals at the same time. It is for tests with the race detector on the real scheduler. The
// other tests simulate the schedule.
type busy struct {
	w    *replay.Worker
	mu   sync.Mutex
	runs map[model.RunID]*busyRun
}

type busyRun struct {
	e      *engine // for its bookkeeping; its Report is not used
	turns  chan model.Turn
	closed chan struct{}
}

func (b *busy) Report(ctx context.Context, t model.Turn) error {
	b.mu.Lock()
	r := b.runs[t.Run]
	b.mu.Unlock()
	select {
	case r.turns <- t:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (b *busy) Release(model.RunID, uint64, int64, []model.Reason) {}

// Answer is part of the session.
//
//arch:parameters the signature of api.Session
func (b *busy) Answer(model.RunID, uint64, uint64, model.Payload, *model.Failure) {}

func (b *busy) Leave(context.Context) error { return nil }

// commit applies turns one after the other, mixed with signals, and delivers what they record.
func (b *busy) commit(r *busyRun, id model.RunID, random *rand.Rand) {
	signals := 20
	news := time.NewTicker(200 * time.Microsecond)
	defer news.Stop()

	for {
		var t *model.Turn
		select {
		case turn := <-r.turns:
			t = &turn
		case <-news.C:
		}

		r.e.mu.Lock()
		from := len(r.e.events)
		if t != nil {
			r.e.commit(t)
		} else if signals > 0 && random.IntN(2) == 0 {
			signals--
			r.e.append(model.Event{Kind: model.EventSignalReceived, Name: fmt.Sprintf("s%d", signals%2), Input: payload("x")})
		}

		events := slices.Clone(r.e.events[from:])
		ended := r.e.end != nil || r.e.blocked != nil
		r.e.mu.Unlock()

		if ended {
			b.w.Evict(id, 1, "closed")
			close(r.closed)
			return
		}

		if len(events) > 0 {
			b.w.Deliver(id, 1, events)
		}
		if random.IntN(4) == 0 {
			runtime.Gosched()
		}
	}
}

// TestManyRunsAtOnce runs the same programs many times on the real scheduler, and replays each
// result.
func TestManyRunsAtOnce(t *testing.T) {
	t.Parallel()
	programs := [][]op{
		{{Kind: "step"}, {Kind: "try"}, {Kind: "step"}, {Kind: "now"}, {Kind: "try", N: 1}, {Kind: "step"}},
		{{Kind: "par", M: 3, Body: []op{{Kind: "step"}, {Kind: "try"}, {Kind: "step"}, {Kind: "now"}}}, {Kind: "step"}},
		{{Kind: "race", N: 9, M: 3}, {Kind: "all", N: 9, M: 3}, {Kind: "step"}, {Kind: "try"}, {Kind: "fails"}},
		{{Kind: "recv"}, {Kind: "step"}, {Kind: "recv", N: 1}, {Kind: "step"}, {Kind: "firstn", N: 1, M: 3}},
	}

	b := &busy{runs: map[model.RunID]*busyRun{}}
	var traces sync.Map
	b.w = replay.NewWorker(replay.Config{Code: map[string]replay.Code{"wf": func(x replay.Ctx, _ model.Payload) (model.Payload, error) {
		_, id := x.Self()
		b.mu.Lock()
		r := b.runs[id]
		b.mu.Unlock()
		p := &interp{e: r.e}
		traces.Store(id, p)
		err := p.run(x, "", programs[id[0]%4])
		p.log("", "end %v", err)
		return payload("end"), err
	}}})

	b.w.Serve(b)
	for n := range 200 {
		r := &busyRun{e: newEngine(nil), turns: make(chan model.Turn, 16), closed: make(chan struct{})}
		r.e.auto, r.e.held, r.e.gen = true, true, 1
		r.e.start.Run = model.RunID{byte(n), byte(n >> 8), 1}
		b.mu.Lock()
		b.runs[r.e.start.Run] = r
		b.mu.Unlock()
		b.w.Activate(&api.Activation{Start: &r.e.start, Generation: 1, Now: r.e.start.At})
		go b.commit(r, r.e.start.Run, rand.New(rand.NewPCG(uint64(n), 1)))
	}

	for id, r := range b.runs {
		<-r.closed
		if r.e.blocked != nil || r.e.err() != nil {
			t.Errorf("run %d: blocked %v, %v", id[0], r.e.blocked, r.e.err())
		}
		for step, n := range r.e.ran {
			if n > 1 {
				t.Errorf("run %d: step %s ran %d times", id[0], step, n)
			}
		}
	}

	if err := b.w.Close(t.Context()); err != nil {
		t.Error(err)
	}

	for id, r := range b.runs {
		live, _ := traces.Load(id)
		synctest.Test(t, func(t *testing.T) {
			s := newSim(programs[id[0]%4], nil, false)
			s.e.events, s.e.end, s.p = r.e.events, r.e.end, live.(*interp)
			if err := s.check(); err != nil {
				t.Errorf("run %d: %v", id[0], err)
			}
		})
	}
}
