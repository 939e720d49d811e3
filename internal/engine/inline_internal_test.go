package engine

import (
	"slices"
	"testing"

	"github.com/perdure/perdure/internal/core/limit"
	"github.com/perdure/perdure/internal/core/rule"
	"github.com/perdure/perdure/internal/engine/flow"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store/memory"
)

// New settings open all groups of the board, until it has tried to start their attempts. Even at
// that moment, an attempt that waits says what it waits for.
func TestReasonOfAnAttemptWithNewSettings(t *testing.T) {
	t.Parallel()
	eng := New(Config{Store: memory.New(memory.Options{})})
	inc := &incarnation{eng: eng}
	inc.board = newBoard(inc)
	eng.inc.Store(inc)
	settings := func() flow.Settings {
		set, err := rule.NewSet([]rule.Limit{{Name: "one", Per: rule.PerName, Numbers: limit.Numbers{Concurrency: 1}}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return flow.Settings{Rules: set}
	}

	s := &Session{eng: eng}
	b := inc.board
	b.Configure(1, settings())
	spec := &model.TaskSpec{Kind: "work", Limits: []string{"one"}}
	begun := 0
	for _, id := range []string{"first", "second"} {
		s.Pass(model.TaskRef{Address: model.Address{Tenant: "t"}, ID: id}, spec, nil, func() { begun++ })
	}
	second := model.TaskRef{Address: model.Address{Tenant: "t"}, ID: "second"}
	b.mu.Lock()
	b.reconfigure(2, settings())
	b.mu.Unlock()

	if why, ok := s.HeldBackBy(second); begun != 1 || !ok || why.Code != model.WaitPermit || why.Name != "t:one" {
		t.Errorf("%d attempts have begun, and the second one waits for %v, %v; want one, and the limit", begun, why, ok)
	}
}

// Two workers that have had a run may give attempts the same name. Each attempt holds its permits
// until its own end, and waits for them until its own start.
func TestAttemptsOfTwoWorkersWithOneName(t *testing.T) {
	t.Parallel()
	eng := New(Config{Store: memory.New(memory.Options{})})
	inc := &incarnation{eng: eng}
	inc.board = newBoard(inc)
	eng.inc.Store(inc)
	set, err := rule.NewSet([]rule.Limit{{Name: "one", Per: rule.PerName, Numbers: limit.Numbers{Concurrency: 1}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	inc.board.Configure(1, flow.Settings{Rules: set})

	before, after := &Session{eng: eng, id: 1}, &Session{eng: eng, id: 2}
	spec := &model.TaskSpec{Kind: "work", Limits: []string{"one"}}
	step := model.TaskRef{Address: model.Address{Tenant: "t", Type: "flow", Key: "k"}, ID: "0|step|pay" + model.AttemptMark + "1"}
	other := model.TaskRef{Address: step.Address, ID: "0|step|other" + model.AttemptMark + "1"}
	var begun []string
	pass := func(s *Session, ref model.TaskRef, name string) {
		s.Pass(ref, spec, nil, func() { begun = append(begun, name) })
	}
	check := func(when string, want ...string) {
		t.Helper()
		if !slices.Equal(begun, want) {
			t.Errorf("%s: %q have begun, want %q", when, begun, want)
		}
	}

	pass(before, step, "before")
	pass(after, step, "after") // the body of the first worker has not ended
	check("with two workers", "before")
	if why, ok := after.HeldBackBy(step); !ok || why.Detail != "all 1 are held, by t/flow/k, step 0|step|pay" {
		t.Errorf("the second worker waits for %+v, %v", why, ok)
	}
	pass(after, other, "other")
	before.EndPass(step, spec, model.PassageNeither, 0)
	check("when the first body has ended", "before", "after")
	before.EndPass(step, spec, model.PassageNeither, 0)
	check("when the first worker has ended again", "before", "after")
	after.EndPass(step, spec, model.PassageSucceeded, 0)
	check("when the second body has ended", "before", "after", "other")
}
