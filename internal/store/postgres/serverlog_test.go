package postgres_test

import (
	"os"
	"strings"
	"testing"

	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/postgres"
	"github.com/perdure/perdure/internal/store/storetest"
)

// Starts that find their address taken raise no error in the server. A commit of a fenced lane
// raises an error whose text explains the cause.
func TestServerLog(t *testing.T) {
	t.Parallel()
	postgres.Sequential(t)
	server := pgtest.Start(t, pgtest.Options{})
	s := openURL(t, server.NewDatabase(t))
	f := storetest.New(t, s)
	n := f.Join(1)
	l := n.Lanes[0]
	first := f.Subject()
	l.Write(func(b *store.Batch) { b.Starts = append(b.Starts, first.StartIfAbsent()) })
	// In the first round, the lane uses the statement for free addresses. In the other rounds, it
	// uses the statement for taken addresses.
	for range 3 {
		again, fresh := f.SubjectOf(first.Start.Address), f.Subject()
		got := l.Write(func(b *store.Batch) { b.Starts = append(b.Starts, again.StartIfAbsent(), fresh.StartIfAbsent()) })
		if len(got.Existing) != 1 || got.Existing[0].Index != 0 || got.Existing[0].Execution.Start.Run != first.Run {
			t.Errorf("existing %+v, want run %s for the first start", got.Existing, first.Run)
		}
		// The mark succeeds only if the start of the fresh run was inserted.
		l.Write(func(b *store.Batch) { b.Marks = append(b.Marks, fresh.Park()) })
	}
	if text := serverLog(t, server); strings.Contains(text, "ERROR") {
		t.Errorf("starts whose address is taken: the server logs\n%s", text)
	}

	n.Fence()
	_, err := s.Commit(t.Context(), l.Batch())
	if store.ClassOf(err) != store.Fenced {
		t.Errorf("commit of a fenced lane: %v", err)
	}
	if text := serverLog(t, server); strings.Count(text, "ERROR") != 1 || !strings.Contains(text, "perdure: the lane was fenced, another process took over") {
		t.Errorf("the commit of a fenced lane: the server logs\n%s", text)
	}
}

func serverLog(t *testing.T, s *pgtest.Server) string {
	t.Helper()
	text, err := os.ReadFile(s.LogFile())
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
