package pgtest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// EnvURL names the environment variable with the URL of an existing server, which replaces our own.
const EnvURL = "PERDURE_TEST_POSTGRES"

// cleanupTimeout bounds the clean-up after a test, whose own context has ended by then.
const cleanupTimeout = 3 * time.Minute

// shared is the server of this test process. It is a package variable because the tests of a
// package share no other value that could hold it.
var shared struct {
	mu      sync.Mutex
	tried   bool
	server  *Server
	failure error
}

// databases numbers the databases of this process.
var databases atomic.Int64

// URL returns the URL of a new, empty database on the server of this test process. The first use
// starts the server. The database is dropped when the test and its subtests have ended, even if
// connections to it are open.
func URL(t testing.TB) string {
	t.Helper()
	if external := os.Getenv(EnvURL); external != "" {
		return newDatabase(t, operator{url: external}, emptyTemplate)
	}
	server, err := sharedServer()
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	return server.NewDatabase(t)
}

// Start starts a server for this test alone and closes it when the test ends.
func Start(t testing.TB, o Options) *Server {
	t.Helper()
	server, err := Open(t.Context(), o)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Errorf("pgtest: close server: %v", err)
		}
	})
	return server
}

// TestingM is the interface that testing.M implements and goleak expects.
type TestingM interface {
	// Run runs the tests and returns the exit code.
	Run() int
}

// Main wraps the tests of a package and closes the shared server after them. Most packages do not
// need it, because the server dies with the process. Packages that check for leaked goroutines need
// it, because one goroutine waits for the server:
//
//	func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Main(m)) }
func Main(m TestingM) TestingM { return closing{m} }

type closing struct{ tests TestingM }

// Run runs the tests, then closes the shared server.
func (c closing) Run() int {
	code := c.tests.Run()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.server != nil {
		if err := shared.server.Close(); err != nil {
			fmt.Fprintf(os.Stderr, "pgtest: close shared server: %v\n", err)
			code = max(code, 1)
		}
	}
	shared.server, shared.failure, shared.tried = nil, nil, false
	return code
}

// sharedServer starts the server of this process once. It remembers a failure: every test of the
// process reports the failure, and no test tries to start the server again.
func sharedServer() (*Server, error) {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if !shared.tried {
		shared.tried = true
		// The context of the first test would end with that test, but the server lives longer.
		ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
		defer cancel()
		if shared.server, shared.failure = Open(ctx, Options{}); shared.failure == nil {
			shared.server.idle = make(chan *pgx.Conn, operatorConnections)
		}
	}
	return shared.server, shared.failure
}

// NewDatabase creates an empty database on s and returns its URL. The database is dropped when the
// test has ended, unless the server is down by then.
func (s *Server) NewDatabase(t testing.TB) string {
	t.Helper()
	return newDatabase(t, s.operator(), emptyTemplate)
}

// emptyTemplate is the template for empty databases. Unlike template1, it cannot be changed by
// accident.
const emptyTemplate = "template0"

// operator returns the operator that creates and drops databases on s. Only the shared server of
// the process keeps connections, because tests stop other servers and read their logs.
func (s *Server) operator() operator { return operator{s.URL("postgres"), s.idle} }

// newDatabase copies a database on the server of the operator. The copy is dropped when t ends.
func newDatabase(t testing.TB, o operator, template string) string {
	t.Helper()
	name := databaseName(t.Name())
	target, err := withDatabase(o.url, name)
	if err != nil {
		t.Fatalf("pgtest: $%s: %v", EnvURL, err)
	}
	if err := o.copyDatabase(t.Context(), name, template); err != nil {
		t.Fatalf("pgtest: create database: %v", err)
	}

	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
		defer cancel()
		err := o.execute(ctx, "drop database if exists "+pgx.Identifier{name}.Sanitize()+" with (force)")
		if errors.Is(err, errUnreachable) {
			return // the test stopped its server: the database is removed with the data directory
		}
		if err != nil {
			t.Errorf("pgtest: drop database: %v", err)
		}
	})

	return target
}

// withDatabase replaces the database of a connection URL.
func withDatabase(connURL, name string) (string, error) {
	u, err := url.Parse(connURL)
	if err != nil {
		return "", fmt.Errorf("not a URL: %w", err)
	}
	if u.Scheme != "postgres" && u.Scheme != "postgresql" {
		return "", fmt.Errorf("want a URL like postgres://user@host/database, got scheme %q", u.Scheme)
	}
	u.Path = "/" + name
	return u.String(), nil
}

// databaseName returns a name that is unique on any server and shows in pg_stat_activity which test
// it belongs to.
func databaseName(test string) string {
	slug := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		default:
			return '_'
		}
	}, test)
	name := fmt.Sprintf("t%d_%s_%s", databases.Add(1), randomHex(5), slug)
	return name[:min(len(name), 63)] // PostgreSQL's limit for names
}
