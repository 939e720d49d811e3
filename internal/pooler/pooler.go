// Package pooler finds out whether a connection pooler between a client and PostgreSQL shares
// server connections between transactions.
//
// Behind such a pooler, a client that changes its session (settings, prepared statements, LISTEN)
// also changes the sessions of other clients, and gets no error. So a caller calls Check before it
// changes anything. If Check returns ErrShared, connections are certainly shared. If it returns
// nil, they may still be shared: on a busy pooler, two clients may by chance get different server
// connections every time.
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

// rounds is the number of times that two connections are compared. One round detects an idle
// pooler, which gives the server connection that was used last to the next client. A busy pooler
// may need more.
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

// Check returns ErrShared if one server process serves both connections, or if two server processes
// serve one of them. Both connections must be idle and outside a transaction.
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
