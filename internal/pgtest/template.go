package pgtest

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
)

// Template is a database that is filled once per test process and copied for every test that uses
// it. So a test gets a schema with all its tables, or tables with many rows, for the cost of a file
// copy.
//
//	var migrated = pgtest.Template{Fill: func(ctx context.Context, url string) error { … }}
//
//	url := migrated.URL(t)
//
// Random identifiers that Fill stores are the same in all copies.
type Template struct {
	// Fill fills an empty database. It must close its connections before it returns.
	Fill func(ctx context.Context, url string) error

	mu      sync.Mutex
	server  *Server // the server with the template; nil before the first use
	name    string
	failure error
}

// URL returns the URL of a new copy on the server of this test process. The copy is dropped when
// the test ends. On an external server, tests must leave nothing behind, so there is no template
// and each database is filled separately.
func (p *Template) URL(t testing.TB) string {
	t.Helper()
	if external := os.Getenv(EnvURL); external != "" {
		url := newDatabase(t, operator{url: external}, emptyTemplate)
		if err := p.Fill(t.Context(), url); err != nil {
			t.Fatalf("pgtest: fill database: %v", err)
		}
		return url
	}

	server, err := sharedServer()
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	name, err := p.on(server)
	if err != nil {
		t.Fatalf("pgtest: template: %v", err)
	}

	return newDatabase(t, server.operator(), name)
}

// on returns the name of the template on a server, and creates it at the first use. It remembers a
// failure: every test reports the failure, and no test tries again.
func (p *Template) on(server *Server) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.server != server {
		p.server, p.name = server, databaseName("template")
		// The context of the first test would end with that test, but the template lives longer.
		ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
		defer cancel()
		p.failure = p.make(ctx)
	}
	return p.name, p.failure
}

// make creates the template and forbids connections to it. PostgreSQL cannot copy a database that
// has a connection, not even a connection of autovacuum.
func (p *Template) make(ctx context.Context) error {
	o := p.server.operator()
	if err := o.copyDatabase(ctx, p.name, emptyTemplate); err != nil {
		return err
	}
	if err := p.Fill(ctx, p.server.URL(p.name)); err != nil {
		return fmt.Errorf("fill: %w", err)
	}
	return o.execute(ctx, "alter database "+pgx.Identifier{p.name}.Sanitize()+" with allow_connections false")
}
