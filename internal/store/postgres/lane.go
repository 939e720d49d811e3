package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// lane is the connection for the batches of one lane, one batch at a time.
type lane struct {
	store *Store
	ref   laneKey

	mu       sync.Mutex
	conn     *pgconn.PgConn // nil when there is none
	prepared [statements]bool
	used     time.Time // last use of conn
	encoder  encoder
	writer   writer
	// duplicates is how many of the next batches use the statement for starts whose address is
	// taken.
	duplicates int

	// sock is the socket of conn. Close closes the socket directly, because Close does not wait for
	// a commit in progress.
	sockMu sync.Mutex
	sock   net.Conn
	ended  bool
}

type laneKey struct {
	node model.NodeID
	lane int
}

var errEnded = errors.New("the lane has ended")

// connect opens a connection if there is none. If it fails, nothing has been sent.
func (l *lane) connect(ctx context.Context) error {
	if l.isEnded() {
		return errEnded
	}
	const idle = time.Second
	if l.conn != nil && time.Since(l.used) > idle && !healthy(l.conn.Conn()) {
		l.drop()
	}
	if l.conn != nil {
		return nil
	}

	conn, err := l.store.dial(ctx, l.store.cfg.laneSettings(l.ref))
	if err != nil {
		return err
	}
	l.sockMu.Lock()
	defer l.sockMu.Unlock()
	if l.ended {
		return errors.Join(errEnded, conn.Conn().Close())
	}

	l.conn, l.sock, l.prepared = conn, conn.Conn(), [statements]bool{}
	return nil
}

// drop gives up the connection. The server may still be working on what was sent.
func (l *lane) drop() {
	l.sockMu.Lock()
	defer l.sockMu.Unlock()
	if l.conn != nil {
		_ = l.sock.Close() // the connection is given up whatever Close returns
	}
	l.conn, l.sock = nil, nil
}

func (l *lane) isEnded() bool {
	l.sockMu.Lock()
	defer l.sockMu.Unlock()
	return l.ended
}

// end closes the lane permanently. A commit in progress ends with an error.
func (l *lane) end() {
	l.sockMu.Lock()
	defer l.sockMu.Unlock()
	l.ended = true
	if l.sock != nil {
		_ = l.sock.Close()
	}
}

// failure is an error of the server, and where in the pipeline it happened.
type failure struct {
	*pgconn.PgError
	statement *statement // nil if the commit itself failed, after all statements were complete
}

// exchange sends the pipeline of w and reads the reply. It returns nil only if the server has said
// that it is ready for the next query and has not reported an error before. Only then is the
// transaction durable.
func (l *lane) exchange(ctx context.Context, w *writer) error {
	deadline := time.Now().Add(w.batch.Within(l.store.cfg.commitTimeout()))
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	sock := l.sock
	// This is the last moment at which nothing has been sent.
	if err := errors.Join(ctx.Err(), sock.SetDeadline(deadline)); err != nil {
		l.drop()
		return awayError("commit", err)
	}

	stop := context.AfterFunc(ctx, func() { _ = sock.SetDeadline(time.Unix(1, 0)) })
	failed, err := l.converse(w)
	if stop() {
		_ = sock.SetDeadline(time.Time{}) // an error shows at the next use
	} else if err == nil {
		l.drop() // the deadline has passed or is about to
	}

	l.used = time.Now()
	if err != nil {
		l.drop()
		if cause := context.Cause(ctx); cause != nil && ctx.Err() != nil {
			err = fmt.Errorf("%w (%w)", cause, err)
		}
		if failed == nil || !failed.provesAbort() {
			return &store.Error{Class: store.Unknown, Op: "commit", Err: err}
		}
	}

	if failed != nil {
		class := failed.class()
		if failed.breaksConnection() {
			l.drop()
		}
		return &store.Error{Class: class, Op: "commit", Err: failed.explain(l.store.cfg.schema)}
	}

	return nil
}

// converse writes the pipeline and reads until the server is ready for the next query. It returns
// both a failure and an error if the failure does not prove that the transaction was aborted, or if
// the reply after the failure is incomplete or wrong.
func (l *lane) converse(w *writer) (failed *failure, err error) {
	if w.isSent(stStartIfAbsent) {
		// The answer to this statement may fill the sockets while the lane is still writing. Both
		// sides would then wait for each other. So another goroutine writes.
		done := l.writeAside(w.buf)
		defer func() {
			if err != nil {
				_ = l.sock.SetDeadline(time.Unix(1, 0)) // a deadline in the past ends the write
			}
			<-done
		}()
	} else if _, err := l.sock.Write(w.buf); err != nil {
		return nil, err
	}

	complete := 0 // statements
	for {
		message, err := l.conn.Frontend().Receive()
		if err != nil {
			return failed, err
		}

		switch m := message.(type) {
		case *pgproto3.ParseComplete:
			if complete < len(w.sent) && l.store.cfg.prepare {
				l.prepared[w.sent[complete].index] = true
			}
		case *pgproto3.DataRow:
			if complete < len(w.sent) {
				if err := w.answer(w.sent[complete].index, m.Values); err != nil {
					return failed, err
				}
			}
		case *pgproto3.CommandComplete:
			complete++
		case *pgproto3.ErrorResponse:
			failed = &failure{PgError: pgconn.ErrorResponseToPgError(m)}
			if complete < len(w.sent) {
				failed.statement = w.sent[complete]
			}
			if !failed.provesAbort() {
				return failed, failed.PgError
			}
		case *pgproto3.ReadyForQuery:
			if failed == nil && complete != len(w.sent) {
				return nil, fmt.Errorf("the server completed %d of %d statements and reported no error", complete, len(w.sent))
			}
			if m.TxStatus != 'I' {
				return failed, fmt.Errorf("the server is in transaction state %q after the end of a batch", m.TxStatus)
			}
			return failed, nil
		}
	}
}

// writeAside writes from another goroutine and closes the channel when it is done. An error also
// shows up on the reading side.
func (l *lane) writeAside(buf []byte) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = l.sock.Write(buf)
	}()
	return done
}

// isSent reports whether a statement is part of the pipeline.
func (e *encoder) isSent(index int) bool {
	for _, st := range e.sent {
		if st.index == index {
			return true
		}
	}
	return false
}

// answer receives a row that a statement has returned.
func (w *writer) answer(index int, values [][]byte) error {
	switch {
	case index == stStartIfAbsent:
		return w.receiveExisting(values)
	case index == stStartNew && len(values) == 1 && values[0] != nil:
		return w.receiveInserted(values[0])
	}
	return nil
}

// receiveExisting receives the row of a run that has the address of a start.
func (w *writer) receiveExisting(values [][]byte) error {
	index, found, e, err := decodeExisting(values)
	if err != nil {
		return err
	}
	if !found {
		w.missing = append(w.missing, index)
		return nil
	}
	w.existing = append(w.existing, store.ExistingStart{Index: index, Execution: e})
	return nil
}
