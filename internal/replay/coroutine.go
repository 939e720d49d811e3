package replay

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/perdure/perdure/internal/model"
)

// Code is a workflow function, from encoded input to encoded output. An error of type *Continue
// begins the next run.
type Code func(Ctx, model.Payload) (model.Payload, error)

// Coroutine is one line of execution of a run: a goroutine that runs only while it holds the baton
// of the run, which is the right to execute.
type Coroutine struct {
	m     *machine
	path  string
	scope *Scope
	fn    func(Ctx) (any, error) // nil for the root
	fut   *Future                // its result; nil for the root

	signal   chan wake
	home     atomic.Uintptr // the goroutine that it runs on
	started  bool
	returned bool        // its function has returned and passed the baton on
	dying    atomic.Bool // the machine ends its goroutine
	link     node[*Coroutine]

	wait     wait
	under    *Scope // the scope in which it is parked
	parkLink node[*Coroutine]
	single   [1]*Future             // room for the wait of a synchronous call
	inline   *ask                   // the step that it runs itself, or was woken to run
	inStep   atomic.Pointer[string] // the step that it waits for or runs

	kids, scopes int
	taken        int64              // position of the signal that it took last
	next         map[string]*Future // pending receives by signal
	random       *rand.Rand
	uuids        *stream
}

// wake is a message to a parked goroutine.
type wake uint8

const (
	wakeResume wake = iota // its wait is over, and it holds the baton
	wakeDrive              // it gets the baton to do the machine's work; its wait may not be over
	wakeExit               // it must end
)

// Ctx is what workflow code holds: a coroutine and the scope of its waits.
type Ctx struct {
	co    *Coroutine
	scope *Scope
}

// enter checks a durable call. The call must come from the coroutine that runs now, outside of any
// step.
func (x Ctx) enter(call ...string) error {
	c := x.co
	if c == nil {
		return misuse("durable call %s on a context that is not of an execution", strings.Join(call, " "))
	}
	if c.dying.Load() {
		runtime.Goexit() // in a deferred function, or in a goroutine that outlived its execution
	}
	if step := c.inStep.Load(); step != nil {
		return c.m.reportMisuse(misuse("durable call %s inside step %s: make it in the workflow, before or after the step", strings.Join(call, " "), *step))
	}

	if astray := c.m.astray.Load(); astray != nil && !c.foreign() {
		c.m.astray.Store(nil) // return the error only once, so that the clean-up can continue
		return *astray
	}

	if c.m.active.Load() != c {
		return c.m.reportMisuse(misuse("durable call %s outside a coroutine of this execution: use the context that the running function was given",
			strings.Join(call, " ")))
	}

	if c.foreign() {
		return c.m.reportMisuse(misuse("durable call %s from a goroutine that is not a coroutine of this execution: begin it with perdure.Go",
			strings.Join(call, " ")))
	}

	return nil
}

// must is enter for calls that return no error. A panic on a goroutine that user code started would
// end the whole process. So must ends only that goroutine, and the next durable call of the run
// returns the error.
func (x Ctx) must(call string) {
	err := x.enter(call)
	if err == nil {
		return
	}
	if c := x.co; c != nil && c.inStep.Load() == nil && c.foreign() {
		c.m.astray.CompareAndSwap(nil, &err)
		a := c.m.r.start.Address
		c.m.w.cfg.Logger.Error("a goroutine that workflow code has started makes a durable call, and is ended", "workflow", a.Type, "key", a.Key, "error", err)
		runtime.Goexit()
	}
	panic(err)
}

// park passes the baton on, and returns when the wait of the coroutine is over.
func (c *Coroutine) park() {
	mine := c.m.turnOver(c, false)
	for !mine {
		switch <-c.signal {
		case wakeResume:
			mine = true
		case wakeDrive:
			mine = c.m.turnOver(c, false)
		case wakeExit:
			runtime.Goexit()
		}
	}
	if c.dying.Load() {
		runtime.Goexit()
	}
}

// parkUnder parks until a future or the end of the scope wakes the coroutine.
func (c *Coroutine) parkUnder(s *Scope) {
	c.under = s
	s.parked.push(&c.parkLink, c)
	s.enter()
	c.wait.active = true
	c.park()
}

// wake makes a parked coroutine ready. Waking it twice is harmless.
func (c *Coroutine) wake() {
	if !c.wait.active {
		return
	}
	c.wait.active = false
	c.parkLink.remove()
	c.under.leave()
	c.under = nil
	c.m.makeReady(c)
}

// resume hands the baton to the coroutine. Afterwards the caller must not touch the machine.
func (c *Coroutine) resume() {
	if !c.started {
		c.started = true
		c.m.w.hosts.run(c)
		return
	}
	c.signal <- wakeResume
}

// main is the function of the coroutine's goroutine.
func (c *Coroutine) main() {
	defer c.handleExit()
	c.settleOn()
	if c.fn == nil {
		c.m.runRoot()
	} else {
		v, err := c.call()
		c.finish(v, err)
	}
	c.returned = true
}

// call runs the function and turns a panic into an error.
func (c *Coroutine) call() (v any, err error) {
	defer func() {
		if p := recover(); p != nil {
			c.m.panics = append(c.m.panics, c.fut)
			v, err = nil, panicError(p)
		}
	}()
	return c.fn(Ctx{c, c.scope})
}

// finish resolves the future of a coroutine whose function is over, and passes the baton on.
func (c *Coroutine) finish(v any, err error) {
	m := c.m
	m.drop(c)
	if !c.fut.done {
		c.fut.value, c.fut.err = v, err
		m.resolve(c.fut, m.position())
	}
	m.turnOver(nil, false)
}

// handleExit handles a goroutine that ends before its function returns: the run is unloaded, or
// user code called runtime.Goexit.
func (c *Coroutine) handleExit() {
	m := c.m
	switch {
	case c.returned:
	case c.dying.Load():
		select {
		case m.gone <- c:
		default: // the waiter has given up
		}
	case c.inline != nil:
		m.recoverExit(c)
	default:
		m.w.goroutines.Add(1)
		go c.replace(ExitFailure("workflow code"))
	}
}

// replace continues the coroutine on a new goroutine, because user code has ended the old one.
func (c *Coroutine) replace(f *model.Failure) {
	defer c.m.w.goroutines.Done()
	defer c.handleExit()
	c.settleOn()
	if c.fn == nil {
		c.m.endRun(model.Payload{}, f)
	} else {
		c.m.panics = append(c.m.panics, c.fut)
		c.finish(nil, f)
	}
	c.returned = true
}

// Go runs fn as a new coroutine of the execution. The coroutine begins when the caller next waits.
func (x Ctx) Go(fn func(Ctx) (any, error)) *Future {
	if err := x.enter("Go"); err != nil {
		return failedFuture(err)
	}
	c := x.co
	c.kids++
	return c.m.spawn(childPath(c.path, c.kids), x.scope, fn)
}

// spawn adds a coroutine that is ready to run. The parameter under is the scope that the coroutine
// belongs to. It is nil if the coroutine must survive a cancel request.
func (m *machine) spawn(path string, under *Scope, fn func(Ctx) (any, error)) *Future {
	child := &Coroutine{m: m, path: path, fn: fn, signal: make(chan wake, 1)}
	child.scope = &Scope{m: m, parent: under, path: path}
	if under != nil {
		child.scope.section = under.section
	}
	child.fut = &Future{m: m, kind: futureCoroutine, co: child}
	m.coroutines.push(&child.link, child)
	m.alive++
	m.makeReady(child)
	return child.fut
}

// Attempt returns the number of this run among the runs that repeat a failed run, from 1.
func (x Ctx) Attempt() int {
	x.must("Attempt")
	return x.co.m.r.start.Tries()
}

// Now returns the time of the last event that the code has seen. If the code has run ahead, Now
// first waits for the commit, because the time is unknown before that.
func (x Ctx) Now() time.Time {
	c := x.co
	if c == nil {
		panic(misuse("Now on a context that is not of an execution"))
	}
	if c.m.active.Load() == c && c.inStep.Load() == nil {
		x.must("Now")
		c.settle()
	}
	return model.Time(c.m.now.Load()).Std()
}

// settle waits until everything that the code ran ahead of is committed. No other coroutine runs
// during that wait, because a replay does not wait here.
func (c *Coroutine) settle() {
	if len(c.m.ahead) > 0 {
		c.m.settling = c
		c.park()
	}
}

// Self returns the address of the execution and its run.
func (x Ctx) Self() (model.Address, model.RunID) {
	if x.co == nil {
		panic(misuse("Self on a context that is not of an execution"))
	}
	s := x.co.m.r.start
	return s.Address, s.Run
}

// Live reports whether the code has passed the end of its history, so that it does things for the
// first time and does not replay them. It is always true inside a step and in goroutines that the
// user started.
func (x Ctx) Live() bool {
	if c := x.co; c != nil && (c.inStep.Load() != nil || c.foreign()) {
		return true
	}
	x.must("Log")
	return x.co.m.live
}

// Context returns a context that ends when the worker is closed. The host uses it to fetch or store
// data for the code.
func (x Ctx) Context() context.Context { return x.co.m.w.ctx }

// Host returns the host from the worker's configuration.
func (x Ctx) Host() any { return x.co.m.w.cfg.Host }

// Rand returns random numbers that are seeded by the run and the coroutine.
func (x Ctx) Rand() *rand.Rand {
	x.must("Rand")
	c := x.co
	if c.random == nil {
		c.random = rand.New(&stream{c: c, purpose: "rand"})
	}
	return c.random
}

// UUID returns a random UUID (version 4), seeded by the run and the coroutine.
func (x Ctx) UUID() string {
	x.must("UUID")
	c := x.co
	if c.uuids == nil {
		c.uuids = &stream{c: c, purpose: "uuid"}
	}
	var b [16]byte
	_, _ = c.uuids.source().Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	var text [36]byte
	hex.Encode(text[:8], b[:4])
	hex.Encode(text[9:13], b[4:6])
	hex.Encode(text[14:18], b[6:8])
	hex.Encode(text[19:23], b[8:10])
	hex.Encode(text[24:], b[10:])
	text[8], text[13], text[18], text[23] = '-', '-', '-', '-'

	return string(text[:])
}

// stream generates the random numbers of a coroutine, seeded by the run. While a run replays a
// past, it draws the numbers of the run that the past comes from. After the past it draws its own
// numbers, so that a fork does not draw the same numbers as its source.
type stream struct {
	c       *Coroutine
	purpose string
	run     model.RunID // the run whose numbers are drawn
	numbers *rand.ChaCha8
}

// Uint64 implements rand.Source.
func (s *stream) Uint64() uint64 { return s.source().Uint64() }

func (s *stream) source() *rand.ChaCha8 {
	m := s.c.m
	if run := m.r.start.SeedAt(m.position()); s.numbers == nil || run != s.run {
		s.run = run
		s.numbers = rand.NewChaCha8(sha256.Sum256([]byte(string(run[:]) + "\x00" + s.purpose + "\x00" + s.c.path)))
	}
	return s.numbers
}

func itoa(n int) string { return strconv.Itoa(n) }
