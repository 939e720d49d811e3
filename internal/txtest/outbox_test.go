package txtest_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

var (
	word     = perdure.NewSignal[string]("word")
	approval = perdure.NewPromise[string]("approval")
)

// collect receives signals and joins their values, until it gets the last signal.
var collect = perdure.NewWorkflow("collect", func(ctx perdure.WorkflowCtx, in string) (string, error) {
	got := in
	for {
		w, err := word.Receive(ctx)
		if err != nil {
			return "", err
		}
		if got += " " + w; w == "end" {
			return got, nil
		}
	}
})

// office is ordinary user code with its own database.
type office struct {
	*bank
	pool *pgxpool.Pool // of kind pgx
	sql  *sql.DB
}

func newOffice(b *bank) *office {
	o := &office{bank: b}
	if b.kind == "pgx" {
		pool, err := pgxpool.New(b.t.Context(), b.url)
		if err != nil {
			b.t.Fatal(err)
		}
		b.t.Cleanup(pool.Close)
		o.pool = pool
	} else {
		o.sql = openDB(b.connector(), newFaults())
		b.t.Cleanup(func() { _ = o.sql.Close() })
	}
	return o
}

func (o *office) outbox(opts ...perdure.OutboxOption) perdure.Definition {
	if o.pool != nil {
		return perdure.Outbox(perdure.Pgx(o.pool), opts...)
	}
	return perdure.Outbox(perdure.SQL(o.sql), opts...)
}

// desk is an open transaction of an office.
type desk struct {
	perdure.Sender
	commit, rollback func() error
}

func (o *office) begin(app *perdure.App) desk {
	ctx := context.WithoutCancel(o.t.Context())
	if o.pool != nil {
		tx, err := o.pool.Begin(ctx)
		if err != nil {
			o.t.Fatal(err)
		}
		return desk{perdure.InPgx(ctx, app, tx), func() error { return tx.Commit(ctx) }, func() error { return tx.Rollback(ctx) }}
	}
	tx, err := o.sql.BeginTx(ctx, nil)
	if err != nil {
		o.t.Fatal(err)
	}
	return desk{app.InTx(ctx, tx), tx.Commit, tx.Rollback}
}

func must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func check(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// The messages of a transaction take effect, in order, when the transaction commits. They never
// take effect if the transaction rolls back.
func TestCommitAndRollback(t *testing.T) {
	everywhere(t, func(t *testing.T, url string, b *bank) {
		o := newOffice(b)
		wait := perdure.NewWorkflow("wait", func(ctx perdure.WorkflowCtx, _ string) (string, error) { return approval.Await(ctx) })
		app := open(t, url, collect, wait, o.outbox())
		c := caller(t, app)

		d := o.begin(app)
		lost := must[perdure.Execution[string]](t)(collect.Start(d, "lost", perdure.RawKey("lost")))
		check(t, d.rollback())

		d = o.begin(app)
		exec := must[perdure.Execution[string]](t)(collect.Start(d, "first", perdure.RawKey("k")))
		for i := range 20 {
			check(t, word.Send(d, exec, fmt.Sprint(i)))
		}
		if _, err := exec.Poll(c); !errors.Is(err, perdure.ErrNotFound) {
			t.Errorf("it is there before the commit: %v", err)
		}
		check(t, word.Send(d, exec, "end"), d.commit())
		eventually(t, "it is started", func() bool { _, err := exec.Poll(c); return err == nil })
		got, err := exec.Result(c)
		if err != nil || got != "first 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 end" {
			t.Errorf("%q, %v", got, err)
		}

		d = o.begin(app)
		yes := must[perdure.Execution[string]](t)(wait.Start(d, "", perdure.RawKey("yes")))
		no := must[perdure.Execution[string]](t)(wait.Start(d, "", perdure.RawKey("no")))
		off := must[perdure.Execution[string]](t)(wait.Start(d, "", perdure.RawKey("off")))
		check(t, approval.Resolve(d, yes, "granted"), approval.Reject(d, no, errors.New("never")), off.Cancel(d, "enough"), d.commit())
		for _, x := range []perdure.Execution[string]{yes, no, off} {
			eventually(t, "it is started", func() bool { _, err := x.Poll(c); return err == nil })
		}
		if got, err := yes.Result(c); err != nil || got != "granted" {
			t.Errorf("%q, %v", got, err)
		}
		_, err = no.Result(c)
		checkError(t, err, nil, "never")
		_, err = off.Result(c)
		checkError(t, err, perdure.ErrCanceled, "enough")
		if _, err := lost.Poll(c); !errors.Is(err, perdure.ErrNotFound) {
			t.Errorf("what was rolled back: %v", err)
		}
		eventually(t, "nothing is left", func() bool { return b.int(`select count(*) from perdure_outbox`) == 0 })
	})
}

// The relay also delivers the messages of a transaction that commits after the relay has delivered
// messages of later transactions.
func TestLateCommit(t *testing.T) {
	everywhere(t, func(t *testing.T, url string, b *bank) {
		if b.kind == "sqlite" {
			return // SQLite has one writer, so no other transaction can commit first
		}
		o := newOffice(b)
		app := open(t, url, collect, o.outbox())
		c := caller(t, app)
		late := o.begin(app)
		first := must[perdure.Execution[string]](t)(collect.Start(late, "late", perdure.RawKey("late")))

		for i := range 5 {
			d := o.begin(app)
			x := must[perdure.Execution[string]](t)(collect.Start(d, "early", perdure.RawKey(fmt.Sprint(i))))
			check(t, word.Send(d, x, "end"), d.commit())
			eventually(t, "it is started", func() bool { _, err := x.Poll(c); return err == nil })
			if _, err := x.Result(c); err != nil {
				t.Fatal(err)
			}
		}

		check(t, word.Send(late, first, "end"), late.commit())
		eventually(t, "it is started", func() bool { _, err := first.Poll(c); return err == nil })
		if got, err := first.Result(c); err != nil || got != "late end" {
			t.Errorf("%q, %v", got, err)
		}
	})
}

// The relay keeps a message that the engine refuses, with the reason, and does not try to deliver
// it again. Later messages are delivered.
func TestDeadLetters(t *testing.T) {
	everywhere(t, func(t *testing.T, url string, b *bank) {
		o := newOffice(b)
		app := open(t, url, collect, o.outbox())
		c := caller(t, app)
		exec := must[perdure.Execution[string]](t)(collect.Start(c, "one input", perdure.RawKey("k")))
		d := o.begin(app)
		_, err := collect.Start(d, "another input", perdure.RawKey("k"))
		check(t, err, word.Send(d, collect.Execution(perdure.RawKey("nobody")), "x"), word.Send(d, exec, "end"), d.commit())
		if got, err := exec.Result(c); err != nil || got != "one input end" {
			t.Fatalf("%q, %v", got, err)
		}

		var dead []perdure.DeadLetter
		eventually(t, "two dead letters", func() bool {
			dead = nil
			for l, err := range app.DeadLetters(t.Context()) {
				if err != nil {
					t.Fatal(err)
				}
				dead = append(dead, l)
			}
			return len(dead) == 2
		})

		slices.SortFunc(dead, func(a, b perdure.DeadLetter) int { return strings.Compare(b.Kind, a.Kind) })
		if dead[0].Kind != "start" || dead[0].Target.Key != "k" || !strings.Contains(dead[0].Reason, "another input") || time.Since(dead[0].At) > time.Hour {
			t.Errorf("the start: %+v", dead[0])
		}
		if dead[1].Kind != "signal" || dead[1].Target.Key != "nobody" || !strings.Contains(dead[1].Reason, "does not exist") {
			t.Errorf("the signal: %+v", dead[1])
		}
	})
}

// A transaction cannot use the request id of one message for another message. The second message
// becomes a dead letter that says what the id was used for. The same message under the same id
// takes effect once.
func TestRequestIDsOfTransactions(t *testing.T) {
	everywhere(t, func(t *testing.T, url string, b *bank) {
		o := newOffice(b)
		app := open(t, url, collect, o.outbox())
		c := caller(t, app)
		exec := must[perdure.Execution[string]](t)(collect.Start(c, "in", perdure.RawKey("k")))
		r := perdure.RequestID("r")
		d := o.begin(app)
		check(t, word.Send(d, exec, "a", r), word.Send(d, exec, "a", r), word.Send(d, exec, "b", r), d.commit())
		eventually(t, "one dead letter", func() bool { return len(deadLetters(t, app)) == 1 })
		d = o.begin(app)
		check(t, word.Send(d, exec, "a", r), word.Send(d, exec, "c", r), word.Send(d, exec, "end"), d.commit())
		if got, err := exec.Result(c); err != nil || got != "in a end" {
			t.Fatalf("%q, %v", got, err)
		}

		eventually(t, "two dead letters", func() bool { return len(deadLetters(t, app)) == 2 })
		for _, l := range deadLetters(t, app) {
			for _, part := range []string{`"r"`, "collect", `signal "word"`, "another input"} {
				if !strings.Contains(l.Reason, part) {
					t.Errorf("%+v does not name %s", l, part)
				}
			}
		}
	})
}

func deadLetters(t *testing.T, app *perdure.App) (dead []perdure.DeadLetter) {
	t.Helper()
	for l, err := range app.DeadLetters(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		dead = append(dead, l)
	}
	return dead
}

// If the outbox can detect a mistake in a message, the send returns an error immediately. The
// caller's transaction continues.
func TestRefusedAtOnce(t *testing.T) {
	onBanks(t, func(t *testing.T, b *bank) {
		o := newOffice(b)
		app := open(t, "memory:", collect)
		d := o.begin(app)
		_, err := collect.Start(d, "x", perdure.RawKey("k"))
		checkError(t, err, perdure.ErrInvalid, "nor a database with an outbox", "perdure.Outbox(")
		_, err = collect.Start(d, "x", perdure.RawKey(strings.Repeat("k", 600)))
		checkError(t, err, perdure.ErrInvalid, "key", "512")
		checkError(t, word.Send(d, collect.Execution(perdure.RawKey("k")), strings.Repeat("x", 3<<20)), perdure.ErrInvalid, "bytes")
		check(t, d.commit())
	})
}

// Several processes relay one outbox and deliver messages more than once. Every message takes
// effect once, in order.
func TestManyRelays(t *testing.T) {
	onBanks(t, func(t *testing.T, b *bank) {
		o := newOffice(b)
		e := newEngine(t)
		var lives []*life
		for range 3 {
			lives = append(lives, e.live(t, newFaults(), collect, newOffice(b).outbox(perdure.PollEvery(2*time.Millisecond))))
		}
		app := lives[0].app

		var execs []perdure.Execution[string]
		for i := range 20 {
			d := o.begin(app)
			x := must[perdure.Execution[string]](t)(collect.Start(d, "x", perdure.RawKey(fmt.Sprint(i))))
			for _, w := range []string{"a", "b", "c", "end"} {
				check(t, word.Send(d, x, w))
			}
			check(t, d.commit())
			execs = append(execs, x)
		}

		for _, x := range execs {
			eventually(t, "it is started", func() bool { _, err := x.Poll(caller(t, app)); return err == nil })
			if got, err := x.Result(caller(t, app)); err != nil || got != "x a b c end" {
				t.Errorf("%q, %v", got, err)
			}
		}

		eventually(t, "nothing is left", func() bool { return b.int(`select count(*) from perdure_outbox`) == 0 })
	})
}

// In the engine's own database, transactions need no outbox.
func TestEnginesOwnDatabase(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"pgx", "pgsql"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			b := newBank(t, kind)
			o := newOffice(b)
			app := open(t, b.url, collect)
			second := open(t, b.url, collect) // owns some of the executions
			c := caller(t, second)

			d := o.begin(app)
			lost := must[perdure.Execution[string]](t)(collect.Start(d, "lost", perdure.RawKey("lost")))
			check(t, d.rollback())
			late := o.begin(app)
			first := must[perdure.Execution[string]](t)(collect.Start(late, "late", perdure.RawKey("late")))
			for i := range 10 {
				d := o.begin(app)
				x := must[perdure.Execution[string]](t)(collect.Start(d, "early", perdure.RawKey(fmt.Sprint(i))))
				check(t, word.Send(d, x, "a"), word.Send(d, x, "b"), word.Send(d, x, "end"), d.commit())
				eventually(t, "it is started", func() bool { _, err := x.Poll(c); return err == nil })
				if got, err := x.Result(c); err != nil || got != "early a b end" {
					t.Fatalf("%q, %v", got, err)
				}
			}
			check(t, word.Send(late, first, "end"), late.commit())
			eventually(t, "it is started", func() bool { _, err := first.Poll(c); return err == nil })
			if got, err := first.Result(c); err != nil || got != "late end" {
				t.Errorf("%q, %v", got, err)
			}
			if _, err := lost.Poll(c); !errors.Is(err, perdure.ErrNotFound) {
				t.Errorf("what was rolled back: %v", err)
			}

			d = o.begin(app)
			_, err := collect.Start(d, "another input", perdure.RawKey("late"))
			check(t, err, d.commit())
			var dead []perdure.DeadLetter
			eventually(t, "a dead letter", func() bool {
				for l, err := range app.DeadLetters(t.Context()) {
					check(t, err)
					dead = append(dead, l)
				}
				return len(dead) > 0
			})
			if l := dead[0]; len(dead) != 1 || l.Kind != "start" || l.Target.Key != "late" || !strings.Contains(l.Reason, "another input") || time.Since(l.At) > time.Hour {
				t.Errorf("%+v", dead)
			}

			// A transaction does not reach an engine of another store in the same database.
			other, err := embedded.Config{AllowUnsafe: true, Schema: "elsewhere"}.Open(t.Context(), b.url, collect)
			check(t, err)
			t.Cleanup(func() { check(t, other.Close()) })
			d = o.begin(other)
			x := must[perdure.Execution[string]](t)(collect.Start(d, "there", perdure.RawKey("there")))
			check(t, d.commit())
			eventually(t, "it is started there", func() bool { _, err := x.Poll(caller(t, other)); return err == nil })
			if _, err := x.Poll(c); !errors.Is(err, perdure.ErrNotFound) {
				t.Errorf("it is also here: %v", err)
			}
		})
	}
}

// If a relay dies between the delivery and the removal of a message, the message is delivered
// again, which has no effect.
func TestRelayRepeats(t *testing.T) {
	onBanks(t, func(t *testing.T, b *bank) {
		f := newFaults()
		app := open(t, "memory:", collect, faultyOutbox(t, b, f))
		execs, lost := 0, 0
		f.mu.Lock()

		f.plan = func(_ int, op string) action {
			if op == "exec" {
				execs++
			}
			// Every second call of exec removes a delivered message.
			if op == "exec" && execs%2 == 0 && lost < 4 {
				lost++
				return []action{failBefore, loseAnswer, cutBefore, cutAfter}[lost-1]
			}
			return pass
		}

		f.mu.Unlock()
		d := newOffice(b).begin(app)
		x := must[perdure.Execution[string]](t)(collect.Start(d, "x", perdure.RawKey("k")))
		for _, w := range []string{"a", "b", "c"} {
			check(t, word.Send(d, x, w))
		}
		check(t, d.commit())
		eventually(t, "nothing is left", func() bool { return b.int(`select count(*) from perdure_outbox`) == 0 })
		f.mu.Lock()
		if lost < 2 {
			t.Errorf("%d removals failed", lost)
		}
		f.mu.Unlock()
		check(t, word.Send(caller(t, app), x, "end"))
		if got, err := x.Result(caller(t, app)); err != nil || got != "x a b c end" {
			t.Errorf("%q, %v", got, err)
		}
	})
}

// If an app cannot be opened, it leaves no background work behind. Otherwise TestMain would find
// goroutines of the app.
func TestRefusedOpenLeavesNothing(t *testing.T) {
	t.Parallel()
	pinned := perdure.NewWorkflow("pinned", func(perdure.WorkflowCtx, string) (string, error) { return "", nil }, perdure.Pinned())
	app, err := embedded.Open(t.Context(), "memory:", pinned, perdure.Outbox(perdure.SQL(newBank(t, "sqlite").db)))
	if app != nil || !errors.Is(err, perdure.ErrInvalid) {
		t.Fatalf("opened with a pinned workflow and no version: %v", err)
	}
}
