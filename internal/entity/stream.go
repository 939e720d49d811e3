package entity

import (
	"context"
	"sync"
	"time"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/replay"
)

// Bounds of the streams of a worker.
const (
	// DefaultStreams is how many streams a worker runs at the same time by default. Each stream has
	// a copy of the state of its entity.
	DefaultStreams = 1_000
	// quiet is how long a worker waits for the next item before it tells the owner that the code
	// still runs, and asks whether the caller still reads.
	quiet = 50 * time.Millisecond
	// patience is how long a worker tries to reach the owner. retryAfter is how long it waits
	// between two attempts. The owner waits longer than patience for a silent worker.
	patience   = 30 * time.Second
	retryAfter = 100 * time.Millisecond
	// farewell is how long a closing worker tries to tell the callers of its streams that it
	// closes.
	farewell = 2 * time.Second
)

// The reasons for which the context of the code of a stream ends.
var (
	errLeft    = fault.New(fault.Canceled, "the caller of the stream no longer reads it, or the entity has moved to another process: %w", replay.ErrCanceled)
	errClosing = fault.New(fault.Unavailable, "the process that runs the stream is closing; read the stream again")
)

// Outlet sends the items of streams to the owner of their entity; see api.Entities.
type Outlet interface {
	// SendItems sends items, and returns the number of the last item that the owner has.
	SendItems(ctx context.Context, r model.ItemsSend) (int64, error)
}

// StreamFunc is the code of a stream. It runs in parallel with the call that started the stream,
// and may continue after that call has returned. send waits while the caller is too far behind, and
// fails once the stream is over.
type StreamFunc func(ctx context.Context, send func(model.Payload) error) error

// streams are the streams of a worker.
type streams struct {
	outlet Outlet
	most   int

	mu     sync.Mutex
	count  int
	closed bool
	wg     sync.WaitGroup
	ctx    context.Context //nolint:containedctx // the context of all streams; ends when the worker closes
	stop   context.CancelCauseFunc
}

func newStreams(cfg *Config) *streams {
	s := &streams{outlet: cfg.Outlet, most: cfg.Streams}
	s.ctx, s.stop = context.WithCancelCause(cfg.Base)
	return s
}

// begin starts a stream, which takes no slot. The code of the stream runs in parallel with the
// calls until it returns.
func (s *streams) begin(entity model.Address, id string, code StreamFunc) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return errClosing
	case s.count >= s.most:
		return fault.New(fault.Exhausted, "stream of %s: the worker runs %d streams, which is the limit", entity, s.most)
	}

	s.count++
	o := &outflow{outlet: s.outlet, entity: entity, id: id, first: 1, changed: make(chan struct{}, 1), room: make(chan struct{}, 1)}
	s.wg.Go(func() {
		o.run(s.ctx, code)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.count--
	})
	return nil
}

// close ends all streams. Their callers get the reason.
func (s *streams) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.stop(errClosing)
}

// wait waits until the code of all streams has returned, or ctx ends.
func (s *streams) wait(ctx context.Context) error {
	s.mu.Lock()
	left := s.count
	s.mu.Unlock()
	done := make(chan struct{})
	go func() {
		s.wg.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fault.New(fault.Timeout, "the code of up to %d streams has not returned", left)
	}
}

// outflow sends the items of one stream. The code adds items, and pump sends them while the code
// continues.
type outflow struct {
	outlet Outlet
	entity model.Address
	id     string

	changed, room chan struct{} // hold one signal each; changed wakes pump, and room wakes send

	mu      sync.Mutex
	first   int64 // number of the first item that the owner does not have
	items   []model.Payload
	bytes   int
	ended   bool // the code has returned
	failure *model.Failure
	over    error // why no further item can be sent; nil while the stream is open
}

// run runs the code of a stream, and sends its items and its outcome. ctx ends when the worker
// closes.
func (o *outflow) run(ctx context.Context, code StreamFunc) {
	inner, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var pump sync.WaitGroup
	pump.Go(func() {
		if err := o.pump(ctx); err != nil {
			o.end(err)
			cancel(err)
			o.sayGoodbye(ctx, err)
		}
	})
	defer pump.Wait()

	// If the code calls runtime.Goexit, execute does not return, and the deferred function reports
	// the first value of f.
	f := replay.ExitFailure("the code of the stream")
	defer func() { o.finish(f) }()
	f = o.execute(inner, code)
}

// sayGoodbye ends the stream if the worker closes before the code has returned. The caller gets the
// items that the owner has, and then an error.
func (o *outflow) sayGoodbye(ctx context.Context, why error) {
	if why != errClosing { //nolint:errorlint // it is not wrapped
		return
	}
	o.mu.Lock()
	r := model.ItemsSend{Entity: o.entity, ID: o.id, First: o.first, Ended: true, Failure: replay.FailureOf(errClosing)}
	o.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
	defer cancel()
	_, _ = o.outlet.SendItems(ctx, r) // if this fails, the owner notices that the worker is silent
}

// execute runs the code and returns how it failed.
func (o *outflow) execute(ctx context.Context, code StreamFunc) (f *model.Failure) {
	defer catchPanic(&f)
	err := code(ctx, func(p model.Payload) error { return o.send(ctx, p) })
	if err == nil {
		return nil
	}
	return replay.FailureOf(err)
}

// send adds an item. It waits while there is no room.
func (o *outflow) send(ctx context.Context, p model.Payload) error {
	for {
		o.mu.Lock()
		switch {
		case o.over != nil || o.ended:
			defer o.mu.Unlock()
			if o.over != nil {
				return o.over
			}
			return fault.New(fault.Invalid, "send an item of stream %s of %s: its code has returned", o.id, o.entity)
		case len(o.items) == 0 || len(o.items) < model.MaxItemsAhead && o.bytes+p.Size() <= model.MaxBytesAhead:
			o.items, o.bytes = append(o.items, p), o.bytes+p.Size()
			o.mu.Unlock()
			signal(o.changed)
			return nil
		}
		o.mu.Unlock()

		select {
		case <-o.room:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// finish records how the code has ended.
func (o *outflow) finish(f *model.Failure) {
	o.mu.Lock()
	o.ended, o.failure = true, f
	o.mu.Unlock()
	signal(o.changed)
}

// end records why no further item can be sent.
func (o *outflow) end(why error) {
	o.mu.Lock()
	o.over, o.items, o.bytes = why, nil, 0
	o.mu.Unlock()
	signal(o.room)
}

// signal wakes the other side, or makes its next wait return immediately.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// pump sends items until the owner has all items and knows how the stream ended.
func (o *outflow) pump(ctx context.Context) error {
	for {
		r := o.batch()
		if len(r.Items) == 0 && !r.Ended {
			if err := o.listen(ctx); err != nil {
				return err
			}
			continue
		}

		last, err := o.sendItems(ctx, r)
		if err != nil {
			return whyOver(ctx, err)
		}
		o.drop(last)
		if r.Ended && last >= r.First+int64(len(r.Items))-1 {
			return nil
		}
	}
}

// sendItems sends items. It tries again for a while if the owner cannot be reached. The owner skips
// the items that it already has. A new owner answers that it does not have the stream.
func (o *outflow) sendItems(ctx context.Context, r model.ItemsSend) (int64, error) {
	for until := time.Now().Add(patience); ; {
		last, err := o.outlet.SendItems(ctx, r)
		if err == nil || !fault.Is(err, fault.Unavailable) || time.Now().After(until) {
			return last, err
		}
		select {
		case <-time.After(retryAfter):
		case <-ctx.Done():
			return 0, err
		}
	}
}

// whyOver turns an error of the outlet into the error that the code gets.
func whyOver(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case fault.Is(err, fault.NotFound):
		return errLeft
	case fault.Is(err, fault.Timeout):
		return fault.New(fault.Timeout, "%s: %w", err, replay.ErrTimeout)
	}
	return err
}

// batch returns the items to send next.
func (o *outflow) batch() model.ItemsSend {
	o.mu.Lock()
	defer o.mu.Unlock()
	r := model.ItemsSend{Entity: o.entity, ID: o.id, First: o.first, Items: append([]model.Payload(nil), o.items...), Ended: o.ended}
	if o.ended {
		r.Failure = o.failure
	}
	return r
}

// drop forgets the items that the owner already has.
func (o *outflow) drop(last int64) {
	o.mu.Lock()
	for len(o.items) > 0 && o.first <= last {
		o.bytes -= o.items[0].Size()
		o.items[0] = model.Payload{}
		o.items, o.first = o.items[1:], o.first+1
	}
	o.mu.Unlock()
	signal(o.room)
}

// listen waits for the next item. If that takes longer than quiet, it tells the owner that the code
// still runs, and learns from the owner whether the caller has left.
func (o *outflow) listen(ctx context.Context) error {
	timer := time.NewTimer(quiet)
	defer timer.Stop()
	select {
	case <-o.changed:
		return nil
	case <-timer.C:
	}

	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		r := o.batch()
		r.Items, r.Ended, r.Failure = nil, false, nil
		_, err = o.sendItems(inner, r)
	}()

	select {
	case <-o.changed:
		cancel()
		<-done
		// If the owner could not be reached, the next request tries again.
		if err == nil || ctx.Err() == nil && (fault.Is(err, fault.Canceled) || fault.Is(err, fault.Unavailable)) {
			return nil
		}
	case <-done:
	}
	if err != nil {
		return whyOver(ctx, err)
	}
	return nil
}
