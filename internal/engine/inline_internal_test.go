package engine

import (
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
