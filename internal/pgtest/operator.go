package pgtest

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// operator creates and drops databases on a server.
type operator struct {
	url  string         // of a database that always exists
	idle chan *pgx.Conn // connections for the next statements; nil if they are not kept
}

// operatorConnections is how many connections an operator keeps. Rarely do more tests than this
// begin or end at the same time.
const operatorConnections = 4

// do calls f with a connection. Opening a connection costs about as much as a statement that
// creates a database, so the operator keeps the connection if f succeeds.
func (o operator) do(ctx context.Context, f func(*pgx.Conn) error) error {
	var conn *pgx.Conn
	select {
	case conn = <-o.idle:
	default:
		var err error
		if conn, err = dial(ctx, o.url); err != nil {
			return err
		}
	}

	err := f(conn)
	if err == nil {
		select {
		case o.idle <- conn:
			return nil
		default:
		}
	}
	// The error of f, if there is one, says more.
	_ = conn.Close(context.WithoutCancel(ctx))
	return err
}

// execute runs one statement.
func (o operator) execute(ctx context.Context, sql string) error {
	return o.do(ctx, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, sql)
		return err
	})
}

// copyDatabase copies a database. By default PostgreSQL copies it block by block through its
// buffers and its log, which takes twice the processor time of a copy of the files. A copy of the
// files needs a checkpoint before and after it, which costs little without fsync and much with
// fsync. Servers before PostgreSQL 15 always copy the files, and do not know the option.
func (o operator) copyDatabase(ctx context.Context, name, template string) error {
	return o.do(ctx, func(conn *pgx.Conn) error {
		sql := "create database " + pgx.Identifier{name}.Sanitize() + " template " + pgx.Identifier{template}.Sanitize()
		const look = `select current_setting('server_version_num')::int >= 150000 and not current_setting('fsync')::bool`
		var files bool
		if err := conn.QueryRow(ctx, look, pgx.QueryExecModeSimpleProtocol).Scan(&files); err != nil {
			return err
		}
		if files {
			sql += " strategy file_copy"
		}
		_, err := conn.Exec(ctx, sql)
		return err
	})
}

// close closes the connections that the operator has kept.
func (o operator) close() {
	for {
		select {
		case conn := <-o.idle:
			_ = conn.Close(context.Background()) // its server ends anyway
		default:
			return
		}
	}
}

// errUnreachable marks a failure to connect, as opposed to a failed statement.
var errUnreachable = errors.New("server unreachable")

func dial(ctx context.Context, connURL string) (*pgx.Conn, error) {
	conn, err := pgx.Connect(ctx, connURL)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errUnreachable, err)
	}
	return conn, nil
}
