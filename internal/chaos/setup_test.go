package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
	"github.com/perdure/perdure/internal/pgproxy"
)

// entry is a log record of a node.
type entry struct {
	message string
	attrs   map[string]slog.Value
}

// logbook collects the log of a node, so that a test can see what the node did.
type logbook struct {
	mu      sync.Mutex
	entries []entry
	news    chan struct{} // closed and replaced with every entry
}

func newLogbook() *logbook { return &logbook{news: make(chan struct{})} }

// Enabled implements slog.Handler.
func (b *logbook) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements slog.Handler.
func (b *logbook) Handle(_ context.Context, r slog.Record) error {
	e := entry{message: r.Message, attrs: map[string]slog.Value{}}
	r.Attrs(func(a slog.Attr) bool { e.attrs[a.Key] = a.Value; return true })
	b.mu.Lock()
	defer b.mu.Unlock()
	b.entries = append(b.entries, e)
	close(b.news)
	b.news = make(chan struct{})
	return nil
}

// WithAttrs implements slog.Handler.
func (b *logbook) WithAttrs([]slog.Attr) slog.Handler { return b }

// WithGroup implements slog.Handler.
func (b *logbook) WithGroup(string) slog.Handler { return b }

// find returns the entries whose message has this prefix, starting at the index from.
func (b *logbook) find(from int, message string) (found []entry, news <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.entries[min(from, len(b.entries)):] {
		if strings.HasPrefix(e.message, message) {
			found = append(found, e)
		}
	}
	return found, b.news
}

func (b *logbook) count(message string) int {
	found, _ := b.find(0, message)
	return len(found)
}

func (b *logbook) len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.entries)
}

// await waits for a wanted entry whose message has this prefix, at the index from or later.
func (b *logbook) await(t *testing.T, from int, message string, wanted func(entry) bool, within time.Duration) entry {
	t.Helper()
	limit := time.After(within)
	for {
		found, news := b.find(from, message)
		for _, e := range found {
			if wanted == nil || wanted(e) {
				return e
			}
		}
		select {
		case <-news:
		case <-limit:
			t.Fatalf("the node did not log %q within %s; it logged:\n%s", message, within, b)
		}
	}
}

// String returns the whole log.
func (b *logbook) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var text strings.Builder
	for _, e := range b.entries {
		fmt.Fprintln(&text, e.message, e.attrs)
	}
	return text.String()
}

// bench is an app in this process, with its log and its ledger.
type bench struct {
	app    *perdure.App
	book   *logbook
	closed bool // the test has closed the app
	ledger
}

// openApp opens an app in this process. It is closed at the end of the test, unless the test has
// closed it before.
func openApp(t *testing.T, url string, l ledger, lease time.Duration) *bench {
	t.Helper()
	return openAppWith(t, url, l, embedded.Config{LeaseTTL: lease})
}

// keeping returns a configuration with which parked executions stay in memory.
func keeping(lease time.Duration) embedded.Config {
	return embedded.Config{LeaseTTL: lease, IdleAfter: time.Hour}
}

func openAppWith(t *testing.T, url string, l ledger, cfg embedded.Config) *bench {
	t.Helper()
	book := newLogbook()
	cfg.AllowUnsafe, cfg.Logger = true, slog.New(book)
	app, err := cfg.Open(t.Context(), url, definitions(l))
	if err != nil {
		t.Fatal(err)
	}

	b := &bench{app: app, book: book, ledger: l}
	t.Cleanup(func() {
		if err := app.Close(); err != nil && !b.closed {
			t.Errorf("close: %v", err)
		}
		if t.Failed() {
			t.Logf("the node logged:\n%s", book)
		}
	})

	return b
}

func newLedger(t *testing.T) ledger { return ledger{filepath.Join(t.TempDir(), "ledger")} }

// startProxy starts a proxy in front of the server of a URL.
func startProxy(t *testing.T, server string) (*pgproxy.Proxy, string) {
	t.Helper()
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	p := pgproxy.New(t, u.Host)
	return p, p.URL(server)
}

// ofLane matches the commits of batches.
func ofLane(r pgproxy.Request) bool {
	return r.Commits() && strings.Contains(r.Client["application_name"], " lane ")
}

// connect waits until the server takes connections.
func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()

	for {
		conn, err := pgx.Connect(ctx, url)
		if err == nil {
			t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(ctx)) })
			return conn
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal(errors.Join(err, ctx.Err()))
		}
	}
}
