package e2e_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	sqlite "github.com/ncruces/go-sqlite3/driver"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/payload"
)

// postOffice passes a secret through the features that courier does not use: updates, queries,
// state, machines, transactions of the user, an outbox and edited pasts.
type postOffice struct {
	seal    *perdure.Update[parcel, parcel]
	peek    *perdure.Query[parcel, parcel]
	shelf   *perdure.State[parcel]
	done    *perdure.Signal[parcel]
	key     *perdure.Promise[parcel]
	book    *perdure.Activity[parcel, parcel]
	refuse  *perdure.Activity[parcel, parcel]
	stuck   *perdure.Activity[parcel, parcel]
	counter *perdure.Workflow[parcel, parcel]
	clerk   *perdure.Workflow[parcel, parcel]
	sorter  *perdure.Workflow[parcel, parcel]
	outbox  perdure.Definition
}

// sorting is a machine that books a parcel, waits for a signal, lets a clerk process its value, and
// completes with the result.
type sorting struct {
	perdure.Events
	o  *postOffice
	in parcel
}

func (s *sorting) OnStart() perdure.Actions {
	if s.in.Left > 0 {
		s.in.Left--
		return perdure.Actions{s.o.sorter.ContinueWith(s.in)}
	}
	return perdure.Actions{s.o.book.Schedule("book", s.in), s.o.refuse.Schedule("refuse", s.in)}
}

func (s *sorting) OnActivityCompleted(e perdure.ActivityCompleted) perdure.Actions {
	out, err := s.o.book.Result(e)
	if err != nil || out != s.in {
		return perdure.Actions{perdure.Fail(errors.New("another parcel was booked"))}
	}
	return nil
}

func (s *sorting) OnActivityFailed(perdure.ActivityFailed) perdure.Actions { return nil }

func (s *sorting) OnSignal(e perdure.SignalReceived) perdure.Actions {
	got, _ := s.o.done.Value(e)
	return perdure.Actions{s.o.clerk.Child("clerk", got, perdure.RawKey("clerk-of-machine"))}
}

func (s *sorting) OnChildClosed(e perdure.ChildClosed) perdure.Actions {
	out, err := s.o.clerk.Result(e)
	if err != nil {
		return perdure.Actions{perdure.Fail(err)}
	}
	return perdure.Actions{s.o.sorter.Complete(out)}
}

func newPostOffice(db *sql.DB) *postOffice {
	o := &postOffice{
		seal: perdure.NewUpdate[parcel, parcel]("seal"), peek: perdure.NewQuery[parcel, parcel]("peek"), shelf: perdure.NewState[parcel]("shelf"),
		done: perdure.NewSignal[parcel]("done"), key: perdure.NewPromise[parcel]("key"), outbox: perdure.Outbox(perdure.SQL(db)),
	}

	o.book = perdure.NewTxActivity("book", perdure.SQL(db), func(_ context.Context, _ *sql.Tx, p parcel) (parcel, error) { return p, nil })
	o.refuse = perdure.NewTxActivity("refuse", perdure.SQL(db), func(context.Context, *sql.Tx, parcel) (parcel, error) {
		return parcel{}, perdure.Permanent(errors.New("no"))
	})

	o.stuck = perdure.NewTxActivity("stuck", perdure.SQL(db), func(ctx context.Context, _ *sql.Tx, _ parcel) (parcel, error) {
		<-ctx.Done()
		return parcel{}, ctx.Err()
	})

	o.clerk = perdure.NewWorkflow("clerk", func(_ perdure.WorkflowCtx, p parcel) (parcel, error) { return p, nil })
	o.counter = perdure.NewWorkflow("counter", func(ctx perdure.WorkflowCtx, p parcel) (parcel, error) {
		o.seal.Handle(ctx, func(ctx perdure.WorkflowCtx, in parcel) (parcel, error) { return in, o.shelf.Set(ctx, in) })
		o.peek.Handle(ctx, func(in parcel) (parcel, error) { return in, nil })
		if err := o.shelf.Set(ctx, p); err != nil {
			return p, err
		}
		if _, err := o.book.Run(ctx, p); err != nil {
			return p, err
		}

		if _, err := o.refuse.Run(ctx, p); err == nil {
			return p, errors.New("it was not refused")
		}
		if _, err := o.stuck.Run(ctx.WithTimeout(20*time.Millisecond), p); !errors.Is(err, perdure.ErrTimeout) {
			return p, errors.New("it was not stuck")
		}
		gone := o.stuck.Go(ctx, p)
		gone.Cancel(ctx)
		if _, err := gone.Get(ctx); !errors.Is(err, perdure.ErrCanceled) {
			return p, errors.New("it was not cancelled")
		}

		if _, err := o.key.Await(ctx); err != nil {
			return p, err
		}
		got, err := o.done.Receive(ctx)
		if err != nil {
			return p, err
		}

		if p.Left > 0 {
			p.Left--
			return p, o.counter.ContinueAsNew(p)
		}

		if v, ok := o.shelf.Get(ctx); !ok || v.Secret != secret {
			return p, errors.New("the shelf is empty")
		}
		return got, nil
	})

	o.sorter = perdure.NewMachine[parcel, parcel]("sorter", func(in parcel) *sorting { return &sorting{o: o, in: in} })
	return o
}

func (o *postOffice) defs() perdure.Group {
	return perdure.Group{o.book, o.refuse, o.stuck, o.counter, o.clerk, o.sorter, o.outbox}
}

// serve sends the secret through all these features.
func (o *postOffice) serve(t *testing.T, s *site, db *sql.DB) {
	t.Helper()
	app := s.open(o.defs())
	cl := caller(t, app)
	p := newParcel(0)
	inTx := func(f func(s perdure.Sender) error) {
		t.Helper()
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(f(app.InTx(t.Context(), tx)), tx.Commit()); err != nil {
			t.Fatal(err)
		}
	}
	counter := o.counter.Execution(perdure.RawKey("c"))
	inTx(func(s perdure.Sender) error {
		_, err := o.counter.Start(s, newParcel(1), perdure.RawKey("c"))
		return errors.Join(err, o.key.Resolve(s, counter, p))
	})
	// The promise is settled already, so this message becomes a dead letter.
	inTx(func(s perdure.Sender) error { return o.key.Resolve(s, counter, p) })
	reason(t, app, counter, "waits for signal done")
	got, err := o.seal.Call(cl, counter, p)
	equal(t, "the answer of an update", got, err, p)
	got, err = o.peek.Ask(cl, counter, p)
	equal(t, "the answer of a query", got, err, p)
	got, _, err = o.shelf.Read(cl, counter)
	equal(t, "the state", got, err, p)
	if s.kind != "memory" {
		app = s.reopen(app, o.defs())
		cl = caller(t, app)
	}
	inTx(func(s perdure.Sender) error { return o.done.Send(s, counter, p) })
	reason(t, app, counter, "waits for promise key")
	if err := errors.Join(o.key.Resolve(cl, counter, p), o.done.Send(cl, counter, p)); err != nil {
		t.Fatal(err)
	}
	got, err = counter.Result(cl)
	equal(t, "the result", got, err, p)
	got, _, err = o.shelf.Read(cl, counter)
	equal(t, "the state of a closed execution", got, err, p)

	fork, err := app.Executions().Fork(t.Context(), counter, perdure.RawKey("f"), perdure.SetResult("book", p))
	if err != nil {
		t.Fatal(err)
	}
	reason(t, app, fork, "waits for promise key")

	m, err := o.sorter.Start(cl, newParcel(1), perdure.RawKey("m"), o.done.With(p))
	if err != nil {
		t.Fatal(err)
	}
	got, err = m.Result(cl)
	equal(t, "the result of a machine", got, err, p)

	for _, x := range []perdure.Target{counter, m} {
		var file bytes.Buffer
		if err := app.Histories().Export(t.Context(), x, &file); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(file.String(), secret) != (s.cfg.Payloads.Chain == nil) {
			t.Errorf("export of %v: the secret is in the clear, or is not where it should be", x)
		}
		if _, err := app.Histories().Import(t.Context(), &file, perdure.RawKey("imported")); err != nil {
			t.Fatal(err)
		}

		for e, err := range app.Histories().Events(t.Context(), x) {
			if err != nil {
				t.Fatal(err)
			}
			if e.OutputIs != "" && e.Output == nil || e.InputIs != "" && e.Input == nil {
				t.Errorf("the app cannot show event %s %s of its own history: %s, %s", e.Kind, e.Name, e.InputIs, e.OutputIs)
			}
		}
	}
	if err := app.Close(); err != nil {
		t.Fatal(err)
	}
}

// userDatabase is an empty database of the user.
func userDatabase(t *testing.T, kind string) *sql.DB {
	t.Helper()
	driver, url := "pgx", newSite(t, kind).url
	if kind == "sqlite" {
		driver, url = "sqlite3", url+"?_pragma=busy_timeout(5000)"
	}
	db, err := sql.Open(driver, url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// The secret passes through updates, queries, state, machines, transactional activities that
// succeed, fail and are abandoned, an outbox, dead letters, forks with edited results and exports.
// The test does not find it in the store, the user's database or the logs.
func TestNothingIsInTheClearAnywhere(t *testing.T) {
	t.Parallel()
	onStores(t, kinds, func(t *testing.T, s *site) {
		chain := []payload.Transform{payload.Encrypt(ring(t, "k1"))}
		for _, sealed := range []bool{true, false} {
			log := &logged{}
			if s = newSite(t, s.kind); sealed {
				s.cfg.Payloads.Chain = chain
			}
			s.cfg.Logger = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
			bank := newSite(t, "sqlite") // the database of the user
			db, err := sqlite.Open(bank.url + "?_pragma=busy_timeout(5000)")
			if err != nil {
				t.Fatal(err)
			}

			newPostOffice(db).serve(t, s, db)
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			places := append(s.find(secret, t.TempDir()), bank.find(secret, t.TempDir())...)
			if sealed && places != nil {
				t.Errorf("the secret is in %v", places)
			}
			if !sealed && len(bank.find(secret, t.TempDir())) == 0 {
				t.Error("the secret is not even found in the clear: the search is wrong")
			}
			if strings.Contains(log.String(), secret) {
				t.Errorf("the secret was logged:\n%s", log)
			}
		}
	})
}

// A sweep of payloads keeps blobs that the user's database refers to, such as the payload of an
// undelivered message.
func TestSweepKnowsTheUsersDatabase(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"sqlite", "postgres"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s, blobs := newSite(t, "memory"), t.TempDir()
			s.cfg.Payloads = payload.Codec{Chain: []payload.Transform{payload.Encrypt(ring(t, "k1")), payload.Offload(aged{payload.Dir(blobs)}, 300)}}
			db := userDatabase(t, kind)
			o := newPostOffice(db)
			app := s.open(o.defs())
			tx, err := db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}

			if err := errors.Join(o.done.Send(app.InTx(t.Context(), tx), o.counter.Execution(perdure.RawKey("nobody")), newParcel(0)), tx.Commit()); err != nil {
				t.Fatal(err)
			}

			eventually(t, "the letter is dead", func() bool {
				for _, err := range app.DeadLetters(t.Context()) {
					return err == nil
				}
				return false
			})

			n, err := app.SweepPayloads(t.Context(), time.Hour)
			equal(t, "blobs that were removed", n, err, 0)
			if _, err := db.ExecContext(t.Context(), `delete from perdure_outbox`); err != nil {
				t.Fatal(err)
			}
			n, err = app.SweepPayloads(t.Context(), time.Hour)
			equal(t, "blobs that were removed once the letter is gone", n, err, 1)
		})
	}
}
