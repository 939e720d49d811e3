package postgres_test

import (
	"context"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/postgres"
	"github.com/perdure/perdure/internal/store/storetest"
)

// behindPooler returns a family of stores behind a PgBouncer.
func behindPooler(t *testing.T, mode pgtest.PoolMode, size int, change func(c *postgres.Config)) *family {
	t.Helper()
	server := pgtest.Start(t, pgtest.Options{Settings: map[string]string{"max_connections": "400"}})
	f := &family{url: server.StartBouncer(t, mode, size).URL(server.NewDatabase(t)), change: change}
	f.configs = map[store.Store]postgres.Config{}
	return f
}

// Behind a pooler in session mode everything works as without a pooler.
func TestConformanceBehindPoolerInSessionMode(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("the same suite as in TestConformance; the tests below and those of package e2e use a pooler in any case")
	}
	storetest.RunWith(t, behindPooler(t, pgtest.PoolSession, 300, nil).options())
}

// Behind a pooler in transaction mode everything works with prepare=off, on fewer server
// connections than clients.
func TestConformanceBehindPoolerInTransactionMode(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("the same suite as in TestConformance; the tests below and those of package e2e use a pooler in any case")
	}
	storetest.RunWith(t, behindPooler(t, pgtest.PoolTransaction, 12, func(c *postgres.Config) { c.NoPrepare = true }).options())
}

// Migrations behind a pooler in transaction mode run once, even if other processes start at the
// same time, because their lock belongs to the transaction.
func TestMigrationsBehindPoolerInTransactionMode(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, pgtest.Options{})
	target := server.StartBouncer(t, pgtest.PoolTransaction, 3).URL(server.NewDatabase(t))
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			s, err := postgres.Open(t.Context(), postgres.Config{URL: target, NoPrepare: true, AllowUnsafe: true})
			if err != nil {
				t.Error(err)
				return
			}
			_ = s.Close()
		})
	}
	wg.Wait()
}

// Without prepare=off, Open refuses a pooler in transaction mode before it changes a setting of a
// shared session.
func TestPoolerInTransactionModeNeedsPrepareOff(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, pgtest.Options{})
	target := server.StartBouncer(t, pgtest.PoolTransaction, 3).URL(server.NewDatabase(t))
	s, err := postgres.Open(t.Context(), postgres.Config{URL: target, AllowUnsafe: true})
	if err == nil {
		_ = s.Close()
	}
	if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "shares server connections between transactions") ||
		!strings.Contains(err.Error(), "prepare=off") {
		t.Errorf("open: %v", err)
	}
	conn, err := pgx.Connect(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	for range 5 {
		var scan string
		if err := conn.QueryRow(t.Context(), `show enable_seqscan`, pgx.QueryExecModeExec).Scan(&scan); err != nil || scan != "on" {
			t.Errorf("a shared session has enable_seqscan %s, %v", scan, err)
		}
	}

	// With prepare=off in the URL, Open accepts the pooler.
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set("prepare", "off")
	u.RawQuery = q.Encode()
	openURL(t, u.String())
}
