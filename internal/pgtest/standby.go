package pgtest

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// OpenStandby starts a server that follows s, with a copy of its data. From then on s confirms a
// commit only when the standby has the commit too. [Server.Promote] makes the standby independent.
// The caller closes the standby. The standby also ends when the calling process ends.
func (s *Server) OpenStandby(ctx context.Context) (_ *Server, err error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	home, err := newHome(filepath.Dir(s.home.dir), s.user)
	if err != nil {
		return nil, err
	}
	b := &Server{home: home, binaries: s.binaries, user: s.user, env: s.env, password: s.password}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Close())
		}
	}()

	if err := s.awaitAnswer(ctx); err != nil {
		return nil, err
	}
	backup := b.command("pg_basebackup", "--pgdata", home.data(), "--dbname", s.URL(superuser), "--write-recovery-conf", "--checkpoint", "fast", "--no-sync")
	if _, err := b.output(ctx, backup); err != nil {
		return nil, err
	}
	for range 10 {
		if b.port, err = FreePort(); err != nil {
			return nil, err
		}
		if err = b.Start(ctx); !errors.Is(err, errPortTaken) {
			break
		}
	}
	if err != nil {
		return nil, err
	}

	if err := s.execute(ctx, "alter system set synchronous_standby_names = '*'", "select pg_reload_conf()"); err != nil {
		return nil, err
	}
	return b, s.awaitSynchronous(ctx)
}

// awaitAnswer waits until the server accepts connections. After the death of a backend it recovers
// first.
func (s *Server) awaitAnswer(ctx context.Context) error {
	for {
		err := s.ping(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-time.After(readyInterval):
		case <-ctx.Done():
			return fmt.Errorf("the server accepts no connections: %w", err)
		}
	}
}

// awaitSynchronous waits until a standby takes part in commits.
func (s *Server) awaitSynchronous(ctx context.Context) error {
	for {
		err := s.execute(ctx, "select 1 / count(*) from pg_stat_replication where sync_state = 'sync'")
		if err == nil {
			return nil
		}
		select {
		case <-time.After(readyInterval):
		case <-ctx.Done():
			return fmt.Errorf("the standby does not take part in commits: %w", err)
		}
	}
}

// Promote makes a standby accept writes. Its former primary must be down.
func (s *Server) Promote(ctx context.Context) error {
	return s.execute(ctx, "select pg_promote(true, 60)")
}

// execute runs statements one after the other, each as its own transaction.
func (s *Server) execute(ctx context.Context, statements ...string) error {
	conn, err := pgconn.Connect(ctx, s.URL(superuser))
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for _, sql := range statements {
		if _, err := conn.Exec(ctx, sql).ReadAll(); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	return nil
}
