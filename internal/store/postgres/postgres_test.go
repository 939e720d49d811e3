package postgres_test

import (
	"context"
	"flag"
	"fmt"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/postgres"
	"github.com/perdure/perdure/internal/store/storetest"
)

func TestMain(m *testing.M) {
	// Most of these tests wait for the server most of the time.
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(pgtest.Main(m))
}

const testShards = 16

// openURL opens a store.
func openURL(t testing.TB, url string, change ...func(c *postgres.Config)) *postgres.Store {
	t.Helper()
	c := postgres.Config{URL: url, Shards: testShards, AllowUnsafe: true}
	for _, f := range change {
		f(&c)
	}
	return openConfig(t, c)
}

func openConfig(t testing.TB, c postgres.Config) *postgres.Store {
	t.Helper()
	// Without a deadline, Open gives up after a few seconds. A busy machine needs longer.
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	s, err := postgres.Open(ctx, c)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// migrated is an empty store. A copy of it takes a fifth of the processor time of all migrations.
var migrated = pgtest.Template{Fill: func(ctx context.Context, url string) error {
	_, err := postgres.Migrate(ctx, postgres.Config{URL: url, Shards: testShards, AllowUnsafe: true})
	return err
}}

// family opens stores for the conformance suite. Each store is a new database. If the family has a
// URL, each store is a schema in the database with that URL.
type family struct {
	url    string
	change func(c *postgres.Config)

	mu      sync.Mutex
	schemas int
	configs map[store.Store]postgres.Config
}

func newFamily(t *testing.T, change func(c *postgres.Config)) *family {
	t.Helper()
	return &family{change: change, configs: make(map[store.Store]postgres.Config)}
}

func (f *family) open(t *testing.T) store.Store {
	t.Helper()
	c := postgres.Config{URL: f.url, Shards: testShards, AllowUnsafe: true}
	if f.url == "" {
		c.URL = migrated.URL(t)
	} else {
		f.mu.Lock()
		f.schemas++
		c.Schema = fmt.Sprintf("s%d", f.schemas)
		f.mu.Unlock()
	}
	if f.change != nil {
		f.change(&c)
	}
	return f.openConfig(t, c)
}

func (f *family) openConfig(t *testing.T, c postgres.Config) store.Store {
	t.Helper()
	s := openConfig(t, c)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.configs[s] = c
	return s
}

// second opens another handle on the data of s.
func (f *family) second(t *testing.T, s store.Store) store.Store {
	t.Helper()
	f.mu.Lock()
	c := f.configs[s]
	f.mu.Unlock()
	return f.openConfig(t, c)
}

func (f *family) reopen(t *testing.T, s store.Store) store.Store {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
	return f.second(t, s)
}

func (f *family) options() storetest.Options {
	return storetest.Options{Open: f.open, Reopen: f.reopen, Second: f.second}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	o := newFamily(t, nil).options()
	if postgres.OverlappingOnly() {
		o.Only = storetest.Overlapping()
	}
	storetest.RunWith(t, o)
}

// The suite passes without prepared statements and session settings, as behind a pooler. The pool
// has one connection.
func TestConformanceWithoutPreparedStatements(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it runs the same suite as TestConformance, with other settings of the connection")
	}
	storetest.RunWith(t, newFamily(t, func(c *postgres.Config) { c.PoolSize, c.NoPrepare = 1, true }).options())
}
