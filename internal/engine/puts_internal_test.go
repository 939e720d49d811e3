package engine

import (
	"context"
	"errors"
	"testing"

	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/memory"
)

// stuckPuts is a store that takes no request until the test lets it continue.
type stuckPuts struct {
	store.Store
	begun, let chan struct{}
	rows       int
}

func (s *stuckPuts) PutInbox(_ context.Context, rows []store.InboxRow) error {
	s.rows += len(rows)
	s.begun <- struct{}{}
	<-s.let
	return nil
}

// While a store hangs, only the requests of callers that still wait take memory.
func TestCallersThatLeaveTakeTheirRequests(t *testing.T) {
	t.Parallel()
	st := &stuckPuts{Store: memory.New(memory.Options{}), begun: make(chan struct{}, 1), let: make(chan struct{})}
	eng := New(Config{Store: st})
	eng.beside.open(t.Context())
	k := newClerk(eng)
	first := make(chan error, 1)
	go func() { first <- k.putRow(t.Context(), &store.InboxRow{}) }()
	<-st.begun

	gone, leave := context.WithCancel(t.Context())
	leave()
	for range 100 {
		if err := k.putRow(gone, &store.InboxRow{}); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	k.puts[0].mu.Lock()
	waiting := len(k.puts[0].waiting)
	k.puts[0].mu.Unlock()
	if waiting > 0 {
		t.Errorf("%d requests wait without a caller", waiting)
	}

	close(st.let)
	if err := <-first; err != nil {
		t.Error(err)
	}
	eng.beside.wg.Wait()
	if st.rows != 1 {
		t.Errorf("%d requests were stored, want 1", st.rows)
	}
}
