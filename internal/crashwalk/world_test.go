package crashwalk_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/attach"
	"github.com/perdure/perdure/internal/crash"
	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/notify"
	"github.com/perdure/perdure/internal/replay"
	"github.com/perdure/perdure/internal/store/faultstore"
	"github.com/perdure/perdure/internal/store/memory"
)

// Limits of a run, in virtual time. A takeover takes the time of a lease. The engine tries a
// quarantined address again after a minute.
const (
	leaseTTL   = 4 * time.Second
	patience   = 5 * time.Minute // for one drive
	maxLives   = 6               // the most processes that one stage opens one after the other
	maxRetries = 40              // the most drives that may fail in one process
	shards     = 8
)

// world has everything that outlives a process: the store, the executed bodies of steps (they act
// on the world), and the acknowledgements to clients.
type world struct {
	s       *scenario
	mem     *memory.Store
	orphans *faultstore.Orphans
	strike  *strike
	trace   *crash.Trace
	hints   *notify.Local
	vault   vault
	log     *slog.Logger
	checks  *replay.Checks // nil for none

	opened    int        // how many processes were opened so far
	processes []*process // all processes that were opened
	current   *stage     // the last stage that has started

	mu     sync.Mutex
	bodies map[string]int
	facts  map[string]string // what drivers and definitions recorded
	asked  []string          // callers of ordinal
	acks   []ack
}

// ack is an acknowledgement that a client got. It must be true at the end.
type ack struct {
	what  string
	holds func(h *histories) error
}

func newWorld(s *scenario, st *strike) *world {
	w := &world{
		s: s, strike: st, mem: memory.New(memory.Options{Shards: shards, Cluster: "walk"}), orphans: faultstore.NewOrphans(),
		bodies: map[string]int{}, facts: map[string]string{}, trace: crash.NewTrace(), hints: &notify.Local{},
		log: slog.New(slog.DiscardHandler), vault: vault{blobs: map[string][]byte{}},
	}
	if *logRuns {
		w.log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	return w
}

// recordBody records that the body of a step was executed.
func (w *world) recordBody(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.bodies[name]++
}

// times returns how often a body was executed.
func (w *world) times(name string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.bodies[name]
}

// tell stores a fact, unless the key already has one, and returns the stored fact. It acts like an
// outside service with idempotent requests.
func (w *world) tell(key, value string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if old, ok := w.facts[key]; ok {
		return old
	}
	w.facts[key] = value
	return value
}

// hasFact reports whether the key has a fact.
func (w *world) hasFact(key string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, ok := w.facts[key]
	return ok
}

// ordinal numbers its callers from 1. The same caller always gets the same number.
func (w *world) ordinal(who string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Contains(w.asked, who) {
		w.asked = append(w.asked, who)
	}
	return slices.Index(w.asked, who) + 1
}

// step runs a step that records its execution and returns its name.
func (w *world) step(ctx perdure.WorkflowCtx, name string, opts ...perdure.CallOption) (string, error) {
	return perdure.Do(ctx, name, func(context.Context) (string, error) {
		w.recordBody(name)
		return name, nil
	}, opts...)
}

var errStuck = errors.New("stuck: the driver did not end in time")

// process is one life of the program, on the store of the world.
type process = crash.Process

// open opens a process and waits until it serves.
func (w *world) open(st *stage) (*process, error) {
	w.opened++
	log := w.log.With("process", w.opened)
	cfg := crash.Config{
		Store: w.mem, Plan: w.strike, Orphans: w.orphans, Trace: w.trace, Number: w.opened, Shared: st.processes > 1, Patience: patience,
		Engine: engine.Config{Log: log, Lanes: w.s.lanes, LeaseTTL: cmp.Or(w.s.lease, leaseTTL)},
		Attach: attach.Config{
			Logger: log, IdleAfter: w.s.idleAfter, Checks: w.checks, Payloads: w.payloads(), Version: st.version, Tasks: w.s.tasks,
		},
	}
	if st.processes > 1 {
		cfg.Engine.Hints = w.hints
	}
	p, err := crash.Open(cfg, st.define(w))
	w.processes = append(w.processes, p)
	return p, err
}

// faultCount returns the number of faults that the wrappers have injected.
func (w *world) faultCount() int64 {
	n := int64(0)
	for _, p := range w.processes {
		n += p.Faults()
	}
	return n
}

// run runs the stages of the scenario, and replaces processes that die.
func (w *world) run() error {
	for i := range w.s.stages {
		if err := w.stage(&w.s.stages[i]); err != nil {
			return fmt.Errorf("stage %d: %w", i+1, err)
		}
	}
	w.orphans.ReleaseAll()
	return nil
}

// stage opens the processes of a stage. It drives them until the driver has succeeded and the
// processes have closed cleanly.
func (w *world) stage(st *stage) (err error) {
	w.current = st
	ps := make([]*process, max(st.processes, 1))
	defer func() {
		for _, p := range ps {
			if p != nil {
				err = errors.Join(err, p.Bury())
			}
		}
	}()

	retries := 0
	for lives := 1; ; {
		if lives > maxLives || retries > maxRetries {
			return fmt.Errorf("gave up after %d processes and %d drives: %w", lives, retries, errStuck)
		}
		alive, err := w.populate(st, ps)
		if err != nil {
			return err
		}

		if !alive {
			lives++
			continue
		}

		if lives > 1 && w.s.selfless && w.strike.at%2 == 0 {
			if err := w.quiet(ps); err != nil && !errors.Is(err, crash.ErrDied) {
				return fmt.Errorf("left alone after a crash: %w", err)
			}
		}

		err = w.drive(st, ps)
		if err == nil {
			err = w.quiet(ps)
		}
		died, failed := w.burials(ps)

		switch {
		case failed != nil:
			return failed
		case err != nil && !died && errors.Is(err, crash.ErrDied):
			return fmt.Errorf("no process died, but the driver says: %w", err)
		case err != nil && !tolerable(err, w.strike.kind):
			return fmt.Errorf("drive: %w", err)
		case died:
			lives++
			continue
		case err != nil:
			retries++
			time.Sleep(time.Second)
			if w.hasRefused() {
				time.Sleep(time.Minute) // until the quarantine is over
			}
			continue
		}

		ended, err := w.closeAll(ps)
		if err != nil || ended {
			return err
		}
		lives++
	}
}

// populate opens the missing processes. It returns false if a process died, or could not be opened
// because of the fault.
func (w *world) populate(st *stage, ps []*process) (alive bool, err error) {
	for i, p := range ps {
		if p != nil {
			continue
		}
		p, err := w.open(st)
		ps[i] = p

		if p.Dead() {
			ps[i] = nil
			return false, p.Bury()
		}

		k := w.strike.kind
		// The fault of this run kept the process from opening.
		if err != nil && (tolerable(err, k) || k != nil && k.refuses && errors.Is(err, context.DeadlineExceeded)) {
			ps[i] = nil
			time.Sleep(time.Minute) // until a quarantine is over
			return false, p.Bury()
		}

		if err != nil {
			return false, fmt.Errorf("open process %d: %w", p.Number, err)
		}
	}

	return true, nil
}

// burials cleans up after processes that died.
func (w *world) burials(ps []*process) (died bool, err error) {
	for i, p := range ps {
		if p.Dead() {
			died = true
			ps[i] = nil
			err = errors.Join(err, p.Bury())
		}
	}
	return died, err
}

// closeAll closes all processes cleanly. It returns false if a process died before it was closed.
func (w *world) closeAll(ps []*process) (orderly bool, err error) {
	orderly = true
	for i, p := range ps {
		ok, err := p.Close()
		if k := w.strike.kind; k != nil && k.span > 0 && (fault.Is(err, fault.Timeout) || fault.Is(err, fault.Unavailable)) {
			// The process gave up waiting for the store. The error says what is not stored.
			ok, err = false, nil
		}
		if err != nil {
			return false, fmt.Errorf("close process %d: %w", p.Number, err)
		}
		if !ok {
			orderly = false
			if err := p.Bury(); err != nil {
				return false, err
			}
		}
		ps[i] = nil
	}

	return orderly, nil
}

// drive runs the driver once.
func (w *world) drive(st *stage, ps []*process) error {
	d := &driver{w: w, ps: ps}
	for _, p := range ps {
		ctx, cancel := context.WithTimeoutCause(p.Context(), patience, errStuck)
		defer cancel()
		d.ctxs = append(d.ctxs, ctx)
	}
	return st.drive(d)
}

// quiet waits until nothing changes: every open run is meant to be open, and all messages have
// arrived.
func (w *world) quiet(ps []*process) error {
	for began := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		why := w.restless()
		switch {
		case why == nil:
			return nil
		case slices.ContainsFunc(ps, (*process).Dead):
			return crash.ErrDied
		case time.Since(began) > patience:
			return fmt.Errorf("%w: %w", errStuck, why)
		}
	}
}

// tolerable reports whether a driver may fail with this error and run again: its process died, the
// store was away, or an address was quarantined.
func tolerable(err error, k *kind) bool {
	var all several
	switch {
	case k == nil, errors.Is(err, errStuck), errors.Is(err, errWrong):
		return false
	case errors.As(err, &all):
		return !slices.ContainsFunc(all, func(e error) bool { return !tolerable(e, k) })
	case k.crash: // the surviving processes must not notice the crash
		return errors.Is(err, crash.ErrDied) || errors.Is(err, faultstore.ErrCrashed)
	case errors.Is(err, perdure.ErrBlocked):
		return k.refuses
	}
	return errors.Is(err, perdure.ErrUnavailable)
}
