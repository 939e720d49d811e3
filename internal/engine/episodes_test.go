package engine_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/faultstore"
	"github.com/perdure/perdure/internal/store/memory"
)

// outage is a fault plan that fails every call with the class that is set.
type outage struct{ class atomic.Int32 }

func (o *outage) Next(faultstore.Call) faultstore.Fault {
	if c := store.Class(o.class.Load()); c != 0 {
		return faultstore.Fault{Kind: faultstore.FailBefore, Class: c}
	}
	return faultstore.Fault{}
}

// loglines collects the lines of a log.
type loglines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *loglines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *loglines) with(part string) (out []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.buf.String()) {
		if strings.Contains(line, part) {
			out = append(out, line)
		}
	}
	return out
}

// The store is away for longer than a lease, while a hundred lanes and everything else retry. In
// the log this is one episode: a line when it starts, one per minute, and one when it ends. The
// loss of the lease has its own line.
func TestStoreAwayIsOneEpisodeInTheLog(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var plan outage
		var log loglines
		e := engine.New(engine.Config{
			Store: faultstore.Wrap(memory.New(memory.Options{Shards: 128}), faultstore.Config{Plan: &plan}), Lanes: 100,
			Log: slog.New(slog.NewTextHandler(&log, nil)),
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- e.Run(ctx) }()
		if err := e.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		send := func(i int) {
			brief, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			defer cancel()
			// The engine answers after the outage, or refuses because the node starts over.
			_, _ = e.Send(brief, start(fmt.Sprint("key ", i)))
		}
		plan.class.Store(int32(store.Away))
		var callers sync.WaitGroup
		for i := range 300 {
			callers.Go(func() { send(i) })
		}
		time.Sleep(90 * time.Second)
		plan.class.Store(0)
		callers.Wait()
		time.Sleep(time.Minute)
		send(1000)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}

		warnings, ended := log.with("level=WARN"), log.with("the store can be used again")
		if len(warnings) > 3 || len(ended) != 1 || !strings.Contains(ended[0], "failures=") || !strings.Contains(ended[0], "lasted=") {
			t.Errorf("%d warnings, want 2 or 3; and %d lines at the end:\n%s\n%s", len(warnings), len(ended), strings.Join(warnings, ""), strings.Join(ended, ""))
		}
		if lost := log.with("level=ERROR"); len(lost) > 1 {
			t.Errorf("%d errors:\n%s", len(lost), strings.Join(lost, ""))
		}
	})
}

// A row that the store refuses leads to one line in the log, not to one for each half of a batch
// that contains the row.
func TestRefusedCommitsAreOneEpisodeInTheLog(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log loglines
		e := engine.New(engine.Config{Store: poison{memory.New(memory.Options{})}, Log: slog.New(slog.NewTextHandler(&log, nil))})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- e.Run(ctx) }()
		if err := e.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}

		var callers sync.WaitGroup
		for i := range 200 {
			callers.Go(func() {
				brief, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_, _ = e.Send(brief, start(fmt.Sprint("key ", i)))
			})
		}

		callers.Wait()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if warnings := log.with("level=WARN"); len(warnings) != 1 || !strings.Contains(warnings[0], "refuses a commit") {
			t.Errorf("warnings:\n%s", strings.Join(warnings, ""))
		}
	})
}

// poison refuses every batch that starts one execution.
type poison struct{ *memory.Store }

func (p poison) Commit(ctx context.Context, b *store.Batch) (store.Committed, error) {
	for i := range b.Starts {
		if b.Starts[i].Start.Address.Key == "key 77" {
			return store.Committed{}, store.Errorf(store.Refused, "commit", "a poisonous row of %v", model.Address{Key: "key 77"})
		}
	}
	return p.Store.Commit(ctx, b)
}
