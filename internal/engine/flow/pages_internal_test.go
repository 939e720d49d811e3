package flow

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/core/limit"
	"github.com/perdure/perdure/internal/core/rule"
	"github.com/perdure/perdure/internal/engine/ledger"
	"github.com/perdure/perdure/internal/engine/queue"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/memory"
)

// desk is a node with a board. It has only what the tests of pages need.
type desk struct {
	keeper      *BoardGate
	tasks       *queue.Board
	participant *Participant
}

const deskTime = model.Time(100)

func newDesk(place limit.Place, rules *rule.Set) *desk {
	d := &desk{keeper: NewBoardGate(ledger.New(place), func(queue.WorkerID, model.ClaimRef) (bool, *model.TaskReport) { return false, nil })}
	d.tasks = queue.New(queue.Config{Gate: d.keeper})
	d.keeper.SetRules(deskTime, rules, d.tasks)
	return d
}

func (d *desk) Now() model.Time                                             { return deskTime }
func (d *desk) Beside(func(context.Context)) bool                           { return false }
func (d *desk) Await(_ context.Context, ready <-chan struct{}) bool         { <-ready; return true }
func (d *desk) Pause(context.Context, time.Duration) bool                   { return false }
func (d *desk) Hint()                                                       {}
func (d *desk) Participant() *Participant                                   { return d.participant }
func (*desk) Announce([]model.Change)                                       {}
func (d *desk) Works() bool                                                 { return true }
func (d *desk) Look(do func(*BoardGate, *queue.Board))                      { do(d.keeper, d.tasks) }
func (d *desk) Propose()                                                    {}
func (d *desk) Reconsider()                                                 {}
func (d *desk) Configure(model.Time, Settings)                              {}
func (d *desk) Change(_ model.Time, do func(*BoardGate, *queue.Board) bool) { do(d.keeper, d.tasks) }
func (d *desk) Retain(map[string]time.Duration)                             {}

// shared is a store that nodes share. It calls before once, before the next page is written.
type shared struct {
	*memory.Store
	before func()
}

func (s *shared) Info() store.Info {
	i := s.Store.Info()
	i.Shared = true
	return i
}

func (s *shared) PutSetting(ctx context.Context, x store.Setting, expected int64) (int64, error) {
	if do := s.before; do != nil {
		s.before = nil
		do()
	}
	return s.Store.PutSetting(ctx, x, expected)
}

// If the life of a node ends while the node writes pages, the node writes no further page. Its book
// has not seen what other nodes have written since, and would overwrite their changes.
func TestPagesOfALifeThatEnds(t *testing.T) {
	t.Parallel()
	var limits []rule.Limit
	for i := range 8 { // the limits are on several pages
		limits = append(limits, rule.Limit{Name: fmt.Sprint("limit", i), Per: rule.PerName, Numbers: limit.Numbers{Concurrency: 1}})
	}
	set, err := rule.NewSet(limits, nil)
	if err != nil {
		t.Fatal(err)
	}

	ask := func(d *desk) []int {
		for i := range limits {
			ref := model.TaskRef{Address: model.Address{Tenant: model.DefaultTenant, Type: "task:work", Key: fmt.Sprint(i)}, ID: model.TaskStep}
			d.keeper.Take(deskTime, &queue.Item{Ref: ref, Spec: &model.TaskSpec{Kind: "work", Queue: "q", Limits: []string{limits[i].Name}}})
		}
		d.keeper.Book.Post()
		return d.keeper.Book.DuePages(deskTime)
	}

	st := &shared{Store: memory.New(memory.Options{})}
	mine, other := newDesk(1, set), newDesk(2, set)
	f := New(Config{Store: st, Log: slog.New(slog.DiscardHandler), Node: mine, Timeout: time.Minute})
	old, next := f.NewParticipant(1, mine, nil), f.NewParticipant(3, newDesk(3, set), nil)
	mine.participant = old
	if err := f.Load(t.Context(), 1<<62); err != nil {
		t.Fatal(err)
	}

	if due := ask(mine); len(due) < 3 {
		t.Fatalf("pages %v are due", due)
	}
	theirs := map[store.SettingKey][]byte{}

	st.before = func() { // another node takes all permits, and this life ends
		for _, n := range ask(other) {
			body, needed, err := other.keeper.Book.Compose(deskTime, n)
			if err != nil || !needed {
				t.Fatal(needed, err)
			}
			if _, err := st.Store.PutSetting(t.Context(), store.Setting{SettingKey: pageKey(n), Body: body}, 0); err != nil {
				t.Fatal(err)
			}
			theirs[pageKey(n)] = body
		}
		mine.participant = next
	}

	if err := f.writePages(t.Context()); err != nil {
		t.Fatal(err)
	}
	stored, err := st.ListSettings(t.Context(), "", settingPage)
	if err != nil || len(stored) != len(theirs) {
		t.Fatalf("%d pages of %d, %v", len(stored), len(theirs), err)
	}

	for _, s := range stored {
		if !slices.Equal(s.Body, theirs[s.SettingKey]) {
			t.Errorf("page %s is not what the other node has written", s.Name)
		}
	}
}
