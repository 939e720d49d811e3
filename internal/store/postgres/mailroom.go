package postgres

import (
	"context"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// The parts of the statement that puts requests into the inbox.
const (
	putInbox = `
insert into {schema}.inbox (shard, id, not_before, tenant, workflow, key, request, body)
select u.* from unnest($1::smallint[], $2::uuid[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::text[], $8::bytea[])
  u (shard, id, not_before, tenant, workflow, key, request, body)
where (u.request = '' or (
  select r.at from {schema}.requests r
  where r.shard = u.shard and r.key = u.key and r.id = u.request and r.workflow = u.workflow and r.tenant = u.tenant) is null)`
	putOnce = `
on conflict (shard, id) do nothing`
	sameGroups = `(select m.groups from {schema}.meta m where m.id = 1) = $9`

	// The condition on xmin selects only rows of this transaction. A row that another transaction
	// has stored must stay, because its owner may have read it. Refusals are rare, so the statement
	// usually looks only for refusals.
	takeBack = `
delete from {schema}.inbox where ctid = any (array(
  select x.ctid from unnest($1::smallint[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::text[]) u (shard, id, tenant, workflow, key, refused)
  cross join lateral (
    select i.ctid from {schema}.inbox i where i.shard = u.shard and i.id = u.id and i.xmin = pg_current_xact_id()::xid limit 1) x
  where (
    select r.at from {schema}.requests r
    where r.shard = u.shard and r.key = u.key and r.id = u.refused and r.workflow = u.workflow and r.tenant = u.tenant) is not null))`
)

// PutInbox stores requests that are not in the inbox yet and whose answers are not remembered. An
// owner may serve a request between the check and the insert. In that case PutInbox stores the row
// again, and LoadInbox returns it with Seen set.
//
// The owner may also refuse the request in between. In that case the insert waits for the commit of
// the refusal, which deletes the first row. Then the insert stores a late copy of a refused
// request. A second statement removes that copy. The second statement has a later snapshot, so it
// sees the refusal. It is part of the same transaction, and the store sends both statements
// together.
//
// If shard groups were added after this process had opened the store, the process may compute the
// wrong shard for a name that chooses a group. PutInbox refuses such requests.
func (s *Store) PutInbox(ctx context.Context, rows []store.InboxRow) error {
	const op = "put inbox"
	if len(rows) == 0 {
		return nil
	}
	n := len(rows)
	shards, ids, notBefore := make([]int16, n), make([]pgtype.UUID, n), make([]int64, n)

	tenants, workflows, keys, requests, refused, bodies := make([]string, n), make([]string, n), make([]string, n), make([]string, n), make([]string, n), make([][]byte, n)
	for i := range rows {
		r := &rows[i]
		if r.Shard >= model.MaxShards {
			return refusal(op, errors.New("a shard that no store has"))
		}
		k := requestKey(r)
		shards[i], ids[i], notBefore[i] = int16(r.Shard), runArg(r.ID), int64(r.NotBefore)
		tenants[i], workflows[i], keys[i], requests[i] = k.Address.Tenant, k.Address.Type, k.Address.Key, k.ID
		bodies[i] = model.AppendBody(nil, &r.Message, r.Damaged)
		if k.ID != "" {
			refused[i] = model.RefusedIDs + r.ID.String()
		}
	}

	isRequest := func(id string) bool { return id != "" }
	grouped := slices.ContainsFunc(rows, func(r store.InboxRow) bool { return model.MayChooseGroup(r.Message.To.Type) })
	return s.work(ctx, op, true, func(ctx context.Context, c *pgx.Conn) error {
		var batch pgx.Batch
		batch.Queue(keepPlans)
		args := []any{shards, ids, notBefore, tenants, workflows, keys, requests, bodies}
		if grouped {
			// AddGroups locks the table, so the groups do not change between the two statements.
			groups := model.FormatGroups(s.info.Groups)
			batch.Queue(s.sql(putInbox+" and "+sameGroups+putOnce), append(args, groups)...)
			batch.Queue(s.sql(`select groups = $1 from {schema}.meta where id = 1`), groups).QueryRow(expectSameGroups(op))
		} else {
			batch.Queue(s.sql(putInbox+putOnce), args...)
		}
		if slices.ContainsFunc(requests, isRequest) {
			batch.Queue(s.sql(takeBack), shards, ids, tenants, workflows, keys, refused)
		}
		return c.SendBatch(ctx, &batch).Close()
	})
}

const loadReplies = `
select r.shard, r.tenant, r.workflow, r.key, r.id, r.at, r.body
from unnest($1::smallint[], $2::text[], $3::text[], $4::text[], $5::text[]) u (shard, tenant, workflow, key, id)
cross join lateral (
  select q.shard, q.tenant, q.workflow, q.key, q.id, q.at, q.body from {schema}.requests q
  where q.shard = u.shard and q.key = u.key and q.id = u.id and q.workflow = u.workflow and q.tenant = u.tenant limit 1) r`

// loadEnded reads the closed ones of some runs. loadEndedAt reads the current runs of addresses if
// they are closed. It names the shard in a way that matches no index, so that the plan finds the
// run by its address.
const (
	loadEnded = `
select x.* from unnest($1::smallint[], $2::uuid[]) u (shard, run)
cross join lateral (select {execution} from {schema}.executions e where e.shard = u.shard and e.run = u.run and e.state > 1 limit 1) x`
	loadEndedAt = `
select x.* from unnest($1::smallint[], $2::text[], $3::text[], $4::text[]) u (shard, key, workflow, tenant)
cross join lateral (
  select {execution} from {schema}.executions e
  where e.shard is not distinct from u.shard and e.key = u.key and e.workflow = u.workflow and e.tenant = u.tenant and e.current and e.state > 1
  limit 1) x`
)

// LoadReplies returns the remembered answers for the requests.
func (s *Store) LoadReplies(ctx context.Context, keys []store.RequestKey) ([]store.Reply, error) {
	found, err := s.loadAnswers(ctx, "load replies", store.Awaited{Requests: keys})
	return found.Replies, err
}

// LoadAnswers returns what callers of this process wait for, in one round trip.
func (s *Store) LoadAnswers(ctx context.Context, a store.Awaited) (store.Answers, error) {
	return s.loadAnswers(ctx, "load answers", a)
}

func (s *Store) loadAnswers(ctx context.Context, op string, a store.Awaited) (found store.Answers, err error) {
	if len(a.Requests)+len(a.Runs)+len(a.Addresses) == 0 {
		return store.Answers{}, nil
	}
	err = s.read(ctx, op, func(ctx context.Context, c *pgx.Conn) error {
		found = store.Answers{}
		return c.SendBatch(ctx, s.answerQueries(a, &found)).Close()
	})
	if err != nil {
		return store.Answers{}, err
	}
	return found, nil
}

// answerQueries returns the queries for what callers wait for. They write their rows to found.
func (s *Store) answerQueries(a store.Awaited, found *store.Answers) *pgx.Batch {
	var batch pgx.Batch
	batch.Queue(keepPlans)
	if len(a.Requests) > 0 {
		shards, tenants, workflows, names, ids := requestColumns(a.Requests)
		batch.Queue(s.sql(loadReplies), shards, tenants, workflows, names, ids).Query(func(rows pgx.Rows) (err error) {
			found.Replies, err = scanReplies(rows)
			return err
		})
	}

	ended := func(rows pgx.Rows) error {
		out, err := scanExecutions(rows, func(_ *executionRow, e *store.Execution, _ error) { *e = store.Execution{} })
		// A row that cannot be read is left out.
		out = slices.DeleteFunc(out, func(e store.Execution) bool { return e.Start.Run.IsZero() })
		found.Ended = append(found.Ended, out...)
		return err
	}
	if len(a.Runs) > 0 {
		shards, runs := runColumns(a.Runs)
		batch.Queue(s.sql(loadEnded), shards, runs).Query(ended)
	}
	if len(a.Addresses) > 0 {
		shards, names, workflows, tenants := addressColumns(a.Addresses)
		batch.Queue(s.sql(loadEndedAt), shards, names, workflows, tenants).Query(ended)
	}
	return &batch
}

func scanReplies(rows pgx.Rows) (out []store.Reply, err error) {
	var r store.Reply
	var body []byte
	_, err = pgx.ForEachRow(rows, []any{&r.Shard, &r.Address.Tenant, &r.Address.Type, &r.Address.Key, &r.ID, &r.At, &body}, func() error {
		r.Body, body = body, nil
		out = append(out, r)
		return nil
	})
	return out, err
}

// requestColumns returns request keys as columns. It leaves out keys that cannot be stored, as do
// runColumns and addressColumns.
func requestColumns(keys []store.RequestKey) (shards []int16, tenants, workflows, names, ids []string) {
	for _, k := range keys {
		if k.Shard < model.MaxShards {
			shards, ids = append(shards, int16(k.Shard)), append(ids, k.ID)
			tenants, workflows, names = append(tenants, k.Address.Tenant), append(workflows, k.Address.Type), append(names, k.Address.Key)
		}
	}

	return shards, tenants, workflows, names, ids
}

func runColumns(keys []store.RunKey) (shards []int16, runs []pgtype.UUID) {
	for _, k := range keys {
		if k.Shard < model.MaxShards {
			shards, runs = append(shards, int16(k.Shard)), append(runs, runArg(k.Run))
		}
	}
	return shards, runs
}

func addressColumns(keys []store.AddressKey) (shards []int16, names, workflows, tenants []string) {
	for _, k := range keys {
		if k.Shard < model.MaxShards {
			shards, names = append(shards, int16(k.Shard)), append(names, k.Address.Key)
			workflows, tenants = append(workflows, k.Address.Type), append(tenants, k.Address.Tenant)
		}
	}
	return shards, names, workflows, tenants
}
