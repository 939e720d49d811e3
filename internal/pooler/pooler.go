// Package pooler finds out whether a connection pooler between a client and PostgreSQL shares
// server connections between transactions.
//
// Behind such a pooler, a change of a session (settings, prepared statements, LISTEN) affects the
// sessions of other clients, and no error says so. A caller asks before it changes anything. The
// answer "shared" is a proof. The answer "not shared" is not: on a busy pooler two clients may get
// different server connections every time by chance.
package pooler

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5/pgconn"
)

// ErrShared says that server connections are shared between transactions.
var ErrShared = errors.New("a connection pooler shares server connections between transactions")

// rounds is how often two connections are compared. One round detects an idle pooler, which gives
// the server connection that was used last to the next client. A busy pooler may need more.
const rounds = 8

// Backend returns the id of the server process that serves a connection at the moment. Behind a
// pooler it differs from the id that the connection got at its start, which belongs to the pooler.
func Backend(ctx context.Context, c *pgconn.PgConn) (uint32, error) {
	result := c.ExecParams(ctx, `select pg_backend_pid()::text`, nil, nil, nil, nil).Read()
	if result.Err != nil {
		return 0, result.Err
	}
	if len(result.Rows) != 1 || len(result.Rows[0]) != 1 {
		return 0, fmt.Errorf("select pg_backend_pid() returned %d rows", len(result.Rows))
	}
	pid, err := strconv.ParseUint(string(result.Rows[0][0]), 10, 32)
	return uint32(pid), err
}

// Check returns ErrShared if two connections are served by one server process, or one of them by
// two. Both must be idle and outside a transaction.
func Check(ctx context.Context, a, b *pgconn.PgConn) error {
	first, err := Backend(ctx, a)
	if err != nil {
		return err
	}

	for range rounds {
		other, err := Backend(ctx, b)
		if err != nil {
			return err
		}
		again, err := Backend(ctx, a)
		if err != nil {
			return err
		}
		if other == first || again != first {
			return ErrShared
		}
	}

	return nil
}
