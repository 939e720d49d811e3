package remote_test

import (
	"context"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/perdure/perdure"
	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/attach"
	"github.com/perdure/perdure/internal/grpcapi"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/node"
	"github.com/perdure/perdure/internal/remote"
)

// backend is the backend of an app whose clients call the engine directly, and whose workers join
// over the wire.
type backend struct {
	api.Backend

	work *remote.Work
}

func (b backend) Join(ctx context.Context, w api.Worker, offer api.Offer) (api.Session, error) {
	return b.work.Join(ctx, w, offer)
}

func (b backend) JoinTasks(ctx context.Context, w api.TaskWorker, offer model.TaskOffer) (api.TaskSession, error) {
	return b.work.JoinTasks(ctx, w, offer)
}

func (b backend) JoinEntities(ctx context.Context, w api.EntityWorker, offer model.EntityOffer) (api.EntitySession, error) {
	return b.work.JoinEntities(ctx, w, offer)
}

// server is a node whose worker service listens in memory.
type server struct {
	node *node.Node
	work *grpcapi.Work
	grpc *grpc.Server
	conn *grpc.ClientConn
	// listener breaks connections.
	listener *cutter
}

// cutter is a listener whose connections break after some reads. It counts reads instead of time,
// so that on slow machines too every connection lasts long enough to get something done.
type cutter struct {
	*bufconn.Listener

	breaks atomic.Bool // whether connections break
	cuts   atomic.Int64
}

func (c *cutter) DialContext(ctx context.Context) (net.Conn, error) {
	conn, err := c.Listener.DialContext(ctx)
	if err != nil || !c.breaks.Load() {
		return conn, err
	}
	f := &fragile{Conn: conn, cuts: &c.cuts}
	f.left.Store(10 + rand.Int32N(30))
	return f, nil
}

// fragile is a connection that breaks after some reads.
type fragile struct {
	net.Conn

	left atomic.Int32
	cuts *atomic.Int64
}

func (f *fragile) Read(p []byte) (int, error) {
	if f.left.Add(-1) == 0 {
		f.cuts.Add(1)
		_ = f.Conn.Close()
	}
	return f.Conn.Read(p)
}

func startServer(t *testing.T, url string, cfg grpcapi.WorkConfig) *server {
	t.Helper()
	n, err := node.Open(t.Context(), node.Config{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Backend = n.Backend()
	cfg.Tenant = func(context.Context) string { return model.DefaultTenant }
	s := &server{node: n, work: grpcapi.NewWork(cfg), grpc: grpc.NewServer(), listener: &cutter{Listener: bufconn.Listen(1 << 20)}}
	pb.RegisterWorkerServiceServer(s.grpc, s.work)
	go func() { _ = s.grpc.Serve(s.listener) }()
	s.conn, err = grpc.NewClient("passthrough:///server", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: time.Millisecond, MaxDelay: time.Millisecond}, MinConnectTimeout: patience}),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return s.listener.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(s.close)
	return s
}

func (s *server) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s.work.Close(ctx)
	s.grpc.Stop()
	_ = s.conn.Close()
	_ = s.node.Close()
}

// open opens an app whose worker joins over the wire.
func (s *server) open(t *testing.T, defs ...perdure.Definition) *perdure.App {
	t.Helper()
	work := remote.NewWork(s.conn, remote.WorkConfig{Backoff: time.Millisecond})
	app, err := attach.Open(t.Context(), attach.Config{
		Backend: backend{s.node.Backend(), work}, Served: true, Tenant: model.DefaultTenant,
		OnClose: func() error { work.Close(); return nil },
	}, defs...)
	if err != nil {
		work.Close()
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = app.Close() })
	return app
}

// A program behaves the same whether its workflows, activities, tasks and entities run in the
// process of the engine or in another one.
func TestWorkersOverTheWire(t *testing.T) {
	t.Parallel()
	s := startServer(t, "memory:", grpcapi.WorkConfig{})
	orders := newOrders()
	app := s.open(t, orders.definitions()...)
	for i := range 20 {
		orders.check(t, app, i)
	}
	if err := app.Close(); err != nil {
		t.Fatal(err)
	}
}

// The stream breaks all the time, and the server keeps the session: nothing is lost, and no body
// runs twice.
func TestBrokenStreamsChangeNothing(t *testing.T) {
	t.Parallel()
	s := startServer(t, "memory:", grpcapi.WorkConfig{})
	s.listener.breaks.Store(true)
	orders := newOrders()
	app := s.open(t, orders.definitions()...)
	// How often connections break depends on how much is sent at a time.
	for i := 0; i < 30 || s.listener.cuts.Load() < 10; i++ {
		orders.check(t, app, i)
	}
	t.Logf("the streams were cut %d times", s.listener.cuts.Load())

	if n := orders.bodies.Load(); n != orders.want.Load() {
		t.Errorf("%d bodies ran, want %d", n, orders.want.Load())
	}
}

// orders is a program that uses every role of a worker: a workflow with an inline step that fails
// once, a queued task that keeps a state, an entity, a timer, a signal, a query and an update.
type orders struct {
	bodies, want atomic.Int64
	charge, ship *perdure.Activity[int, int]
	account      *perdure.Entity[int]
	deposit      *perdure.Operation[int, int]
	order        *perdure.Workflow[int, int]
}

var (
	paid   = perdure.NewSignal[int]("paid")
	status = perdure.NewQuery[int, string]("status")
)

func newOrders() *orders {
	p := &orders{}
	p.charge = perdure.NewActivity("charge", func(_ context.Context, n int) (int, error) {
		p.bodies.Add(1)
		return n + 1, nil
	})

	p.ship = perdure.NewActivity("ship", func(_ context.Context, n int) (int, error) {
		p.bodies.Add(1)
		return n * 2, nil
	}, perdure.OnQueue("trucks"))

	p.account = perdure.NewEntity[int]("account")
	p.deposit = perdure.NewOperation(p.account, "deposit", func(_ perdure.EntityCtx, balance *int, n int) (int, error) {
		p.bodies.Add(1)
		*balance += n
		return *balance, nil
	})

	p.order = perdure.NewWorkflow("order", func(ctx perdure.WorkflowCtx, n int) (int, error) {
		at := "charging"
		status.Handle(ctx, func(int) (string, error) { return at, nil })
		charged, err := p.charge.Run(ctx, n)
		if err != nil {
			return 0, err
		}
		at = "waiting"
		extra, err := paid.Receive(ctx)
		if err != nil {
			return 0, err
		}

		at = "shipping"
		shipped, err := p.ship.Run(ctx, charged+extra)
		if err != nil {
			return 0, err
		}
		if err := ctx.Sleep(time.Millisecond); err != nil {
			return 0, err
		}

		return p.deposit.Call(ctx, "all", shipped)
	})

	return p
}

func (p *orders) definitions() []perdure.Definition {
	return []perdure.Definition{p.charge, p.ship, p.account, p.order}
}

// check runs one order from end to end.
func (p *orders) check(t *testing.T, app *perdure.App, i int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := app.With(ctx)
	before, _, err := p.account.Get(c, "all")
	if err != nil {
		t.Fatal(err)
	}

	order, err := p.order.Start(c, i, perdure.HashKey(i))
	if err != nil {
		t.Fatal(err)
	}
	for {
		at, err := status.Ask(c, order, 0)
		if err != nil {
			t.Fatal(err)
		}
		if at == "waiting" {
			break
		}
	}
	if err := paid.Send(c, order, 10); err != nil {
		t.Fatal(err)
	}
	got, err := order.Result(c)
	if want := before + (i+1+10)*2; err != nil || got != want {
		t.Fatalf("order %d: %d, %v; want %d", i, got, err, want)
	}
	p.want.Add(3)
}
