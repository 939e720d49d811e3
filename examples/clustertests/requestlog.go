package main

import (
	"context"
	"hash/fnv"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// requestLog records the persisted requests of the application, for the debug routes. It needs its
// own table, because the engine removes its own rows as soon as the engine no longer needs them.
type requestLog struct {
	pool   *pgxpool.Pool
	logger *slog.Logger

	mu   sync.Mutex
	used map[target]time.Time // entities that this node has called, with the time of the last call
}

func newRequestLog(pool *pgxpool.Pool, logger *slog.Logger) *requestLog {
	return &requestLog{pool: pool, logger: logger, used: map[target]time.Time{}}
}

// begin records a request before it is made.
func (l *requestLog) begin(ctx context.Context, to target) (id int64, err error) {
	l.touch(to)
	err = l.pool.QueryRow(ctx, `insert into cluster_tests.message (shard_id, entity_type, entity_id, tag) values ($1, $2, $3, $4) returning request_id`,
		shardOf(to.id), to.typ, to.id, to.tag).Scan(&id)
	return id, err
}

// end records the reply, even if the client has gone away. At this time the call has already been
// made, so end logs an error and does not fail the request.
func (l *requestLog) end(ctx context.Context, id int64, repeats int) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_, err := l.pool.Exec(ctx, `with done as (
			update cluster_tests.message set processed = true, retry_count = $2 where request_id = $1 returning request_id)
		insert into cluster_tests.reply (request_id) select request_id from done`, id, repeats)
	if err != nil && l.logger != nil {
		l.logger.Warn("a reply is not recorded", "request", id, "error", err)
	}
}

// touch notes that an entity is in use.
func (l *requestLog) touch(to target) {
	to.tag = ""
	l.mu.Lock()
	defer l.mu.Unlock()
	l.used[to] = time.Now()
	if len(l.used) > 10_000 {
		l.forgetIdle()
	}
}

// active returns how many entities this node has called within the last five seconds (idle).
func (l *requestLog) active() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forgetIdle()
	return len(l.used)
}

func (l *requestLog) forgetIdle() {
	for to, at := range l.used {
		if time.Since(at) > idle {
			delete(l.used, to)
		}
	}
}

// shardOf returns the shard that the log shows for an entity. Entities with the same id have the
// same shard, whatever their type.
func shardOf(id string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id)) // Write of a hash never fails
	return int(h.Sum32() % shards)
}
