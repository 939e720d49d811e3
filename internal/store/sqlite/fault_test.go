package sqlite

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/storetest"
)

// bench is a store with one run, on a file system that can inject faults.
type bench struct {
	*storetest.Fixture
	s    *Store
	fs   *faultFS
	lane *storetest.Lane
	run  storetest.Subject
	path string
}

func newBench(t *testing.T, cfg Config) *bench {
	t.Helper()
	b := &bench{fs: newFaultFS(t), path: filepath.Join(t.TempDir(), "app.db")}
	cfg.Path, cfg.vfs = b.path, b.fs.name
	b.s = openTest(t, cfg)
	b.Fixture = storetest.New(t, b.s)
	b.lane = b.Join(1).Lanes[0]
	b.run = b.Subject()
	b.lane.Write(func(w *store.Batch) { w.Starts = []store.StartRow{b.run.StartRow()} })
	return b
}

// event returns the next batch. It has one event, whose position is the number of the batch.
func (b *bench) event(size int) *store.Batch {
	w := b.lane.Batch()
	e := b.run.Event(w.Number)
	e.Event.Input = storetest.Text(strings.Repeat("x", size))
	w.Events = []store.EventRow{e}
	return w
}

func (b *bench) events(s *Store) int {
	b.Helper()
	events, err := s.LoadEvents(b.Context(), b.run.RunKey, 0, 1<<30, 1<<30)
	if err != nil {
		b.Fatal(err)
	}
	return len(events)
}

func TestFailedSyncIsUnknownAndFinal(t *testing.T) {
	t.Parallel()
	for op, cause := range map[string]error{"sync": syscall.EIO, "write": syscall.EIO} {
		t.Run(op, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, Config{})
			b.lane.Commit(b.event(10))
			b.fs.on(op, "-wal", cause)
			_, err := b.lane.Try(t.Context(), b.event(10))
			wantClass(t, err, store.Unknown)
			wantKind(t, err, fault.Unavailable, b.path, "may or may not", "restart")
			if !store.Final(err) {
				t.Error("the error does not say that it is final")
			}
			b.fs.heal()

			// The disk works again, but the store does not know its contents, so it still refuses
			// writes.
			_, err = b.lane.Try(t.Context(), b.event(10))
			wantClass(t, err, store.Away)
			wantKind(t, err, fault.Unavailable, b.path, "no writes", "restart")
			_, _, err = b.s.Refence(t.Context(), b.lane.Ref)
			wantClass(t, err, store.Away)
			if !store.Final(err) {
				t.Error("the error does not say that it is final")
			}
			if n := b.events(b.s); n != 1 {
				t.Errorf("%d events are visible, want 1", n)
			}
			closeTest(t, b.s)
			s := openTest(t, Config{Path: b.path})
			_, landed, err := s.Refence(t.Context(), b.lane.Ref)
			if err != nil {
				t.Fatal(err)
			}

			if n := b.events(s); n != int(landed)-1 || landed < 2 || landed > 3 {
				t.Errorf("batch %d landed, %d events", landed, n)
			}
		})
	}
}

func TestFailedWriteBeforeTheCommitAppliesNothing(t *testing.T) {
	t.Parallel()
	sequential(t)
	for _, cause := range []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EROFS} {
		t.Run(cause.Error(), func(t *testing.T) {
			t.Parallel()
			b := newBench(t, Config{})
			b.lane.Commit(b.event(10))
			b.fs.on("write", "-wal", cause)

			for range 2 {
				_, err := b.lane.Try(t.Context(), b.event(10))
				wantClass(t, err, store.Away)
				wantKind(t, err, fault.Unavailable, b.path)
			}

			b.fs.heal()
			b.lane.Commit(b.event(10))
			if n := b.events(b.s); n != 2 {
				t.Errorf("%d events, want 2", n)
			}
			closeTest(t, b.s)
			if n := b.events(openTest(t, Config{Path: b.path})); n != 2 {
				t.Errorf("%d events after opening again, want 2", n)
			}
		})
	}
}

func TestFailedSyncOfTheFileIsFinal(t *testing.T) {
	t.Parallel()
	sequential(t)
	b := newBench(t, Config{WALSize: minWALSize})
	b.fs.on("sync", "app.db", syscall.EIO)

	acked := 0
	for deadline := time.Now().Add(2 * time.Minute); ; {
		_, err := b.lane.Try(t.Context(), b.event(50_000))
		if err != nil {
			wantClass(t, err, store.Away)
			wantKind(t, err, fault.Unavailable, "no writes")
			break
		}
		if acked++; time.Now().After(deadline) {
			t.Fatal("the failed sync was not noticed")
		}
	}

	closeTest(t, b.s) // the disk still fails
	b.fs.heal()
	if n := b.events(openTest(t, Config{Path: b.path})); n != acked {
		t.Errorf("%d events, %d were acknowledged", n, acked)
	}
}

// If the directory of a new log cannot be synced, a power cut may lose the name of the log, and
// with it all commits in the log. So the store refuses further writes.
func TestFailedSyncOfTheDirectoryIsFinal(t *testing.T) {
	t.Parallel()
	sequential(t)
	dir := t.TempDir()
	fs, path := newFaultFS(t), filepath.Join(dir, "app.db")
	fs.on("sync", dir, syscall.EIO)
	_, err := Open(t.Context(), Config{Path: path, vfs: fs.name})
	wantKind(t, err, fault.Unavailable, path)
	fs.heal()
	closeTest(t, openTest(t, Config{Path: path, vfs: fs.name}))

	// Close removes the log, so the next commit creates a new log.
	s := openTest(t, Config{Path: path, vfs: fs.name})
	fs.on("sync", dir, syscall.EIO)
	_, err = s.Register(t.Context(), store.NodeInfo{ID: [16]byte{1}}, 1, time.Hour)
	wantClass(t, err, store.Unknown)
	_, err = s.Register(t.Context(), store.NodeInfo{ID: [16]byte{1}}, 1, time.Hour)
	wantClass(t, err, store.Away)
	if !store.Final(err) {
		t.Error("a later commit might be acknowledged")
	}
}

func TestCommitIsWholeAfterACrashAtAnyWrite(t *testing.T) {
	t.Parallel()
	sequential(t)
	for survived, n := false, 1; !survived; n++ {
		b := newBench(t, Config{})
		b.lane.Commit(b.event(10))
		w := b.event(20_000)
		w.Timers = []store.Timer{b.run.Timer("t", storetest.Noon)}
		b.fs.crashAfter(n)
		_, err := b.lane.Try(t.Context(), w)
		survived = err == nil
		if err != nil {
			wantClass(t, err, store.Unknown)
		}
		_ = b.s.Close() // after the crash, Close cannot write anything either
		b.fs.heal()
		s := openTest(t, Config{Path: b.path})
		events := b.events(s)
		timers, err := s.LoadRunTimers(t.Context(), b.run.RunKey)
		if err != nil || events-1 != len(timers) || (survived && events != 2) || events < 1 {
			t.Fatalf("crash after %d writes, committed %v: %d events, %d timers, %v", n, survived, events, len(timers), err)
		}

		closeTest(t, s)
		if n > 1000 {
			t.Fatal("commit never succeeds")
		}
	}
}

func TestFullDisk(t *testing.T) {
	t.Parallel()
	sequential(t)
	dir := mountTest(t, "size=10m")
	s := openTest(t, Config{Path: filepath.Join(dir, "app.db"), WALSize: minWALSize})
	f := storetest.New(t, s)
	lane, run := f.Join(1).Lanes[0], f.Subject()

	event := func() *store.Batch {
		b := lane.Batch()
		e := run.Event(b.Number)
		e.Event.Input = storetest.Text(strings.Repeat("x", 10_000))
		b.Events = []store.EventRow{e}
		return b
	}

	lane.Commit(event())
	// The ballast is larger than the store. So when the ballast is gone, the disk has room to move
	// the whole log into the file, however much of it the store has moved before.
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 6<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	var err error
	for err == nil && lane.Landed < 10_000 {
		_, err = lane.Try(t.Context(), event())
	}
	wantClass(t, err, store.Away)
	wantKind(t, err, fault.Unavailable, "free space", dir)

	count := func() int {
		events, err := s.LoadEvents(t.Context(), run.RunKey, 0, 1<<30, 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		return len(events)
	}
	if n := count(); n != int(lane.Landed) {
		t.Errorf("%d events, %d were acknowledged", n, lane.Landed)
	}
	_, err = s.Register(t.Context(), store.NodeInfo{Host: strings.Repeat("h", 2_000_000)}, 1, time.Hour)
	wantClass(t, err, store.Away)
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}

	for range 20 {
		lane.Commit(event())
	}
	if n := count(); n != int(lane.Landed) {
		t.Errorf("%d events, %d were acknowledged", n, lane.Landed)
	}
}

func TestFullDatabase(t *testing.T) {
	t.Parallel()
	sequential(t)
	b := newBench(t, Config{})

	onWriter(t, b.s, func(w *writer) {
		pages, _, err := w.number("pragma page_count")
		if err != nil {
			t.Fatal(err)
		}
		if err := w.db.Exec(fmt.Sprintf("pragma max_page_count = %d", pages+2)); err != nil {
			t.Fatal(err)
		}
	})

	_, err := b.lane.Try(t.Context(), b.event(100_000))
	wantClass(t, err, store.Away)
	tamper(t, b.s, "pragma max_page_count = 1000000")
	b.lane.Commit(b.event(100_000))
}

func TestAnotherWriterIsWaitedFor(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	c, err := openConn(t.Context(), &Config{Path: b.path}, modeCreate, "begin immediate")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.close() })
	_, err = b.lane.Try(t.Context(), b.event(10))
	wantClass(t, err, store.Retryable)
	if err := c.db.Exec("rollback"); err != nil {
		t.Fatal(err)
	}
	b.lane.Commit(b.event(10))
}

func TestOversizeValueIsRefused(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs half a gigabyte")
	}
	b := newBench(t, Config{})
	_, err := b.lane.Try(t.Context(), b.event(maxBody))
	wantClass(t, err, store.Refused)
	wantKind(t, err, fault.Invalid, "too large", b.run.Run.String())
	b.lane.Commit(b.event(maxBody - 1000))
	events, err := b.s.LoadEvents(t.Context(), b.run.RunKey, 0, 10, 1)
	if err != nil || len(events) != 1 || len(events[0].Input.Data) != maxBody-1000 {
		t.Errorf("%d events, %v", len(events), err)
	}
}

func TestLogStaysBounded(t *testing.T) {
	t.Parallel()
	sequential(t)
	b := newBench(t, Config{WALSize: minWALSize})

	largest := int64(0)
	for range 400 {
		b.lane.Commit(b.event(20_000))
		fi, err := os.Stat(b.path + "-wal")
		if err != nil {
			t.Fatal(err)
		}
		largest = max(largest, fi.Size())
	}

	if largest > (late+1)*minWALSize {
		t.Errorf("the log grew to %d bytes, want about %d and at most %d", largest, minWALSize, (late+1)*minWALSize)
	}
	if n := b.events(b.s); n != 400 {
		t.Errorf("%d events, want 400", n)
	}
}

func TestReadersDoNotBlockTheWriter(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{WALSize: minWALSize})
	err := b.s.read(t.Context(), "test", func(c *conn) error {
		for range 2 {
			if n, _, err := c.number("select count(*) from perdure_history"); n != 0 || err != nil {
				return fmt.Errorf("%d events, %w", n, err)
			}
			for range 100 {
				b.lane.Commit(b.event(20_000))
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}

	// When the reader is gone, the log is truncated.
	for deadline := time.Now().Add(2 * time.Minute); ; {
		b.lane.Commit(b.event(20_000))
		fi, err := os.Stat(b.path + "-wal")
		if err != nil {
			t.Fatal(err)
		}
		if fi.Size() <= 2*minWALSize {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the log has %d bytes", fi.Size())
		}
	}
}

func TestCloseEndsReaders(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	reading := make(chan struct{})
	ended := make(chan error)
	go func() {
		ended <- b.s.read(t.Context(), "test", func(c *conn) error {
			close(reading)
			_, _, err := c.number("with recursive n(i) as (select 1 union all select i + 1 from n) select max(i) from n")
			return err
		})
	}()
	<-reading
	closeTest(t, b.s)
	wantClass(t, <-ended, store.Away)
}

func TestKilledProcessLosesNothing(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts processes")
	}

	path := filepath.Join(t.TempDir(), "app.db")
	for round := range 20 {
		cmd, lines := startChild(t, "commit", path)
		acked := 0
		lines.Scan()
		if lines.Text() != "ready" {
			t.Fatalf("the child says %q", lines.Text())
		}
		timer := time.AfterFunc(time.Duration(5+3*round)*time.Millisecond, func() { _ = cmd.Process.Kill() })

		for lines.Scan() {
			n, err := strconv.Atoi(lines.Text())
			if err != nil {
				t.Fatalf("the child says %q", lines.Text())
			}
			acked = n
		}

		timer.Stop()
		_ = cmd.Wait() // killed
		s := openTest(t, Config{Path: path})
		events, err := s.LoadEvents(t.Context(), childRun, 0, 1<<30, 1<<30)
		if err != nil {
			t.Fatal(err)
		}

		if len(events)%2 != 0 || len(events) < 2*acked || len(events) > 2*acked+2 && acked > 0 {
			t.Fatalf("round %d: %d events, %d batches of two were acknowledged", round, len(events), acked)
		}

		for i := range events {
			if events[i].Seq != int64(i+1) {
				t.Fatalf("round %d: event %d at position %d", round, events[i].Seq, i+1)
			}
		}

		fenceAll(t, s)
		closeTest(t, s)
	}
}

// fenceAll removes the nodes of processes that are gone. It does not wait for their leases: this
// process holds the lock of the file, which proves that the other processes are dead.
func fenceAll(t *testing.T, s *Store) {
	t.Helper()
	v, err := s.Members(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range v.Members {
		ok, err := s.FenceNode(t.Context(), store.FenceRequest{Node: v.Members[i].ID, Epoch: v.Members[i].Epoch, Proven: true})
		if !ok || err != nil {
			t.Fatalf("fence: %v, %v", ok, err)
		}
	}
	if v, err = s.Members(t.Context()); err != nil || len(v.Members) != 0 {
		t.Fatalf("%d members, %v", len(v.Members), err)
	}
}
