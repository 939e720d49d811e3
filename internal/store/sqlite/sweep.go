package sqlite

import (
	"context"
	"errors"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

const (
	sqlFirstMessage  = `select min(seq) from perdure_messages where to_shard = ?1 and from_shard = ?2`
	sqlSweepMessages = `delete from perdure_messages where to_shard = ?1 and from_shard = ?2 and seq <= ?3`
	sqlOldRequests   = `select tenant, workflow, key, id from perdure_requests indexed by perdure_requests_age
		where shard = ?1 and at < ?2 order by at limit ?3`
	sqlSweepRequest   = `delete from perdure_requests where shard = ?1 and tenant = ?2 and workflow = ?3 and key = ?4 and id = ?5`
	sqlOldDeadLetters = `select id from perdure_inbox indexed by perdure_inbox_letters
		where shard = ?1 and id < ?2 and not_before = 253402300799000000 and length(id) = 16 order by id limit ?3`
	sqlGarbageRuns  = `select run from perdure_garbage where shard = ?1 limit ?2`
	sqlFirstEvent   = `select min(seq) from perdure_history where run = ?1 and shard = ?2`
	sqlSweepEvents  = `delete from perdure_history where run = ?1 and shard = ?2 and seq < ?3`
	sqlSweepBodies  = `delete from perdure_bodies where run = ?1 and shard = ?2 and seq < ?3`
	sqlSweepGarbage = `delete from perdure_garbage where run = ?1 and shard = ?2`
)

// Sweep deletes rows that are no longer needed; see store.SweepRequest. It does not delete cursors.
// Any two shards may exchange messages again, and after a sweep has deleted all messages of a
// sender, only the cursor still has the last position.
func (s *Store) Sweep(ctx context.Context, r store.SweepRequest) (swept int, err error) {
	answered := 0
	err = s.write(ctx, "sweep", func(w *writer) error {
		// The request names these answers one by one, so they need no limit. All other deletions
		// share one limit, because this transaction holds the only writer, and commits wait until
		// the transaction ends.
		swept = 0
		if answered, err = sweepAnswered(w.conn, r.Answered); err != nil {
			return err
		}

		for _, shard := range distinct(r.Shards) {
			n, err := sweepMessages(w.conn, shard, r.Limit-swept)
			if err != nil {
				return err
			}
			swept += n
			if n, err = sweepRequests(w.conn, shard, r.RequestsBefore, r.Limit-swept); err != nil {
				return err
			}

			swept += n
			if n, err = sweepDeadLetters(w.conn, shard, r.DeadLettersBefore, r.Limit-swept); err != nil {
				return err
			}
			swept += n
			if n, err = sweepGarbage(w.conn, shard, r.Limit-swept); err != nil {
				return err
			}

			swept += n
			if n, err = sweepLogs(w.conn, shard, r.LogsBefore, r.Limit-swept); err != nil {
				return err
			}
			swept += n
		}

		n, err := sweepSettings(w.conn, r.SettingsBefore, r.Limit-swept)
		if swept += n; err != nil {
			return err
		}
		n, err = sweepAudit(w.conn, r.AuditBefore, r.Limit-swept)
		if swept += n; err != nil {
			return err
		}
		n, err = sweepReports(w.conn, r.ReportsBefore, r.Limit-swept)
		swept += n
		return err
	})
	if err != nil {
		return 0, err
	}

	return answered + swept, nil
}

// sweepAnswered deletes remembered answers that their callers have received.
func sweepAnswered(c *conn, keys []store.RequestKey) (swept int, err error) {
	for _, k := range keys {
		n, err := c.exec(sqlSweepRequest, int(k.Shard), k.Address.Tenant, k.Address.Type, k.Address.Key, k.ID)
		if err != nil {
			return 0, err
		}
		swept += int(n)
	}

	return swept, nil
}

// sweepMessages deletes messages that the receiver has consumed.
func sweepMessages(c *conn, to model.ShardID, limit int) (swept int, err error) {
	err = eachSender(c, to, func(from model.ShardID, cursor int64) error {
		if swept >= limit {
			return errStop
		}
		first, found, err := c.number(sqlFirstMessage, int(to), int(from))
		if err != nil || !found || first > cursor {
			return err
		}
		// Positions have no gap, so at most this many rows are deleted.
		n, err := c.exec(sqlSweepMessages, int(to), int(from), min(cursor, first+int64(limit-swept)-1))
		swept += int(n)
		return err
	})
	if errors.Is(err, errStop) {
		err = nil
	}

	return swept, err
}

// sweepRequests deletes remembered answers that are older than a time.
func sweepRequests(c *conn, shard model.ShardID, before model.Time, limit int) (int, error) {
	if limit <= 0 {
		return 0, nil
	}
	// First read the keys, then delete the rows, because the index must not change while a
	// statement reads it.
	var keys [][4]string

	err := c.query(sqlOldRequests, func(q *stmt) error {
		keys = append(keys, [4]string{q.text(0), q.text(1), q.text(2), q.text(3)})
		return nil
	}, int(shard), int64(before), limit)
	if err != nil {
		return 0, err
	}

	for _, k := range keys {
		if _, err := c.exec(sqlSweepRequest, int(shard), k[0], k[1], k[2], k[3]); err != nil {
			return 0, err
		}
	}

	return len(keys), nil
}

// sweepDeadLetters deletes dead letters whose id is older than a time. It keeps rows with an
// invalid id, because the age of a row is known only from its id. The limit does not count these
// rows.
func sweepDeadLetters(c *conn, shard model.ShardID, before model.Time, limit int) (int, error) {
	if limit <= 0 || before == 0 {
		return 0, nil
	}
	var ids []model.RunID
	end := store.OldestID(before)

	err := c.query(sqlOldDeadLetters, func(q *stmt) error {
		if id, ok := q.id(0); ok {
			ids = append(ids, id)
		}
		return nil
	}, int(shard), end[:], limit)
	if err != nil {
		return 0, err
	}

	for _, id := range ids {
		if _, err := c.exec(sqlConsume, int(shard), id[:]); err != nil {
			return 0, err
		}
	}

	return len(ids), nil
}

// sweepGarbage deletes the events of each deleted run and the data of its tasks, and then the entry
// of the run in the table of garbage.
func sweepGarbage(c *conn, shard model.ShardID, limit int) (swept int, err error) {
	if limit <= 0 {
		return 0, nil
	}
	// Keep the ids as bytes, so that the sweep also deletes entries with an invalid id. If such
	// entries stayed, they would fill the limit of each sweep.
	var runs [][]byte

	err = c.query(sqlGarbageRuns, func(q *stmt) error {
		runs = append(runs, append([]byte{}, q.raw(0)...))
		return nil
	}, int(shard), limit)
	if err != nil {
		return 0, err
	}

	// A run may have more rows than one sweep deletes. Its entry in the garbage table goes last, so
	// that the next sweep continues with the same run.
	for _, run := range runs {
		if swept >= limit {
			return swept, nil
		}
		first, found, err := c.number(sqlFirstEvent, run, int(shard))
		if err != nil {
			return swept, err
		}

		if found {
			// Positions have no gap, so at most this many rows are deleted.
			end := first + int64(limit-swept)
			if _, err := c.exec(sqlSweepBodies, run, int(shard), end); err != nil {
				return swept, err
			}
			n, err := c.exec(sqlSweepEvents, run, int(shard), end)
			if err != nil {
				return swept, err
			}
			if swept += int(n); swept >= limit {
				return swept, nil
			}
		}

		n, err := sweepTasks(c, run, shard, limit-swept)
		if err != nil {
			return swept, err
		}
		if swept += n; swept >= limit {
			return swept, nil
		}

		if _, err := c.exec(sqlSweepGarbage, run, int(shard)); err != nil {
			return swept, err
		}
		swept++
	}

	return swept, nil
}
