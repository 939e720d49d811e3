package sqlite_test

import (
	"path/filepath"
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

func TestConformance(t *testing.T) {
	t.Parallel()
	o := storetest.Options{
		Alone: true,
		Open:  func(t *testing.T) store.Store { t.Helper(); return openAt(t, filepath.Join(t.TempDir(), "store.db")) },
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
