package service_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// listed returns the keys that a request lists, read in pages, and sorts them.
func (f *shelf) listed(r api.EntityListRequest) (keys []string) {
	f.t.Helper()
	r.Tenant = "default"
	for {
		page, err := f.svc.ListEntities(f.t.Context(), r)
		if err != nil {
			f.t.Fatal(err)
		}
		for i := range page.Entities {
			if a := page.Entities[i].Address; a.Tenant != "default" {
				f.t.Fatalf("%s is listed", a)
			}
			keys = append(keys, page.Entities[i].Address.Key)
		}
		if r.Cursor = page.Cursor; r.Cursor == "" {
			slices.Sort(keys)
			return keys
		}
	}
}

// Lists select entities by their version, the time of their last change, their lock, their waiting
// calls, and whether their TTL has passed. Each entity is on one page.
func TestListEntitiesByState(t *testing.T) {
	t.Parallel()
	f := newShelf(t)
	call := model.Message{Kind: model.MessageCall, Name: "deposit"}
	f.keep(model.Entity{Address: account("called"), Exists: true}, call, call)
	f.keep(model.Entity{Address: account("dead"), Exists: true, Expires: f.now + 1})
	f.keep(model.Entity{Address: account("late"), Exists: true, Expires: f.now + 1}, call)
	f.keep(model.Entity{Address: account("locked"), Holder: holder(1), Held: f.now, Epoch: 7})
	f.keep(model.Entity{Address: account("new"), Exists: true})
	early := f.now
	f.now += 5
	row := model.Entity{Address: account("new"), Version: 2, Changed: f.now, Exists: true}
	f.commit(store.Batch{Entities: []store.EntityRow{{Shard: row.Address.Shard(shards), Entity: row, Prev: 1}}})

	// Calls can also wait for entities without a state, for services, and for entities of other
	// tenants.
	var b store.Batch
	mail := func(a model.Address) {
		m := call
		m.To = a
		b.Mailbox = append(b.Mailbox, store.MailboxRow{EntityKey: store.EntityKey{Shard: a.Shard(shards), Address: a}, Item: model.MailboxItem{Seq: 1, At: f.now, Message: m}})
	}
	mail(account("unborn"))
	mail(model.Address{Tenant: "default", Type: "service:gateway", Key: "eu"})
	for i := range 20 {
		for _, tenant := range []string{"a-tenant", "z-tenant"} {
			mail(model.Address{Tenant: tenant, Type: "entity:account", Key: fmt.Sprint("secret-", i)})
		}
	}
	f.commit(b)

	for _, limit := range []int{0, 1, 2} {
		for name, c := range map[string]struct {
			r    api.EntityListRequest
			want []string
		}{
			"all":                {api.EntityListRequest{}, []string{"called", "locked", "new"}},
			"locked":             {api.EntityListRequest{Locked: true}, []string{"locked"}},
			"expired":            {api.EntityListRequest{Expired: true}, []string{"dead", "late"}},
			"a later version":    {api.EntityListRequest{MinVersion: 2}, []string{"new"}},
			"an earlier version": {api.EntityListRequest{MaxVersion: 1, Type: "entity:account"}, []string{"called", "locked"}},
			"changed lately":     {api.EntityListRequest{ChangedFrom: early + 1}, []string{"new"}},
			"changed before":     {api.EntityListRequest{ChangedTo: early + 1}, []string{"called", "locked"}},
			"changed never":      {api.EntityListRequest{ChangedFrom: early + 1, ChangedTo: early + 1}, nil},
			"waiting":            {api.EntityListRequest{Waiting: true}, []string{"called", "late", "unborn"}},
			"waiting by prefix":  {api.EntityListRequest{Waiting: true, KeyPrefix: "un"}, []string{"unborn"}},
			"waiting and locked": {api.EntityListRequest{Waiting: true, Locked: true}, nil},
			"waiting, expired":   {api.EntityListRequest{Waiting: true, Expired: true}, []string{"late"}},
			"waiting services":   {api.EntityListRequest{Waiting: true, Services: true}, []string{"eu"}},
			"one service":        {api.EntityListRequest{Waiting: true, Type: "service:gateway"}, []string{"eu"}},
		} {
			c.r.Limit = limit
			if got := f.listed(c.r); !slices.Equal(got, c.want) {
				t.Errorf("%s, pages of %d: %q, want %q", name, limit, got, c.want)
			}
		}
	}

	for name, r := range map[string]api.EntityListRequest{
		"a cursor that is none": {Cursor: "!"}, "a cursor of waiting that is none": {Cursor: "AA", Waiting: true}, "services without calls": {Services: true},
		"a version below zero": {MinVersion: -1}, "a time below zero": {ChangedTo: -1}, "a shard that is none": {Waiting: true, Cursor: "__8AAA"},
	} {
		r.Tenant = "default"
		if _, err := f.svc.ListEntities(t.Context(), r); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A page reads a bounded number of entities, so a page may be empty although it is not the last
// one.
func TestListEntitiesBound(t *testing.T) {
	t.Parallel()
	f := newShelf(t)
	const many = 5050
	var b store.Batch
	for i := range many {
		n := model.Entity{Address: account(fmt.Sprintf("k-%05d", i)), Version: 1, Changed: f.now, Exists: true}
		b.Entities = append(b.Entities, store.EntityRow{Shard: n.Address.Shard(shards), Entity: n})
	}
	b.Entities[many-1].Entity.Version = 7
	f.commit(b)
	page, err := f.svc.ListEntities(t.Context(), api.EntityListRequest{Tenant: "default", MinVersion: 2})
	if err != nil || len(page.Entities) != 0 || page.Cursor == "" {
		t.Fatalf("the first page has %d entities and the cursor %q: %v", len(page.Entities), page.Cursor, err)
	}
	if got := f.listed(api.EntityListRequest{MinVersion: 2}); len(got) != 1 {
		t.Errorf("%q", got)
	}
}
