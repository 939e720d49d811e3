package remote_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/remote"
)

// lossy is an engine whose answers get lost: a given number of times, the connection breaks after
// the engine has done its work.
type lossy struct {
	api.Backend
	w     *world
	lose  atomic.Int32
	calls atomic.Int32
}

func (l *lossy) lost() {
	l.calls.Add(1)
	if l.lose.Add(-1) >= 0 {
		l.w.pipe.cut()
	}
}

func (l *lossy) Start(ctx context.Context, r api.StartRequest) (api.StartReply, error) {
	defer l.lost()
	return l.Backend.Start(ctx, r)
}

func (l *lossy) Signal(ctx context.Context, r api.SignalRequest) error {
	defer l.lost()
	return l.Backend.Signal(ctx, r)
}

func (l *lossy) Call(ctx context.Context, r api.CallRequest) (model.Payload, error) {
	defer l.lost()
	return l.Backend.Call(ctx, r)
}

func (l *lossy) History(ctx context.Context, r api.HistoryRequest) (api.HistoryPage, error) {
	defer l.lost()
	return l.Backend.History(ctx, r)
}

func (l *lossy) SetBreaker(ctx context.Context, tenant string, b api.Breaker) error {
	defer l.lost()
	return l.Backend.SetBreaker(ctx, tenant, b)
}

// lossyAdmin are the calls of operators of an engine whose answers get lost.
type lossyAdmin struct {
	api.Admin
	l *lossy
}

func (a lossyAdmin) SetTenant(_ context.Context, c api.TenantChange) (api.TenantInfo, error) {
	defer a.l.lost()
	return api.TenantInfo{Name: c.Name}, nil
}

func newLossy(t *testing.T) (*world, *lossy) {
	l := &lossy{}
	w := newWorldBehind(t, func(w *world, b api.Backend) api.Backend { l.w, l.Backend = w, b; return l }, program())
	return w, l
}

// A request whose answer is lost takes effect once, although the client sends it again.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	w, l := newLossy(t)
	ctx := w.ctx

	l.lose.Store(2)
	if r := w.start("a", `"a"`); r.Existing {
		t.Errorf("the execution was there before: %+v", r)
	}
	l.lose.Store(2)
	w.must(w.far.Signal(ctx, api.SignalRequest{Target: target("shop", "a"), Name: "other", Input: text("1")}))
	if got := ok[model.Calls](w)(w.far.Signals(ctx, api.SignalsRequest{Target: target("shop", "a"), Do: model.MailboxList})); got.Total != 1 {
		t.Errorf("%d signals have arrived", got.Total)
	}
	l.lose.Store(2)
	put := api.CallRequest{Address: address("entity:shelf", "s"), Name: "put", Input: text("3")}
	if got := ok[model.Payload](w)(w.far.Call(ctx, put)); string(got.Data) != "3" {
		t.Errorf("the shelf has %s", got.Data)
	}
	l.lose.Store(1)
	look := api.CallRequest{Address: address("entity:shelf", "s"), Name: "look", Input: text("0"), View: true, Brief: true}
	if got := ok[model.Payload](w)(w.far.Call(ctx, look)); string(got.Data) != "3" {
		t.Errorf("a view sees %s", got.Data)
	}
	l.lose.Store(1)
	page := ok[api.HistoryPage](w)(w.far.History(ctx, api.HistoryRequest{Target: target("shop", "a"), After: -1}))
	for i := range page.Events {
		if page.Events[i].Seq != int64(i) {
			t.Fatalf("event %d has position %d", i, page.Events[i].Seq)
		}
	}
	if got := l.calls.Load(); got != 3+1+3+3+2+2 { // the first call of History belongs to the start
		t.Errorf("the engine was asked %d times", got)
	}
}

// The client does not repeat calls that run at most once, and calls that may undo the work of
// another operator.
func TestLostAnswersOfCallsThatAreMadeOnce(t *testing.T) {
	t.Parallel()
	w, l := newLossy(t)
	cfg := w.config()
	cfg.Backend, cfg.Admin = l, lossyAdmin{l: l}
	w.pipe = newPipe(t, cfg)
	w.far = w.dial(remote.Config{Token: key})

	for what, call := range map[string]func() error{
		"a brief call": func() error {
			return second(w.far.Call(w.ctx, api.CallRequest{Address: address("entity:shelf", "s"), Name: "look", Input: text("0"), Brief: true}))
		},
		"a view that answers with a stream": func() error {
			look := api.CallRequest{Address: address("entity:shelf", "s"), Name: "look", Input: text("0").WithStream("s1"), View: true, Brief: true}
			return second(w.far.Call(w.ctx, look))
		},
		"a setting": func() error { return w.far.SetBreaker(w.ctx, tenant, api.Breaker{Name: "bank"}) },
		"a tenant":  func() error { return second(w.far.Admin().SetTenant(w.ctx, api.TenantChange{Name: "acme"})) },
	} {
		l.calls.Store(0)
		l.lose.Store(1)
		if err := call(); !fault.Is(err, fault.Unavailable) {
			t.Errorf("%s: %v", what, err)
		}
		if got := l.calls.Load(); got != 1 {
			t.Errorf("%s: the engine was asked %d times", what, got)
		}
		w.must(w.far.Reach(w.ctx)) // the connection comes back
	}
}

// flaky is an engine that answers that it is not available.
type flaky struct {
	api.Backend
	calls atomic.Int32
}

func (f *flaky) Count(context.Context, api.ListRequest) (int64, error) {
	f.calls.Add(1)
	return 0, fault.WithHint(fault.New(fault.Unavailable, "the store does not answer"), "start it")
}

// If the engine answers that it is not available, the client does not ask again, as in process.
func TestUnavailableEngine(t *testing.T) {
	t.Parallel()
	f := &flaky{}
	w := newWorldBehind(t, func(_ *world, b api.Backend) api.Backend { f.Backend = b; return f })
	_, want := f.Count(w.ctx, api.ListRequest{})
	_, got := w.far.Count(w.ctx, api.ListRequest{Tenant: tenant})
	sameError(t, want, got)
	if n := f.calls.Load(); n != 2 {
		t.Errorf("the engine was asked %d times", n-1)
	}
}

// breaking is an engine that cuts the connection while the client reads a long history.
type breaking struct {
	api.Backend
	w    *world
	page api.HistoryPage
	cuts atomic.Int32
}

func (b *breaking) History(context.Context, api.HistoryRequest) (api.HistoryPage, error) {
	if b.cuts.Add(-1) >= 0 {
		time.AfterFunc(time.Millisecond, b.w.pipe.cut)
	}
	return b.page, nil
}

// A page that breaks off is read again, and has every event once.
func TestStreamThatBreaks(t *testing.T) {
	t.Parallel()
	b := &breaking{page: api.HistoryPage{Run: model.RunID{1}, More: true}}
	for i := range 24 { // 12 MiB, far more than the buffers of a connection
		b.page.Events = append(b.page.Events, model.Event{Seq: int64(i), Kind: model.EventSignalReceived, Input: model.Payload{Data: make([]byte, 1<<19)}})
	}
	w := newWorldBehind(t, func(w *world, engine api.Backend) api.Backend { b.w, b.Backend = w, engine; return b })
	b.cuts.Store(3)
	page := ok[api.HistoryPage](w)(w.far.History(w.ctx, api.HistoryRequest{Target: target("shop", "a"), After: -1}))
	if diff := cmp.Diff(b.page, page); diff != "" {
		t.Errorf("the page differs: %d events, want %d; more %v", len(page.Events), len(b.page.Events), page.More)
	}
}

// watched is an engine that says when a call waits for an execution.
type watched struct {
	api.Backend
	waits chan struct{}
}

func (b *watched) Await(ctx context.Context, t api.Target) (api.Result, error) {
	b.waits <- struct{}{}
	return b.Backend.Await(ctx, t)
}

func newWatched(t *testing.T) (*world, <-chan struct{}) {
	b := &watched{waits: make(chan struct{}, 10)}
	w := newWorldBehind(t, func(_ *world, engine api.Backend) api.Backend { b.Backend = engine; return b }, program())
	return w, b.waits
}

// Calls survive the restart of a server. That holds for calls that wait, and for calls that start
// while there is no server.
func TestServerRestarts(t *testing.T) {
	t.Parallel()
	w, waits := newWatched(t)
	late := w.dial(remote.Config{Token: key, Addresses: []string{"localhost:7801"}})
	w.start("a", `"a"`)

	result := make(chan error, 1)
	go func() {
		r, err := w.far.Await(w.ctx, target("shop", "a"))
		if err == nil && string(r.Outcome.Output.Data) != `"a x y"` {
			err = errors.New(string(r.Outcome.Output.Data))
		}
		result <- err
	}()
	<-waits

	// A graceful stop does not wait for the end of calls that only wait for something.
	w.pipe.stop(w.ctx)
	brief := make(chan error, 1)
	go func() {
		brief <- second(late.Call(w.ctx, api.CallRequest{Address: address("entity:shelf", "s"), Name: "look", Input: text("0"), Brief: true}))
	}()
	w.until("the brief call has found no server", func() bool { return w.pipe.hasRefused("localhost:7801") })
	w.pipe.start()
	w.must(<-brief) // it had not been sent, so the client may send it now
	<-waits

	// A server that dies breaks all connections.
	ended, cancel := context.WithCancel(w.ctx)
	cancel()
	w.pipe.stop(ended)
	w.pipe.start()
	w.must(w.far.Signal(w.ctx, api.SignalRequest{Target: target("shop", "a"), Name: "item", Input: text(`"x"`)}))
	w.must(w.far.Settle(w.ctx, api.SettleRequest{Target: target("shop", "a"), Name: "visa", Value: text(`"y"`)}))
	w.must(<-result)
}

// Without a server, a call ends with its deadline, or with the patience of the client.
func TestNoServer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	impatient := w.dialInHaste(50 * time.Millisecond)
	w.pipe.stop(w.ctx)

	if _, err := impatient.Count(t.Context(), api.ListRequest{Tenant: tenant}); !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "there is no server") {
		t.Errorf("without a deadline: %v (%s)", err, fault.KindOf(err))
	}
	// The error says so only after the first attempt to connect. On a busy machine, a short
	// deadline may pass before that.
	for limit := time.Second; ; limit *= 4 {
		ctx, cancel := context.WithTimeout(w.ctx, limit)
		_, err := w.far.Count(ctx, api.ListRequest{Tenant: tenant})
		cancel()
		if !fault.Is(err, fault.Timeout) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("with a deadline: %v (%s)", err, fault.KindOf(err))
		}
		if err == nil || strings.Contains(err.Error(), "no server could be reached") {
			break
		}
		if limit > time.Minute {
			t.Fatalf("with a deadline after %s: %v", limit, err)
		}
	}
	if _, err := remote.Dial(t.Context(), w.pipe.through(remote.Config{Token: key, Patience: 50 * time.Millisecond})); !fault.Is(err, fault.Unavailable) {
		t.Errorf("dial: %v", err)
	}
	w.must(w.far.Close())
	if _, err := w.far.Count(w.ctx, api.ListRequest{Tenant: tenant}); !fault.Is(err, fault.Unavailable) {
		t.Errorf("after Close: %v (%s)", err, fault.KindOf(err))
	}
}

// A server that never answers is given up, although every attempt to connect lasts long. Time is
// virtual.
func TestSilentAddressIsGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		silent := func(ctx context.Context, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		begin := time.Now()
		_, err := remote.Dial(ctx, remote.Config{Addresses: []string{"localhost:7800"}, PlainText: true, Dial: silent, Patience: time.Minute})
		if took := time.Since(begin); !fault.Is(err, fault.Unavailable) || took > 2*time.Minute {
			t.Errorf("%v (%s) after %s", err, fault.KindOf(err), took)
		}
	})
}

// fullDisk is a writer that fails after some bytes.
type fullDisk struct{ room int }

func (d *fullDisk) Write(p []byte) (int, error) {
	if d.room -= len(p); d.room < 0 {
		return 0, io.ErrShortWrite
	}
	return len(p), nil
}

func (d *fullDisk) Flush() error {
	if d.room < 1<<20 {
		return io.ErrShortWrite
	}
	return nil
}

// A removal by force removes nothing before the client has saved the rows.
func TestExportThatCannotBeSaved(t *testing.T) {
	t.Parallel()
	w := newWorld(t, program())
	w.start("a", `"a"`)
	for _, room := range []int{0, 1 << 20} { // first a write fails, then the flush
		_, err := w.far.Delete(w.ctx, api.DeleteRequest{Target: target("shop", "a"), Force: true, Export: &fullDisk{room}})
		if !fault.Is(err, fault.Unavailable) || !errors.Is(err, io.ErrShortWrite) {
			t.Errorf("with room for %d bytes: %v (%s)", room, err, fault.KindOf(err))
		}
	}
	w.until("the server has given up", func() bool { return w.calls.ended("Delete") == 2 })
	if d := ok[api.Description](w)(w.far.Describe(w.ctx, target("shop", "a"))); d.Outcome.Status.Closed() {
		t.Errorf("the execution was ended: %+v", d.Outcome)
	}
}

// A composed message has the effect of the direct call, once. The server refuses a message that no
// client composes.
func TestDeliver(t *testing.T) {
	t.Parallel()
	w := newWorld(t, program())
	mailer := w.local
	if w.far.Cluster() != mailer.Cluster() || w.far.RequestRetention() != mailer.RequestRetention() || w.far.Cluster() == "" {
		t.Errorf("cluster %s, remembers %s", w.far.Cluster(), w.far.RequestRetention())
	}
	w.must(w.far.Reach(w.ctx))
	start := ok[model.Message](w)(mailer.Compose(&api.StartRequest{
		Address: address("shop", "a"), Input: text(`"a"`), RequestID: "1", With: []api.Message{{Name: "other", Input: text("1")}},
	}))
	call := ok[model.Message](w)(mailer.Compose(&api.CallRequest{Address: address("entity:shelf", "s"), Name: "put", Input: text("3"), OneWay: true, RequestID: "4"}))
	bare := ok[model.Message](w)(mailer.Compose(&api.CallRequest{Address: address("entity:shelf", "s"), Name: "put", Input: text("3"), OneWay: true}))
	bare.RequestID = "run_of_an_outbox"
	signal := ok[model.Message](w)(mailer.Compose(&api.SignalRequest{Target: target("shop", "a"), Name: "item", Input: text(`"x"`), RequestID: "2"}))
	settle := ok[model.Message](w)(mailer.Compose(&api.SettleRequest{Target: target("shop", "a"), Name: "visa", Value: text(`"y"`), RequestID: "3"}))
	cancel := ok[model.Message](w)(mailer.Compose(&api.CancelRequest{Target: target("shop", "b"), Reason: "no", RequestID: "5"}))
	w.start("b", `"b"`)
	for _, m := range []model.Message{start, start, call, call, bare, signal, signal, settle, settle, cancel} {
		m.Trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
		if err := w.far.Deliver(w.ctx, &m); err != nil {
			t.Errorf("%s: %v", m.Kind, err)
		}
	}
	if r := ok[api.Result](w)(w.far.Await(w.ctx, target("shop", "a"))); string(r.Outcome.Output.Data) != `"a x y"` {
		t.Errorf("result: %+v", r)
	}
	if r := ok[api.Result](w)(w.far.Await(w.ctx, target("shop", "b"))); r.Outcome.Status != model.Canceled {
		t.Errorf("result: %+v", r)
	}

	for what, change := range map[string]func(*model.Message){
		"a past":             func(m *model.Message) { m.Past = &model.Past{Next: 1} },
		"a sender":           func(m *model.Message) { m.From = model.Link{Address: address("shop", "b"), ID: "x"} },
		"a run id":           func(m *model.Message) { m.Fresh = model.RunID{1} },
		"an event":           func(m *model.Message) { m.With = append(m.With, model.Event{Name: "x", Status: model.Completed}) },
		"force":              func(m *model.Message) { m.Force = true },
		"a kept message":     func(m *model.Message) { m.Keep = true },
		"an id of the owner": func(m *model.Message) { m.RequestID = model.RefusedIDs + "x" },
		"a removal":          func(m *model.Message) { m.Kind = model.MessageDelete },
		"a report":           func(m *model.Message) { m.Kind, m.Report = model.MessageReport, &model.TaskReport{} },
		"an empty key":       func(m *model.Message) { m.To.Key = "" },
	} {
		m := start
		m.To.Key = "c"
		change(&m)
		if err := w.far.Deliver(w.ctx, &m); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
	start.To.Tenant = "acme"
	if err := w.far.Deliver(w.ctx, &start); !fault.Is(err, fault.Denied) {
		t.Errorf("another tenant: %v", err)
	}
}
