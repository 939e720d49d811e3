package sqlite

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/ncruces/go-sqlite3"
)

// A large transaction writes pages to the log before its commit (it spills). If the transaction is
// rolled back, the store must not write the remaining pages of the transaction later. By then,
// their place in the log may hold a commit of another program, or of the user's own connection to
// the same file.
func TestRolledBackSpillIsNotWrittenOverOthers(t *testing.T) {
	t.Parallel()
	sequential(t)
	path := filepath.Join(t.TempDir(), "app.db")
	s := openTest(t, Config{Path: path})
	other, err := sqlite3.Open("file:" + path)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	exec := func(sql string) {
		t.Helper()
		if err := other.Exec(sql); err != nil {
			t.Fatal(err)
		}
	}
	exec("pragma synchronous = full; pragma wal_autocheckpoint = 0; create table users (id integer primary key, v blob); create table big (id integer primary key, v blob); pragma wal_checkpoint(truncate)")

	// Our transaction is larger than the cache, so some of its pages go to the log before the
	// commit. Then the transaction is rolled back.
	refused := errors.New("refused")
	err = s.write(t.Context(), "test", func(w *writer) error {
		if err := w.db.Exec(`
			with recursive n(i) as (values(1) union all select i+1 from n where i < 3000) insert into big select i, randomblob(8000) from n`); err != nil {
			return err
		}
		return refused
	})
	if !errors.Is(err, refused) {
		t.Fatal(err)
	}

	// The user commits to the same file, over many pages.
	exec(`begin; with recursive n(i) as (values(1) union all select i+1 from n where i < 3000) insert into users select i, randomblob(8000) from n; commit`)
	var before int64
	count := func() (n int64) {
		t.Helper()
		q, _, err := other.Prepare("select count(*), sum(length(v)) from users")
		if err != nil {
			t.Fatal(err)
		}
		defer q.Close()
		for q.Step() {
			n = q.ColumnInt64(0)
		}
		if err := q.Err(); err != nil {
			t.Fatal(err)
		}
		return n
	}
	before = count()

	// The store continues.
	if err := s.write(t.Context(), "test", func(w *writer) error {
		_, _, err := w.number("select count(*) from users")
		return err
	}); err != nil {
		t.Errorf("our next transaction: %v", err)
	}
	if err := other.Exec("pragma shrink_memory; pragma cache_size=10"); err != nil {
		t.Fatal(err)
	}
	fresh, err := sqlite3.Open("file:" + path + "?mode=ro")
	if err != nil {
		t.Fatal(err)
	}
	defer fresh.Close()
	q, _, err := fresh.Prepare("pragma integrity_check")
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	for n := 0; q.Step() && n < 3; n++ {
		if text := q.ColumnText(0); text != "ok" {
			t.Errorf("integrity: %s", text)
		}
	}
	if err := q.Err(); err != nil {
		t.Error(err)
	}
	t.Log(before)
}
