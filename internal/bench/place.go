package bench

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Provider makes empty stores.
type Provider interface {
	// Kind of the stores.
	Kind() Kind
	// Fresh creates an empty store. The caller removes it with remove.
	Fresh(ctx context.Context) (_ Place, remove func() error, err error)
	// Describe describes the store for the report.
	Describe(ctx context.Context) (string, error)
}

// Directory makes SQLite files in a directory.
type Directory string

// Kind is SQLite.
func (Directory) Kind() Kind { return SQLite }

// Fresh makes an empty directory for a file.
func (d Directory) Fresh(context.Context) (Place, func() error, error) {
	dir, err := os.MkdirTemp(string(d), "bench-")
	if err != nil {
		return Place{}, nil, err
	}
	return Place{Kind: SQLite, Path: filepath.Join(dir, "bench.db")}, func() error { return os.RemoveAll(dir) }, nil
}

// Describe names the file system.
func (d Directory) Describe(context.Context) (string, error) {
	return "SQLite file on " + fileSystem(string(d)), nil
}

// Server makes databases on a PostgreSQL server. The value is the URL of one of its databases; the
// role must be allowed to create others.
type Server string

// Kind is Postgres.
func (Server) Kind() Kind { return Postgres }

// Fresh creates a database and makes the server write a checkpoint, so that every measurement
// starts from the same state.
func (s Server) Fresh(ctx context.Context) (Place, func() error, error) {
	u, err := url.Parse(string(s))
	if err != nil {
		// the text of the error may contain a password
		return Place{}, nil, errors.New("the URL of the server cannot be parsed")
	}
	name := "perdure_bench_" + strings.ToLower(rand.Text()[:10])
	if err := s.exec(ctx, "create database "+name, "checkpoint"); err != nil {
		return Place{}, nil, err
	}
	u.Path = "/" + name
	remove := func() error {
		return s.exec(context.WithoutCancel(ctx), "drop database if exists "+name+" with (force)")
	}
	return Place{Kind: Postgres, URL: u.String()}, remove, nil
}

// Describe returns the version and the most important settings.
func (s Server) Describe(ctx context.Context) (string, error) {
	conn, err := pgx.Connect(ctx, string(s))
	if err != nil {
		return "", err
	}
	defer conn.Close(ctx)
	var version, fsync, commit, buffers string
	const query = `select current_setting('server_version'), current_setting('fsync'), current_setting('synchronous_commit'), current_setting('shared_buffers')`
	if err := conn.QueryRow(ctx, query).Scan(&version, &fsync, &commit, &buffers); err != nil {
		return "", err
	}
	return fmt.Sprintf("PostgreSQL %s, fsync=%s, synchronous_commit=%s, shared_buffers=%s", version, fsync, commit, buffers), nil
}

func (s Server) exec(ctx context.Context, statements ...string) error {
	conn, err := pgx.Connect(ctx, string(s))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	for _, sql := range statements {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	return nil
}
