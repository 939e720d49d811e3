package replay_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/replay"
)

// memory is a session that commits every turn immediately.
type memory struct {
	w    *replay.Worker
	mu   sync.Mutex
	runs map[model.RunID]*memoryRun
}

type memoryRun struct {
	events []model.Event
	closed chan *model.Close
}

func newMemory(code replay.Code) *memory {
	s := &memory{runs: map[model.RunID]*memoryRun{}}
	s.w = replay.NewWorker(replay.Config{Code: map[string]replay.Code{"wf": code}})
	s.w.Serve(s)
	return s
}

func (s *memory) Report(_ context.Context, t model.Turn) error {
	s.mu.Lock()
	r := s.runs[t.Run]
	from := len(r.events)

	for i := range t.Commands {
		if k := t.Commands[i].Kind; k != model.CommandStartTimer && k != model.CommandStopTimer {
			e := t.Commands[i].Event
			e.Seq = int64(len(r.events) + 1)
			r.events = append(r.events, e)
		}
	}

	news := r.events[from:len(r.events):len(r.events)]
	s.mu.Unlock()
	if t.Close != nil {
		s.w.Evict(t.Run, t.Generation, "closed")
		r.closed <- t.Close
		return nil
	}

	if len(news) > 0 {
		s.w.Deliver(t.Run, t.Generation, news)
	}
	return nil
}

func (s *memory) Release(model.RunID, uint64, int64, []model.Reason) {}
func (s *memory) Leave(context.Context) error                        { return nil }

// Answer is part of the session.
//
//arch:parameters the signature of api.Session
func (s *memory) Answer(model.RunID, uint64, uint64, model.Payload, *model.Failure) {}

func (s *memory) start(n int, events []model.Event) *memoryRun {
	r := &memoryRun{closed: make(chan *model.Close, 1), events: events}
	id := model.RunID{byte(n), byte(n >> 8), byte(n >> 16), byte(n >> 24)}
	s.mu.Lock()
	s.runs[id] = r
	s.mu.Unlock()
	s.w.Activate(&api.Activation{Start: &model.Start{Address: model.Address{Type: "wf"}, Run: id, At: 1}, Generation: 1, Events: events, Now: 1})
	return r
}

func (s *memory) run(n int) *model.Close {
	c := <-s.start(n, nil).closed
	s.mu.Lock()
	delete(s.runs, model.RunID{byte(n), byte(n >> 8), byte(n >> 16), byte(n >> 24)})
	s.mu.Unlock()
	return c
}

func stepOf(name string) *replay.Step {
	return &replay.Step{Name: name, Input: &replay.StepInput{Payload: payload(`{"order":"o-1","amount":12}`)}, Body: func(context.Context) (model.Payload, error) {
		return payload(`{"receipt":"r"}`), nil
	}}
}

// per is how many steps each measured workflow makes.
const per = 100

// chargeWorkflow is a workflow that makes this many steps, one after the other.
func chargeWorkflow(x replay.Ctx, _ model.Payload) (model.Payload, error) {
	for range per {
		if _, err := x.Step(stepOf("charge")); err != nil {
			return model.Payload{}, err
		}
	}
	return model.Payload{}, nil
}

// measure runs workflows until b.N steps are made.
func (s *memory) measure(b *testing.B, run func(n int)) {
	b.ReportAllocs()
	b.ResetTimer()
	n := 0
	for i := 0; i < b.N; i += per {
		n++
		run(n)
	}
	if err := s.w.Close(b.Context()); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkStep measures one live step of a workflow that does nothing else.
func BenchmarkStep(b *testing.B) {
	s := newMemory(chargeWorkflow)
	s.measure(b, func(n int) { s.run(n) })
}

// BenchmarkParkedStep measures one live step while another coroutine exists: its body runs on
// another goroutine, and the coroutine parks.
func BenchmarkParkedStep(b *testing.B) {
	s := newMemory(func(x replay.Ctx, in model.Payload) (model.Payload, error) {
		x.Go(func(y replay.Ctx) (any, error) { return nil, y.Get(y.Next("never")) })
		return chargeWorkflow(x, in)
	})
	s.measure(b, func(n int) { s.run(n) })
}

// BenchmarkReplay measures one replayed step.
func BenchmarkReplay(b *testing.B) {
	s := newMemory(chargeWorkflow)
	r := s.start(0, nil)
	<-r.closed
	s.measure(b, func(n int) { <-s.start(n, r.events).closed })
}

// BenchmarkFanOut measures a workflow of a thousand parallel steps.
func BenchmarkFanOut(b *testing.B) {
	for _, kind := range []string{"futures", "coroutines"} {
		b.Run(kind, func(b *testing.B) {
			s := newMemory(func(x replay.Ctx, _ model.Payload) (model.Payload, error) {
				fs := make([]*replay.Future, 1000)
				for i := range fs {
					st := stepOf("charge")
					st.Input = &replay.StepInput{Payload: payload(fmt.Sprint(i))}
					if kind == "futures" {
						fs[i] = x.StepFuture(st)
					} else {
						fs[i] = x.Go(func(y replay.Ctx) (any, error) { return y.Step(st) })
					}
				}
				return model.Payload{}, x.All(fs)
			})

			b.ReportAllocs()
			for i := range b.N {
				s.run(i)
			}
			if err := s.w.Close(b.Context()); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// BenchmarkLoadPark measures a run that is activated, parks, and is evicted.
func BenchmarkLoadPark(b *testing.B) {
	parked := make(chan struct{}, 1)
	s := newMemory(func(x replay.Ctx, _ model.Payload) (model.Payload, error) {
		parked <- struct{}{}
		return model.Payload{}, x.Get(x.Next("never"))
	})
	b.ReportAllocs()
	for i := range b.N {
		s.start(i, nil)
		<-parked
		s.w.Evict(model.RunID{byte(i), byte(i >> 8), byte(i >> 16), byte(i >> 24)}, 1, "")
	}
	if err := s.w.Close(b.Context()); err != nil {
		b.Fatal(err)
	}
}
