package postgres_test

import (
	"testing"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/storetest"
)

// While a node acquires a shard, another shard, which receives messages from that shard, advances
// its cursor, and a sweep deletes the messages up to the cursor. The node still learns the position
// of the last message. Otherwise the next message of the acquired shard would get a position that
// the receiver has passed, and would be lost.
func TestAcquireDuringASweep(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	f := storetest.New(t, openURL(t, url))
	n := f.Join(1)
	shards := f.Shards()
	from, to := shards[0], shards[1]
	owner, sweeper := connect(t, url), connect(t, url)
	run := func(sql string, args ...any) {
		t.Helper()
		if _, err := sweeper.Exec(t.Context(), sql, args...); err != nil {
			t.Fatal(err)
		}
	}
	run(`insert into perdure.messages (to_shard, from_shard, seq, body) select $1, $2, n, '' from generate_series(6, 10) n`, int16(to), int16(from))
	run(`insert into perdure.cursors (to_shard, from_shard, position) values ($1, $2, 5)`, int16(to), int16(from))

	acquire := func() ([]store.AcquiredShard, error) {
		return f.Store.Acquire(t.Context(), n.Info.ID, n.Epoch, []model.ShardID{from})
	}
	// The first call prepares the statements, which would wait for the lock too.
	if _, err := acquire(); err != nil {
		t.Fatal(err)
	}

	// The lock makes Acquire wait where it reads the messages.
	run(`begin`)
	run(`lock table perdure.messages in access exclusive mode`)
	type result struct {
		got []store.AcquiredShard
		err error
	}
	done := make(chan result, 1)
	go func() { got, err := acquire(); done <- result{got, err} }()
	eventually(t, "the node to wait for the messages", func() bool {
		var waits bool
		const look = `select exists (select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and query like '%messages%')`
		if err := owner.QueryRow(t.Context(), look).Scan(&waits); err != nil {
			t.Fatal(err)
		}
		return waits || len(done) > 0
	})

	run(`update perdure.cursors set position = 10 where to_shard = $1 and from_shard = $2`, int16(to), int16(from))
	run(`delete from perdure.messages where to_shard = $1 and from_shard = $2 and seq <= 10`, int16(to), int16(from))
	run(`commit`)
	r := <-done
	if r.err != nil { // Acquire gave up waiting for the lock
		r.got, r.err = acquire()
	}
	if r.err != nil || len(r.got) != 1 || r.got[0].Sent[to] != 10 {
		t.Errorf("acquired %+v, want 10 as the last position: %v", r.got, r.err)
	}
}
