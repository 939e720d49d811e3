package perdure

import (
	"context"
	"time"

	"github.com/perdure/perdure/internal/singleton"
)

// Singleton is code that runs in one process at a time, among all processes that pass it to Open or
// Dial. P is the type of the position of the singleton. The position says how far the code has
// come, and is stored between the runs of the code. Use Void if the code needs no position.
//
// The process that runs the code renews a lease. If that process dies, another process starts the
// code when the lease has expired. A process on the same machine starts the code immediately if it
// can prove that the old process is gone. If the process that runs the code closes its app, another
// process starts the code as soon as the code has returned.
type Singleton[P any] struct {
	name string
	run  func(context.Context, *Position[P]) error
	opts singletonOptions
	at   string
}

// NewSingleton defines a singleton. The code runs until ctx ends.
//
// The context ends when the app closes. It also ends when the process may lose its lease. From that
// moment it takes at least a fifth of the duration of the lease until another process can start the
// code. Before the code does something that does not stop with ctx, it should check ctx.Err(). The
// code must return soon after ctx has ended.
//
// If the code returns nil, the process starts it again after RestartAfter. After an error or a
// panic, the process releases the lease, so that another process can try. The process itself waits
// before it tries again: 1 s after the first failure, then longer, up to 1 min.
func NewSingleton[P any](name string, run func(ctx context.Context, at *Position[P]) error, opts ...SingletonOption) *Singleton[P] {
	s := &Singleton[P]{name: name, run: run, at: callerPosition()}
	s.opts = singletonOptions{lease: 10 * time.Second, pause: time.Second}
	for _, o := range opts {
		o.applySingleton(&s.opts)
	}
	return s
}

// Describe returns the process that runs the singleton, and its position. It reads the store and
// does not wait for the singleton.
func (s *Singleton[P]) Describe(c Client) (info SingletonInfo[P], err error) {
	defer publish(&err)
	if err := checkText("the name of singleton", s.name, maxKey); err != nil {
		return info, err
	}
	h := c.host()
	state, err := singleton.At(h.backend, h.tenant, s.name).Load(c.ctx)
	if err != nil {
		return info, err
	}

	info = SingletonInfo[P]{Holder: state.Holder, Epoch: state.Epoch, Since: state.Since}
	info.Position, err = decode[P](c, positionOf, s.name, state.Position.Payload)
	return info, err
}

// SingletonInfo describes a singleton.
type SingletonInfo[P any] struct {
	// Holder is the process that holds the lease, or empty if there is none. A process that has
	// died remains the Holder until another process takes over.
	Holder string
	// Epoch is the fencing token of the holder.
	Epoch int64
	// Since is when the holder took over, by its own clock.
	Since time.Time
	// Position is the last saved position, or the zero value.
	Position P
}

// Position is how far a singleton has come. It is safe for concurrent use.
type Position[P any] struct {
	tenure *singleton.Tenure
	host   *host
	name   string
}

const positionOf = "position of singleton"

// Last returns the position that was saved last, in this run or in an earlier run. Before the first
// Save, it returns the zero value.
func (p *Position[P]) Last() (P, error) {
	ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
	defer cancel()
	v, err := decode[P](callReader{p.host, ctx}, positionOf, p.name, p.tenure.Position())
	return v, remote(err)
}

// Save stores a position. When Save returns nil, the position is durable, and later runs of the
// code get it, wherever they run. Save returns ErrConflict if another process may have taken over.
// While the app closes, the context of the code has already ended, but Save still works if it gets
// another context.
func (p *Position[P]) Save(ctx context.Context, v P) (err error) {
	defer publish(&err)
	stored, err := encodeFor(p.host, positionOf, p.name, v)
	if err == nil {
		stored, err = p.host.seal(ctx, brief, positionOf, p.name, stored)
	}
	if err != nil {
		return err
	}
	return p.tenure.Save(ctx, stored)
}

// Epoch returns the fencing token of this run. Every process that runs the code later has a higher
// token. Pass the token to systems that can refuse writes with a lower token.
func (p *Position[P]) Epoch() int64 { return p.tenure.Epoch() }

// SingletonOption configures a singleton: SingletonLease or RestartAfter.
type SingletonOption interface{ applySingleton(*singletonOptions) }

type singletonOptions struct{ lease, pause time.Duration }

type singletonOption func(*singletonOptions)

func (f singletonOption) applySingleton(o *singletonOptions) { f(o) }

// SingletonLease sets how long a process may run a singleton without renewing its lease. The
// default is 10 s, and the minimum is 1 s. If a process dies, processes on other machines wait for
// this time before one of them starts the code. The process renews its lease four times in this
// period, with one commit each.
func SingletonLease(d time.Duration) SingletonOption {
	return singletonOption(func(o *singletonOptions) { o.lease = d })
}

// RestartAfter sets the pause before the code starts again after it has returned nil. The default
// is 1 s.
func RestartAfter(d time.Duration) SingletonOption {
	return singletonOption(func(o *singletonOptions) { o.pause = d })
}

// Bounds of SingletonLease.
const (
	minSingletonLease = time.Second
	maxSingletonLease = time.Hour
)

func (s *Singleton[P]) define(r *registry) {
	d := singletonDefinition{name: s.name, at: s.at, opts: s.opts}
	r.checkTypes(s.at, []typeOf{typeFor[P](positionOf + " " + s.name)})
	if s.run == nil {
		r.wrong("the function of singleton %s is nil (%s)", s.name, s.at)
	}
	d.body = func(h *host) func(context.Context, *singleton.Tenure) error {
		return func(ctx context.Context, t *singleton.Tenure) error {
			return s.run(ctx, &Position[P]{tenure: t, host: h, name: s.name})
		}
	}
	r.singleton(d)
}

// singletonDefinition is the definition of a singleton, as an app collects it when it opens.
type singletonDefinition struct {
	name, at string
	opts     singletonOptions
	body     func(*host) func(context.Context, *singleton.Tenure) error
}

// singleton adds a singleton, and records everything that is wrong with it.
func (r *registry) singleton(d singletonDefinition) {
	for _, other := range r.singletons {
		if other.name == d.name {
			r.wrong("two definitions of singleton %s (%s, %s): pass one of them, or give it another name", d.name, other.at, d.at)
			return
		}
	}

	if err := checkText("the name of singleton", d.name, maxKey); err != nil {
		r.wrong("%w (%s)", err, d.at)
	}
	if l := d.opts.lease; l < minSingletonLease || l > maxSingletonLease {
		r.wrong("singleton %s: SingletonLease(%s) must be at least %s and at most %s (%s)", d.name, l, minSingletonLease, maxSingletonLease, d.at)
	}
	if d.opts.pause < 0 {
		r.wrong("singleton %s: RestartAfter(%s) is below zero (%s)", d.name, d.opts.pause, d.at)
	}
	r.singletons = append(r.singletons, d)
}

// runSingletons competes with other processes for the singletons of the app, until stopSingletons
// is called.
func (a *App) runSingletons(all []singletonDefinition) {
	ctx, stop := context.WithCancel(context.Background())
	if c := a.cfg.Checks; c != nil && c.Base != nil {
		ctx, stop = context.WithCancel(c.Base)
	}
	a.stopSingletons = func() {
		stop()
		a.singletons.Wait()
	}

	name := workerName()
	for _, d := range all {
		r := singleton.New(singleton.Config{
			Name: d.name, Register: singleton.At(a.host.backend, a.host.tenant, d.name), ID: name, Process: a.cfg.Process, Gone: a.cfg.ProcessGone,
			Lease: d.opts.lease, Pause: d.opts.pause, Drain: a.cfg.DrainTimeout, Body: d.body(a.host), Log: a.cfg.Logger,
		})
		a.singletons.Go(func() { r.Run(ctx) })
	}
}
