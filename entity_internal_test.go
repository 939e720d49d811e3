package perdure

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/singleton"
	"github.com/perdure/perdure/payload"
)

// desk is a backend that hands calls to the worker that joined last, and remembers the requests
// that it receives.
type desk struct {
	api.Backend
	worker  api.EntityWorker
	offer   model.EntityOffer
	refuse  error // the error of every join
	reports chan model.Operated

	mu    sync.Mutex
	calls []api.CallRequest
	order []string // the order in which sessions were left
}

func newDesk() *desk { return &desk{reports: make(chan model.Operated, 10)} }

type seat struct {
	api.Session
	desk *desk
	name string
}

func (s seat) FinishCalls(_ context.Context, r model.Operated) error {
	s.desk.reports <- r
	return nil
}

func (s seat) Leave(context.Context) error {
	s.desk.mu.Lock()
	defer s.desk.mu.Unlock()
	s.desk.order = append(s.desk.order, s.name)
	return nil
}

func (s seat) Lose(func() []uint64) {}

func (d *desk) JoinEntities(_ context.Context, w api.EntityWorker, offer model.EntityOffer) (api.EntitySession, error) {
	d.worker, d.offer = w, offer
	return seat{desk: d, name: "entities"}, d.refuse
}

func (d *desk) Join(context.Context, api.Worker, api.Offer) (api.Session, error) {
	return seat{desk: d, name: "workflows"}, nil
}

func (d *desk) Call(_ context.Context, r api.CallRequest) (model.Payload, error) {
	d.calls = append(d.calls, r)
	return model.Payload{Data: []byte("7")}, nil
}

func (d *desk) Cluster() string                               { return "" }
func (d *desk) Deliver(context.Context, *model.Message) error { return nil }
func (d *desk) Reach(context.Context) error                   { return nil }
func (d *desk) RequestRetention() time.Duration               { return time.Hour }
func (d *desk) Inbox() (api.Inbox, bool)                      { return api.Inbox{}, false }
func (d *desk) Hint(model.ShardID)                            {}
func (d *desk) DeadLetters(context.Context, string, model.RunID, int) ([]api.DeadLetter, error) {
	return nil, nil
}

// Compose refuses a signal with the name "refused".
func (d *desk) Compose(r api.Request) (model.Message, error) {
	switch r := r.(type) {
	case *api.StartRequest:
		m := model.Message{Kind: model.MessageStart, To: r.Address, Input: r.Input, Reuse: r.Reuse, RequestID: r.RequestID, Labels: r.Labels, Task: r.Task}
		for _, w := range r.With {
			m.With = append(m.With, model.Event{Name: w.Name, Input: w.Input})
		}
		return m, nil
	case *api.SignalRequest:
		if r.Name == "refused" {
			return model.Message{}, fault.New(fault.Invalid, "refused")
		}
		return model.Message{Kind: model.MessageSignal, To: r.Target.Address, Name: r.Name, Input: r.Input, RequestID: r.RequestID}, nil
	case *api.SettleRequest:
		return model.Message{Kind: model.MessageSettle, To: r.Target.Address, Name: r.Name, Input: r.Value, Failure: r.Failure}, nil
	case *api.CancelRequest:
		return model.Message{Kind: model.MessageCancel, To: r.Target.Address, Failure: &model.Failure{Message: r.Reason}}, nil
	case *api.CallRequest:
		return model.Message{Kind: model.MessageCall, To: r.Address, Name: r.Name, Input: r.Input, RequestID: r.RequestID, OneWay: r.OneWay, Brief: r.Brief}, nil
	}

	return model.Message{}, fault.New(fault.Internal, "what is %T", r)
}

// openAtDesk opens an app at a desk.
func openAtDesk(t *testing.T, d *desk, cfg attachment, defs ...Definition) *App {
	t.Helper()
	cfg.Backend, cfg.Tenant = d, model.DefaultTenant
	app, err := attach(t.Context(), cfg, defs...)
	if err != nil {
		t.Fatal(err)
	}
	return app
}

// runCall runs a call and returns the report.
func (d *desk) runCall(state model.Payload, name string, in model.Payload) model.Operated {
	d.worker.Operate(model.Operations{
		Entity: model.Address{Tenant: model.DefaultTenant, Type: "entity:box", Key: "k"}, State: state, Exists: len(state.Data) > 0,
		Calls: []model.OperationCall{{Name: name, Input: in, Trace: "trace"}},
	})
	return <-d.reports
}

type box struct{ Text string }

func text(s string) model.Payload { return model.Payload{Data: []byte(s)} }

func TestEntityCtxSends(t *testing.T) {
	t.Parallel()
	boxes := NewEntity[box]("box")
	other := DeclareOperation[int, int]("other", "add")
	rpc := DeclareRPC[string, string]("service", "do") // not Persisted
	wf := DeclareWorkflow[string, string]("wf")
	act := DeclareActivity[string, string]("act")
	sig, promise := NewSignal[int]("sig"), NewPromise[string]("promise")
	var refused error

	NewOperation(boxes, "send", func(ctx EntityCtx, _ *box, _ Void) (Void, error) {
		run, err := wf.Start(ctx, "in", RawKey("run"), sig.With(1), Labels(map[string]string{"a": "b"}), ReuseAlways)
		_, submitted := act.Submit(ctx, "task", RawKey("task"))
		refused = NewSignal[int]("refused").Send(ctx, run, 1)
		return Void{}, errors.Join(
			err, submitted, sig.Send(ctx, run, 2, RequestID("r")), promise.Resolve(ctx, run, "kept"), promise.Reject(ctx, run, errors.New("broken")), run.Cancel(ctx, "why"),
			other.Send(ctx, "o", 3, RequestID("q")), rpc.Send(ctx, "s", "best effort"),
		)
	})

	d := newDesk()
	app := openAtDesk(t, d, attachment{}, boxes)
	r := d.runCall(model.Payload{}, "send", model.Payload{})
	if f := r.Results[0].Failure; f != nil {
		t.Fatal(f)
	}
	if !errors.Is(refused, ErrInvalid) {
		t.Errorf("the refusal is %v", refused)
	}
	address := func(typ, key string) model.Address {
		return model.Address{Tenant: model.DefaultTenant, Type: typ, Key: key}
	}
	run := address("wf", "run")

	want := []model.Message{
		{Kind: model.MessageStart, To: run, Input: text(`"in"`), With: []model.Event{{Name: "sig", Input: text("1")}}, Reuse: model.ReuseAlways, Labels: []model.Label{{Name: "a", Value: "b"}}},
		{Kind: model.MessageStart, To: address("task:act", "task"), Input: text(`"task"`), Task: &model.TaskSpec{Kind: "act", Queue: DefaultQueue}},
		{Kind: model.MessageSignal, To: run, Name: "sig", Input: text("2"), RequestID: "r"},
		{Kind: model.MessageSettle, To: run, Name: "promise", Input: text(`"kept"`)},
		{Kind: model.MessageSettle, To: run, Name: "promise", Failure: &model.Failure{Type: "*errors.errorString", Message: "broken"}},
		{Kind: model.MessageCancel, To: run, Failure: &model.Failure{Message: "why"}},
		{Kind: model.MessageCall, To: address("entity:other", "o"), Name: "add", Input: text("3"), RequestID: "q", OneWay: true},
		{Kind: model.MessageCall, To: address("service:service", "s"), Name: "do", Input: text(`"best effort"`), OneWay: true},
	}
	for i := range want {
		want[i].Keep, want[i].Trace = true, "trace"
	}
	if diff := cmp.Diff(want, r.Results[0].Messages); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if err := app.Close(); err != nil {
		t.Error(err)
	}
}

// The offer lists the entities that the program defines. On Close, the worker of entities leaves
// after the worker of workflows.
func TestEntitiesJoinAndLeave(t *testing.T) {
	t.Parallel()
	boxes := NewEntity[box]("box", MailboxSize(5))
	NewOperation(boxes, "put", func(_ EntityCtx, b *box, s string) (Void, error) { b.Text = s; return Void{}, nil })
	NewView(boxes, "see", func(b box, _ Void) (string, error) { return b.Text, nil })
	NewView(boxes, "look", func(b box, _ Void) (string, error) { return b.Text, nil })
	calm := NewService("calm", Concurrency(3), MaxIdle(time.Minute))
	NewRPC(calm, "do", func(EntityCtx, Void) (Void, error) { return Void{}, nil })
	d := newDesk()
	app := openAtDesk(t, d, attachment{}, boxes, calm)
	want := []model.EntityType{
		singleton.Offer(), // every app keeps the registers of singletons
		{Type: "entity:box", Concurrency: 1, Views: []string{"look", "see"}, Mailbox: 5},
		{Type: "service:calm", Concurrency: 3, Idle: time.Minute},
	}
	if diff := cmp.Diff(want, d.offer.Types); diff != "" {
		t.Error(diff)
	}
	if err := app.Close(); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"workflows", "entities"}, d.order); diff != "" {
		t.Error(diff)
	}
}

func TestEntitiesMayNotJoin(t *testing.T) {
	t.Parallel()
	boxes := NewEntity[box]("box")
	NewOperation(boxes, "put", func(EntityCtx, *box, string) (Void, error) { return Void{}, nil })
	d := newDesk()
	d.refuse = fault.New(fault.Denied, "no")
	if _, err := attach(t.Context(), attachment{Backend: d, Tenant: model.DefaultTenant}, boxes); err == nil || !strings.Contains(err.Error(), "serve entity:box: no") {
		t.Errorf("the error is %v", err)
	}
}

// Every verb of a client sends the right request.
func TestCallsOfAClient(t *testing.T) {
	t.Parallel()
	boxes, calm := NewEntity[box]("box"), NewService("calm")
	put := NewOperation(boxes, "put", func(EntityCtx, *box, string) (int, error) { return 0, nil })
	see := NewView(boxes, "see", func(box, string) (int, error) { return 0, nil })
	do := NewRPC(calm, "do", func(EntityCtx, string) (int, error) { return 0, nil })
	keep := NewRPC(calm, "keep", func(EntityCtx, string) (int, error) { return 0, nil }, Persisted())
	d := newDesk()
	app := openAtDesk(t, d, attachment{}, boxes, calm)

	c := app.With(t.Context())
	for _, call := range []func() (int, error){
		func() (int, error) { return put.Call(c, "k", "a", RequestID("r")) },
		func() (int, error) { return see.Call(c, "k", "b") },
		func() (int, error) { return do.Call(c, "k", "c") },
		func() (int, error) { return keep.Call(c, "k", "d") },
		func() (int, error) { return 7, put.Send(c, "k", "e") },
		func() (int, error) { return 7, do.Send(c, "k", "f") },
	} {
		if n, err := call(); n != 7 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	}

	k, s := model.Address{Tenant: model.DefaultTenant, Type: "entity:box", Key: "k"}, model.Address{Tenant: model.DefaultTenant, Type: "service:calm", Key: "k"}
	want := []api.CallRequest{
		{Address: k, Name: "put", Input: text(`"a"`), RequestID: "r"},
		{Address: k, Name: "see", Input: text(`"b"`), Brief: true, View: true},
		{Address: s, Name: "do", Input: text(`"c"`), Brief: true},
		{Address: s, Name: "keep", Input: text(`"d"`)},
		{Address: k, Name: "put", Input: text(`"e"`), OneWay: true},
		{Address: s, Name: "do", Input: text(`"f"`), OneWay: true, Brief: true},
	}
	if diff := cmp.Diff(want, d.calls); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}

	for name, err := range map[string]error{
		"the key of entity box is empty":      put.Send(c, "", "x"),
		"contains a control character":        put.Send(c, "a\nb", "x"),
		"the name of operation is empty":      DeclareOperation[int, int]("box", "").Send(c, "k", 1),
		"the name of entity is empty":         DeclareOperation[int, int]("", "put").Send(c, "k", 1),
		"operation put has no entity":         NewOperation((*Entity[box])(nil), "put", func(EntityCtx, *box, int) (int, error) { return 0, nil }).Send(c, "k", 1),
		"input of RPC f cannot be encoded":    DeclareRPC[func(), int]("calm", "f").Send(c, "k", nil),
		"the name of service \"a/b\" contain": DeclareRPC[int, int]("a/b", "f").Send(c, "k", 1),
	} {
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), name) {
			t.Errorf("%v, want %s", err, name)
		}
	}

	if err := app.Close(); err != nil {
		t.Error(err)
	}
}

// States, inputs, outputs and messages have the stored form that the payload settings demand.
func TestEntityPayloads(t *testing.T) {
	t.Parallel()
	boxes := NewEntity[box]("box")
	other := DeclareOperation[string, int]("other", "add")

	NewOperation(boxes, "put", func(ctx EntityCtx, b *box, s string) (string, error) {
		was := b.Text
		b.Text = s
		return was, other.Send(ctx, "o", s)
	})

	d := newDesk()
	app := openAtDesk(t, d, attachment{Payloads: payload.Codec{Format: payload.Msgpack}}, boxes)
	h := app.host

	stored := func(v any) model.Payload {
		p, err := h.codec.Marshal(v)
		if err == nil {
			p, err = h.seal(t.Context(), brief, "", "", p)
		}
		if err != nil {
			t.Fatal(err)
		}
		return p
	}

	r := d.runCall(stored(box{"old"}), "put", stored("new"))
	if f := r.Results[0].Failure; f != nil {
		t.Fatal(f)
	}
	if diff := cmp.Diff([]model.Payload{stored("old"), stored("new"), stored(box{"new"})}, []model.Payload{r.Results[0].Output, r.Results[0].Messages[0].Input, r.State}); diff != "" {
		t.Error(diff)
	}
	if err := app.Close(); err != nil {
		t.Error(err)
	}
}

// An operation changes a state only if the content differs. The same content has different bytes
// when it is encrypted a second time.
func TestEncryptedStateThatStays(t *testing.T) {
	t.Parallel()
	boxes := NewEntity[box]("box")
	NewOperation(boxes, "put", func(_ EntityCtx, b *box, s string) (Void, error) {
		b.Text = s
		return Void{}, nil
	})

	keys, err := payload.NewKeys("k", map[string][]byte{"k": bytes.Repeat([]byte{1}, 32)}, bytes.Repeat([]byte{2}, 32))
	if err != nil {
		t.Fatal(err)
	}
	d := newDesk()
	app := openAtDesk(t, d, attachment{Payloads: payload.Codec{Chain: []payload.Transform{payload.Encrypt(keys)}}}, boxes)
	first := d.runCall(model.Payload{}, "put", text(`"a"`))
	if !first.Changed || bytes.Contains(first.State.Data, []byte("a")) && first.State.Encoding == model.JSON {
		t.Fatalf("the first state is %+v", first)
	}

	if r := d.runCall(first.State, "put", text(`"a"`)); r.Changed || r.Results[0].Failure != nil {
		t.Errorf("the same state counts as another one: %+v", r)
	}
	if r := d.runCall(first.State, "put", text(`"b"`)); !r.Changed || r.Results[0].Failure != nil {
		t.Errorf("another state counts as the same: %+v", r)
	}
	if err := app.Close(); err != nil {
		t.Error(err)
	}
}
