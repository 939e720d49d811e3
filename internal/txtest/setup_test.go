package txtest_test

import (
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
	"github.com/perdure/perdure/internal/attach"
	"github.com/perdure/perdure/internal/dialtest"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/node"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/faultstore"
	"github.com/perdure/perdure/internal/store/memory"
	"github.com/perdure/perdure/internal/store/postgres"
)

func TestMain(m *testing.M) {
	if isVictim() {
		os.Exit(victim())
	}
	// Most of these tests spend their time waiting for a lease.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(pgtest.Main(dialtest.Main(m, "internal/txtest")))
}

// patience is the time limit of waits that are short unless the machine is busy.
const patience = 2 * time.Minute

var storeKinds = []string{"memory", "sqlite", "postgres"}

func storeURL(t *testing.T, kind string) string {
	switch kind {
	case "sqlite":
		return "file:" + filepath.Join(t.TempDir(), "engine.db")
	case "postgres":
		return migrated.URL(t)
	}
	return "memory:"
}

// migrated is an empty store in PostgreSQL.
var migrated = pgtest.Template{Fill: func(ctx context.Context, url string) error {
	_, err := postgres.Migrate(ctx, postgres.Config{URL: url, AllowUnsafe: true})
	return err
}}

// everywhere runs a test with every store of the engine and every kind of user's database.
func everywhere(t *testing.T, f func(t *testing.T, url string, b *bank)) {
	t.Parallel()
	for _, s := range dialtest.Some(t, storeKinds) {
		for _, k := range bankKinds {
			t.Run(s+"/"+k, func(t *testing.T) {
				t.Parallel()
				f(t, storeURL(t, s), newBank(t, k))
			})
		}
	}
}

func open(t *testing.T, url string, defs ...perdure.Definition) *perdure.App {
	t.Helper()
	app, err := embedded.Config{AllowUnsafe: true}.Open(t.Context(), url, defs...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := app.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return app
}

func caller(t *testing.T, app *perdure.App) perdure.Client {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return app.With(ctx)
}

// eventually waits until ok returns true.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	pause := 5 * time.Millisecond
	for end := time.Now().Add(patience); !ok(); time.Sleep(pause) {
		if time.Now().After(end) {
			t.Fatalf("not within %s: %s", patience, what)
		}
		pause = min(pause*5/4, 100*time.Millisecond) // checks cost processor time
	}
}

func checkError(t *testing.T, err error, kind error, words ...string) {
	t.Helper()
	if err == nil || kind != nil && !errors.Is(err, kind) {
		t.Errorf("error %v, want one that is %v", err, kind)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %q does not say %q", err, w)
		}
	}
}

// engine is a store that several processes of a test share.
type engine struct{ store store.Store }

// shared is a memory store that tells the engine that several processes share it.
type shared struct{ store.Store }

func (s shared) Info() store.Info {
	i := s.Store.Info()
	i.Shared = true
	return i
}

func newEngine(t *testing.T) *engine {
	e := &engine{shared{memory.New(memory.Options{})}}
	t.Cleanup(func() { _ = e.store.Close() })
	return e
}

// life is one process: an app and its connections to the engine's store and the user's database.
type life struct {
	app   *perdure.App
	f     *faults
	store *faultstore.Store
}

// live starts a process.
func (e *engine) live(t *testing.T, f *faults, defs ...perdure.Definition) *life {
	t.Helper()
	l := &life{f: f}
	n, err := node.Open(t.Context(), node.Config{URL: "memory:", LeaseTTL: 400 * time.Millisecond, Wrap: func(store.Store) store.Store {
		l.store = faultstore.Wrap(e.store, faultstore.Config{KeepInner: true})
		return l.store
	}})
	if err != nil {
		t.Fatal(err)
	}

	f.crash = l.store.Kill
	l.app, err = attach.Embed(t.Context(), attach.Config{Backend: n.Backend(), Tenant: model.DefaultTenant, DrainTimeout: time.Second, OnClose: n.Close}, defs...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.end)

	return l
}

// end closes everything. It ignores the errors of a process that has died.
func (l *life) end() {
	select {
	case <-l.f.released:
	default:
		close(l.f.released)
	}
	_ = l.app.Close()
}
