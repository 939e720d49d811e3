package flovyn

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/perdure/perdure/internal/access"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/authz"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Authenticator says who is calling. Names of headers are in lower case.
type Authenticator interface {
	// Authenticate returns the caller, or an error that refuses the request.
	Authenticate(ctx context.Context, header map[string][]string) (authn.Identity, error)
}

// Config configures a door. The comment of each field says what its zero value means.
type Config struct {
	Backend api.Backend
	// Caller returns who makes the call of a context.
	Caller func(context.Context) (authn.Identity, bool)
	// Orgs are the organizations that the door knows.
	Orgs *Orgs
	// AnyOrg lets callers name organizations that do not exist. Set it for servers without keys,
	// which have no organizations.
	AnyOrg bool
	// Authenticator says who makes an HTTP request, from its headers.
	Authenticator Authenticator
	// Authorizer says what callers may do over HTTP. If it is nil, only admins may call. For calls
	// of gRPC, the gRPC server asks the authorizer.
	Authorizer authz.Authorizer
	// Admin creates tenants and keys; nil for a door that cannot create any.
	Admin api.Admin
	// Connections knows which clients are connected. If it is nil, the door treats all clients as
	// connected.
	Connections *Connections
	// Ready returns why the server cannot serve, or nil if it can.
	Ready func() error
	// Docs shows the OpenAPI document at /api/docs; nil for a plain list of the requests.
	Docs http.Handler
	// Warnings are shown on the health page.
	Warnings []string
	// Log receives the messages of the door; nil for none.
	Log *slog.Logger
	// Journal counts and logs HTTP requests; nil for none. The gRPC server counts its own calls.
	Journal *access.Journal
	// MaxPayload is the largest payload in bytes. The default is 2 MiB.
	MaxPayload int

	// MaxLog is how many bytes of an event log clients can read. The default is 4 MiB. The door
	// fails a run whose log is longer, because no worker can continue it.
	MaxLog int64
	// MaxHistories is how many bytes of histories the door keeps in memory. The default is 256 MiB.
	// It reads other histories from the store when a worker asks for them.
	MaxHistories int64

	// Unconfirmed is how long the door waits for the first sign that a worker has received an
	// activation. The default is 5 s.
	Unconfirmed time.Duration
	// Silence is how long a worker that sends heartbeats may be silent before other workers get its
	// work. The default is 60 s.
	Silence time.Duration
	// Patience is how long a worker may take for an activation. The default is 5 min. A task goes
	// to another worker when the connection of its worker has been closed for this time.
	Patience time.Duration
	// Longest is how long a worker may have a task without making a call about it. After that time
	// the door assumes that the worker never received the task, because the reply was lost. The
	// default is 1 h. If the worker named a time for such tasks at its registration, the worker may
	// take at least the sum of that time and Silence.
	Longest time.Duration
	// LongestNative is the same bound for a native worker, which is a worker whose calls name it by
	// the id of its registration. The bound applies while the connection of the worker is open. The
	// default is 24 h. Such a worker never gives up a task or a poll while it lives, so only the
	// end of its connection shows that it has lost a task. The bound is for dead connections that a
	// proxy keeps open.
	LongestNative time.Duration
	// ShortPoll is how long a poll of a native worker waits for work. The default is 100 ms.
	ShortPoll time.Duration
	// Park is how long the door keeps a task for the next poll, if the poll for which the engine
	// claimed the task has ended. The default is 1 s.
	Park time.Duration
	// Idle is how long the door keeps runs that wait for something from outside. The default is 5
	// s. The door leaves a queue that has had no poll for twelve times as long.
	Idle time.Duration
	// LateSignal is how long after its end a completed run still accepts signals, which have no
	// effect. The default is 10 s.
	LateSignal time.Duration
	// Tick is how often the door checks all of these times. The default is 1 s.
	Tick time.Duration
}

func (c Config) withDefaults() Config {
	if c.Authorizer == nil {
		c.Authorizer = authz.Admins{}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Orgs == nil {
		c.Orgs = NewOrgs()
	}
	c.MaxPayload = cmp.Or(c.MaxPayload, 2<<20)
	c.MaxLog = cmp.Or(c.MaxLog, maxLog)
	c.MaxHistories = cmp.Or(c.MaxHistories, maxHistories)
	c.Unconfirmed = cmp.Or(c.Unconfirmed, 5*time.Second)
	c.Silence = cmp.Or(c.Silence, time.Minute)
	c.Patience = cmp.Or(c.Patience, 5*time.Minute)
	c.Longest = cmp.Or(c.Longest, time.Hour)
	c.LongestNative = cmp.Or(c.LongestNative, 24*time.Hour)
	c.ShortPoll = cmp.Or(c.ShortPoll, 100*time.Millisecond)
	c.Park = cmp.Or(c.Park, time.Second)
	c.Idle = cmp.Or(c.Idle, 5*time.Second)
	c.LateSignal = cmp.Or(c.LateSignal, 10*time.Second)
	c.Tick = cmp.Or(c.Tick, time.Second)

	return c
}

// Bounds of what the door keeps in memory.
const (
	// maxPolls is how many calls may wait for work of one queue.
	maxPolls = 10_000
	// maxQueues is how many queues of all tenants the door serves at a time.
	maxQueues = 10_000
	// maxActive is how many runs of one queue the door has at a time. That includes the runs that
	// wait for a worker and the runs that workers have. Further runs wait in the engine.
	maxActive = 1_000
	// maxHistories is how many bytes of histories the door keeps for workers.
	maxHistories = 256 << 20
	// maxLog is how many bytes of an event log clients read.
	maxLog = 4 << 20
	// longestPoll is how long one call waits for work.
	longestPoll = time.Minute
)

// Door serves the Flovyn protocol.
type Door struct {
	cfg     Config
	backend api.Backend
	log     *slog.Logger
	places  *places
	tails   *tails
	workers *workers
	bytes   atomic.Int64 // the size of the histories that the door keeps

	// open ends when the door takes no new work. Calls that wait for work then return without any.
	open  context.Context //nolint:containedctx // the life of the door, not of a call
	drain context.CancelFunc
	// life guards over, which says that no background function may start.
	life  sync.Mutex
	over  bool
	ended sync.WaitGroup

	mu    sync.Mutex
	flows map[site]*flowQueue
	tasks map[site]*taskQueue
	keys  map[string]*keyWorker // by tenant
}

// site is a queue of a tenant.
type site struct{ tenant, queue string }

// New returns a door. It joins the engine when the first call needs it.
func New(cfg Config) *Door {
	d := &Door{
		cfg: cfg.withDefaults(), backend: cfg.Backend, places: newPlaces(), tails: newTails(), workers: newWorkers(),
		flows: map[site]*flowQueue{}, tasks: map[site]*taskQueue{}, keys: map[string]*keyWorker{},
	}
	d.log = d.cfg.Log
	d.open, d.drain = context.WithCancel(context.Background())
	d.ended.Go(d.watch)
	return d
}

// Drain ends the calls that wait for work.
func (d *Door) Drain() { d.drain() }

// Close gives back to the engine everything that workers have not finished.
func (d *Door) Close(ctx context.Context) {
	d.drain()
	d.mu.Lock()
	flows, tasks, keys := d.flows, d.tasks, d.keys
	d.flows, d.tasks, d.keys = nil, nil, nil
	d.mu.Unlock()

	for _, q := range flows {
		q.leave(ctx)
	}
	for _, q := range tasks {
		q.leave(ctx)
	}
	for _, k := range keys {
		k.leave(ctx)
	}
	d.life.Lock()
	d.over = true
	d.life.Unlock()
	d.ended.Wait()
}

// beside runs a function in the background. A closed door does not run the function, because the
// door has given everything back to the engine.
func (d *Door) beside(do func()) {
	d.life.Lock()
	defer d.life.Unlock()
	if !d.over {
		d.ended.Go(do)
	}
}

var errClosed = fault.New(fault.Unavailable, "the server shuts down")

// watch calls look at every tick, and removes expired keys from time to time.
func (d *Door) watch() {
	tick := time.NewTicker(d.cfg.Tick)
	defer tick.Stop()
	swept := time.Now()
	for {
		select {
		case <-d.open.Done():
			return
		case now := <-tick.C:
			d.look(now)
			if now.Sub(swept) > sweepEvery {
				swept = now
				d.beside(d.sweepKeys)
			}
		}
	}
}

// look takes work back from workers that are gone, and leaves queues without polls.
func (d *Door) look(now time.Time) {
	d.mu.Lock()
	var flows []*flowQueue
	for at, q := range d.flows {
		if q.look(now) {
			flows = append(flows, q)
			delete(d.flows, at)
		}
	}
	var tasks []*taskQueue
	for at, q := range d.tasks {
		if q.look(now) {
			tasks = append(tasks, q)
			delete(d.tasks, at)
		}
	}
	d.mu.Unlock()

	for _, q := range flows {
		d.beside(func() { q.leave(d.open) })
	}
	for _, q := range tasks {
		d.beside(func() { q.leave(d.open) })
	}
}

// flow returns the queue of workflows, and joins the engine for it if necessary.
func (d *Door) flow(ctx context.Context, at site) (*flowQueue, error) {
	d.mu.Lock()
	if d.flows == nil {
		d.mu.Unlock()
		return nil, errClosed
	}

	q := d.flows[at]
	if q == nil {
		if len(d.flows) >= maxQueues {
			d.mu.Unlock()
			return nil, fault.New(fault.Exhausted, "the server serves %d queues already", maxQueues)
		}
		q = newFlowQueue(d, at)
		d.flows[at] = q
	}

	q.touch(time.Now())
	d.mu.Unlock()
	return q, q.join(ctx)
}

// task returns the queue of tasks, and joins the engine for it if necessary.
func (d *Door) task(ctx context.Context, at site) (*taskQueue, error) {
	d.mu.Lock()
	if d.tasks == nil {
		d.mu.Unlock()
		return nil, errClosed
	}

	q := d.tasks[at]
	if q == nil {
		if len(d.tasks) >= maxQueues {
			d.mu.Unlock()
			return nil, fault.New(fault.Exhausted, "the server serves %d queues of tasks already", maxQueues)
		}
		q = newTaskQueue(d, at)
		d.tasks[at] = q
	}

	q.touch(time.Now())
	d.mu.Unlock()
	return q, q.join(ctx)
}

// held returns the queue of workflows to which an execution belongs, or nil if the door does not
// serve that queue. The queue need not have the run.
func (d *Door) held(a model.Address) *flowQueue {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.flows[site{a.Tenant, queueOf(a)}]
}

// queuesOf returns the queues of tasks of a tenant.
func (d *Door) queuesOf(tenant string) []*taskQueue {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []*taskQueue
	for at, q := range d.tasks {
		if at.tenant == tenant {
			all = append(all, q)
		}
	}
	return all
}
