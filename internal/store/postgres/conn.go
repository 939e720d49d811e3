package postgres

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/pooler"
)

// connectTimeout bounds one attempt to connect to one address.
const connectTimeout = 5 * time.Second

// connConfig returns the configuration of a connection with the settings.
func (c *config) connConfig(s settings) *pgx.ConnConfig {
	cfg := c.pool.ConnConfig.Copy()
	if cfg.ConnectTimeout == 0 || cfg.ConnectTimeout > connectTimeout {
		cfg.ConnectTimeout = connectTimeout
	}
	cfg.DialFunc = dialer(c.Lease)
	if cfg.ValidateConnect == nil {
		cfg.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	name := s["application_name"]
	if name == "" {
		name = c.Name
	}
	cfg.RuntimeParams["application_name"] = name
	cfg.AfterConnect = func(ctx context.Context, conn *pgconn.PgConn) error { return c.greet(ctx, conn, s) }
	cfg.DefaultQueryExecMode = pgx.QueryExecModeCacheStatement
	if !c.prepare {
		cfg.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe // unnamed statements only
	}

	return cfg
}

// greet prepares a new connection. It refuses a server that may lose commits, and changes the
// settings of the session. It leaves out settings that the server does not know, so that the store
// also works on databases that are compatible with PostgreSQL.
func (c *config) greet(ctx context.Context, conn *pgconn.PgConn, s settings) error {
	const check = `select current_setting('server_version_num'), coalesce(current_setting('fsync', true), 'on'),
  coalesce(current_setting('synchronous_commit', true), 'on'), coalesce(current_setting('full_page_writes', true), 'on'), pg_backend_pid()::text,
  coalesce(current_setting('server_encoding', true), 'UTF8')`
	result := conn.ExecParams(ctx, check, nil, nil, nil, nil).Read()
	if result.Err != nil {
		return result.Err
	}
	row := result.Rows[0]
	if version, _ := strconv.Atoi(string(row[0])); version < 140000 {
		return fault.WithHint(fault.New(fault.Invalid, "%s is PostgreSQL %d; 14 or newer is needed", c.server, version/10000),
			"upgrade the database server, or name another one")
	}
	if encoding := string(row[5]); encoding != "UTF8" {
		return fault.WithHint(fault.New(fault.Invalid, "%s has the encoding %s and cannot store every text", c.server, encoding),
			"create a database with encoding 'UTF8', for example: create database app template template0 encoding 'UTF8'")
	}
	for i, name := range []string{"", "fsync", "synchronous_commit", "full_page_writes"} {
		if i > 0 && string(row[i]) == "off" && !c.AllowUnsafe {
			return fault.WithHint(fault.New(fault.Invalid, "%s runs with %s=off and may lose commits that it has acknowledged", c.server, name),
				"set %s=on", name)
		}
	}
	if !c.prepare { // other clients share the session
		return nil
	}
	// If the process that answers is not the one that the connection began with, there is a pooler
	// in between.
	if string(row[4]) != strconv.FormatUint(uint64(conn.PID()), 10) {
		if err := c.checkPooler(ctx, conn); err != nil {
			return err
		}
	}

	const set = `select set_config(s.name, v.value, false) from unnest($1::text[], $2::text[]) v (name, value)
join pg_catalog.pg_settings s on s.name = v.name where s.enumvals is null or v.value = any (s.enumvals)`
	names := slices.Sorted(maps.Keys(s))
	values := make([]string, len(names))
	for i, name := range names {
		values[i] = s[name]
	}
	params := [][]byte{textArray(names), textArray(values)}
	return conn.ExecParams(ctx, set, params, nil, []int16{pgx.BinaryFormatCode, pgx.BinaryFormatCode}, nil).Read().Err
}

// checkPooler refuses a pooler that shares server connections between transactions. With such a
// pooler our session settings would leak into the sessions of other clients, and theirs into ours.
// One check per store is enough. On a busy pooler the check may find nothing. In that case the
// store notices the pooler later, when prepared statements are missing.
func (c *config) checkPooler(ctx context.Context, conn *pgconn.PgConn) error {
	if c.exclusive.Load() {
		return nil
	}
	cfg := c.connConfig(nil)
	cfg.AfterConnect = nil
	other, err := pgconn.ConnectConfig(ctx, &cfg.Config)
	if err != nil {
		return err
	}
	defer func() { _ = other.Close(context.WithoutCancel(ctx)) }()

	switch err := pooler.Check(ctx, conn, other); {
	case errors.Is(err, pooler.ErrShared):
		return fault.WithHint(fault.New(fault.Invalid, "%s: %w", c.server, err), "add prepare=off to the URL of the store, or use session mode")
	case err != nil:
		return err
	}
	c.exclusive.Store(true)
	return nil
}

// textArray returns the binary form of an array of texts.
func textArray(values []string) []byte {
	var e encoder
	e.texts(len(values), func(i int) string { return values[i] })
	return e.buf[4:] // without the length, which the driver adds
}

// dial opens a connection with the settings. If it fails, nothing of the caller has been sent.
func (s *Store) dial(ctx context.Context, with settings) (*pgconn.PgConn, error) {
	conn, err := pgconn.ConnectConfig(ctx, &s.cfg.connConfig(with).Config)
	if err != nil {
		return nil, connectError(s.cfg.server, err)
	}
	return conn, nil
}

// connectError returns a failure to connect, for people: the server, and the error of the server or
// the network. The text of the driver would add the user name.
func connectError(server string, err error) error {
	if classified, ok := errors.AsType[*fault.Error](err); ok {
		return classified
	}
	if connect, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		err = connect.Unwrap()
	}

	if errors.Is(err, pgconn.ErrReadOnlyConnection) {
		return &fault.Error{
			Kind: fault.Unavailable, Cause: readOnlyError{},
			Text: fmt.Sprintf("connect to %s: the server or the role is read only (a standby, or default_transaction_read_only)", server),
			Hint: "connect to the primary, or list all servers in the URL of the store",
		}
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		err = pg
		switch {
		case strings.HasPrefix(pg.Code, "28"): // wrong password, no such role
			return fault.New(fault.Denied, "connect to %s: %w", server, pg)
		case pg.Code == "3D000":
			return fault.WithHint(fault.New(fault.NotFound, "connect to %s: %w", server, pg), "create the database first")
		}
	}

	return fmt.Errorf("connect to %s: %w", server, err)
}

// readOnlyError marks the error of a server that does not accept writes. It has no text of its own.
type readOnlyError struct{}

// Error returns nothing: the error that it marks has the text.
func (readOnlyError) Error() string { return "" }

// ReadOnly reports whether a store could not be opened because its server or its role does not
// allow writes.
func ReadOnly(err error) bool {
	_, ok := errors.AsType[readOnlyError](err)
	return ok
}

// dialer connects with timeouts that detect a dead server well before a lease ends.
func dialer(lease time.Duration) pgconn.DialFunc {
	d := &net.Dialer{
		Timeout:         connectTimeout,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: max(time.Second, lease/5), Interval: max(time.Second, lease/10), Count: 3},
		Control:         userTimeout(max(shortestTimeout, lease/2)),
	}
	return d.DialContext
}
