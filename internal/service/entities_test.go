package service_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/service"
	"github.com/perdure/perdure/internal/store"
)

func account(k string) model.Address {
	return model.Address{Tenant: "default", Type: "entity:account", Key: k}
}

// holder is the section of a transfer.
func holder(run byte) model.Link {
	return model.Link{Address: model.Address{Tenant: "default", Type: "move", Key: "t-1"}, Run: model.RunID{15: run}, ID: "lock"}
}

// keep stores an entity with its mailbox.
func (f *shelf) keep(n model.Entity, waiting ...model.Message) {
	f.t.Helper()
	n.Version, n.Changed = 1, f.now
	key := store.EntityKey{Shard: n.Address.Shard(shards), Address: n.Address}
	b := store.Batch{Entities: []store.EntityRow{{Shard: key.Shard, Entity: n}}}
	for i, m := range waiting {
		m.To = n.Address
		b.Mailbox = append(b.Mailbox, store.MailboxRow{EntityKey: key, Item: model.MailboxItem{Seq: int64(i + 1), At: f.now, Message: m}})
	}
	f.commit(b)
}

func (f *shelf) serve(by store.LaneRef, types ...string) {
	f.t.Helper()
	r := store.RenewRequest{Node: by.Node, Epoch: by.Epoch, TTL: time.Minute}
	for _, typ := range types {
		r.Serves = append(r.Serves, store.Served{Tenant: "default", Workflow: typ})
	}
	if _, err := f.st.Renew(f.t.Context(), r); err != nil {
		f.t.Fatal(err)
	}
}

func texts(rs []model.Reason) (all []string) {
	for _, r := range rs {
		all = append(all, r.String())
	}
	return all
}

// A node that does not own an entity can also say why the mailbox of the entity makes no progress.
// The description of an execution that waits for the entity gives the same reason.
func TestWhyEntitiesDoNotMove(t *testing.T) {
	t.Parallel()
	f := newShelf(t)
	call := model.Message{Kind: model.MessageCall, Name: "deposit", Input: model.TextPayload("1")}
	lock := model.Message{Kind: model.MessageLock, From: holder(2)}
	f.keep(model.Entity{Address: account("idle"), Exists: true, State: model.TextPayload("5")})
	f.keep(model.Entity{Address: account("called"), Exists: true}, call)
	f.keep(model.Entity{Address: account("locked"), Holder: holder(1), Held: f.now, Epoch: 7}, lock, lock)
	why := func(key string, want ...string) {
		t.Helper()
		info, err := f.svc.Entity(t.Context(), account(key))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, texts(info.Reasons)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", key, diff)
		}
		for _, it := range info.Waiting {
			if len(it.Message.Input.Data) > 0 {
				t.Error("the input of a call is told")
			}
		}
	}
	held := "waits for the lock of account/locked, held by move/t-1 (" + holder(1).Run.String() + ")"
	nobody := "waits for a worker that offers entity account: no live process has its code"
	busy := "waits for account/called: earlier calls are being made"
	why("idle")
	why("nobody")
	why("called", nobody)
	why("locked", held)

	of := order("1")
	row := f.put(of, 0, 1)
	waits := func(want []string, rs ...model.Reason) {
		t.Helper()
		f.commit(store.Batch{Marks: []store.MarkRow{{RunKey: row, Parked: true, Waits: rs}}})
		d, err := f.svc.Describe(t.Context(), api.Target{Address: of})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, texts(d.Reasons)); diff != "" {
			t.Errorf("an execution that waits (-want +got):\n%s", diff)
		}
	}
	forLock := func(key string) model.Reason { return model.Reason{Code: model.WaitLock, Name: "account/" + key} }
	forCall := model.Reason{Code: model.WaitAnswer, Name: "entity:account/called", Detail: "call deposit"}
	waits([]string{held}, forLock("locked"))
	waits([]string{"waits for the lock of account/idle"}, forLock("idle"))
	waits([]string{"waits for the lock of account/called", nobody}, forLock("called"))
	waits([]string{forCall.String(), held, nobody}, forCall, forLock("locked"))
	other := store.LaneRef{Node: model.NodeID{15: 2}} // this node owns no shard
	reg, err := f.st.Register(t.Context(), store.NodeInfo{ID: other.Node}, 1, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	other.Epoch = reg.Epoch
	f.serve(other, "entity:account")
	why("called", busy) // the other node runs the call for the owner
	f.serve(f.ref, "entity:account", "order")
	why("called", busy)
	waits([]string{forCall.String(), busy}, forCall)

	// The calls of the section that holds the lock do not wait for the end of the section, and the
	// section does not wait for itself.
	of = order("2")
	row = f.put(of, 0, 1)
	section := model.Link{Address: of, Run: row.Run, ID: "lock"}
	inside := model.Message{Kind: model.MessageCall, Name: "deposit", From: model.Link{Address: section.Address, Run: section.Run, ID: "s"}, Section: "lock"}
	f.keep(model.Entity{Address: account("own"), Holder: section, Held: f.now, Epoch: 8}, inside)
	f.keep(model.Entity{Address: account("shared"), Holder: section, Held: f.now, Epoch: 8}, call, inside)
	calls := func(key string) model.Reason {
		return model.Reason{Code: model.WaitAnswer, Name: "entity:account/" + key, Detail: "call deposit"}
	}
	why("own", "waits for account/own: earlier calls are being made")
	why("shared", "waits for the lock of account/shared, held by order/2 ("+row.Run.String()+")")
	waits([]string{"waits for the answer of account/own to call deposit", "waits for account/own: earlier calls are being made"}, calls("own"))
	waits([]string{"waits for the answer of account/shared to call deposit"}, calls("shared"))
	// A coroutine of the run that holds the lock may keep another coroutine of this run waiting for
	// the lock. If the first coroutine waits for the second, they wait forever.
	again := model.Message{Kind: model.MessageLock, From: model.Link{Address: of, Run: row.Run, ID: "lock of a coroutine"}}
	f.keep(model.Entity{Address: account("twice"), Holder: section, Held: f.now, Epoch: 8}, again)
	waits([]string{"waits for the lock of account/own"}, forLock("own"))
	waits([]string{"waits for the lock of account/twice, held by order/2 (" + row.Run.String() + ")"}, forLock("twice"))

	f.now = f.now.Add(time.Hour) // the node is gone
	why("called", fmt.Sprintf("waits for a node to own shard %d: no process is alive", account("called").Shard(shards)))
	why("locked", fmt.Sprintf("waits for a node to own shard %d: no process is alive", account("locked").Shard(shards)), held)
	why("own", fmt.Sprintf("waits for a node to own shard %d: no process is alive", account("own").Shard(shards)))
	why("idle")
}

// Every entity is on exactly one page of a list, in the order of type and key.
func TestListEntities(t *testing.T) {
	t.Parallel()
	f := newShelf(t)
	for i := range 7 {
		n := model.Entity{Address: account(fmt.Sprint("a-", i)), Exists: true}
		if i%2 == 1 {
			n.Holder = holder(1)
		}
		f.keep(n)
	}

	f.keep(model.Entity{Address: model.Address{Tenant: "default", Type: "entity:cart", Key: "a-1"}, Exists: true})
	list := func(r api.EntityListRequest) string {
		t.Helper()
		var keys []string
		for pages := 0; ; pages++ {
			page, err := f.svc.ListEntities(t.Context(), r)
			if err != nil || pages > 10 {
				t.Fatal(pages, err)
			}
			for i := range page.Entities {
				keys = append(keys, page.Entities[i].Address.Type[len(model.EntityPrefix):]+"/"+page.Entities[i].Address.Key)
			}
			if r.Cursor = page.Cursor; r.Cursor == "" {
				return strings.Join(keys, " ")
			}
		}
	}
	for want, r := range map[string]api.EntityListRequest{
		"account/a-0 account/a-1 account/a-2 account/a-3 account/a-4 account/a-5 account/a-6 cart/a-1": {Tenant: "default", Limit: 3},
		"account/a-1 cart/a-1":                {Tenant: "default", KeyPrefix: "a-1", Limit: 1},
		"cart/a-1":                            {Tenant: "default", Type: "entity:cart"},
		"account/a-1 account/a-3 account/a-5": {Tenant: "default", Locked: true, Limit: 2},
		"":                                    {Tenant: "other"},
	} {
		if got := list(r); got != want {
			t.Errorf("%+v: %s, want %s", r, got, want)
		}
	}

	_, err := f.svc.ListEntities(t.Context(), api.EntityListRequest{Tenant: "default", Cursor: "?"})
	wantKind(t, "a cursor that is none", err, fault.Invalid)
}

// Invalid calls and reads are refused with a sentence, and nothing is sent.
func TestEntityRequestsAreChecked(t *testing.T) {
	t.Parallel()
	s := live(t, service.Limits{})
	entity := func(change func(*model.Address)) error {
		a := account("a")
		change(&a)
		_, err := s.Entity(t.Context(), a)
		return err
	}

	call := func(change func(*api.CallRequest)) error {
		r := api.CallRequest{Address: account("a"), Name: "deposit", RequestID: "r"}
		change(&r)
		_, err := s.Call(t.Context(), r)
		return err
	}
	for want, err := range map[string]error{
		`"account" is neither an entity nor a service`: entity(func(a *model.Address) { a.Type = "account" }),
		"the name of the entity is empty":              entity(func(a *model.Address) { a.Type = "entity:" }),
		"the name of the service has":                  entity(func(a *model.Address) { a.Type = "service:" + strings.Repeat("x", 193) }),
		"the key is empty":                             entity(func(a *model.Address) { a.Key = "" }),
		"the name of the operation is empty":           call(func(r *api.CallRequest) { r.Name = "" }),
		"takes no request id":                          call(func(r *api.CallRequest) { r.Brief = true }),
		"the epoch -1 is below zero":                   s.Unlock(t.Context(), api.UnlockRequest{Address: account("a"), Epoch: -1}),
	} {
		wantKind(t, want, err, fault.Invalid)
		if err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%v\n  lacks %q", err, want)
		}
	}

	wantKind(t, "what is not locked", s.Unlock(t.Context(), api.UnlockRequest{Address: account("a")}), fault.NotFound)
}
