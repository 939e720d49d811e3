package bench

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
)

// meter measures how much processor time, memory and disk this process and its database use. Open
// the meter before you open the system under test, and close it after you have closed the system.
type meter struct {
	place      Place
	conn       *pgx.Conn // nil for SQLite
	postmaster int       // 0 when unknown
	flushes    int64     // of the server, when the meter was opened
	parts      Parted    // nil when everything is in this process
}

// reading is the state of all counters at one moment.
type reading struct {
	at                time.Time
	process, database time.Duration
	server, worker    time.Duration
	machine           time.Duration
	written, commits  int64
	allocs, bytes     int64
	serverRSS         int64
}

func openMeter(ctx context.Context, place Place) (*meter, error) {
	m := &meter{place: place}
	if place.Kind != Postgres {
		return m, nil
	}
	var err error
	if m.conn, err = pgx.Connect(ctx, place.URL); err != nil {
		return nil, err
	}
	m.postmaster = postmasterOf(int(m.conn.PgConn().PID()))
	m.flushes, err = m.serverFlushes(ctx)
	return m, err
}

func (m *meter) close(ctx context.Context) {
	if m.conn != nil {
		_ = m.conn.Close(ctx)
	}
}

// read takes a reading.
func (m *meter) read(ctx context.Context) (reading, error) {
	r := reading{at: time.Now(), process: processCPU(), database: databaseCPU(m.postmaster), machine: machineCPU()}
	writer := os.Getpid()
	if m.parts != nil {
		servers, workers := m.parts.Processes()
		writer = servers[0]
		for _, pid := range servers {
			r.server += threadsCPU(pid)
			r.serverRSS += residentOf(strconv.Itoa(pid))
		}
		for _, pid := range workers {
			r.worker += threadsCPU(pid)
		}
	}
	var heap runtime.MemStats
	runtime.ReadMemStats(&heap)
	r.allocs, r.bytes = int64(heap.Mallocs), int64(heap.TotalAlloc)
	if m.conn == nil {
		r.written, r.commits = bytesWritten(writer), sqliteCommits(m.place.Path)
		return r, nil
	}
	err := m.conn.QueryRow(ctx, "select pg_current_wal_insert_lsn() - '0/0'::pg_lsn").Scan(&r.written)
	return r, err
}

// between returns the usage between two readings, without Flushes and Rows.
func between(a, b reading) Usage {
	u := Usage{
		Process: b.process - a.process, Database: b.database - a.database, Server: b.server - a.server, Worker: b.worker - a.worker, Written: b.written - a.written,
		Allocs: b.allocs - a.allocs, Bytes: b.bytes - a.bytes, RSS: residentMemory(), ServerRSS: b.serverRSS,
	}
	all := b.at.Sub(a.at) * time.Duration(runtime.NumCPU())
	u.Others = max(0, float64(b.machine-a.machine-u.CPU())/float64(all))
	return u
}

// lifeFlushes returns the number of flushes since the meter was opened. Backends report their
// flushes about once per second and when they end, so the number is exact only after the system
// under test is closed.
func (m *meter) lifeFlushes(ctx context.Context) (int64, error) {
	if m.conn == nil {
		return 0, nil
	}
	time.Sleep(100 * time.Millisecond) // gives backends time to end
	n, err := m.serverFlushes(ctx)
	return n - m.flushes, err
}

// lifeRows returns the number of rows written since the database was created. It is also exact only
// after the system under test is closed.
func (m *meter) lifeRows(ctx context.Context) (n int64, err error) {
	if m.conn == nil {
		return 0, nil
	}
	const query = "select tup_inserted + tup_updated + tup_deleted from pg_stat_database where datname = current_database()"
	if err := m.conn.QueryRow(ctx, query).Scan(&n); err != nil {
		return 0, fmt.Errorf("rows of the database: %w", err)
	}
	return n, nil
}

// serverFlushes returns the number of flushes of the server's log since its statistics started.
func (m *meter) serverFlushes(ctx context.Context) (n int64, err error) {
	const view, since18 = "select wal_sync from pg_stat_wal", "select coalesce(sum(fsyncs), 0)::bigint from pg_stat_io where object = 'wal'"
	query := view
	var version int
	if err := m.conn.QueryRow(ctx, "select current_setting('server_version_num')::int").Scan(&version); err != nil {
		return 0, err
	}
	if version >= 180000 {
		query = since18
	}
	if err := m.conn.QueryRow(ctx, query).Scan(&n); err != nil {
		return 0, fmt.Errorf("flushes of the server: %w", err)
	}
	return n, nil
}
