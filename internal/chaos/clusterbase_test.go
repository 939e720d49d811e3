//go:build long

package chaos_test

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Faults of the machine of the database: a clock that jumps, a disk that syncs slowly, a machine
// that stops for a while.

// prepareClock makes it possible for faults to move the clock of the database. The statements of
// Perdure call clock_timestamp without a schema. So prepareClock creates a function of that name in
// a schema that PostgreSQL searches first.
func (f *clusterFire) prepareClock(ctx context.Context) error {
	return f.command(ctx,
		`create schema faults`,
		`create table faults.step (microseconds bigint)`,
		`insert into faults.step values (0)`,
		`create function faults.clock_timestamp() returns timestamptz language sql volatile as
			'select pg_catalog.clock_timestamp() + (select microseconds from faults.step) * interval ''1 microsecond'''`,
		`alter database `+pgx.Identifier{f.name}.Sanitize()+` set search_path = faults, pg_catalog, public`,
	)
}

// command executes statements in the database, each in its own transaction. The caller holds the
// lock of the database, unless no other goroutine uses the database.
func (f *clusterFire) command(ctx context.Context, statements ...string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, f.pg.URL(f.name))
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for _, sql := range statements {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	return nil
}

// mend ends a fault with statements. It repeats them until the database has executed them.
func (f *clusterFire) mend(statements ...string) {
	for {
		err := f.command(f.t.Context(), statements...)
		if err == nil || f.t.Context().Err() != nil {
			return
		}
		f.say("the fault does not end yet: %v", err)
		time.Sleep(100 * time.Millisecond)
	}
}

// stepClock moves the clock of the database, and later moves it back. No node starts before the
// clock is back, because a process that starts during a jump believes the wrong clock, as
// docs/time.md says.
func (f *clusterFire) stepClock(b blow) {
	for _, m := range f.nodes {
		m.mu.Lock()
		defer m.mu.Unlock()
	}
	steps := []time.Duration{5 * time.Second, -5 * time.Second, time.Hour, -time.Hour, 31 * 24 * time.Hour, -31 * 24 * time.Hour}
	step := steps[b.dice]
	// A node that has just been started may not have read the clock yet.
	if !f.allRegistered(20 * time.Second) {
		step = steps[b.dice%2]
	}

	f.wal.Lock()
	defer f.wal.Unlock()
	f.say("the clock of the database steps by %s", step)
	if err := f.command(f.t.Context(), fmt.Sprintf(`update faults.step set microseconds = %d`, step.Microseconds())); err != nil {
		f.say("the clock does not step: %v", err) // the reply may be lost
	}
	wrong := time.Now()
	time.Sleep(b.lasts)
	f.mend(`update faults.step set microseconds = 0`)
	if step.Abs() < 10*time.Second {
		f.crowd.allowEarly(time.Since(wrong) + time.Second)
	}
}

// allRegistered waits until the current process of every node is registered.
func (f *clusterFire) allRegistered(within time.Duration) bool {
	for end := time.Now().Add(within); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if f.countRegistered() == len(f.nodes) {
			return true
		}
	}
	return false
}

func (f *clusterFire) countRegistered() (n int) {
	ctx, cancel := context.WithTimeout(f.t.Context(), 10*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, f.direct())
	if err != nil {
		return 0
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var pids []int
	for _, m := range f.nodes {
		pids = append(pids, m.cmd.Process.Pid)
	}
	if err := conn.QueryRow(ctx, `select count(distinct pid) from perdure.nodes where pid = any($1)`, pids).Scan(&n); err != nil {
		return 0
	}
	return n
}

// slowSync makes every sync of the database's log take up to 100 ms longer. The server sleeps while
// it holds the lock of the log, as with a slow disk.
func (f *clusterFire) slowSync(b blow) {
	f.wal.Lock()
	defer f.wal.Unlock()
	delay := (1 + b.dice) * 16_000
	err := f.command(f.t.Context(), `alter system set commit_siblings = 0`, fmt.Sprintf(`alter system set commit_delay = %d`, delay), `select pg_reload_conf()`)
	if err != nil {
		f.say("the disk is not slow: %v", err)
	}
	time.Sleep(b.lasts)
	f.mend(`alter system reset commit_delay`, `alter system reset commit_siblings`, `select pg_reload_conf()`)
}

// freezeDatabase stops all processes of the database for a while, as when the host of a virtual
// machine pauses it.
func (f *clusterFire) freezeDatabase(b blow) {
	f.wal.Lock()
	defer f.wal.Unlock()
	if err := f.pg.Freeze(b.lasts); err != nil {
		f.t.Error(err)
	}
}
