package flow

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/core/limit"
	"github.com/perdure/perdure/internal/engine/ledger"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/memory"
)

// A node removes its statement about claims of dead nodes. At the same time a later version of the
// statement arrives. The node wrote that version itself, and the answer of the store was lost.
// After that, the node must be able to make a statement again. Otherwise the permits of dead nodes
// would never become free.
func TestForgetWhatHasChanged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st, ctx := &shared{Store: memory.New(memory.Options{})}, t.Context()
		f := New(Config{Store: st, Log: slog.New(slog.DiscardHandler), Timeout: time.Minute})
		said := store.Setting{SettingKey: foundKey(1), Body: []byte("{}")}
		if landed, err := f.put(ctx, said); err != nil || !landed {
			t.Fatal(landed, err)
		}
		leave, err := f.enter(ctx)
		if err != nil {
			t.Fatal(err)
		}

		forgot := make(chan error, 1)
		go func() { forgot <- f.forgetFound(ctx, 1, nil) }()
		synctest.Wait() // until the goroutine waits for the turn
		if _, err := st.PutSetting(ctx, said, f.all[said.SettingKey].Version); err != nil {
			t.Fatal(err)
		}
		if err := f.refresh(ctx); err != nil {
			t.Fatal(err)
		}

		leave()
		if err := <-forgot; err != nil {
			t.Fatal(err)
		}

		landed := false
		for range maxTries {
			if landed, err = f.put(ctx, said); landed || err != nil {
				break
			}
		}

		if !landed {
			t.Errorf("it cannot be said again: %v", err)
		}
	})
}

// quiet is a life that knows its only shard.
type quiet struct{}

func (quiet) KnownShards(context.Context) ([]model.ShardID, bool, error) {
	return []model.ShardID{0}, true, nil
}
func (quiet) LookAround() {}

// heralded is a store that announces when a node says that it has counted the claims of dead nodes.
type heralded struct {
	shared
	said func()
}

func (s *heralded) PutSetting(ctx context.Context, x store.Setting, expected int64) (int64, error) {
	if x.Kind == settingFound {
		s.said()
	}
	return s.shared.PutSetting(ctx, x, expected)
}

// A node says that it has counted the claims of dead nodes only when a stored page has the count.
// If it said so earlier, other nodes would take the permits of these claims.
func TestCountedBeforeItIsSaid(t *testing.T) {
	t.Parallel()
	set, ctx := oneAtATime(t), t.Context()
	d, other := newDesk(1, set), newDesk(3, set)
	st := &heralded{shared: shared{Store: memory.New(memory.Options{})}}
	f := New(Config{Store: st, Log: slog.New(slog.DiscardHandler), Node: d, Timeout: time.Minute})
	d.participant = f.NewParticipant(1, d, quiet{})
	if err := f.Load(ctx, 1<<62); err != nil {
		t.Fatal(err)
	}

	d.keeper.Hold(deskTime, limitedItem("of the dead"), "")
	d.keeper.Book.Post()
	due := d.keeper.Book.DuePages(deskTime)
	if len(due) != 1 {
		t.Fatalf("pages %v are due", due)
	}

	st.before = func() { // another node writes first
		other.keeper.Take(deskTime, limitedItem("other"))
		other.keeper.Book.Post()
		body, needed, err := other.keeper.Book.Compose(deskTime, due[0])
		if err != nil || !needed {
			t.Fatal(needed, err)
		}
		if _, err := st.Store.PutSetting(ctx, store.Setting{SettingKey: pageKey(due[0]), Body: body}, 0); err != nil {
			t.Fatal(err)
		}
	}

	said := 0
	st.said = func() {
		said++
		pages, err := st.ListSettings(ctx, "", settingPage)
		if err != nil || len(pages) != 1 {
			t.Fatal(len(pages), err)
		}
		entries, _, err := ledger.Read(pages[0].Body)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(entries, func(e ledger.LimitEntry) bool {
			return slices.ContainsFunc(e.Leases, func(l limit.Lease) bool { return l.Place == 1 && l.Permits+l.Over == 1 })
		}) {
			t.Errorf("it is said that the claim is counted, and the page is %+v", entries)
		}
	}

	if err := d.participant.search(ctx, nil, []limit.Place{2}, 1); err != nil || said != 1 {
		t.Errorf("said %d times, %v", said, err)
	}
}

// busy is a desk that runs the work that the Flow starts, when the test asks for it.
type busy struct {
	*desk
	work []func(context.Context)
}

func (b *busy) Beside(do func(context.Context)) bool {
	b.work = append(b.work, do)
	return true
}

func (b *busy) do(ctx context.Context) {
	for len(b.work) > 0 {
		next := b.work[0]
		b.work = b.work[1:]
		next(ctx)
	}
}

// A node registers while another node renews its lease, and stores a setting. The view of the
// renewal does not list the new node, but the other node does not remove the setting. It removes
// the settings of a dead node.
func TestSettingsOfANewNodeStay(t *testing.T) {
	t.Parallel()
	set, ctx := oneAtATime(t), t.Context()
	d, st := &busy{desk: newDesk(1, set)}, &shared{Store: memory.New(memory.Options{})}
	f := New(Config{Store: st, Log: slog.New(slog.DiscardHandler), Node: d, Timeout: time.Minute})
	d.participant = f.NewParticipant(1, d, quiet{})
	say := func(place limit.Place) {
		t.Helper()
		s := store.Setting{SettingKey: foundKey(place), Body: []byte("{}")}
		s.Kind = settingUses
		if _, err := st.PutSetting(ctx, s, 0); err != nil {
			t.Fatal(err)
		}
		if err := f.Load(ctx, 1<<62); err != nil {
			t.Fatal(err)
		}
	}
	renew := func(alive ...int64) (left []string) {
		t.Helper()
		v := &store.View{}
		for _, epoch := range alive {
			v.Members = append(v.Members, store.Member{NodeInfo: store.NodeInfo{ID: model.NodeID{byte(epoch)}}, Epoch: epoch})
		}
		d.participant.UpdateMembers(v, 1)
		d.do(ctx)
		all, err := st.ListSettings(ctx, "", settingUses)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range all {
			left = append(left, s.Name)
		}
		return left
	}

	say(2)
	say(3)
	if left := renew(1, 2); !slices.Equal(left, []string{"2", "3"}) {
		t.Errorf("the settings of places %v are left, although place 3 may be new", left)
	}
	if left := renew(1, 3); !slices.Equal(left, []string{"3"}) {
		t.Errorf("the settings of places %v are left, and only place 3 is alive", left)
	}
	if left := renew(1); len(left) > 0 {
		t.Errorf("the settings of places %v are left after their nodes have died", left)
	}
}
