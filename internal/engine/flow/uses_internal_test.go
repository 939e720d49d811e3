package flow

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/core/rule"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/memory"
)

// If a limit has very many keys, the answer of a node names only the keys with the most waiting
// tasks, and adds up the numbers of all other keys. Merging the answers of several nodes loses no
// holder and no waiting task.
func TestUsesOfManyKeys(t *testing.T) {
	t.Parallel()
	const keys, nodes = 3 * maxKeys, 3
	var answers []LimitUse

	held, waiting := 0, 0
	for range nodes {
		var list []LimitUse
		for i := range keys {
			u := LimitUse{Resource: rule.Resource{Name: "customer", Tenant: "t", Key: fmt.Sprintf("k%05d", i)}, Held: 1, Waiting: i % 7}
			if i == 4711%keys {
				u.Waiting = 1000
			}
			held, waiting = held+u.Held, waiting+u.Waiting
			list = append(list, u)
		}
		list = append(list, LimitUse{Resource: rule.Resource{Name: "mail", Tenant: "t"}, Held: 2}, LimitUse{Resource: rule.Resource{Name: "customer", Tenant: "other", Key: "k00001"}, Held: 3})
		answer := mergeUses(list)
		if len(answer) != maxKeys+1+2 {
			t.Fatalf("the answer of a node has %d entries, want %d", len(answer), maxKeys+1+2)
		}
		answers = append(answers, answer...)
	}

	all := mergeUses(answers)
	if len(all) != maxKeys+1+2 {
		t.Fatalf("the merged answer has %d entries, want %d", len(all), maxKeys+1+2)
	}

	most, others := 0, 0
	for _, u := range all {
		switch {
		case u.Resource.Name == "mail":
			if u.Held != 2*nodes || u.Keys != 0 {
				t.Errorf("another limit: %+v", u)
			}
		case u.Resource.Tenant == "other":
			if u.Held != 3*nodes || u.Keys != 0 {
				t.Errorf("another tenant: %+v", u)
			}
		default:
			held, waiting, others = held-u.Held, waiting-u.Waiting, others+u.Keys
			if u.Keys == 0 {
				most = max(most, u.Waiting)
			}
		}
	}

	if held != 0 || waiting != 0 {
		t.Errorf("the merged answer lacks %d holders and %d waiting tasks", held, waiting)
	}
	if most != 1000*nodes || others < keys-maxKeys {
		t.Errorf("the key with the most waiting tasks has %d, want %d; %d keys are not named, want at least %d", most, 1000*nodes, others, keys-maxKeys)
	}
}

// deaf is a shared store whose first writes of settings fail.
type deaf struct {
	shared
	times int
}

func (s *deaf) PutSetting(ctx context.Context, x store.Setting, expected int64) (int64, error) {
	if s.times > 0 {
		s.times--
		return 0, store.Errorf(store.Away, "put setting", "it cannot be reached")
	}
	return s.shared.PutSetting(ctx, x, expected)
}

// A node that cannot store its answer about limits tries again until it can. Otherwise the asking
// node would wait until its time-out and leave this node out.
func TestAnswerThatIsNotStored(t *testing.T) {
	t.Parallel()
	set, err := rule.NewSet(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	st, d, ctx := &deaf{shared: shared{Store: memory.New(memory.Options{})}, times: 1}, newDesk(1, set), t.Context()
	f := New(Config{Store: st, Log: slog.New(slog.DiscardHandler), Node: d, Timeout: time.Minute})
	d.participant = f.NewParticipant(1, d, nil)
	f.asked = 7
	if err := f.flush(ctx); err == nil {
		t.Fatal("the first flush succeeds although the store fails")
	}

	if err := f.flush(ctx); err != nil {
		t.Fatal(err)
	}
	if list, err := st.ListSettings(ctx, "", settingUses); err != nil || len(list) != 1 {
		t.Errorf("%d answers, %v", len(list), err)
	}
	if f.asked != 0 {
		t.Error("the node would answer the question again")
	}
}

// blind is a store whose first read of the settings fails. It counts the reads.
type blind struct {
	shared
	reads int
}

func (s *blind) LoadSettings(ctx context.Context, after int64) (store.SettingChanges, error) {
	if s.reads++; s.reads == 1 {
		return store.SettingChanges{}, store.Errorf(store.Away, "load settings", "it cannot be reached")
	}
	return s.shared.LoadSettings(ctx, after)
}

// Another node says that settings have changed, and the read of the settings fails. The next flush
// reads them.
func TestHintOutlivesAFailedRead(t *testing.T) {
	t.Parallel()
	set, err := rule.NewSet(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	st, d, ctx := &blind{shared: shared{Store: memory.New(memory.Options{})}}, newDesk(1, set), t.Context()
	f := New(Config{Store: st, Log: slog.New(slog.DiscardHandler), Node: d, Timeout: time.Minute})
	d.participant = f.NewParticipant(1, d, nil)
	f.look = true
	if err := f.flush(ctx); err == nil || st.reads != 1 {
		t.Fatalf("the first flush: %v, %d reads", err, st.reads)
	}

	for range 2 {
		if err := f.flush(ctx); err != nil || st.reads != 2 {
			t.Errorf("the next flush: %v, %d reads", err, st.reads)
		}
	}
}

// Answers to an earlier question are out of date. So each question has a higher number than all
// earlier questions, even if the process that asks has not seen the earlier questions.
func TestAQuestionIsNotAnsweredByEarlierAnswers(t *testing.T) {
	t.Parallel()
	st := &shared{Store: memory.New(memory.Options{})}
	last := int64(0)
	for range 3 {
		number, err := Of(st).question(t.Context())
		if err != nil || number <= last {
			t.Fatalf("question %d after question %d, %v", number, last, err)
		}
		last = number
	}
}

// Only StateWithUses asks the nodes about limits. State returns rules, breakers and queues without
// asking, even while a node does not answer.
func TestNobodyIsAskedWithoutNeed(t *testing.T) {
	t.Parallel()
	st := &deaf{shared: shared{Store: memory.New(memory.Options{})}, times: 1}
	if _, err := st.Register(t.Context(), store.NodeInfo{ID: model.NodeID{1}}, 1, time.Minute); err != nil {
		t.Fatal(err)
	}
	if _, err := Of(st).State(t.Context(), "t"); err != nil || st.times != 1 {
		t.Errorf("%v, %d writes are left", err, st.times)
	}
	if _, err := Of(st).StateWithUses(t.Context(), "t"); err == nil || st.times != 0 {
		t.Errorf("%v, %d writes are left", err, st.times)
	}
}
