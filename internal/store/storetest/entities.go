package storetest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"

	"pgregory.net/rapid"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

var entityTests = []test{
	{name: "an entity comes back as it was, and goes", run: testEntityContents},
	{name: "a change of another version refuses the batch", run: testEntityGuards},
	{name: "of many who change one succeeds", run: testEntityRace},
	{name: "what waits comes back as it was", run: testMailboxContents},
	{name: "an item is there once and is taken once", run: testMailboxGuards},
	{name: "a position that is taken may be used again in the same batch", run: testMailboxAgain},
	{name: "a mailbox in order, in pages bounded by number and by size", run: testMailboxPages},
	{name: "the entities of shards for which something waits", run: testMailboxes},
	{name: "a refused batch leaves entities and mailboxes alone", run: testEntityRefused},
	{name: "queries for entities", run: testEntityQueries},
	{name: "lists of entities in pages", run: testEntityPages},
	{name: "a key prefix of entities is no pattern", run: testEntityPrefix},
	{name: "tenants do not see each other's entities", run: testEntityTenants},
	{name: "large states and calls", run: testEntityLarge},
	{name: "nothing is known of an entity that never was", run: testEntityNone},
	{name: "entities and mailboxes survive", run: testEntityDurable, needs: durable},
}

// Counter is an entity of a test. Its methods build rows of the entity.
type Counter struct{ store.EntityKey }

// Counter returns a new entity of the default tenant. Entities that are created later have greater
// keys.
func (f *Fixture) Counter() Counter {
	return f.CounterOf(model.Address{Tenant: model.DefaultTenant, Type: "entity:counter", Key: fmt.Sprintf("counter-%06d", f.ids.Add(1))})
}

// CounterOf returns the entity of an address.
func (f *Fixture) CounterOf(a model.Address) Counter {
	return Counter{store.EntityKey{Shard: a.Shard(f.Store.Info().Shards), Address: a}}
}

// CounterIn returns a new entity in a shard.
func (f *Fixture) CounterIn(s model.ShardID) Counter {
	for {
		if c := f.Counter(); c.Shard == s {
			return c
		}
	}
}

// Set returns the row of the entity with a version. The row replaces the row with the previous
// version.
func (c Counter) Set(version int64, value string) store.EntityRow {
	return store.EntityRow{Shard: c.Shard, Prev: version - 1, Entity: model.Entity{
		Address: c.Address, Version: version, Changed: Noon + model.Time(version), State: Text(value), Exists: true, Created: Noon + 1,
	}}
}

// Lock returns the row of the entity with a version, locked by a section.
func (c Counter) Lock(version int64, section string) store.EntityRow {
	row := c.Set(version, "locked by "+section)
	row.Entity.Holder = model.Link{Address: model.Address{Tenant: c.Address.Tenant, Type: "order", Key: "holder"}, Run: model.RunID{1}, ID: section}
	row.Entity.Held, row.Entity.Epoch = Noon, int64(Noon)
	return row
}

// Remove returns the change that removes the row of a version.
func (c Counter) Remove(version int64) store.EntityRow {
	row := c.Set(version+1, "")
	row.Gone = true
	return row
}

// Mail returns a call that waits at a position.
func (c Counter) Mail(seq int64) store.MailboxRow {
	return store.MailboxRow{EntityKey: c.EntityKey, Item: model.MailboxItem{Seq: seq, At: Noon + model.Time(seq), Message: model.Message{
		Kind: model.MessageCall, To: c.Address, Name: "add", Input: Text(fmt.Sprint("call ", seq)), Section: "s", OneWay: true,
	}}}
}

// Take returns the key of the item at a position.
func (c Counter) Take(seq int64) store.MailboxKey {
	return store.MailboxKey{EntityKey: c.EntityKey, Seq: seq}
}

// WantEntities checks that an upgraded store accepts entities.
func (f *Fixture) WantEntities(l *Lane) {
	f.Helper()
	c := f.Counter()
	before := f.Contents()
	l.Write(func(b *store.Batch) {
		b.Entities, b.Mailbox = []store.EntityRow{c.Lock(1, "s")}, []store.MailboxRow{c.Mail(1)}
	})
	before.Entities, before.Mailbox = []model.Entity{c.Lock(1, "s").Entity}, []store.MailboxRow{c.Mail(1)}
	f.Want("contents with entities", before, f.Contents())
}

// entity reads the stored state of an entity.
func (x *suite) entity(c Counter, limit, maxBytes int) store.LoadedEntity {
	x.Helper()
	return try(x.Store.LoadEntity(x.Context(), c.EntityKey, limit, maxBytes)).or(x)
}

// wantEntity checks the row of an entity. If want is nil, the entity must have no row.
func (x *suite) wantEntity(what string, c Counter, want *model.Entity) {
	x.Helper()
	x.Want(what, want, x.entity(c, 1, 1).Entity)
}

// addresses returns the matching entities, in order, read in pages of the query's limit.
func (x *suite) addresses(q store.EntityQuery) (out []model.Address) {
	x.Helper()
	if q.Limit == 0 {
		q.Limit = 1000
	}

	for {
		p := try(x.Store.ListEntities(x.Context(), q)).or(x)
		for i := range p.Entities {
			out = append(out, p.Entities[i].Address)
		}
		if !p.More {
			return out
		}
		if len(p.Entities) != q.Limit {
			x.Fatalf("a page of %d rows, and there are more; the limit is %d", len(p.Entities), q.Limit)
		}
		q.After = out[len(out)-1]
		x.checkPagesEnd(len(out))
	}
}

func testEntityContents(x *suite) {
	l := x.Join(1).Lanes[0]
	rapid.Check(x.t, func(t *rapid.T) {
		c := x.Counter()
		version := int64(0)
		for range rapid.IntRange(1, 3).Draw(t, "changes") {
			row := store.EntityRow{Shard: c.Shard, Prev: version, Entity: Entities().Draw(t, "entity")}
			version += 1 + rapid.Int64Range(0, 2).Draw(t, "skipped")
			row.Entity.Address, row.Entity.Version, row.Entity.Changed = c.Address, version, Times().Draw(t, "changed")
			l.Write(func(b *store.Batch) { b.Entities = []store.EntityRow{row} })
			if d := Diff(store.LoadedEntity{Entity: &row.Entity}, x.entity(c, 10, 1000)); d != "" {
				t.Fatalf("version %d (-want +got):\n%s", version, d)
			}
			page := try(x.Store.ListEntities(x.Context(), store.EntityQuery{Tenant: c.Address.Tenant, Type: c.Address.Type, Key: c.Address.Key, Limit: 2})).or(x)
			if d := Diff(store.EntityPage{Entities: []model.Entity{row.Entity}}, page); d != "" {
				t.Fatalf("listed in version %d (-want +got):\n%s", version, d)
			}
		}

		l.Write(func(b *store.Batch) { b.Entities = []store.EntityRow{c.Remove(version)} })
		if d := Diff(store.LoadedEntity{}, x.entity(c, 10, 1000)); d != "" {
			t.Fatalf("after it was removed (-want +got):\n%s", d)
		}
	})
}

func testEntityGuards(x *suite) {
	l := x.Join(1).Lanes[0]
	c, other, none := x.Counter(), x.Counter(), x.Counter()
	l.Write(func(b *store.Batch) { b.Entities = []store.EntityRow{c.Set(1, "1"), other.Set(1, "1")} })
	l.Write(func(b *store.Batch) { b.Entities = []store.EntityRow{c.Set(2, "2")} })
	before := x.Contents()
	elsewhere := c
	elsewhere.Shard ^= 1
	first, fromNothing := c.Remove(2), none.Remove(0)
	first.Prev = 0

	for name, bad := range map[string]store.EntityRow{
		"a first row where there is one": c.Set(1, "x"), "a change of an older version": c.Set(2, "x"), "a change of a later version": c.Set(4, "x"),
		"a change of what does not exist": none.Set(2, "x"), "a change in another shard": elsewhere.Set(3, "x"),
		"the removal of an older version": c.Remove(1), "the removal of a later version": c.Remove(3), "the removal of any version": first,
		"the removal of what does not exist": none.Remove(1), "the removal of nothing": fromNothing,
	} {
		b := l.Batch()
		b.Entities = []store.EntityRow{other.Set(2, "2"), bad}
		if _, err := l.Try(x.Context(), b); err == nil || store.ClassOf(err) != store.Refused {
			x.Errorf("%s: %v, want it refused", name, err)
		}
		if d := Diff(before, x.Contents()); d != "" {
			x.Fatalf("%s: something was applied (-before +after):\n%s", name, d)
		}
	}

	l.Write(func(b *store.Batch) { b.Entities = []store.EntityRow{c.Remove(2), other.Lock(2, "s")} })
	// After the removal, versions start again at 1.
	l.Write(func(b *store.Batch) { b.Entities = []store.EntityRow{c.Set(1, "again")} })
	again, locked := c.Set(1, "again").Entity, other.Lock(2, "s").Entity
	x.wantEntity("the one that started again", c, &again)
	x.wantEntity("the other one", other, &locked)
}

func testEntityRace(x *suite) {
	const people = 10
	n := x.Join(people)
	c := x.Counter()
	for version, what := range []string{"insert", "change", "remove"} {
		errs := make([]error, people)
		var all sync.WaitGroup
		for i, l := range n.Lanes {
			all.Go(func() {
				b := l.Batch()
				b.Entities = []store.EntityRow{c.Set(int64(version)+1, fmt.Sprint(i))}
				b.Entities[0].Gone = what == "remove"
				_, errs[i] = l.Try(x.Context(), b)
			})
		}

		all.Wait()
		won := slices.IndexFunc(errs, func(err error) bool { return err == nil })
		for i, err := range errs {
			if err == nil && i != won {
				x.Errorf("%s: both %d and %d have succeeded", what, won, i)
			} else if err != nil && store.ClassOf(err) != store.Refused && store.ClassOf(err) != store.Retryable {
				x.Errorf("%s: class %s: %v", what, store.ClassOf(err), err)
			}
		}

		if won < 0 {
			x.Fatalf("%s: no writer has succeeded", what)
		}
		want := c.Set(int64(version)+1, fmt.Sprint(won)).Entity

		if what == "remove" {
			x.wantEntity(what, c, nil)
		} else {
			x.wantEntity(what, c, &want)
		}
	}
}

func testMailboxContents(x *suite) {
	l := x.Join(1).Lanes[0]
	rapid.Check(x.t, func(t *rapid.T) {
		c := x.Counter()
		var rows []store.MailboxRow
		var items []model.MailboxItem
		for i, m := range rapid.SliceOfN(Messages(), 1, 3).Draw(t, "messages") {
			items = append(items, model.MailboxItem{Seq: int64(i + 1), At: Times().Draw(t, "at"), Message: m})
			rows = append(rows, store.MailboxRow{EntityKey: c.EntityKey, Item: items[i]})
		}
		l.Write(func(b *store.Batch) { b.Mailbox = rows })
		if d := Diff(store.LoadedEntity{Mailbox: items}, x.entity(c, 10, 1<<20)); d != "" {
			t.Fatalf("with the entity (-want +got):\n%s", d)
		}
		got := try(x.Store.LoadMailbox(x.Context(), c.EntityKey, 1, 10, 1<<20)).or(x)
		if d := Diff(items[1:], got); d != "" {
			t.Fatalf("behind the first (-want +got):\n%s", d)
		}
	})
}

func testMailboxGuards(x *suite) {
	l := x.Join(1).Lanes[0]
	c, other := x.Counter(), x.Counter()
	l.Write(func(b *store.Batch) { b.Mailbox = []store.MailboxRow{c.Mail(1), c.Mail(2), other.Mail(3)} })
	before := x.Contents()
	elsewhere := c
	elsewhere.Shard ^= 1

	for name, add := range map[string]func(b *store.Batch){
		"a position that is taken":        func(b *store.Batch) { b.Mailbox = append(b.Mailbox, c.Mail(1)) },
		"an item that does not wait":      func(b *store.Batch) { b.Taken = append(b.Taken, c.Take(3)) },
		"an item of another entity":       func(b *store.Batch) { b.Taken = append(b.Taken, other.Take(1)) },
		"an item in another shard":        func(b *store.Batch) { b.Taken = append(b.Taken, elsewhere.Take(1)) },
		"an item that comes in the batch": func(b *store.Batch) { b.Taken = append(b.Taken, c.Take(4)) },
	} {
		b := l.Batch()
		b.Taken, b.Mailbox = []store.MailboxKey{c.Take(2)}, []store.MailboxRow{c.Mail(4)}
		add(b)
		if _, err := l.Try(x.Context(), b); err == nil || store.ClassOf(err) != store.Refused {
			x.Errorf("%s: %v, want it refused", name, err)
		}
		if d := Diff(before, x.Contents()); d != "" {
			x.Fatalf("%s: something was applied (-before +after):\n%s", name, d)
		}
	}

	l.Write(func(b *store.Batch) { b.Taken = []store.MailboxKey{other.Take(3), c.Take(1)} })
	x.Want("left", []store.MailboxRow{c.Mail(2)}, x.Contents().Mailbox)
	b := l.Batch()
	b.Taken = []store.MailboxKey{c.Take(1)}
	l.Refuse(b, store.Refused)
}

func testMailboxAgain(x *suite) {
	l := x.Join(1).Lanes[0]
	c := x.Counter()
	l.Write(func(b *store.Batch) { b.Mailbox = []store.MailboxRow{c.Mail(1), c.Mail(2)} })
	next := c.Mail(1)
	next.Item.Message.Name = "subtract"
	l.Write(func(b *store.Batch) { b.Taken, b.Mailbox = []store.MailboxKey{c.Take(1)}, []store.MailboxRow{next} })
	x.Want("mailbox", []store.MailboxRow{next, c.Mail(2)}, x.Contents().Mailbox)
}

func testMailboxPages(x *suite) {
	l := x.Join(1).Lanes[0]
	c, before, after := x.CounterIn(3), x.CounterIn(3), x.CounterIn(3)
	before.Address.Key, after.Address.Key = c.Address.Key[:len(c.Address.Key)-1], c.Address.Key+"x"
	var items []model.MailboxItem

	b := l.Batch()
	for i := range 25 {
		row := c.Mail(int64(3*i + 5)) // positions may have gaps
		row.Item.Message.Input = Text(strings.Repeat("x", 1000))
		items = append(items, row.Item)
		b.Mailbox = append(b.Mailbox, row, before.Mail(int64(i+1)), after.Mail(int64(i+1)))
	}

	slices.Reverse(b.Mailbox)
	l.Commit(b)
	for _, bound := range []struct{ limit, bytes, most int }{{1, 1 << 20, 1}, {7, 1 << 20, 7}, {25, 1 << 20, 25}, {26, 1 << 20, 26}, {100, 5000, 6}, {100, 1, 1}, {0, 0, 1}} {
		loaded := x.entity(c, bound.limit, bound.bytes)
		got := loaded.Mailbox
		if len(got) == 0 || len(got) > bound.most || !loaded.More && len(got) < len(items) {
			x.Fatalf("%d items, more is %v; the bounds are %d and %d bytes", len(got), loaded.More, bound.limit, bound.bytes)
		}
		for more := loaded.More; more; {
			p := try(x.Store.LoadMailbox(x.Context(), c.EntityKey, got[len(got)-1].Seq, bound.limit, bound.bytes)).or(x)
			if len(p) > bound.most {
				x.Fatalf("%d items; the bounds are %d and %d bytes", len(p), bound.limit, bound.bytes)
			}
			got, more = append(got, p...), len(p) > 0
			x.checkPagesEnd(len(got))
		}
		x.Want(fmt.Sprintf("in pages of %d and %d bytes", bound.limit, bound.bytes), items, got)
	}

	if !x.entity(c, 24, 1<<20).More || x.entity(c, 100, 1<<20).More {
		x.Error("more is not what is behind the page")
	}
}

func testMailboxes(x *suite) {
	l := x.Join(1).Lanes[0]
	var want []store.EntityKey
	b := l.Batch()
	for i := range 60 {
		c := x.CounterOf(model.Address{Tenant: fmt.Sprint("t", i%3), Type: []string{"entity:a", "entity:b", "service:a", "entity:a-b"}[i%4], Key: fmt.Sprint("k", i)})
		c.Shard = model.ShardID(i % 5)
		for seq := range 1 + i%4 {
			b.Mailbox = append(b.Mailbox, c.Mail(int64(seq+1)))
		}
		if c.Shard != 3 {
			want = append(want, c.EntityKey)
		}
	}

	idle := x.CounterIn(1)
	b.Entities = []store.EntityRow{idle.Set(1, "nothing waits for it")}
	l.Commit(b)

	slices.SortFunc(want, func(a, b store.EntityKey) int {
		return cmp.Or(cmp.Compare(a.Shard, b.Shard), strings.Compare(a.Address.Tenant, b.Address.Tenant), strings.Compare(a.Address.Type, b.Address.Type),
			strings.Compare(a.Address.Key, b.Address.Key))
	})

	shards := []model.ShardID{4, 0, 2, 1, 0, 9}
	for _, limit := range []int{1, 7, 48, 100} {
		var got []store.EntityKey
		var after store.EntityKey
		for {
			p := try(x.Store.LoadMailboxes(x.Context(), shards, after, limit)).or(x)
			if len(p) == 0 {
				break
			}
			if len(p) > limit {
				x.Fatalf("%d entities, at most %d", len(p), limit)
			}
			got, after = append(got, p...), p[len(p)-1]
			x.checkPagesEnd(len(got))
		}
		x.Want(fmt.Sprint("in pages of ", limit), want, got)
	}

	x.Want("at most none", 0, len(try(x.Store.LoadMailboxes(x.Context(), shards, store.EntityKey{}, 0)).or(x)))
	first := want[0]
	l.Write(func(b *store.Batch) {
		for _, item := range x.entity(Counter{first}, 10, 1<<20).Mailbox {
			b.Taken = append(b.Taken, Counter{first}.Take(item.Seq))
		}
	})

	x.Want("after everything was taken from one", want[1:], try(x.Store.LoadMailboxes(x.Context(), shards, store.EntityKey{}, 100)).or(x))
}

func testEntityRefused(x *suite) {
	l := x.Join(1).Lanes[0]
	a, b, c := x.Counter(), x.Counter(), x.Counter()
	l.Write(func(w *store.Batch) {
		w.Entities, w.Mailbox = []store.EntityRow{a.Set(1, "1"), b.Lock(1, "s")}, []store.MailboxRow{a.Mail(1), b.Mail(1)}
	})
	before := x.Contents()
	w := l.Batch()
	w.Taken, w.Mailbox = []store.MailboxKey{a.Take(1), b.Take(1)}, []store.MailboxRow{a.Mail(1), c.Mail(1)}
	w.Entities = []store.EntityRow{a.Lock(2, "s"), b.Remove(1), c.Set(1, "1")}
	w.Free = []model.ShardID{model.MaxShards - 1} // the node does not own it: refuses the batch
	l.Refuse(w, store.Refused)
	x.Want("contents", before, x.Contents())
	w.Free = nil
	l.Commit(w)
	x.Want("entities", []model.Entity{a.Lock(2, "s").Entity, c.Set(1, "1").Entity}, x.Contents().Entities)
	x.Want("locked ones", []model.Address{a.Address}, x.addresses(store.EntityQuery{Tenant: model.DefaultTenant, Locked: true}))
}

// some writes an entity for each of the types and keys, and locks every second entity. It returns
// the addresses of all entities and of the locked entities, in order.
func (x *suite) some(l *Lane, tenant string, types, keys []string) (all, locked []model.Address) {
	x.Helper()
	b := l.Batch()
	for _, name := range types {
		for _, key := range keys {
			c := x.CounterOf(model.Address{Tenant: tenant, Type: name, Key: key})
			row := c.Set(1, key)
			if len(all)%2 == 1 {
				row = c.Lock(1, key)
				locked = append(locked, c.Address)
			}
			all = append(all, c.Address)
			b.Entities = append(b.Entities, row)
		}
	}

	l.Commit(b)
	order := func(a, b model.Address) int {
		return cmp.Or(strings.Compare(a.Type, b.Type), strings.Compare(a.Key, b.Key))
	}
	slices.SortFunc(all, order)
	slices.SortFunc(locked, order)

	return all, locked
}

func testEntityQueries(x *suite) {
	l := x.Join(1).Lanes[0]
	all, locked := x.some(l, "t", []string{"entity:account", "entity:Account", "entity:account-x", "service:rates"}, []string{"a-2", "a-1", "b", "A-1", "a"})
	pick := func(from []model.Address, keep func(a model.Address) bool) (out []model.Address) {
		for _, a := range from {
			if keep(a) {
				out = append(out, a)
			}
		}
		return out
	}
	for name, c := range map[string]struct {
		q    store.EntityQuery
		want []model.Address
	}{
		"all":               {store.EntityQuery{}, all},
		"a type":            {store.EntityQuery{Type: "entity:account"}, pick(all, func(a model.Address) bool { return a.Type == "entity:account" })},
		"an unknown type":   {store.EntityQuery{Type: "account"}, nil},
		"a key":             {store.EntityQuery{Key: "a-1"}, pick(all, func(a model.Address) bool { return a.Key == "a-1" })},
		"a type and a key":  {store.EntityQuery{Type: "service:rates", Key: "b"}, pick(all, func(a model.Address) bool { return a.Type == "service:rates" && a.Key == "b" })},
		"an unknown key":    {store.EntityQuery{Key: "a-"}, nil},
		"a prefix":          {store.EntityQuery{KeyPrefix: "a"}, pick(all, func(a model.Address) bool { return a.Key[0] == 'a' })},
		"a key and prefix":  {store.EntityQuery{Key: "a-1", KeyPrefix: "a-"}, pick(all, func(a model.Address) bool { return a.Key == "a-1" })},
		"contradicting":     {store.EntityQuery{Key: "b", KeyPrefix: "a-"}, nil},
		"prefix and type":   {store.EntityQuery{Type: "entity:Account", KeyPrefix: "a-"}, pick(all, func(a model.Address) bool { return a.Type == "entity:Account" && strings.HasPrefix(a.Key, "a-") })},
		"locked":            {store.EntityQuery{Locked: true}, locked},
		"locked of a type":  {store.EntityQuery{Locked: true, Type: "entity:account"}, pick(locked, func(a model.Address) bool { return a.Type == "entity:account" })},
		"locked by key":     {store.EntityQuery{Locked: true, Key: "a-1"}, pick(locked, func(a model.Address) bool { return a.Key == "a-1" })},
		"locked by prefix":  {store.EntityQuery{Locked: true, KeyPrefix: "a"}, pick(locked, func(a model.Address) bool { return a.Key[0] == 'a' })},
		"of another tenant": {store.EntityQuery{Tenant: "T"}, nil},
	} {
		for _, limit := range []int{1, 3, 1000} {
			c.q.Tenant, c.q.Limit = cmp.Or(c.q.Tenant, "t"), limit
			x.Want(fmt.Sprint(name, " in pages of ", limit), c.want, x.addresses(c.q))
		}
	}

	// An entity that is no longer locked is not in the list of locked entities.
	free := x.CounterOf(locked[0])
	l.Write(func(b *store.Batch) { b.Entities = []store.EntityRow{free.Set(2, "free")} })
	x.Want("locked, later", locked[1:], x.addresses(store.EntityQuery{Tenant: "t", Locked: true}))
}

func testEntityPages(x *suite) {
	l := x.Join(1).Lanes[0]
	var keys []string
	for i := range 9 {
		keys = append(keys, fmt.Sprint("k", i))
	}

	all, _ := x.some(l, "t", []string{"entity:a", "entity:b", "service:c"}, keys)
	for _, limit := range []int{1, 4, 26, 27, 28} {
		q := store.EntityQuery{Tenant: "t", Limit: limit}
		var got []model.Address
		for n := 0; ; n++ {
			p := try(x.Store.ListEntities(x.Context(), q)).or(x)
			for i := range p.Entities {
				got = append(got, p.Entities[i].Address)
			}
			if len(p.Entities) > limit || p.More != (len(got) < len(all)) || len(got) > len(all) {
				x.Fatalf("%d rows, more is %v after %d of %d rows in pages of %d", len(p.Entities), p.More, len(got), len(all), limit)
			}

			if !p.More {
				break
			}
			q.After = got[len(got)-1]

			// The last listed row changes, and other rows are inserted and removed before it. The
			// rows after it keep their places in the list.
			changed, brief := x.CounterOf(q.After), x.CounterOf(model.Address{Tenant: "t", Type: "entity:a", Key: "a"})
			version := x.entity(changed, 1, 1).Entity.Version
			l.Write(func(b *store.Batch) { b.Entities = []store.EntityRow{changed.Lock(version+1, "s"), brief.Set(1, "1")} })
			l.Write(func(b *store.Batch) { b.Entities = []store.EntityRow{changed.Set(version+2, "1"), brief.Remove(1)} })
		}

		x.Want(fmt.Sprint("pages of ", limit), all, got)
	}

	p := try(x.Store.ListEntities(x.Context(), store.EntityQuery{Tenant: "t"})).or(x)
	x.Want("a page of none", store.EntityPage{More: true}, p)
	x.Want("behind the last one", []model.Address(nil), x.addresses(store.EntityQuery{Tenant: "t", After: all[len(all)-1]}))
	x.Want("behind one that is not there", all[9:], x.addresses(store.EntityQuery{Tenant: "t", After: model.Address{Type: "entity:a", Key: "z"}}))
}

func testEntityPrefix(x *suite) {
	l := x.Join(1).Lanes[0]
	keys := []string{
		"a%b", "a_b", `a\b`, "axb", "a%%", "A%b", "a*b", "a[b", "a?b", "aé", "aê", "a\ud7ff", "a\ud7ffz", "a\ue000", "a\U0010ffff", "a\U0010ffffz", "\U0010ffff", "a", "b", "\x7f", "\u0080",
	}
	x.some(l, "t", []string{"entity:a", "entity:b"}, keys)

	prefixes := append([]string{"a%", "a_", `a\`, "a*", "a[", "a?", "a\U0010fffe", "%", "_", "\x7f"}, keys...)
	for _, prefix := range prefixes {
		var want []model.Address
		for _, name := range []string{"entity:a", "entity:b"} {
			var here []string
			for _, key := range keys {
				if strings.HasPrefix(key, prefix) {
					here = append(here, key)
				}
			}
			slices.Sort(here)
			for _, key := range here {
				want = append(want, model.Address{Tenant: "t", Type: name, Key: key})
			}
		}
		x.Want(fmt.Sprintf("prefix %q", prefix), want, x.addresses(store.EntityQuery{Tenant: "t", KeyPrefix: prefix, Limit: 2}))
		x.Want(fmt.Sprintf("prefix %q of a type", prefix), want[len(want)/2:], x.addresses(store.EntityQuery{Tenant: "t", Type: "entity:b", KeyPrefix: prefix}))
	}
}

func testEntityTenants(x *suite) {
	l := x.Join(1).Lanes[0]
	var counters []Counter
	b := l.Batch()
	for i, tenant := range []string{"a", "a ", "b", "A"} {
		c := x.CounterOf(model.Address{Tenant: tenant, Type: "entity:counter", Key: "same"})
		c.Shard = 2 // pretend that all addresses belong to one shard
		counters = append(counters, c)
		b.Entities, b.Mailbox = append(b.Entities, c.Set(1, fmt.Sprint(i))), append(b.Mailbox, c.Mail(int64(i+1)))
	}

	l.Commit(b)
	for i, c := range counters {
		row := c.Set(1, fmt.Sprint(i)).Entity
		x.Want("what is stored for "+c.Address.Tenant, store.LoadedEntity{Entity: &row, Mailbox: []model.MailboxItem{c.Mail(int64(i + 1)).Item}}, x.entity(c, 10, 1<<20))
		for _, q := range []store.EntityQuery{{}, {Type: "entity:counter"}, {Key: "same"}, {KeyPrefix: "s"}} {
			q.Tenant = c.Address.Tenant
			x.Want("list of "+q.Tenant, []model.Address{c.Address}, x.addresses(q))
		}
	}

	l.Write(func(b *store.Batch) {
		b.Entities, b.Taken = []store.EntityRow{counters[0].Remove(1)}, []store.MailboxKey{counters[0].Take(1)}
	})
	x.Want("the first one", store.LoadedEntity{}, x.entity(counters[0], 10, 1<<20))
	kept := counters[1].Set(1, "1").Entity
	x.wantEntity("the second one", counters[1], &kept)
	waits := try(x.Store.LoadMailboxes(x.Context(), []model.ShardID{2}, store.EntityKey{}, 10)).or(x)
	x.Want("mailboxes", []store.EntityKey{counters[3].EntityKey, counters[1].EntityKey, counters[2].EntityKey}, waits)
}

func testEntityLarge(x *suite) {
	l := x.Join(1).Lanes[0]
	c, other := x.Counter(), x.Counter()
	state := func(version int64, size int) store.EntityRow {
		row := c.Set(version, "")
		row.Entity.State.Data = make([]byte, size)
		for i := range row.Entity.State.Data {
			row.Entity.State.Data[i] = byte(i * (i >> 8))
		}
		return row
	}

	call := c.Mail(1)
	call.Item.Message.Input = Text(strings.Repeat("call ", 200_000))
	for version, size := range []int{100, 4 << 20, 1000, 1 << 20} {
		row := state(int64(version+1), size)
		l.Write(func(b *store.Batch) {
			b.Entities = []store.EntityRow{row, other.Set(int64(version+1), "small")}
			if version == 0 {
				b.Mailbox = []store.MailboxRow{call, c.Mail(2)}
			}
		})
		got := x.entity(c, 10, 1000)
		x.Want(fmt.Sprint("a state of ", size), store.LoadedEntity{Entity: &row.Entity, Mailbox: []model.MailboxItem{call.Item}, More: true}, got)
	}

	l.Write(func(b *store.Batch) {
		b.Entities, b.Taken = []store.EntityRow{c.Remove(4)}, []store.MailboxKey{c.Take(1)}
	})
	x.Want("after it is gone", store.LoadedEntity{Mailbox: []model.MailboxItem{c.Mail(2).Item}}, x.entity(c, 10, 1000))
}

func testEntityNone(x *suite) {
	c := x.Counter()
	beyond := c
	beyond.Shard = model.MaxShards
	for _, c := range []Counter{c, beyond} {
		x.Want("entity", store.LoadedEntity{}, x.entity(c, 10, 1000))
		x.Want("mailbox", 0, len(try(x.Store.LoadMailbox(x.Context(), c.EntityKey, 0, 10, 1000)).or(x)))
	}
	x.Want("mailboxes", 0, len(try(x.Store.LoadMailboxes(x.Context(), x.Shards(), store.EntityKey{}, 10)).or(x)))
	x.Want("list", store.EntityPage{}, try(x.Store.ListEntities(x.Context(), store.EntityQuery{Tenant: model.DefaultTenant, Limit: 10})).or(x))
}

func testEntityDurable(x *suite) {
	l := x.Join(1).Lanes[0]
	a, b, c := x.Counter(), x.Counter(), x.Counter()
	l.Write(func(w *store.Batch) {
		w.Entities, w.Mailbox = []store.EntityRow{a.Set(1, "1"), b.Set(1, "1")}, []store.MailboxRow{a.Mail(1), c.Mail(1), c.Mail(2)}
	})
	l.Write(func(w *store.Batch) {
		w.Entities, w.Taken = []store.EntityRow{a.Lock(2, "s"), b.Remove(1)}, []store.MailboxKey{c.Take(1)}
	})
	before := x.Contents()
	x.reopen()
	x.Want("contents", before, x.Contents())
	x.Want("entities", []model.Entity{a.Lock(2, "s").Entity}, before.Entities)
	l.Write(func(w *store.Batch) {
		w.Entities, w.Taken = []store.EntityRow{a.Set(3, "3")}, []store.MailboxKey{a.Take(1), c.Take(2)}
	})
}
