package postgres

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// Store is a store in PostgreSQL. It has one connection for the renewal of leases, one per lane
// that commits, and a small pool for the rest.
type Store struct {
	cfg        *config
	info       store.Info
	databases  []store.Database // of the cluster, in addition to this one
	statements *[statements]statement
	texts      sync.Map // texts of statements, by their templates
	pool       *pgxpool.Pool

	// closing is a context that ends when the store is closed.
	closing context.Context
	close   context.CancelCauseFunc

	mu    sync.Mutex
	lanes map[laneKey]*lane

	renewMu sync.Mutex
	renewer *pgx.Conn // nil when there is none
	renewed time.Time
}

var _ store.Store = (*Store)(nil)

// Open opens a store. It creates or upgrades the schema unless the configuration forbids it.
func Open(ctx context.Context, c Config) (*Store, error) {
	cfg, err := c.read()
	if err != nil {
		return nil, err
	}
	status, err := migrate(ctx, cfg, cfg.NoMigrate)
	if err != nil {
		return nil, err
	}
	s := &Store{cfg: cfg, databases: status.Databases, statements: prepare(cfg.schema), lanes: make(map[laneKey]*lane)}
	s.info = store.Info{Shards: status.Shards, Groups: status.Groups, Cluster: status.Cluster, Shared: true, URL: cfg.publicURL(), Version: status.Version}
	//nolint:contextcheck // lives as long as the store, not as the call
	s.closing, s.close = context.WithCancelCause(context.Background())

	const patience = 30 * time.Second // for lists and counts
	pool := cfg.pool.Copy()
	pool.ConnConfig = cfg.connConfig(cfg.baseSettings(patience, cfg.part(4)))
	pool.MaxConns, pool.MinConns, pool.MinIdleConns = int32(cfg.PoolSize), 0, 0
	pool.MaxConnIdleTime, pool.MaxConnLifetime, pool.MaxConnLifetimeJitter = 5*time.Minute, time.Hour, 10*time.Minute
	pool.HealthCheckPeriod = time.Minute
	// The pool does not ping connections before use, so an idle node sends only renewals to the
	// database. A check of the socket finds nearly as many dead connections.
	pool.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false }
	pool.PrepareConn = func(_ context.Context, c *pgx.Conn) (bool, error) { return healthy(c.PgConn().Conn()), nil }
	pool.AfterRelease = func(c *pgx.Conn) bool { return c.PgConn().TxStatus() == 'I' }
	if s.pool, err = pgxpool.NewWithConfig(s.closing, pool); err != nil {
		return nil, err
	}
	return s, nil
}

// Info describes the store as it was opened.
func (s *Store) Info() store.Info { return s.info }

// Databases returns the databases that hold shard groups of the cluster, in addition to this one.
func (s *Store) Databases() []store.Database { return s.databases }

// LocalAddr returns the address of this end of a connection to the server.
func (s *Store) LocalAddr(ctx context.Context) (addr net.Addr, err error) {
	err = s.read(ctx, "find the local address", func(_ context.Context, c *pgx.Conn) error {
		addr = c.PgConn().Conn().LocalAddr()
		return nil
	})
	return addr, err
}

// Close releases all connections. Calls in flight end with an error.
func (s *Store) Close() error {
	s.close(errClosed)
	s.mu.Lock()
	lanes := s.lanes
	s.lanes = nil
	s.mu.Unlock()
	for _, l := range lanes {
		l.end()
	}
	s.pool.Close()
	s.renewMu.Lock()
	defer s.renewMu.Unlock()
	return s.dropRenewer()
}

// alive returns why a call cannot begin, or nil if it can.
func (s *Store) alive(ctx context.Context) error {
	if s.closing.Err() != nil {
		return errClosed
	}
	return context.Cause(ctx)
}

// lane returns the lane with its connection. It creates the lane at its first commit.
func (s *Store) lane(ref store.LaneRef) (*lane, error) {
	key := laneKey{ref.Node, ref.Lane}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lanes == nil {
		return nil, errClosed
	}
	l := s.lanes[key]
	if l == nil {
		l = &lane{store: s, ref: key}
		s.lanes[key] = l
	}
	return l, nil
}

// dropLanes closes the connections of a node that has left.
func (s *Store) dropLanes(node model.NodeID) {
	s.mu.Lock()
	var gone []*lane
	for key, l := range s.lanes {
		if key.node == node {
			gone = append(gone, l)
			delete(s.lanes, key)
		}
	}
	s.mu.Unlock()
	for _, l := range gone {
		l.end()
	}
}

// within returns a context that ends when ctx ends or the store is closed.
func (s *Store) within(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.closing, func() { cancel(errClosed) })
	return ctx, func() { stop(); cancel(nil) }
}

// work runs f on a connection of the pool and classifies its errors.
func (s *Store) work(ctx context.Context, op string, write bool, f func(ctx context.Context, c *pgx.Conn) error) error {
	if err := s.alive(ctx); err != nil {
		return awayError(op, err)
	}
	ctx, done := s.within(ctx)
	defer done()
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return awayError(op, connectError(s.cfg.server, err))
	}

	defer conn.Release()
	if err = f(ctx, conn.Conn()); err == nil {
		return nil
	}

	var pg *pgconn.PgError
	if errors.As(err, &pg) && breaksConnection(pg.Code) {
		s.pool.Reset() // all connections lead to the same server
		_ = conn.Conn().PgConn().Conn().Close()
	}

	return classify(ctx, op, write, err)
}

// read runs a query that changes nothing. If the connection breaks, read runs the query once more
// on another one.
func (s *Store) read(ctx context.Context, op string, f func(ctx context.Context, c *pgx.Conn) error) error {
	for try := 0; ; try++ {
		broken := false
		err := s.work(ctx, op, false, func(ctx context.Context, c *pgx.Conn) error {
			err := f(ctx, c)
			var pg *pgconn.PgError
			broken = err != nil && (c.IsClosed() || errors.As(err, &pg) && breaksConnection(pg.Code))
			return err
		})
		if err == nil || !broken || try > 0 || ctx.Err() != nil {
			return err
		}
	}
}

// sql returns the text of a statement that is written as a template next to its function.
func (s *Store) sql(template string) string {
	if text, ok := s.texts.Load(template); ok {
		return text.(string)
	}
	text := expand(s.cfg.schema, template)
	s.texts.Store(template, text)
	return text
}
