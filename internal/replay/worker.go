package replay

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/episode"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/telemetry"
	"github.com/perdure/perdure/internal/telemetry/tracing"
)

// Config configures a worker. For an optional field that is zero, its default applies.
type Config struct {
	// Code is the code that the worker can run, by the name of the workflow.
	Code map[string]Code
	// Version is the version of the code. If a workflow is in Pinned, only workers with the version
	// that began a run of this workflow continue that run.
	Version string
	Pinned  map[string]bool
	// Retain is how long the engine keeps closed runs of a workflow, for workflows with their own
	// retention time.
	Retain map[string]time.Duration
	// Repeat has the retry policies of failed runs, for workflows with their own policy.
	Repeat map[string]Repeat
	// Host is available to the code through Ctx.Host. DryHost takes its place when a history is
	// only replayed to answer a query.
	Host, DryHost any
	// Load reads the history of a run that has ended, for queries; nil when that is impossible.
	Load Load
	// Failure turns an error of user code into its stored form. The default is FailureOf.
	Failure func(error) *model.Failure
	// Plain returns the plain bytes of a recorded input, for example decrypted; nil when that is
	// impossible. The default returns the input as it is recorded.
	Plain func(model.Payload) []byte
	// Logger receives warnings for operators. By default the worker does not log.
	Logger *slog.Logger
	// IdleAfter is how long a run stays in memory while only an event from outside can move it. The
	// default is 5 s.
	IdleAfter time.Duration
	// MaxLoaded is how many runs stay in memory. If there are more, the worker releases the least
	// recently used parked runs. The default is 10,000.
	MaxLoaded int
	// MaxSteps is how many bodies of steps run at the same time. Further bodies wait in line. The
	// default is 1,024.
	MaxSteps int
	// StuckAfter is how long workflow code may run without waiting in a durable call before it is
	// reported as stuck. The default is 2 s.
	StuckAfter time.Duration
	// UnloadTimeout is how long deferred functions of workflow code may take when a run is
	// unloaded. The default is 5 s.
	UnloadTimeout time.Duration
	// OwnerRestarts says that the engine is a server, which may lose a session and hand the same
	// runs out again. With OwnerRestarts, the worker remembers outcomes until the server confirms
	// them. See Worker.Lose.
	OwnerRestarts bool
	// Checks are for tests of users' code; nil everywhere else.
	Checks *Checks
	// Meter counts, and Tracer creates spans; both may be nil.
	Meter  *telemetry.Meter
	Tracer *tracing.Tracer
}

func (c Config) withDefaults() Config {
	orDuration := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}

	orDuration(&c.IdleAfter, 5*time.Second)
	orDuration(&c.StuckAfter, 2*time.Second)
	if c.Checks != nil { // in virtual time, waiting costs nothing
		orDuration(&c.UnloadTimeout, farFuture)
	}
	orDuration(&c.UnloadTimeout, 5*time.Second)
	if c.MaxLoaded <= 0 {
		c.MaxLoaded = 10_000
	}
	if c.MaxSteps <= 0 {
		c.MaxSteps = 1024
	}
	if c.Failure == nil {
		c.Failure = FailureOf
	}
	failure := c.Failure
	c.Failure = func(err error) *model.Failure { return failure(err).Bounded() }
	if c.Plain == nil {
		c.Plain = func(p model.Payload) []byte { return p.Data }
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}

	return c
}

// Worker runs the code of workflows for an engine. It implements api.Worker; none of those methods
// blocks.
type Worker struct {
	cfg       Config
	base      context.Context //nolint:containedctx // the root of the contexts of all bodies
	positions positions
	slots     slots
	hosts     hosts
	recalls   recalls
	kept      keptAttempts
	loops     sync.Map // positions of steps in loops that were warned about
	passages  sync.Map // attempts that wait for the gate; see passage.go
	passed    atomic.Int64
	unsettled *episode.Source

	session atomic.Pointer[bound]
	joined  chan struct{} // closed by Serve

	tick       atomic.Int64 // advances with the janitor; cheaper than a clock
	draining   atomic.Bool  // no body begins, and parked runs are released immediately
	closing    atomic.Bool  // like draining, but Resume does not end it
	halted     atomic.Bool  // outcomes of bodies are no longer reported
	goroutines sync.WaitGroup
	stop       context.CancelFunc
	ctx        context.Context //nolint:containedctx // ends when the worker is closed
	unwatch    func()

	mu   sync.Mutex
	runs map[model.RunID]*run
	// resting says that the janitor sleeps, because the worker has had no run for a while.
	resting bool
	// attention wakes the janitor, because it sleeps and there is a run, or because there are too
	// many runs.
	attention chan struct{}

	// In tests of users' code, the janitor sleeps while nothing can be due: see doze.
	dozing atomic.Bool
	stirs  atomic.Int64 // counts changes of runs
}

// bound is a session that the worker serves.
type bound struct{ s api.Session }

// NewWorker returns a worker. The engine may activate runs on it immediately. The reports of the
// worker wait until the caller has called Serve.
func NewWorker(cfg Config) *Worker {
	w := &Worker{
		cfg: cfg.withDefaults(), base: context.Background(),
		joined: make(chan struct{}), runs: map[model.RunID]*run{}, attention: make(chan struct{}, 1),
	}
	if c := w.cfg.Checks; c != nil && c.Base != nil {
		w.base = c.Base
	}
	w.unsettled = episode.New(w.cfg.Logger, "outcomes of failed transactional steps cannot be stored yet; they are pending", "outcomes of failed transactional steps are stored again").Source()
	w.slots.max = w.cfg.MaxSteps
	w.recalls.slots = make(chan struct{}, maxRecalls)
	w.hosts.goroutines = &w.goroutines
	w.ctx, w.stop = context.WithCancel(context.Background())
	return w
}

// Capacity returns how many runs the worker keeps in memory at the same time.
func (w *Worker) Capacity() int { return w.cfg.MaxLoaded }

// Serve gives the worker the session that receives its reports.
func (w *Worker) Serve(s api.Session) {
	w.unwatch = w.cfg.Meter.Watch(w.reportStates)
	w.session.Store(&bound{s})
	close(w.joined)
	w.goroutines.Add(1)
	go w.janitor()
}

// report sends a turn, once there is a session.
func (w *Worker) report(t model.Turn) error {
	s := w.awaitSession()
	if s == nil {
		return fault.New(fault.Unavailable, "the worker is closed")
	}
	return s.Report(w.ctx, t)
}

// awaitSession returns the session, once there is one; nil when the worker was closed before.
func (w *Worker) awaitSession() api.Session {
	b := w.session.Load()
	if b == nil {
		select {
		case <-w.joined:
			b = w.session.Load()
		case <-w.ctx.Done():
			return nil
		}
	}
	return b.s
}

// Activate takes over a run, with its whole history so far.
func (w *Worker) Activate(a *api.Activation) {
	code, known := w.cfg.Code[a.Start.Address.Type]
	r := newRun(w, a, code)
	for i := range r.events {
		if r.events[i].Seq != int64(i)+1 {
			r.m.doom = &model.Reason{Code: model.WaitCorrupt, Detail: "event " + itoa(int(r.events[i].Seq)) + " stands where " + itoa(i+1) + " belongs"}
			r.events = r.events[:i]
			break
		}
	}

	if !known {
		r.m.doom = &model.Reason{Code: model.WaitWorker, Name: a.Start.Address.Type}
	}
	w.mu.Lock()

	if w.ctx.Err() != nil {
		w.mu.Unlock()
		return
	}

	old := w.runs[a.Start.Run]
	w.runs[a.Start.Run] = r
	wakes := w.resting || len(w.runs) > w.cfg.MaxLoaded
	w.resting = false
	w.mu.Unlock()
	begins := true
	if old != nil {
		begins = !old.handOverTo(r)
		old.evict("activated again")
	}

	if wakes {
		w.alert()
	}

	if begins { // otherwise the earlier activation begins this one when it ends
		r.begin()
	}
}

// findRun returns the run, if the worker holds it in that generation.
func (w *Worker) findRun(id model.RunID, generation uint64) *run {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r := w.runs[id]; r != nil && r.generation == generation {
		return r
	}
	return nil
}

// Deliver brings further events.
func (w *Worker) Deliver(id model.RunID, generation uint64, events []model.Event) {
	if r := w.findRun(id, generation); r != nil {
		r.deliver(events, true)
	}
}

// Retry tells the worker that the back-off of a step is over.
func (w *Worker) Retry(id model.RunID, generation uint64, step string) {
	if r := w.findRun(id, generation); r != nil {
		r.retry(step)
	}
}

// Query asks the code of a run.
func (w *Worker) Query(id model.RunID, generation uint64, q model.Query) {
	if r := w.findRun(id, generation); r != nil {
		r.query(q)
	}
}

// Evict takes a run back.
func (w *Worker) Evict(id model.RunID, generation uint64, reason string) {
	if r := w.findRun(id, generation); r != nil {
		r.evict(reason)
	}
}

// forget removes a run, unless another activation has replaced it.
func (w *Worker) forget(r *run) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.runs[r.start.Run] == r {
		delete(w.runs, r.start.Run)
	}
}

// LoadedRuns returns the number of runs in memory.
func (w *Worker) LoadedRuns() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.runs)
}

// snapshot appends all runs to a slice.
func (w *Worker) snapshot(into []*run) []*run {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.runs {
		into = append(into, r)
	}
	return into
}

// Drain makes the worker start no further bodies. The worker gives back every run as soon as none
// of its bodies runs and the engine has delivered every event that the worker has reported.
func (w *Worker) Drain() {
	w.draining.Store(true)
	w.flush()
	for _, r := range w.snapshot(nil) {
		r.mu.Lock()
		r.giveBackLocked()
	}
}

// Resume undoes Drain. The engine has taken back the earlier runs, so there is nothing to start.
func (w *Worker) Resume() {
	if !w.closing.Load() {
		w.draining.Store(false)
	}
}

// Close leaves the session: it gives parked runs back, lets running bodies finish until ctx ends,
// and then interrupts them. Then it waits until no goroutine of the worker is left, but at most
// UnloadTimeout. If goroutines are left after that time, Close returns an error that says how many
// runs did not end.
func (w *Worker) Close(ctx context.Context) error {
	var err error
	w.closing.Store(true)
	if b := w.session.Load(); b != nil {
		w.Drain()
		defer w.unwatch()
		err = b.s.Leave(ctx)
	}

	w.halted.Store(true)
	w.mu.Lock()
	w.stop()
	w.mu.Unlock()

	for _, r := range w.snapshot(nil) {
		r.interrupt()
		r.evict("the worker is closed")
	}

	w.kept.close()
	w.slots.close()
	w.hosts.close()
	done := make(chan struct{})

	go func() {
		w.goroutines.Wait()
		close(done)
	}()

	timer := time.NewTimer(w.cfg.UnloadTimeout)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		if n := w.LoadedRuns(); n > 0 {
			return fault.New(fault.Timeout, "%d runs did not end: their code or their steps block", n)
		}
		return fault.New(fault.Timeout, "steps of runs that the worker has given up did not end: they ignore that their contexts have ended")
	}

	return err
}
