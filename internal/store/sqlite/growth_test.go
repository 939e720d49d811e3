package sqlite

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// logBook is a logger whose lines a test reads.
type logBook struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *logBook) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// lines returns the lines that contain a word.
func (b *logBook) lines(word string) (out []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for line := range strings.Lines(b.text.String()) {
		if strings.Contains(line, word) {
			out = append(out, line)
		}
	}
	return out
}

// A program with an open transaction makes the log grow. The store logs that once, with the size of
// the log. It logs another line when the log is small again.
func TestLogThatGrowsIsReported(t *testing.T) {
	t.Parallel()
	sequential(t)
	book := &logBook{}
	b := newBench(t, Config{WALSize: minWALSize, Logger: slog.New(slog.NewTextHandler(book, nil))})
	for episode := 1; episode <= 2; episode++ {
		reader, err := openConn(t.Context(), &Config{Path: b.path}, modeReadOnly, "begin; select count(*) from perdure_history")
		if err != nil {
			t.Fatal(err)
		}
		for size := int64(0); size < 9*minWALSize; {
			b.lane.Commit(b.event(50_000))
			if size, _, err = b.s.LogSize(); err != nil {
				t.Fatal(err)
			}
		}
		warned := book.lines("level=WARN")
		if len(warned) != episode {
			t.Fatalf("episode %d: %d warnings:\n%s", episode, len(warned), strings.Join(warned, ""))
		}
		for _, word := range []string{"open transaction", "path=" + b.path, "bytes=", "own_readers=0"} {
			if !strings.Contains(warned[episode-1], word) {
				t.Errorf("%s does not say %q", warned[episode-1], word)
			}
		}
		if err := reader.close(); err != nil {
			t.Fatal(err)
		}

		// The next commits cause moves of the log into the file, and one of them restarts the log.
		for n := 0; len(book.lines("level=INFO")) < episode; n++ {
			b.lane.Commit(b.event(50_000))
			if n > 5000 {
				t.Fatal("the log never restarts")
			}
		}
		size, normal, err := b.s.LogSize()
		if err != nil || size > normal {
			t.Errorf("the log has %d bytes afterwards, want at most %d, %v", size, normal, err)
		}
	}
}

// A single large commit makes the log large without a reader.
func TestLargeCommitIsNotReported(t *testing.T) {
	t.Parallel()
	sequential(t)
	book := &logBook{}
	b := newBench(t, Config{WALSize: minWALSize, Logger: slog.New(slog.NewTextHandler(book, nil))})
	for range 3 {
		b.lane.Commit(b.event(10 * minWALSize))
		b.lane.Commit(b.event(10))
		b.lane.Commit(b.event(10))
	}
	if lines := book.lines("level="); len(lines) != 0 {
		t.Errorf("reported:\n%s", strings.Join(lines, ""))
	}
}

// Damage may leave deleted runs with ids of a wrong length. A sweep removes them too. Otherwise
// they would take the place of other deleted runs in each sweep.
func TestSweepOfInvalidIDs(t *testing.T) {
	t.Parallel()
	sequential(t)
	b := newBench(t, Config{})
	garbage := func() (n int64) {
		t.Helper()
		err := b.s.read(t.Context(), "count", func(c *conn) (err error) {
			n, _, err = c.number("select count(*) from perdure_garbage")
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	err := b.s.write(t.Context(), "damage", func(w *writer) error {
		_, err := w.conn.exec("insert into perdure_garbage (shard, run) values (?1, x''), (?1, x'01'), (?1, x'0102'), (?1, zeroblob(17)), (?1, ?2)", int(b.run.Shard), bytes.Repeat([]byte{0xff}, 16))
		return err
	})
	if n := garbage(); err != nil || n != 5 {
		t.Fatalf("%d deleted runs, %v", n, err)
	}

	for range 3 {
		if _, err := b.s.Sweep(t.Context(), store.SweepRequest{Shards: []model.ShardID{b.run.Shard}, Limit: 2}); err != nil {
			t.Fatal(err)
		}
	}
	if n := garbage(); n != 0 {
		t.Errorf("%d deleted runs are left", n)
	}
}

// Damage may leave dead letters with ids of a wrong length. A sweep keeps these rows, because the
// age of a row is known only from its id. It still deletes the old dead letters that come after
// them.
func TestSweepOfDeadLettersWithInvalidIDs(t *testing.T) {
	t.Parallel()
	sequential(t)
	b := newBench(t, Config{})
	err := b.s.write(t.Context(), "damage", func(w *writer) error {
		_, err := w.conn.exec(`insert into perdure_inbox (shard, id, not_before, body) select ?1, column1, 253402300799000000, x'00'
			from (values (x''), (x'00'), (x'0000'), (zeroblob(16)), (zeroblob(17)))`, int(b.run.Shard))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}

	for _, want := range []int{1, 0} {
		n, err := b.s.Sweep(t.Context(), store.SweepRequest{Shards: []model.ShardID{b.run.Shard}, DeadLettersBefore: model.MaxTime, Limit: 2})
		if err != nil || n != want {
			t.Errorf("the sweep removes %d dead letters, want %d: %v", n, want, err)
		}
	}
	left := int64(0)
	err = b.s.read(t.Context(), "count", func(c *conn) (err error) {
		left, _, err = c.number("select count(*) from perdure_inbox")
		return err
	})
	if err != nil || left != 4 {
		t.Errorf("%d rows are left, want 4: %v", left, err)
	}
}
