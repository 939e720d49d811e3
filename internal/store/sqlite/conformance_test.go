package sqlite_test

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/sqlite"
	"github.com/perdure/perdure/internal/store/storetest"
)

// openAt opens a store and closes it when the test ends.
func openAt(t testing.TB, path string) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// emptyFile returns the file of an empty store. A copy of it takes a fraction of the processor time
// of all migrations.
var emptyFile = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "sqlite-empty-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, "store.db")
	// The context of the first test would end with that test, but the file serves all tests.
	s, err := sqlite.Open(context.Background(), sqlite.Config{Path: path})
	if err != nil {
		return nil, err
	}
	if err := s.Close(); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
})

// openEmpty opens a copy of the empty store.
func openEmpty(t testing.TB) *sqlite.Store {
	t.Helper()
	data, err := emptyFile()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "store.db")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return openAt(t, path)
}

func TestConformance(t *testing.T) {
	t.Parallel()
	o := storetest.Options{
		Alone: true,
		Open:  func(t *testing.T) store.Store { t.Helper(); return openEmpty(t) },
		Reopen: func(t *testing.T, s store.Store) store.Store {
			t.Helper()
			if err := s.Close(); err != nil {
				t.Fatalf("close: %v", err)
			}
			cfg, err := sqlite.ParseURL(s.Info().URL)
			if err != nil {
				t.Fatal(err)
			}
			return openAt(t, cfg.Path)
		},
	}

	if testing.Short() { // with the race detector; the whole suite runs without it, see sequential
		o.Only = storetest.Overlapping()
	}
	storetest.RunWith(t, o)
}
