package sqlite

import (
	"errors"
	"os"
	"syscall"
	"testing"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/store"
)

// untilRefused commits events until the store refuses a commit, and returns the number of
// acknowledged events.
func (b *bench) untilRefused(each func(acked int)) (acked int, err error) {
	b.Helper()
	for {
		if _, err = b.lane.Try(b.Context(), b.event(10_000)); err != nil {
			return acked, err
		}
		acked++
		each(acked)
	}
}

// removeLog deletes the log while the store uses it.
func (b *bench) removeLog() {
	b.Helper()
	if err := os.Remove(b.path + "-wal"); err != nil {
		b.Fatal(err)
	}
}

// look makes the next transaction check the names of the files.
func (b *bench) look() {
	b.Helper()
	onWriter(b, b.s, func(w *writer) { w.names.next = w.names.next.Add(-1e9) })
}

func TestDeletedLogIsSaved(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("waits for a second to pass")
	}
	b := newBench(t, Config{WALSize: minWALSize})

	acked, err := b.untilRefused(func(acked int) {
		if acked == 300 {
			b.removeLog()
		}
	})

	wantClass(t, err, store.Away)
	wantKind(t, err, fault.Unavailable, b.path+"-wal was moved or deleted", "saved in "+b.path, "restart the process")
	if !store.Final(err) {
		t.Error("the store may take writes again")
	}
	if n := b.events(b.s); n != acked {
		t.Errorf("%d events can be read, %d were acknowledged", n, acked)
	}
	closeTest(t, b.s)
	if n := b.events(openTest(t, Config{Path: b.path})); n != acked {
		t.Errorf("%d events after opening again, %d were acknowledged", n, acked)
	}
}

// A reader that is opened after the deletion creates an empty log of the same name.
func TestDeletedLogIsSavedAfterAReader(t *testing.T) {
	t.Parallel()
	sequential(t)
	b := newBench(t, Config{})
	for range 3 {
		b.lane.Commit(b.event(10))
	}
	b.removeLog()
	// this read fails, because its connection uses the new log
	_, _ = b.s.LoadEvents(t.Context(), b.run.RunKey, 0, 10, 1<<20)
	if fi, err := os.Stat(b.path + "-wal"); err != nil || fi.Size() != 0 {
		t.Fatalf("the reader created no empty log: %v", err)
	}

	b.look()
	_, err := b.untilRefused(func(int) {})
	wantKind(t, err, fault.Unavailable, b.path+"-wal was moved or deleted", "saved in "+b.path, "restart the process")
	closeTest(t, b.s)
	if n := b.events(openTest(t, Config{Path: b.path})); n != 3 {
		t.Errorf("%d events after opening again, want 3", n)
	}
}

// Another program replaces the log by an older log of the same name. SQLite would use the older log
// as the log of this store.
func TestReplacedLogIsSaved(t *testing.T) {
	t.Parallel()
	sequential(t)
	b := newBench(t, Config{})
	b.lane.Commit(b.event(10))
	b.removeLog()
	if err := os.WriteFile(b.path+"-wal", []byte("another log"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.look()
	_, err := b.untilRefused(func(int) {})
	wantKind(t, err, fault.Unavailable, b.path+"-wal was replaced", "saved in "+b.path, "move "+b.path+"-wal away")
}

// While a reader has an old snapshot, the store cannot move the whole log into the file. Close
// tries once more.
func TestDeletedLogIsSavedWhenTheReaderHasEnded(t *testing.T) {
	t.Parallel()
	sequential(t)
	for _, ends := range []bool{true, false} {
		b := newBench(t, Config{})
		b.lane.Commit(b.event(10))
		reader, err := openConn(t.Context(), &Config{Path: b.path}, modeReadOnly, "begin; select count(*) from perdure_history")
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			b.lane.Commit(b.event(10))
		}
		onWriter(t, b.s, func(w *writer) {
			if err := w.db.BusyTimeout(1); err != nil { // the test need not wait
				t.Fatal(err)
			}
		})
		b.removeLog()
		b.look()
		_, err = b.untilRefused(func(int) {})
		// Register, the start and four events.
		wantKind(t, err, fault.Unavailable, "was moved or deleted", "up to 6 commits since", "lost when the process ends", "end the programs that read")

		if ends {
			if err := reader.close(); err != nil {
				t.Fatal(err)
			}
			closeTest(t, b.s)
			if n := b.events(openTest(t, Config{Path: b.path})); n != 4 {
				t.Errorf("%d events, want 4", n)
			}
			continue
		}
		err = b.s.Close()
		wantKind(t, err, fault.Unavailable, "up to 6 commits since")
		if err := reader.close(); err != nil {
			t.Fatal(err)
		}
		// The remaining contents are a consistent state, and not newer than the snapshot of the
		// reader.
		s := openTest(t, Config{Path: b.path})
		if n := b.events(s); n > 1 {
			t.Errorf("%d events, want at most 1", n)
		}
		onWriter(t, s, func(w *writer) {
			err := w.query("pragma integrity_check", func(q *stmt) error {
				if q.text(0) != "ok" {
					t.Errorf("integrity: %s", q.text(0))
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// After a failed sync the store cannot trust the pages of the log, so it does not save them.
func TestDeletedLogAfterAFailedSync(t *testing.T) {
	t.Parallel()
	sequential(t)
	b := newBench(t, Config{})
	b.lane.Commit(b.event(10))
	b.fs.on("sync", "-wal", syscall.EIO)
	_, err := b.lane.Try(t.Context(), b.event(10))
	wantClass(t, err, store.Unknown)
	b.fs.heal()
	b.removeLog()
	b.look()
	_, err = b.lane.Try(t.Context(), b.event(10))
	wantClass(t, err, store.Away)
	wantKind(t, err, fault.Unavailable, "was moved or deleted", "up to 3 commits since", "lost when the process ends")
	if !errors.Is(err, syscall.EIO) && !syncFailed(err) {
		t.Errorf("%v does not say why", err)
	}
}
