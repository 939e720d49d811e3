package perduretest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/attach"
	"github.com/perdure/perdure/internal/crash"
	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/replay"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/faultstore"
	"github.com/perdure/perdure/internal/store/memory"
)

// forever is the period of all periodic work of a node, so a test never sees that work. With the
// usual periods, a test that lets a year pass would mostly run lease renewals and sweeps. A test
// does not need them, because there is only one node, which dies only when the test kills it.
const forever = 100 * 365 * 24 * time.Hour

const shards = 4

// world is everything that outlives a process: the store, and the effects of step bodies outside
// the program.
type world struct {
	cfg      Config
	log      *slog.Logger // of executions
	mem      *memory.Store
	plan     faultstore.Plan
	found    func(text string) // receives each mistake once
	def      perdure.Definition
	opened   int
	remains  sync.WaitGroup // goroutines of dead processes
	patience *time.Timer

	mu      sync.Mutex
	last    *time.Timer    // ends the process, see endLater; nil before that
	buried  *crash.Process // the last process whose remains have been ended
	current *crash.Process
	ctx     context.Context //nolint:containedctx // for calls of the test; ends with the process
	cancel  context.CancelCauseFunc
	ended   error // why the calls of the test have ended; nil while they may continue
	told    map[string]bool
	effects map[string]int
	bodies  map[string]*body // by idempotency key
}

// body records what happened to the body of one step.
type body struct {
	step    string
	ran     int
	effects []string
}

func newWorld(c Config) *world {
	w := &world{
		cfg: c, log: c.Logger, mem: memory.New(memory.Options{Shards: shards, Cluster: "perduretest"}),
		told: map[string]bool{}, effects: map[string]int{}, bodies: map[string]*body{},
	}
	w.patience = time.AfterFunc(c.Patience, w.giveUp)
	return w
}

// giveUp ends the waits of a test whose patience is over.
func (w *world) giveUp() {
	p, ctx := w.process()
	if p == nil || p.App == nil || ctx.Err() != nil {
		return
	}
	why := stuck{w.cfg.Patience}
	w.found(why.Error() + "\n" + w.reasons(p.App))
	w.end(why)
	w.endLater(why)
}

// process returns the process that runs now, and the context of calls to it.
func (w *world) process() (*crash.Process, context.Context) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.current, w.ctx
}

// end ends the calls of the test.
func (w *world) end(why error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = why
	if w.cancel != nil {
		w.cancel(why)
	}
}

// lastPatience is how much virtual time a test has after its calls have ended because nothing more
// can happen.
const lastPatience = time.Hour

// endLater ends the process after lastPatience, unless the test has opened another process by then.
// A test may wait for something else than its calls, for example for a channel that a fake closes.
// While the process lives, the clock jumps from one timer of the process to the next one, without
// end. Without the process, nothing is left that could happen, and synctest ends the test.
func (w *world) endLater(why error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.last != nil {
		w.last.Stop()
	}
	w.last = time.AfterFunc(lastPatience, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if p := w.current; p != nil && w.ended == why { //nolint:errorlint // this very end
			w.bury(p)
		}
	})
}

// bury ends the remains of a process, once. It does not wait, because the remains may sleep. The
// caller holds the lock.
func (w *world) bury(p *crash.Process) {
	if w.buried == p {
		return
	}
	w.buried = p
	w.remains.Go(func() {
		_ = p.Bury() // the process is dead, so its error does not matter
	})
}

// enter makes p the process that runs now, and returns the process before it. nil means no process.
func (w *world) enter(p *crash.Process) (before *crash.Process) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before = w.current
	w.current = p
	if p != nil {
		w.ctx, w.cancel = context.WithCancelCause(p.Context())
		if w.ended != nil { // while the process was being opened
			w.cancel(w.ended)
		}
	}
	return before
}

type worldKey struct{}

// open opens a process that serves a definition.
func (w *world) open(def perdure.Definition) error {
	w.def = def
	w.opened++
	w.mu.Lock()
	w.ended = nil
	w.mu.Unlock()

	cfg := crash.Config{
		Store: w.mem, Plan: w.plan, Number: w.opened, Patience: w.cfg.Patience,
		Engine: engine.Config{
			Log: w.cfg.Logger, LeaseTTL: forever, RenewEvery: forever, SweepEvery: forever, RetainRequest: forever, Retention: forever,
			Lane: lane.Config{TimerHorizon: forever, RetainEvery: forever},
		},
		Attach: attach.Config{
			Logger: w.log, MaxPayload: w.cfg.MaxPayload, Payloads: w.cfg.Payloads, Instead: w.cfg.Instead,
			Checks: &replay.Checks{
				Twice: !w.cfg.Once, Found: w.mistake, Ran: w.ran, Base: context.WithValue(context.Background(), worldKey{}, w),
			},
		},
	}

	p, err := crash.Open(cfg, def)
	w.enter(p)
	return err
}

// kill kills the process. It does not wait for goroutines that remain.
func (w *world) kill() error {
	p := w.enter(nil)
	if p == nil {
		return nil
	}
	p.Kill()
	w.mu.Lock()
	w.bury(p)
	w.mu.Unlock()
	return w.fence()
}

// fence takes the shards away from dead processes, so that the next process need not wait until
// their lease ends.
func (w *world) fence() error {
	ctx := context.Background()
	view, err := w.mem.Members(ctx)
	if err != nil {
		return err
	}
	for _, m := range view.Members {
		if _, err := w.mem.FenceNode(ctx, store.FenceRequest{Node: m.ID, Epoch: m.Epoch, Proven: true}); err != nil {
			return err
		}
	}
	return nil
}

// close ends everything. It does not drain the process, because a test may end while steps run.
func (w *world) close() error {
	w.patience.Stop()
	err := w.kill()
	w.remains.Wait()
	return err
}

// mistake records a mistake of the code. The worker calls it.
func (w *world) mistake(m replay.Mistake) {
	text := fmt.Sprintf("execution %s/%s: %s", m.Address.Type, m.Address.Key, m.Text)
	w.mu.Lock()
	first := !w.told[text]
	w.told[text] = true
	w.mu.Unlock()
	if first {
		w.found(text)
	}
	switch {
	case m.Blocked:
		w.end(fmt.Errorf("%w: %s", errBlocked, text)) // no caller that waits would ever get an answer
	case m.Stuck && first:
		line, _, _ := strings.Cut(text, "\n") // without the stack
		why := fmt.Errorf("%w: %s", errStuck, line)
		w.end(why)
		w.endLater(why)
	}
}

var (
	errBlocked = errors.New("an execution is blocked")
	errStuck   = errors.New("an execution may never continue")
)

// ran records that a body has returned. The worker calls it.
func (w *world) ran(a replay.Attempt) {
	w.mu.Lock()
	defer w.mu.Unlock()
	b := w.body(a.IdempotencyKey)
	b.step = a.Step
	b.ran++
}

func (w *world) body(key string) *body {
	b := w.bodies[key]
	if b == nil {
		b = &body{}
		w.bodies[key] = b
	}
	return b
}

// Effect records that the body of a step has changed the outside world: for example, it moved money
// or sent a mail. Call Effect in the fake of a service, at the place where the real service would
// change something. Pass a text that names the effect, such as "charge order-17". If a service
// recognises a repeated request by its [perdure.IdempotencyKey], the repeated request has no
// effect, so the fake must not call Effect for it.
//
// [Explore] reports effects that happened more often than without a crash. [Env.Effects] returns
// how often each effect has happened. Outside tests of this package, Effect does nothing.
func Effect(ctx context.Context, name string) {
	w, ok := ctx.Value(worldKey{}).(*world)
	if !ok {
		return
	}
	key := perdure.IdempotencyKey(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.effects[name]++
	if b := w.body(key); !slices.Contains(b.effects, name) {
		b.effects = append(b.effects, name)
	}
}
