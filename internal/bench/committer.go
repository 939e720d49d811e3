package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
)

// Bare is the name of the bare committer: workflows of three steps without an engine.
const Bare = "bare"

// BarePeer is the bare committer. It stores the rows of a workflow and nothing else. It has no
// lists, no recovery and no user code, so its rate is the largest that the store allows on this
// machine.
var BarePeer = Peer{Workflows: openCommitter, Only: []Workload{Throughput, Latency}}

// stage says which row of a workflow a point stores.
type stage int

const (
	stageStart stage = iota // inserts the run
	stageStep               // inserts an event
	stageEnd                // updates the run
)

// point is something that a client stores and waits for. A workflow has five: its start, three
// steps and its end.
type point struct {
	stage stage
	run   uuid.UUID
	key   string
	seq   int64
	at    int64
	done  chan error // capacity 1
}

// mostPoints bounds the points of a batch, and the points that wait for the next batch. Further
// clients wait until there is room.
const mostPoints = 4096

// batcher writes points in one transaction that a fence guards, with one flush.
type batcher interface {
	write(ctx context.Context, batch []*point) error
	close(ctx context.Context) error
}

// committer turns all waiting points into one transaction, again and again. It writes the next
// batch as soon as the last batch is durable. While it writes, the clients of the last batch post
// their next points.
type committer struct {
	store batcher
	posts chan *point
	stop  context.CancelFunc
	wg    sync.WaitGroup

	// gone is closed when the committer has ended. err says why.
	gone chan struct{}
	err  error
}

// openCommitter opens the bare committer on an empty store.
func openCommitter(ctx context.Context, place Place, _ func(int)) (System, error) {
	var store batcher
	var err error
	if place.Kind == Postgres {
		store, err = openPointsPostgres(ctx, place.URL)
	} else {
		store, err = openPointsSQLite(ctx, place.Path)
	}
	if err != nil {
		return nil, err
	}

	return newCommitter(ctx, store), nil
}

// newCommitter starts a committer. The end of ctx does not end it; only its method Close does.
func newCommitter(ctx context.Context, store batcher) *committer {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	c := &committer{store: store, posts: make(chan *point, mostPoints), stop: stop, gone: make(chan struct{})}
	c.wg.Go(func() {
		defer close(c.gone)
		c.err = c.run(ctx)
	})
	return c
}

// run writes batches until ctx ends or a batch fails. After a failure the fence no longer matches,
// so the committer does not continue.
func (c *committer) run(ctx context.Context) error {
	batch := make([]*point, 0, mostPoints)
	for {
		select {
		case p := <-c.posts:
			batch = append(batch[:0], p)
		case <-ctx.Done():
			return errors.New("the committer is closed")
		}
		for len(batch) < cap(batch) && len(c.posts) > 0 {
			batch = append(batch, <-c.posts)
		}

		err := c.store.write(ctx, batch)
		for _, p := range batch {
			p.done <- err
		}
		if err != nil {
			return err
		}
	}
}

// Three implements System: it stores five points, one after the other.
func (c *committer) Three(ctx context.Context, key string) error {
	run, err := uuid.NewV7()
	if err != nil {
		return err
	}

	p := &point{run: run, key: key, done: make(chan error, 1)}
	for ; p.seq < workflowRows; p.seq++ {
		switch p.seq {
		case 0:
			p.stage = stageStart
		case workflowRows - 1:
			p.stage = stageEnd
		default:
			p.stage = stageStep
		}
		p.at = time.Now().UnixMicro()
		if err := c.post(ctx, p); err != nil {
			return err
		}
	}

	return nil
}

// post stores a point and waits until it is durable.
func (c *committer) post(ctx context.Context, p *point) error {
	select {
	case c.posts <- p:
	case <-c.gone:
		return c.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}

	select {
	case err := <-p.done:
		return err
	case <-c.gone:
	case <-ctx.Done():
		return context.Cause(ctx)
	}

	// The committer may have answered before it ended.
	select {
	case err := <-p.done:
		return err
	default:
		return c.err
	}
}

// Chain implements System. The committer does not take part in workloads that call Chain.
func (c *committer) Chain(context.Context, string, int) error { return errBare }

// FanOut implements System. The committer does not take part in the workload that calls FanOut.
func (c *committer) FanOut(context.Context, string, int) error { return errBare }

// StartSleep implements System. The committer does not take part in the workload that calls
// StartSleep.
func (c *committer) StartSleep(context.Context, string, time.Duration) error { return errBare }

var errBare = fmt.Errorf("%s has only workflows of %d steps", Bare, steps)

// Close implements System.
func (c *committer) Close() error {
	c.stop()
	c.wg.Wait()
	return c.store.close(context.Background())
}
