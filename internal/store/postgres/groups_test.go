package postgres_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/postgres"
	"github.com/perdure/perdure/internal/store/storetest"
)

// addGroups adds groups, which are given in their stored form. It expects an error that contains
// the text of the parameter says, or no error if says is empty.
func addGroups(t *testing.T, url, groups, says string) postgres.Status {
	t.Helper()
	list, err := model.ParseGroups(groups)
	if err != nil {
		t.Fatal(err)
	}
	st, err := postgres.AddGroups(t.Context(), postgres.Config{URL: url, AllowUnsafe: true}, list)
	switch {
	case says == "" && err != nil:
		t.Fatalf("add groups %s: %v", groups, err)
	case says != "" && (err == nil || !strings.Contains(err.Error(), says)):
		t.Errorf("add groups %s: %v, want an error that says %q", groups, err, says)
	}
	return st
}

// The shards of new groups follow the existing shards. A group cannot be removed or changed.
func TestAddGroups(t *testing.T) {
	t.Parallel()
	postgres.Sequential(t)
	base := pgtest.URL(t)
	addGroups(t, base, "gpu=4", "perdure migrate")
	_ = openURL(t, base).Close()

	st := addGroups(t, base, "gpu=4,video=2", "")
	if st.Shards != testShards+6 || model.FormatGroups(st.Groups) != "gpu=4,video=2" {
		t.Errorf("status %+v, want %d shards and the groups", st, testShards+6)
	}
	addGroups(t, base, "video=2", "")
	addGroups(t, base, "gpu=5", "has 4 shards, which cannot change: 5 are wanted")
	addGroups(t, base, "huge=4095", "at most 4096")
	addGroups(t, base, "eu=1", "")

	s := openURL(t, base) // configured with the shards of the default group
	info := s.Info()
	if info.Shards != testShards+7 || model.FormatGroups(info.Groups) != "gpu=4,video=2,eu=1" {
		t.Errorf("info %+v", info)
	}
	f := storetest.New(t, s)
	view := f.Join(1).Renew(time.Minute)
	if len(view.Owners) != info.Shards || !slices.Equal(view.Groups, info.Groups) {
		t.Errorf("the view has %d shards and groups %v", len(view.Owners), view.Groups)
	}
	expectRefusal(t, postgres.Config{URL: base, Shards: testShards + 7, AllowUnsafe: true}, fault.Conflict, "was created with")

	// A build that does not know groups can no longer open the store.
	var compatible int
	if err := connect(t, base).QueryRow(t.Context(), `select compatible from perdure.migrations where version = 15`).Scan(&compatible); err != nil || compatible != 0 {
		t.Errorf("builds from version %d on can use the store, want none: %v", compatible, err)
	}
}

// Builds that do not know groups can open a store without groups.
func TestStoreWithoutGroupsIsCompatible(t *testing.T) {
	t.Parallel()
	postgres.Sequential(t)
	base := pgtest.URL(t)
	_ = openURL(t, base).Close()
	var compatible int
	if err := connect(t, base).QueryRow(t.Context(), `select compatible from perdure.migrations where version = 15`).Scan(&compatible); err != nil || compatible != 14 {
		t.Errorf("builds from version %d on can use the store, want 14: %v", compatible, err)
	}
}

// While a node lives, groups are refused, and nothing changes. A node whose lease has expired is
// fenced: it can neither commit nor renew its lease.
func TestAddGroupsWithNodes(t *testing.T) {
	t.Parallel()
	postgres.Sequential(t)
	base := pgtest.URL(t)
	s := openURL(t, base)
	f := storetest.New(t, s)
	node := f.JoinFor(1, time.Hour)
	lane := node.Lanes[0]
	node.Acquire(f.Shards()...)
	addGroups(t, base, "gpu=4", "uses the store; its lease")
	a := f.Subject()
	lane.Write(func(b *store.Batch) { b.Starts = []store.StartRow{a.StartRow()} })

	exec(t, connect(t, base), `update perdure.nodes set expires = 1`)
	addGroups(t, base, "gpu=4", "")
	lane.Refuse(lane.Batch(), store.Fenced)
	_, err := s.Renew(t.Context(), store.RenewRequest{Node: node.ID, Epoch: node.Epoch, TTL: time.Minute})
	f.WantClass(err, store.Fenced)
}

// A process that has opened the store before groups were added cannot join. It can put requests
// into the inbox, except for names that choose a group: the process would compute the wrong shard
// for such a name.
func TestProcessWithOtherGroups(t *testing.T) {
	t.Parallel()
	postgres.Sequential(t)
	base := pgtest.URL(t)
	stale := openURL(t, base)
	addGroups(t, base, "gpu=4", "")
	fresh := openURL(t, base)

	const says = "start the process again"
	_, err := stale.Register(t.Context(), store.NodeInfo{ID: model.NodeID{1}}, 1, time.Minute)
	if err == nil || !strings.Contains(err.Error(), says) || store.ClassOf(err) != store.Refused {
		t.Errorf("register: %v, want a refusal that says %q", err, says)
	}
	var rows int
	const count = `select (select count(*) from perdure.nodes) + (select count(*) from perdure.fences)`
	if err := connect(t, base).QueryRow(t.Context(), count).Scan(&rows); err != nil || rows != 0 {
		t.Errorf("the refused node has left %d rows, %v", rows, err)
	}
	if _, err := fresh.Register(t.Context(), store.NodeInfo{ID: model.NodeID{2}, Groups: []string{"gpu"}}, 1, time.Minute); err != nil {
		t.Errorf("a process that knows the groups cannot join: %v", err)
	}

	row := func(s *postgres.Store, name string, id byte) store.InboxRow {
		to := model.Address{Tenant: "t", Type: name, Key: "k"}
		return store.InboxRow{Shard: s.Info().Layout().Shard(to), ID: model.RunID{id}, Message: model.Message{Kind: model.MessageCancel, To: to}}
	}
	err = stale.PutInbox(t.Context(), []store.InboxRow{row(stale, "order", 1), row(stale, "render@gpu", 2)})
	if err == nil || !strings.Contains(err.Error(), says) {
		t.Errorf("put a request for a name of the group: %v, want %q", err, says)
	}
	if err := stale.PutInbox(t.Context(), []store.InboxRow{row(stale, "order", 3)}); err != nil {
		t.Errorf("put a request for another name: %v", err)
	}
	if err := fresh.PutInbox(t.Context(), []store.InboxRow{row(fresh, "render@gpu", 4), row(fresh, "render@none", 5)}); err != nil {
		t.Errorf("put a request of a process that knows the groups: %v", err)
	}
	found, _, err := fresh.LoadInbox(t.Context(), storetest.New(t, fresh).Shards(), model.MaxTime-1, 10, 1<<20)
	if err != nil || len(found) != 3 {
		t.Errorf("%d requests in the inbox, want 3: %v", len(found), err)
	}
}

// A group is refused if the store has rows of names that would belong to it.
func TestAddGroupWhoseNamesExist(t *testing.T) {
	t.Parallel()
	postgres.Sequential(t)
	base := pgtest.URL(t)
	s := openURL(t, base)
	f := storetest.New(t, s)
	node := f.Join(1)
	node.Acquire(f.Shards()...)
	a := f.SubjectOf(model.Address{Tenant: "t", Type: "render@gpu", Key: "k"})
	node.Lanes[0].Write(func(b *store.Batch) { b.Starts = []store.StartRow{a.StartRow()} })
	to := model.Address{Tenant: "t", Type: "entity:film@video", Key: "k"}
	node.Lanes[0].Write(func(b *store.Batch) {
		b.Messages = []store.MessageRow{{To: to.Shard(testShards), From: 0, Seq: 1, Message: model.Message{Kind: model.MessageCancel, To: to}}}
	})
	cut := model.Address{Tenant: "t", Type: "cut@studio", Key: "k"}
	if err := s.PutInbox(t.Context(), []store.InboxRow{{Shard: cut.Shard(testShards), ID: model.RunID{1}, Message: model.Message{Kind: model.MessageCancel, To: cut}}}); err != nil {
		t.Fatal(err)
	}
	if err := s.Unregister(t.Context(), node.ID, node.Epoch); err != nil {
		t.Fatal(err)
	}

	addGroups(t, base, "gpu=4", `the store has rows of "render@gpu"`)
	addGroups(t, base, "video=4", `the store has rows of "entity:film@video"`)
	addGroups(t, base, "studio=4", `the store has rows of "cut@studio"`)
	addGroups(t, base, "pu=4,eu=2", "")
}
