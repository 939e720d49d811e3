package txtest_test

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// faultyOutbox is an outbox whose relay has faults on its connection to the user's database.
func faultyOutbox(t *testing.T, b *bank, f *faults) perdure.Definition {
	t.Helper()
	if b.kind == "pgx" {
		pool, err := pgxpool.New(t.Context(), b.url)
		check(t, err)
		t.Cleanup(pool.Close)
		return perdure.Outbox(perdure.Pgx(&faultPool{pool, f}), perdure.PollEvery(time.Millisecond))
	}
	db := openDB(b.connector(), f)
	t.Cleanup(func() { _ = db.Close() })
	return perdure.Outbox(perdure.SQL(db), perdure.PollEvery(time.Millisecond))
}

// crashAfterDelivery starts a process that puts a message into an outbox. The process dies after
// its relay has delivered the message, and before the relay has removed the message.
func crashAfterDelivery(t *testing.T, e *engine, b *bank) perdure.Execution[string] {
	t.Helper()
	f := newFaults()
	first := e.live(t, f, collect, faultyOutbox(t, b, f))
	x := must[perdure.Execution[string]](t)(collect.Start(caller(t, first.app), "x", perdure.RawKey("k")))
	execs := 0
	f.mu.Lock()

	f.plan = func(_ int, op string) action {
		if op != "exec" {
			return pass
		}
		// the first call records the attempt, the second removes the delivered message
		if execs++; execs == 2 {
			return crashBefore
		}
		return pass
	}

	f.mu.Unlock()
	d := newOffice(b).begin(first.app)
	check(t, word.Send(d, x, "a"), d.commit())
	<-f.dead
	first.end()
	if n := b.int(`select count(*) from perdure_outbox where error is null and tried is not null`); n != 1 {
		t.Fatalf("%d messages with a recorded attempt are left, want 1", n)
	}

	return x
}

// A relay crashes between delivery and removal, and stays down until the engine has forgotten the
// delivery. The next relay does not deliver the message again. The message becomes a dead letter
// that says when the message may have been delivered.
func TestRelayIsDownForLong(t *testing.T) {
	onBanks(t, func(t *testing.T, b *bank) {
		e := newEngine(t)
		x := crashAfterDelivery(t, e, b)
		shards := make([]model.ShardID, e.store.Info().Shards)
		for i := range shards {
			shards[i] = model.ShardID(i)
		}
		swept := must[int](t)(e.store.Sweep(t.Context(), store.SweepRequest{Shards: shards, RequestsBefore: model.MaxTime, Limit: 1000}))
		if swept == 0 {
			t.Fatal("the engine remembered nothing")
		}
		tried := b.int(`select tried from perdure_outbox`) - 25*3_600_000
		b.exec(`update perdure_outbox set tried = $1`, tried)

		second := e.live(t, newFaults(), collect, newOffice(b).outbox(perdure.PollEvery(2*time.Millisecond)))
		eventually(t, "the relay has removed the message or given it up", func() bool { return b.int(`select count(*) from perdure_outbox where error is null`) == 0 })
		at := time.UnixMilli(int64(tried)).UTC().Format(time.RFC3339)
		if dead := deadLetters(t, second.app); len(dead) != 1 || dead[0].Kind != "signal" || dead[0].Target.Key != "k" ||
			!strings.Contains(dead[0].Reason, "may have been delivered") || !strings.Contains(dead[0].Reason, at) {
			t.Errorf("%+v", dead)
		}
		check(t, word.Send(caller(t, second.app), x, "end"))
		if got, err := x.Result(caller(t, second.app)); err != nil || got != "x a end" {
			t.Errorf("%q, %v", got, err)
		}
	})
}

// A relay that comes back while the engine still remembers the delivery repeats the delivery. The
// repetition has no effect.
func TestRelayIsBackInTime(t *testing.T) {
	onBanks(t, func(t *testing.T, b *bank) {
		e := newEngine(t)
		x := crashAfterDelivery(t, e, b)
		b.exec(`update perdure_outbox set tried = tried - 17 * 3600000`)
		second := e.live(t, newFaults(), collect, newOffice(b).outbox(perdure.PollEvery(2*time.Millisecond)))
		eventually(t, "nothing is left", func() bool { return b.int(`select count(*) from perdure_outbox`) == 0 })
		check(t, word.Send(caller(t, second.app), x, "end"))
		if got, err := x.Result(caller(t, second.app)); err != nil || got != "x a end" {
			t.Errorf("%q, %v", got, err)
		}
	})
}

// A relay that cannot reach the engine records no attempt, so an outage of any length creates no
// dead letters.
func TestOutageOfTheEngine(t *testing.T) {
	onBanks(t, func(t *testing.T, b *bank) {
		e := newEngine(t)
		f := newFaults()
		first := e.live(t, f, collect, faultyOutbox(t, b, f))
		x := must[perdure.Execution[string]](t)(collect.Start(caller(t, first.app), "x", perdure.RawKey("k")))
		d := newOffice(b).begin(first.app)
		check(t, word.Send(d, x, "end"))
		first.store.Kill()
		check(t, d.commit())

		rounds := func() int {
			f.mu.Lock()
			defer f.mu.Unlock()
			return f.calls
		}

		before := rounds()
		eventually(t, "the relay has looked often", func() bool { return rounds() > before+20 })
		first.end()
		if n := b.int(`select count(*) from perdure_outbox where tried is null`); n != 1 {
			t.Errorf("%d messages have no attempt, want 1", n)
		}
		second := e.live(t, newFaults(), collect, newOffice(b).outbox(perdure.PollEvery(2*time.Millisecond)))
		if got, err := x.Result(caller(t, second.app)); err != nil || got != "x end" {
			t.Errorf("%q, %v", got, err)
		}
	})
}
