package postgres_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/postgres"
	"github.com/perdure/perdure/internal/store/storetest"
)

// A start whose address has a run that cannot be decoded gets that run as existing. The batch is
// committed, because its other rows belong to other executions.
func TestStartMeetsAnUnreadableRun(t *testing.T) {
	t.Parallel()
	postgres.Sequential(t)
	url := pgtest.URL(t)
	f := storetest.New(t, openURL(t, url))
	lane := f.Join(1).Lanes[0]
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}

	defer conn.Close(t.Context())
	for _, column := range []string{"outcome", "start"} {
		broken := f.Subject()
		lane.Write(func(b *store.Batch) {
			b.Starts = []store.StartRow{broken.StartRow()}
			b.Closes = []store.CloseRow{broken.Close(model.Completed)}
		})

		if _, err := conn.Exec(t.Context(), `update perdure.executions set `+column+` = '\xff' where run = $1`, [16]byte(broken.Run)); err != nil {
			t.Fatal(err)
		}

		for range 2 { // the second batch uses the statement for taken addresses
			late, other := f.SubjectOf(broken.Start.Address), f.Subject()
			b := lane.Batch()
			b.Starts = []store.StartRow{other.StartIfAbsent(), late.StartIfAbsent()}
			got, err := lane.Try(t.Context(), b)
			if err != nil {
				t.Fatalf("%s: %v", column, err)
			}

			if len(got.Existing) != 1 || got.Existing[0].Index != 1 {
				t.Fatalf("%s: existing %+v, want one for the second start", column, got.Existing)
			}
			x := got.Existing[0].Execution
			if x.Blocked == nil || x.Blocked.Code != model.WaitCorrupt || !strings.Contains(x.Blocked.Detail, broken.Run.String()) || !x.Parked {
				t.Errorf("%s: %+v is not said to be unreadable", column, x)
			}
			if e, err := f.Store.LoadExecution(t.Context(), other.Shard, other.Start.Address, other.Run); err != nil || e == nil {
				t.Errorf("%s: the other start of the batch: %v, %v", column, e, err)
			}
		}
	}
}

// A listing shows the columns of an entity that cannot be decoded. Loading the entity returns an
// error with its name. The same holds for an item of a mailbox.
func TestUnreadableEntity(t *testing.T) {
	t.Parallel()
	postgres.Sequential(t)
	url := pgtest.URL(t)
	f := storetest.New(t, openURL(t, url))
	broken, mistaken, well, mail := f.Counter(), f.Counter(), f.Counter(), f.Counter()

	f.Join(1).Lanes[0].Write(func(b *store.Batch) {
		b.Entities = []store.EntityRow{broken.Set(1, "1"), mistaken.Set(1, "1"), well.Lock(1, "s"), mail.Set(1, "1")}
		b.Mailbox = []store.MailboxRow{mail.Mail(1), mail.Mail(2), mail.Mail(3)}
	})

	c := connect(t, url)
	exec(t, c, `update perdure.entities set body = '\xff' where key = '`+broken.Address.Key+`'`)
	exec(t, c, `update perdure.entities set locked = true where key = '`+mistaken.Address.Key+`'`)
	exec(t, c, `update perdure.mailbox set body = '\xff' where seq = 2`)

	for _, n := range []storetest.Counter{broken, mistaken} {
		if got, err := f.Store.LoadEntity(t.Context(), n.EntityKey, 10, 1000); got.Entity != nil || !fault.Is(err, fault.Corrupt) || !strings.Contains(err.Error(), n.Address.String()) {
			t.Errorf("%s: %+v, %v", n.Address, got, err)
		}
	}

	if got, err := f.Store.LoadEntity(t.Context(), mail.EntityKey, 1, 1000); err != nil || len(got.Mailbox) != 1 || !got.More {
		t.Errorf("the item before: %+v, %v", got, err)
	}
	if got, err := f.Store.LoadMailbox(t.Context(), mail.EntityKey, 2, 1, 1000); err != nil || len(got) != 1 {
		t.Errorf("the item behind: %+v, %v", got, err)
	}

	if got, err := f.Store.LoadMailbox(t.Context(), mail.EntityKey, 1, 1, 1000); err != nil || len(got) != 1 || got[0].Damaged == nil ||
		!strings.Contains(got[0].Damaged.Why, mail.Address.String()) || !strings.Contains(got[0].Damaged.Why, "item 2") {
		t.Errorf("the item itself: %+v, %v", got, err)
	}

	page, err := f.Store.ListEntities(t.Context(), store.EntityQuery{Tenant: model.DefaultTenant, Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	columns := func(n storetest.Counter) model.Entity {
		return model.Entity{Address: n.Address, Version: 1, Changed: storetest.Noon + 1}
	}
	f.Want("listed", []model.Entity{columns(broken), columns(mistaken), well.Lock(1, "s").Entity, mail.Set(1, "1").Entity}, page.Entities)
}

// A dead task that cannot be decoded is listed with the reason. Loading it returns its columns and
// the error.
func TestUnreadableDeadLetter(t *testing.T) {
	t.Parallel()
	postgres.Sequential(t)
	url := pgtest.URL(t)
	f := storetest.New(t, openURL(t, url))
	s := f.Subject()
	rows := []store.DeadRow{s.Dead("a", "charge", "boom", storetest.Noon), s.Dead("b", "charge", "boom", storetest.Noon), s.Dead("c", "charge", "boom", storetest.Noon)}
	f.Join(1).Lanes[0].Write(func(b *store.Batch) { b.Dead = rows })
	c := connect(t, url)
	exec(t, c, `update perdure.dead set body = '\xff' where task = 'a'`)
	exec(t, c, `update perdure.dead set queue = 'other' where task = 'b'`)

	for _, row := range rows[:2] {
		got, err := f.Store.LoadDead(t.Context(), row.DeadKey)
		if got == nil || got.DeadKey != row.DeadKey || got.Body.Address.Tenant != model.DefaultTenant || !fault.Is(err, fault.Corrupt) || !strings.Contains(err.Error(), s.Run.String()) {
			t.Errorf("task %s: %v, %v", row.Task, got, err)
		}
	}

	page, err := f.Store.ListDead(t.Context(), store.DeadQuery{Tenant: model.DefaultTenant, Limit: 10})
	if err != nil || len(page.Rows) != 3 {
		t.Fatalf("%d rows, %v", len(page.Rows), err)
	}
	f.Want("the one that is well", rows[2], page.Rows[0])

	for _, row := range page.Rows[1:] {
		if row.Body.Failure == nil || row.Body.Failure.Kind != fault.Corrupt.String() || row.Body.At != storetest.Noon || row.Body.Spec.Kind != "charge" {
			t.Errorf("task %s is listed as %+v", row.Task, row.Body)
		}
	}

	if groups, err := f.Store.GroupDead(t.Context(), store.DeadQuery{Tenant: model.DefaultTenant}, 10); err != nil || len(groups) != 1 || groups[0].Count != 3 {
		t.Errorf("groups %+v, %v", groups, err)
	}
}
