package service_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/service"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/memory"
)

const shards = 4

// shelf is a store with executions, and a service that only reads that store.
type shelf struct {
	t     *testing.T
	st    *memory.Store
	svc   *service.Service
	ref   store.LaneRef
	batch int64
	runs  int
	now   model.Time
}

const begin = model.Time(1_700_000_000_000_000)

func newShelf(t *testing.T) *shelf {
	t.Helper()
	f := &shelf{t: t, now: begin}
	f.st = memory.New(memory.Options{Shards: shards, Now: func() time.Time { return f.now.Std() }})
	f.svc = service.New(nil, f.st, service.Limits{})
	id := model.NodeID{15: 1}
	reg, err := f.st.Register(t.Context(), store.NodeInfo{ID: id}, 1, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	f.ref = store.LaneRef{Node: id, Epoch: reg.Epoch}
	if _, err := f.st.Acquire(t.Context(), id, reg.Epoch, []model.ShardID{0, 1, 2, 3}); err != nil {
		t.Fatal(err)
	}
	f.serve(f.ref, "order")
	return f
}

func order(k string) model.Address { return model.Address{Tenant: "default", Type: "order", Key: k} }

func (f *shelf) commit(b store.Batch) {
	f.t.Helper()
	f.batch++
	b.Lane, b.Number, b.At = f.ref, f.batch, f.now
	if _, err := f.st.Commit(f.t.Context(), &b); err != nil {
		f.t.Fatal(err)
	}
}

// put stores a run with carried signals and the given number of stored events.
func (f *shelf) put(a model.Address, carried, events int, change ...func(*model.Start)) store.RunKey {
	f.t.Helper()
	f.runs++
	f.now += 1_000_000
	start := model.Start{Address: a, Run: model.RunID{0: 1, 14: byte(f.runs >> 8), 15: byte(f.runs)}, At: f.now, Input: model.Payload{Data: []byte("in")}}
	for i := range carried {
		start.Carried = append(start.Carried, model.Event{Seq: int64(i + 1), At: f.now, Kind: model.EventSignalReceived, Name: fmt.Sprint("s", i+1)})
	}
	for _, c := range change {
		c(&start)
	}
	key := store.RunKey{Shard: a.Shard(shards), Run: start.Run}
	f.commit(store.Batch{Starts: []store.StartRow{{Shard: key.Shard, Start: start, Replaces: f.current(a)}}})

	var b store.Batch
	for i := range events {
		seq := int64(carried + i + 1)
		b.Events = append(b.Events, store.EventRow{RunKey: key, Event: model.Event{Seq: seq, At: f.now, Kind: model.EventStepCompleted, ID: fmt.Sprint(seq)}})
	}

	if events > 0 {
		f.commit(b)
	}
	return key
}

func (f *shelf) current(a model.Address) model.RunID {
	f.t.Helper()
	row, err := f.st.LoadExecution(f.t.Context(), a.Shard(shards), a, model.RunID{})
	if err != nil {
		f.t.Fatal(err)
	}
	if row == nil {
		return model.RunID{}
	}
	return row.Start.Run
}

func (f *shelf) close(key store.RunKey, status model.Status) {
	f.t.Helper()
	f.commit(store.Batch{Closes: []store.CloseRow{{RunKey: key, Outcome: model.Outcome{
		Status: status, At: f.now, Seen: 3, Output: model.Payload{Data: []byte("out")},
	}}}})
}

// live is a service with a running engine.
func live(t *testing.T, limits service.Limits) *service.Service {
	t.Helper()
	return run(t, engine.Config{Store: memory.New(memory.Options{Shards: shards})}, limits)
}

// run is a service with an engine.
func run(t *testing.T, cfg engine.Config, limits service.Limits) *service.Service {
	t.Helper()
	e := engine.New(cfg)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	if err := e.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	return service.New(e, cfg.Store, limits)
}

func wantKind(t *testing.T, what string, err error, want fault.Kind) {
	t.Helper()
	if got := fault.KindOf(err); got != want {
		t.Errorf("%s: %s (%v), want %s", what, got, err, want)
	}
}
