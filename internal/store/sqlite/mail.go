package sqlite

import (
	"context"
	"slices"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

const (
	sqlNextSender      = `select from_shard from perdure_messages where to_shard = ?1 and from_shard > ?2 order by from_shard limit 1`
	sqlCursorOf        = `select seq from perdure_cursors where to_shard = ?1 and from_shard = ?2`
	sqlLoadMessages    = `select seq, body from perdure_messages where to_shard = ?1 and from_shard = ?2 and seq > ?3 order by seq limit ?4`
	sqlInboxDue        = `select 1 from perdure_inbox where shard = ?1 and not_before <= ?2 limit 1`
	sqlLoadInbox       = `select id, not_before, body from perdure_inbox where shard = ?1 and not_before <= ?2 order by id`
	sqlLoadDeadLetters = `select shard, id, body from perdure_inbox where not_before = 253402300799000000 and id > ?1 and length(id) = 16 order by id limit ?2`
	sqlPutInbox        = `insert into perdure_inbox (shard, id, not_before, body) values (?1, ?2, ?3, ?4) on conflict do nothing`
	sqlRemembered      = `select 1 from perdure_requests where shard = ?1 and tenant = ?2 and workflow = ?3 and key = ?4 and id = ?5`
	sqlLoadReply       = `select at, body from perdure_requests where shard = ?1 and tenant = ?2 and workflow = ?3 and key = ?4 and id = ?5`
)

// eachSender calls f for every shard that has messages for the shard to, until f returns an error.
// It also passes the cursor of the two shards to f.
func eachSender(c *conn, to model.ShardID, f func(from model.ShardID, cursor int64) error) error {
	// Each query jumps to the next sender, so the cost depends on the number of senders and not on
	// the number of messages.
	from := int64(-1)
	for {
		next, found, err := c.number(sqlNextSender, int(to), from)
		if err != nil || !found {
			return err
		}
		from = next
		cursor, _, err := c.number(sqlCursorOf, int(to), from)
		if err != nil {
			return err
		}
		if err := f(model.ShardID(from), cursor); err != nil {
			return err
		}
	}
}

// LoadMessages returns messages that their cursor has not passed.
func (s *Store) LoadMessages(ctx context.Context, shards []model.ShardID, limit, maxBytes int) (out []store.MessageRow, more bool, err error) {
	err = s.read(ctx, "load messages", func(c *conn) error {
		out, more = nil, false
		size := 0
		for _, to := range distinct(shards) {
			err := eachSender(c, to, func(from model.ShardID, cursor int64) error {
				// The sender leaves no gap between positions. If there is a gap anyway, the
				// messages behind it wait, because messages take effect in order.
				expected := cursor + 1
				err := c.query(sqlLoadMessages, func(q *stmt) error {
					m := store.MessageRow{To: to, From: from, Seq: q.int(0)}
					if m.Seq != expected {
						return errStop
					}
					// The first row always fits, however large it is. Otherwise the engine would
					// never get a large row.
					if more = len(out) >= limit || size > 0 && size >= maxBytes; more {
						return errStop
					}
					expected++
					size += len(q.raw(1))
					m.Message, m.Damaged = readMessage(messageColumns(nil, to, from, m.Seq), q.raw(1), "messages, from shard %d to shard %d, position %d", from, to, m.Seq)
					out = append(out, m)
					return nil
				}, int(to), int(from), cursor, limit-len(out)+1)
				if err == nil && more {
					err = errStop
				}

				return err
			})

			if more {
				return nil
			}
			if err != nil {
				return err
			}
		}

		return nil
	})
	if err != nil {
		return nil, false, err
	}

	return out, more, nil
}

// readMessage decodes the sealed body of a message. If the body cannot be decoded, readMessage
// returns it as damaged. If the checksum is wrong, the damaged body includes the checksum. The
// parameters row and args name the row in the error.
func readMessage(columns, sealed []byte, row string, args ...any) (m model.Message, d *model.Damaged) {
	body, err := unseal(columns, sealed)
	if err == nil {
		sealed = body
		m, err = model.DecodeMessage(body)
	}
	if err != nil {
		return m, model.Damage(sealed, corrupt(err, row, args...))
	}
	return m, nil
}

// hasMail reports whether messages or requests wait for the shards.
func hasMail(c *conn, shards []model.ShardID, at model.Time) (bool, error) {
	for _, shard := range distinct(shards) {
		// A dead letter is a request that is never due, so the bound of the time excludes dead
		// letters.
		_, found, err := c.number(sqlInboxDue, int(shard), int64(min(at, model.MaxTime-1)))
		if err != nil || found {
			return found, err
		}

		err = eachSender(c, shard, func(from model.ShardID, cursor int64) error {
			last, _, err := c.number(sqlLastMessage, int(shard), int(from))
			if err == nil && last > cursor {
				found = true
				err = errStop
			}
			return err
		})

		if found {
			return true, nil
		}
		if err != nil {
			return false, err
		}
	}

	return false, nil
}

// readRequest reads the id and the message of a request from columns of a row. It returns an error
// if the row has no valid id.
func readRequest(q *stmt, id, body int, row *store.InboxRow) error {
	var ok bool
	if row.ID, ok = q.id(id); !ok {
		return noID("inbox, shard %d", row.Shard)
	}
	row.Message, row.Damaged = readMessage(inboxColumns(nil, row.Shard, row.ID), q.raw(body), "inbox, shard %d, request %s", row.Shard, row.ID)
	return nil
}

// LoadDeadLetters returns requests and messages that the engine refused and kept.
func (s *Store) LoadDeadLetters(ctx context.Context, after model.RunID, limit int) (out []store.InboxRow, err error) {
	err = s.read(ctx, "load dead letters", func(c *conn) error {
		out = nil
		return c.query(sqlLoadDeadLetters, func(q *stmt) error {
			row := store.InboxRow{Shard: model.ShardID(q.int(0)), NotBefore: model.MaxTime}
			err := readRequest(q, 1, 2, &row)
			out = append(out, row)
			return err
		}, after[:], limit)
	})
	return out, err
}

// LoadInbox returns requests that may be served.
func (s *Store) LoadInbox(ctx context.Context, shards []model.ShardID, at model.Time, limit, maxBytes int) (out []store.InboxRow, more bool, err error) {
	const op = "load inbox"
	var skipped store.Skipped
	err = s.read(ctx, op, func(c *conn) error {
		page := requestPage{limit: limit, maxBytes: maxBytes}
		skipped = store.Skipped{}
		for _, shard := range distinct(shards) {
			// Each shard has its own order. LoadInbox merges the pages of the shards by id, so that
			// no shard has to wait until the inbox of another shard is empty.
			part := requestPage{limit: limit, maxBytes: maxBytes}
			err := c.query(sqlLoadInbox, func(q *stmt) error {
				row := store.InboxRow{Shard: shard, NotBefore: model.Time(q.int(1))}
				if err := readRequest(q, 0, 2, &row); err != nil {
					skipped.Note(err)
				} else if !part.add(row, len(q.raw(2))) {
					return errStop
				}
				return nil
			}, int(shard), int64(min(at, model.MaxTime-1)))
			if err != nil {
				return err
			}
			page = page.merge(&part)
		}

		out, more = page.rows, page.more
		for i := range out {
			if err := setSeen(c, &out[i]); err != nil {
				return err
			}
		}

		return nil
	})
	if err != nil {
		return nil, false, err
	}

	return out, more, skipped.Err(op)
}

// requestPage is a bounded page of the inbox, in the order of ids.
type requestPage struct {
	limit, maxBytes int
	rows            []store.InboxRow
	sizes           []int // sizes of the bodies of the rows
	size            int
	more            bool // there are rows after the page
}

// add adds the next row with a body of the given size. It returns false if the page is full.
func (p *requestPage) add(row store.InboxRow, size int) bool {
	if len(p.rows) >= p.limit || p.size > 0 && p.size >= p.maxBytes {
		p.more = true
		return false
	}
	p.rows, p.sizes, p.size = append(p.rows, row), append(p.sizes, size), p.size+size
	return true
}

// merge returns the page with the first rows of two pages. The caller merges the pages of many
// shards one by one, so it never holds more than two pages.
func (p *requestPage) merge(o *requestPage) requestPage {
	if len(o.rows) == 0 {
		return *p
	}
	m := requestPage{limit: p.limit, maxBytes: p.maxBytes, more: p.more || o.more}
	for i, j := 0, 0; i < len(p.rows) || j < len(o.rows); {
		from, at := p, &i
		if i == len(p.rows) || j < len(o.rows) && o.rows[j].ID.Compare(p.rows[i].ID) < 0 {
			from, at = o, &j
		}
		if !m.add(from.rows[*at], from.sizes[*at]) {
			break
		}
		*at++
	}
	return m
}

// setSeen sets Seen if the request is remembered.
func setSeen(c *conn, row *store.InboxRow) (err error) {
	m := &row.Message
	if m.RequestID == "" {
		return nil
	}
	_, row.Seen, err = c.number(sqlRemembered, int(row.Shard), m.To.Tenant, m.To.Type, m.To.Key, m.RequestID)
	return err
}

// wasRefused reports whether the refusal of the request is remembered.
func wasRefused(c *conn, row *store.InboxRow) (is bool, err error) {
	m := &row.Message
	if m.RequestID == "" {
		return false, nil
	}
	_, is, err = c.number(sqlRemembered, int(row.Shard), m.To.Tenant, m.To.Type, m.To.Key, model.RefusedIDs+row.ID.String())
	return is, err
}

// PutInbox stores requests that are not in the inbox yet and that have no remembered answer or
// refusal.
func (s *Store) PutInbox(ctx context.Context, rows []store.InboxRow) error {
	const op = "put inbox"
	enc := bodyPool.Get().(*bodies)
	defer bodyPool.Put(enc)
	enc.reset(0)

	for i := range rows {
		enc.columns = inboxColumns(enc.columns[:0], rows[i].Shard, rows[i].ID)
		if err := enc.add(model.AppendBody(enc.data, &rows[i].Message, rows[i].Damaged)); err != nil {
			return store.Errorf(store.Refused, op, "request %s to shard %d: %w", rows[i].ID, rows[i].Shard, err)
		}
	}

	return s.write(ctx, op, func(w *writer) error {
		for i := range rows {
			row := rows[i]
			body := enc.next()
			if err := setSeen(w.conn, &row); err != nil {
				return err
			}
			// The owner has already served the request. A new row would only cost another read.
			if row.Seen {
				continue
			}

			// The sender has read the refusal. A late copy must not take effect after that.
			if is, err := wasRefused(w.conn, &row); err != nil {
				return err
			} else if is {
				continue
			}

			if _, err := w.exec(sqlPutInbox, int(row.Shard), row.ID[:], int64(row.NotBefore), body); err != nil {
				return err
			}
		}

		return nil
	})
}

// LoadReplies returns the remembered answers for the keys.
func (s *Store) LoadReplies(ctx context.Context, keys []store.RequestKey) (out []store.Reply, err error) {
	err = s.read(ctx, "load replies", func(c *conn) error {
		out, err = repliesTo(c, keys)
		return err
	})
	if err != nil {
		return nil, err
	}

	return out, nil
}

// repliesTo reads the remembered answers for the keys. A caller waits for each of them, and must
// learn that the answer is damaged. So repliesTo returns a reply with Damaged set instead of an
// error.
func repliesTo(c *conn, keys []store.RequestKey) (out []store.Reply, err error) {
	for _, k := range keys {
		err := c.query(sqlLoadReply, func(q *stmt) error {
			r := store.Reply{RequestKey: k, At: model.Time(q.int(0))}
			if body, err := unseal(requestColumns(nil, k, r.At), q.raw(1)); err != nil {
				r.Damaged = model.Damage(q.raw(1), corrupt(err, "requests, shard %d, request %q of %s", k.Shard, k.ID, k.Address))
			} else {
				r.Body = slices.Clone(body)
			}
			out = append(out, r)
			return nil
		}, int(k.Shard), k.Address.Tenant, k.Address.Type, k.Address.Key, k.ID)
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// LoadAnswers returns what callers of a process wait for.
func (s *Store) LoadAnswers(ctx context.Context, a store.Awaited) (found store.Answers, err error) {
	err = s.read(ctx, "load answers", func(c *conn) error {
		found = store.Answers{}
		if found.Replies, err = repliesTo(c, a.Requests); err != nil {
			return err
		}
		ended := func(shard model.ShardID, e *store.Execution, err error) error {
			if e != nil && e.Shard == shard && e.Outcome.Status.Closed() {
				found.Ended = append(found.Ended, *e)
			}
			return err
		}
		for _, k := range a.Runs {
			e, err := oneExecution(c, sqlRun, k.Run[:], int(k.Shard))
			if err = ended(k.Shard, e, err); err != nil {
				return err
			}
		}
		for _, k := range a.Addresses {
			e, err := oneExecution(c, sqlCurrentRun, k.Address.Tenant, k.Address.Type, k.Address.Key)
			if err = ended(k.Shard, e, err); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return store.Answers{}, err
	}

	return found, nil
}
