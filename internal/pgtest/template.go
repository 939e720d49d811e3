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

	made templates
}

// Pair is two databases on one server that are filled together once per test process, and copied
// for every test that uses them.
type Pair struct {
	// Fill fills two empty databases. It must close its connections before it returns.
	Fill func(ctx context.Context, first, second string) error

	made templates
}

// URL returns the URL of a new copy on the server of this test process. The copy is dropped when
// the test ends. On an external server, tests must leave nothing behind, so there is no template
// and each database is filled separately.
func (p *Template) URL(t testing.TB) string {
	t.Helper()
	return p.made.copy(t, 1, p.fill)[0]
}

func (p *Template) fill(ctx context.Context, urls []string) error { return p.Fill(ctx, urls[0]) }

// URLs returns the URLs of new copies, as [Template.URL] does.
func (p *Pair) URLs(t testing.TB) (first, second string) {
	t.Helper()
	urls := p.made.copy(t, 2, func(ctx context.Context, urls []string) error { return p.Fill(ctx, urls[0], urls[1]) })
	return urls[0], urls[1]
}

// templates are databases on the server of this process that are filled together.
type templates struct {
	mu      sync.Mutex
	server  *Server // the server with the templates; nil before the first use
	names   []string
	failure error
}

// copy returns the URLs of n new databases with the contents that fill writes.
func (p *templates) copy(t testing.TB, n int, fill func(ctx context.Context, urls []string) error) (urls []string) {
	t.Helper()
	if external := os.Getenv(EnvURL); external != "" {
		for range n {
			urls = append(urls, newDatabase(t, operator{url: external}, emptyTemplate))
		}
		if err := fill(t.Context(), urls); err != nil {
			t.Fatalf("pgtest: fill database: %v", err)
		}
		return urls
	}

	server, err := sharedServer()
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	names, err := p.on(server, n, fill)
	if err != nil {
		t.Fatalf("pgtest: template: %v", err)
	}

	for _, name := range names {
		urls = append(urls, newDatabase(t, server.operator(), name))
	}
	return urls
}

// on returns the names of the templates on a server, and creates them at the first use. It
// remembers a failure: every test reports the failure, and no test tries again.
func (p *templates) on(server *Server, n int, fill func(ctx context.Context, urls []string) error) ([]string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.server != server {
		p.server, p.names = server, nil
		for range n {
			p.names = append(p.names, databaseName("template"))
		}
		// The context of the first test would end with that test, but the templates live longer.
		ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
		defer cancel()
		p.failure = p.make(ctx, fill)
	}
	return p.names, p.failure
}

// make creates the templates and forbids connections to them. PostgreSQL cannot copy a database
// that has a connection, not even a connection of autovacuum.
func (p *templates) make(ctx context.Context, fill func(ctx context.Context, urls []string) error) error {
	o := p.server.operator()
	var urls []string
	for _, name := range p.names {
		if err := o.copyDatabase(ctx, name, emptyTemplate); err != nil {
			return err
		}
		urls = append(urls, p.server.URL(name))
	}
	if err := fill(ctx, urls); err != nil {
		return fmt.Errorf("fill: %w", err)
	}

	for _, name := range p.names {
		if err := o.execute(ctx, "alter database "+pgx.Identifier{name}.Sanitize()+" with allow_connections false"); err != nil {
			return err
		}
	}
	return nil
}
