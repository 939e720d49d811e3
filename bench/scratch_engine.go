package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/perdure/perdure/internal/bench"
	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/postgres"
	"github.com/perdure/perdure/internal/store/sqlite"
)

type engineSystem struct {
	store  store.Store
	engine *engine.Engine
	stop   func()
	done   chan error
	w      *stepper
}

type stepper struct {
	session *engine.Session
	body    func(int)
	mu      sync.Mutex
	n       map[model.RunID]int
}

func (w *stepper) Activate(a model.Activation) {
	n := 3
	if a.Start.Address.Type == "chain" {
		fmt.Sscan(string(a.Start.Input.Data), &n)
		w.mu.Lock()
		w.n[a.Start.Run] = n
		w.mu.Unlock()
	}
	go w.step(a.Start.Run, a.Generation, int64(len(a.Events)), n)
}

func (w *stepper) Deliver(run model.RunID, gen uint64, events []model.Event) {
	w.mu.Lock()
	n := w.n[run]
	w.mu.Unlock()
	if n == 0 {
		n = 3
	}
	go w.step(run, gen, events[len(events)-1].Seq, n)
}
func (w *stepper) Retry(model.RunID, uint64, string)         {}
func (w *stepper) Evict(model.RunID, uint64, string)         {}
func (w *stepper) step(run model.RunID, gen uint64, seen int64, n int) {
	if n != 3 {
		w.body(int(seen))
	}
	t := model.Turn{Run: run, Generation: gen, Seen: seen}
	t.Commands = []model.Command{{Kind: model.CommandRecord, Event: model.Event{Kind: model.EventStepCompleted, ID: fmt.Sprintf("|step|%d", seen+1), Name: "step", Output: model.Payload{Data: []byte("7")}}}}
	if int(seen)+1 == n {
		t.Ahead = 1
		t.Close = &model.Close{Status: model.Completed, Output: model.Payload{Data: []byte(`7`)}}
	}
	_ = w.session.Report(context.Background(), t)
}

func openEngine(ctx context.Context, place bench.Place, body func(int)) (bench.System, error) {
	var st store.Store
	var err error
	if place.Kind == bench.Postgres {
		st, err = postgres.Open(ctx, postgres.Config{URL: place.URL})
	} else {
		st, err = sqlite.Open(ctx, sqlite.Config{Path: place.Path})
	}
	if err != nil {
		return nil, err
	}
	e := engine.New(engine.Config{Store: st, Log: slog.New(slog.DiscardHandler)})
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	s := &engineSystem{store: st, engine: e, stop: stop, done: make(chan error, 1)}
	go func() { s.done <- e.Run(run) }()
	if err := e.Ready(ctx); err != nil {
		return nil, err
	}
	s.w = &stepper{body: body, n: map[model.RunID]int{}}
	s.w.session = e.Join(s.w, model.Offer{Tenant: model.DefaultTenant, Workflows: []string{"three", "chain"}})
	return s, nil
}

func (s *engineSystem) run(ctx context.Context, kind, key, in string) error {
	m := &model.Message{Kind: model.MessageStart, To: model.Address{Tenant: model.DefaultTenant, Type: kind, Key: key}, Input: model.Payload{Data: []byte(in)}}
	if _, err := s.engine.Send(ctx, m); err != nil {
		return err
	}
	_, err := s.engine.Await(ctx, m.To, model.RunID{})
	return err
}
func (s *engineSystem) Three(ctx context.Context, key string) error { return s.run(ctx, "three", key, "7") }
func (s *engineSystem) Chain(ctx context.Context, key string, n int) error {
	return s.run(ctx, "chain", key, fmt.Sprint(n))
}
func (s *engineSystem) FanOut(ctx context.Context, key string, n int) error { return errors.New("no") }
func (s *engineSystem) StartSleep(ctx context.Context, key string, d time.Duration) error {
	return errors.New("no")
}
func (s *engineSystem) Close() error { s.stop(); return errors.Join(<-s.done, s.store.Close()) }
