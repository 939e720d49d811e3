package remote_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/perdure/perdure"
	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/attach"
	"github.com/perdure/perdure/internal/grpcapi"
	"github.com/perdure/perdure/internal/link"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/node"
	"github.com/perdure/perdure/internal/remote"
)

// cut says where a relay breaks the stream: before or after frame n of one direction. The count
// includes the frames of all streams.
type cut struct {
	toServer, after bool
	frame           int
}

func (c cut) String() string {
	direction, side := "of the server", "before"
	if c.toServer {
		direction = "of the worker"
	}
	if c.after {
		side = "after"
	}
	if c.frame < 0 {
		return side + " frames " + direction
	}
	return fmt.Sprintf("%s frame %d %s", side, c.frame, direction)
}

// relay passes the frames of workers on to a server, and breaks one stream.
type relay struct {
	pb.UnimplementedWorkerServiceServer
	to  pb.WorkerServiceClient
	cut cut

	mu   sync.Mutex
	seen map[bool]int // frames by direction, including frames that were not passed on
	done bool         // it has broken a stream
}

// What a relay does with a frame.
const (
	pass = iota
	drop // lose the frame, and break the stream
	last // pass the frame on, and break the stream after it
)

// see counts a frame.
func (r *relay) see(toServer bool) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.seen[toServer]
	r.seen[toServer]++
	switch {
	case r.done || toServer != r.cut.toServer || n != r.cut.frame:
		return pass
	case r.cut.after:
		r.done = true
		return last
	}
	r.done = true
	return drop
}

var errCut = grpcstatus.Error(codes.Unavailable, "the stream is cut")

// Work relays one stream.
func (r *relay) Work(st grpc.BidiStreamingServer[pb.WorkerFrame, pb.ServerFrame]) error {
	ctx, cancel := context.WithCancel(st.Context())
	defer cancel()
	up, err := r.to.Work(ctx)
	if err != nil {
		return err
	}

	ended := make(chan error, 2)
	cutting := make(chan struct{}) // closed when the relay starts to lose the answers of the server
	go func() { ended <- r.there(st, up, cutting) }()
	go func() { ended <- r.back(st, up, cutting) }()
	err = <-ended
	select {
	case <-cutting:
		// Wait until the server has taken the last frame and has seen the end of the stream.
		err = errors.Join(<-ended, errCut)
	default:
	}
	if err != nil {
		return errCut
	}
	return nil
}

// there passes the frames of the worker on.
func (r *relay) there(st grpc.BidiStreamingServer[pb.WorkerFrame, pb.ServerFrame], up grpc.BidiStreamingClient[pb.WorkerFrame, pb.ServerFrame], cutting chan struct{}) error {
	for {
		m, err := st.Recv()
		if err != nil {
			return err
		}
		what := r.see(true)
		if what == drop {
			return errCut
		}

		if what == last {
			close(cutting)
		}
		if err := up.Send(m); err != nil {
			return err
		}
		if what == last {
			return errors.Join(errCut, up.CloseSend())
		}
	}
}

// back passes the frames of the server on.
func (r *relay) back(st grpc.BidiStreamingServer[pb.WorkerFrame, pb.ServerFrame], up grpc.BidiStreamingClient[pb.WorkerFrame, pb.ServerFrame], cutting chan struct{}) error {
	for {
		m, err := up.Recv()
		if err != nil {
			return err
		}

		select {
		case <-cutting:
			continue
		default:
		}

		what := r.see(false)
		if what == drop {
			return errCut
		}
		if err := st.Send(m); err != nil {
			return err
		}

		if what == last {
			return errCut
		}
	}
}

// listen serves a worker service in memory, inside a bubble.
func listen(t *testing.T, w pb.WorkerServiceServer) (*grpc.ClientConn, func()) {
	t.Helper()
	listener, server := bufconn.Listen(1<<16), grpc.NewServer()
	pb.RegisterWorkerServiceServer(server, w)
	go func() { _ = server.Serve(listener) }()
	conn, err := grpc.NewClient("passthrough:///server", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	return conn, func() {
		_ = conn.Close()
		server.Stop()
	}
}

// journey is a program that makes a worker and a server exchange items of every kind. It counts how
// often each body runs.
type journey struct {
	mu     sync.Mutex
	bodies map[string]int
}

func (j *journey) ran(body string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.bodies[body]++
}

var (
	ticket  = perdure.NewSignal[int]("ticket")
	upgrade = perdure.NewUpdate[int, int]("upgrade")
	where   = perdure.NewQuery[int, string]("where")
	bag     = perdure.NewState[string]("bag")
)

// run makes the journey while the relay cuts the stream somewhere, and returns the kinds of the
// events of the run.
func (j *journey) run(t *testing.T, app *perdure.App, defs *travel) []string {
	ctx, stop := context.WithTimeout(t.Context(), time.Hour)
	defer stop()
	c := app.With(ctx)
	trip := check(t)(defs.trip.Start(c, 1, perdure.RawKey("one")))
	other := check(t)(defs.hop.Start(c, 10, perdure.RawKey("other"))) // it has to wait for the limit
	for {
		at, err := where.Ask(c, trip, 0)
		if err != nil {
			t.Fatal(err)
		}
		if at == "platform" {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if got, err := upgrade.Call(c, trip, 1); err != nil || got != 2 {
		t.Errorf("update: %d, %v", got, err)
	}
	if err := ticket.Send(c, trip, 100); err != nil {
		t.Fatal(err)
	}
	if got, err := trip.Result(c); err != nil || got != 1+2+100+2 {
		t.Errorf("the trip returns %d, %v", got, err)
	}
	if got, err := other.Result(c); err != nil || got != 11 {
		t.Errorf("the other hop returns %d, %v", got, err)
	}
	if got, _, err := defs.account.Get(c, "all"); err != nil || got != 2 {
		t.Errorf("the account has %d, %v", got, err)
	}

	var kinds []string
	for e, err := range app.Histories().Events(ctx, trip) {
		if err != nil {
			t.Fatal(err)
		}
		kinds = append(kinds, e.Kind+" "+e.Name)
	}
	slices.Sort(kinds)
	return kinds
}

// check returns a function that fails the test on an error.
func check(t *testing.T) func(perdure.Execution[int], error) perdure.Execution[int] {
	return func(x perdure.Execution[int], err error) perdure.Execution[int] {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
}

// travel are the definitions of a journey.
type travel struct {
	book, ride *perdure.Activity[int, int]
	account    *perdure.Entity[int]
	pay        *perdure.Operation[int, int]
	hop, trip  *perdure.Workflow[int, int]
}

func (j *journey) definitions() *travel {
	d := &travel{account: perdure.NewEntity[int]("account")}
	d.book = perdure.NewActivity("book", func(_ context.Context, n int) (int, error) {
		j.ran(fmt.Sprint("book ", n))
		time.Sleep(time.Second)
		return n + 1, nil
	}, perdure.Limit("one"))
	d.ride = perdure.NewActivity("ride", func(ctx context.Context, n int) (int, error) {
		j.ran("ride")
		for i := range 3 {
			if err := perdure.Heartbeat(ctx, i); err != nil {
				return 0, err
			}
			if err := bag.Save(ctx, fmt.Sprint(i)); err != nil {
				return 0, err
			}
			time.Sleep(4 * time.Second)
		}
		if got, ok, err := bag.Load(ctx); got != "2" || !ok || err != nil {
			return 0, perdure.Permanent(fmt.Errorf("the bag has %q, %w", got, err))
		}
		return n, nil
	}, perdure.OnQueue("trains"), perdure.HeartbeatTimeout(9*time.Second), perdure.RetryPolicy{MaxAttempts: 1})

	d.pay = perdure.NewOperation(d.account, "pay", func(_ perdure.EntityCtx, balance *int, n int) (int, error) {
		j.ran("pay")
		*balance += n
		return *balance, nil
	})
	d.hop = perdure.NewWorkflow("hop", func(ctx perdure.WorkflowCtx, n int) (int, error) { return d.book.Run(ctx, n) })
	d.trip = perdure.NewWorkflow("trip", func(ctx perdure.WorkflowCtx, n int) (int, error) {
		at, class := "home", 1
		where.Handle(ctx, func(int) (string, error) { return at, nil })
		upgrade.Handle(ctx, func(_ perdure.WorkflowCtx, by int) (int, error) { class += by; return class, nil })
		booked, err := d.hop.Run(ctx, n)
		if err != nil {
			return 0, err
		}

		at = "platform"
		bought, err := ticket.Receive(ctx)
		if err != nil {
			return 0, err
		}
		if _, err := d.ride.Run(ctx, booked); err != nil {
			return 0, err
		}

		if err := ctx.Sleep(time.Minute); err != nil {
			return 0, err
		}
		paid := 0

		err = ctx.Lock(perdure.LockSet{d.account.Ref("all")}, func(ctx perdure.WorkflowCtx) (err error) {
			paid, err = d.pay.Call(ctx, "all", class)
			return err
		})

		return n + booked + bought + paid, err
	})
	return d
}

func (d *travel) all() []perdure.Definition {
	return []perdure.Definition{d.book, d.ride, d.account, d.hop, d.trip}
}

// journeyOver makes a journey with a stream that breaks at a cut. It returns which bodies ran, the
// kinds of the events, and the relay, which has counted the frames.
func journeyOver(t *testing.T, at cut) (bodies map[string]int, kinds []string, r *relay) {
	t.Helper()
	n, err := node.Open(t.Context(), node.Config{URL: "memory:", Shards: 2})
	if err != nil {
		t.Fatal(err)
	}
	small := link.Config{MaxFrame: 1} // every item has a frame of its own
	served := grpcapi.NewWork(grpcapi.WorkConfig{Backend: n.Backend(), Tenant: func(context.Context) string { return tenant }, Link: small})
	conn, stop := listen(t, served)
	r = &relay{to: pb.NewWorkerServiceClient(conn), cut: at, seen: map[bool]int{}}
	through, stopRelay := listen(t, r)
	work := remote.NewWork(through, remote.WorkConfig{Link: small})

	j := &journey{bodies: map[string]int{}}
	d := j.definitions()
	app, err := attach.Open(t.Context(), attach.Config{
		Backend: backend{n.Backend(), work}, Served: true, Tenant: tenant, IdleAfter: time.Second, OnClose: func() error { work.Close(); return nil },
	}, d.all()...)
	if err != nil {
		t.Fatal(err)
	}
	if err := app.Limits().Set(t.Context(), perdure.LimitRule{Name: "one", Concurrency: 1}); err != nil {
		t.Fatal(err)
	}
	kinds = j.run(t, app, d)
	time.Sleep(time.Second) // the release of the lock is a message
	nothingIsHeld(t, n.Backend())
	if err := app.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	time.Sleep(time.Minute) // sessions that no worker knows expire
	if workers, err := n.Backend().ListWorkers(t.Context(), tenant); err != nil || len(workers) != 0 {
		t.Errorf("workers are left: %+v, %v", workers, err)
	}

	stopRelay()
	served.Close(t.Context())
	stop()
	if err := n.Close(); err != nil {
		t.Error(err)
	}
	return j.bodies, kinds, r
}

// nothingIsHeld checks that no claim, permit or lock is left.
func nothingIsHeld(t *testing.T, b api.Backend) {
	t.Helper()
	limits, err := b.Limits(t.Context(), tenant)
	if err != nil || len(limits) != 1 {
		t.Errorf("limits: %+v, %v", limits, err)
	}

	for _, use := range limits[0].Uses {
		if use.Held+use.Waiting > 0 {
			t.Errorf("permits are left: %+v", use)
		}
	}

	queues, err := b.Queues(t.Context(), tenant)
	if err != nil {
		t.Error(err)
	}

	for _, q := range queues {
		if q.Claimed+q.Waiting+q.Delayed > 0 {
			t.Errorf("claims are left: %+v", q)
		}
	}

	account, err := b.Entity(t.Context(), model.Address{Tenant: tenant, Type: model.EntityPrefix + "account", Key: "all"})
	if err != nil || account.Entity.Locked() || len(account.Waiting) > 0 {
		t.Errorf("the account: %+v, %v", account, err)
	}
}

// The stream breaks before and after every frame, in both directions. Nothing is lost, nothing
// happens twice, no running body is started again, and no claim or permit is left over.
func TestEveryFrameBoundary(t *testing.T) {
	t.Parallel()
	var bodies map[string]int
	var kinds []string
	frames := map[bool]int{}
	synctest.Test(t, func(t *testing.T) {
		var r *relay
		bodies, kinds, r = journeyOver(t, cut{frame: -1})
		maps.Copy(frames, r.seen)
	})
	want := map[string]int{"book 1": 1, "book 10": 1, "ride": 1, "pay": 1}
	if !maps.Equal(bodies, want) {
		t.Fatalf("the bodies %v have run, want %v", bodies, want)
	}
	if frames[true] < 20 || frames[false] < 20 {
		t.Fatalf("only %v frames", frames)
	}
	t.Logf("%d frames of the worker, %d of the server, events %v", frames[true], frames[false], kinds)

	// The race detector makes a journey ten times as slow, so short mode cuts only some of the
	// frames, different ones in each subtest. Without the detector, the fast suite cuts every
	// frame.
	first, step := 0, 1
	if testing.Short() {
		step = 8
	}
	for _, toServer := range []bool{true, false} {
		for _, after := range []bool{false, true} {
			reached := first
			first += step / 4
			t.Run(cut{toServer, after, -1}.String(), func(t *testing.T) {
				t.Parallel()
				for crossed(t, cut{toServer, after, reached}, want, kinds) {
					reached += step
				}
				if reached < frames[toServer]*3/4 {
					t.Errorf("%d frames were cut, there are about %d", reached, frames[toServer])
				}
			})
		}
	}
}

// crossed makes a journey with a cut, and compares it with the bodies and events of a journey
// without one. It reports whether the cut was reached.
func crossed(t *testing.T, at cut, bodies map[string]int, kinds []string) (reached bool) {
	synctest.Test(t, func(t *testing.T) {
		ran, got, r := journeyOver(t, at)
		reached = r.done
		if !maps.Equal(ran, bodies) {
			t.Errorf("cut %s: the bodies %v have run, want %v", at, ran, bodies)
		}
		if !slices.Equal(got, kinds) {
			t.Errorf("cut %s: the events are\n%v, want\n%v", at, got, kinds)
		}
		if t.Failed() {
			t.Logf("cut %s", at)
		}
	})
	return reached && !t.Failed()
}
