// Package streamread reads the stream with which a view of an entity answers one caller. The SDK,
// the REST server and the command line read streams with it.
package streamread

import (
	"context"
	"crypto/rand"
	"sync"
	"sync/atomic"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

const (
	keepEvery     = 10 * time.Second // how often the caller reports that it still reads
	leavePatience = 2 * time.Second  // how long the caller tries to report that it has left
)

// Backend makes the calls of a Reader.
type Backend interface {
	// Call calls the view.
	Call(ctx context.Context, r api.CallRequest) (model.Payload, error)
	// TakeItems opens, reads, keeps open or leaves the stream.
	TakeItems(ctx context.Context, r model.ItemsTake) (model.ItemsPage, error)
}

// Reader reads one stream. One goroutine may use it.
type Reader struct {
	backend Backend
	name    string
	at      model.ItemsTake
	taken   atomic.Int64
}

// Open calls the view. When Open returns without an error, the code of the stream is running. The
// caller must call Close.
func Open(ctx context.Context, b Backend, r api.CallRequest) (*Reader, error) {
	s := &Reader{backend: b, name: r.Name, at: model.ItemsTake{Entity: r.Address, ID: rand.Text()}}
	r.Input = r.Input.WithStream(s.at.ID)
	if _, err := s.take(ctx, model.TakeOpen); err != nil {
		return nil, err
	}
	if _, err := b.Call(ctx, r); err != nil {
		s.Close(ctx)
		return nil, err
	}
	return s, nil
}

func (s *Reader) take(ctx context.Context, do model.TakeVerb) (model.ItemsPage, error) {
	at := s.at
	at.Do, at.After = do, s.taken.Load()
	return s.backend.TakeItems(ctx, at)
}

// Next waits for the next items. The caller calls Taken after each of them. A page without items
// means that the caller has waited for a while. more is false if no page follows. In this case, err
// may be the error of the code, and the items of the page precede that error.
func (s *Reader) Next(ctx context.Context) (items []model.Payload, more bool, err error) {
	page, err := s.take(ctx, model.TakeNext)
	switch {
	case fault.Is(err, fault.NotFound):
		return nil, false, fault.New(fault.Unavailable, "stream %s of %s is lost: the entity has moved to another process, or its owner has not heard from this process; read the stream again", s.name, s.at.Entity)
	case err != nil:
		return nil, false, err
	case page.Ended && page.Failure != nil:
		return page.Items, false, page.Failure
	}
	return page.Items, !page.Ended, nil
}

// Taken notes that the caller has processed one more item.
func (s *Reader) Taken() { s.taken.Add(1) }

// Keep reports to the owner of the entity, every ten seconds, that the caller still reads, and how
// many items it has processed. stop ends these reports.
func (s *Reader) Keep(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var keeper sync.WaitGroup
	keeper.Go(func() {
		ticker := time.NewTicker(keepEvery)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				_, _ = s.take(ctx, model.TakeKeep) // the next read reports the error
			case <-ctx.Done():
				return
			}
		}
	})
	return func() {
		cancel()
		keeper.Wait()
	}
}

// Close tells the owner of the entity to end the code of the stream, even if ctx has ended. If this
// message does not reach the owner, the owner ends the code by itself when the caller has been
// silent for a while.
func (s *Reader) Close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leavePatience)
	defer cancel()
	_, _ = s.take(ctx, model.TakeLeave) // without this message, the owner ends the stream later
}
