package core_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// applied is the result of changes in a store.
type applied struct {
	states map[string]string
	lines  []string
	items  map[int64]string
	times  []model.Time
}

func (a *applied) add(c *core.TaskChange) {
	for _, s := range c.States {
		if s.Removed {
			delete(a.states, s.Name)
		} else {
			a.states[s.Name] = string(s.Value.Data)
		}
	}

	for _, l := range c.Lines {
		a.lines = append(a.lines, l.Text)
		a.times = append(a.times, l.At)
	}

	for _, it := range c.Items {
		a.items[it.Position] = string(it.Value.Data)
	}
	for _, p := range c.Dropped {
		delete(a.items, p)
	}
}

// Claims write items one after the other. They repeat writes, unchanged or with further items, late
// or early, mixed with writes of claims that are over. The store has each item once, in order.
func TestWritesAreAppliedOnce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var w core.Written
		got := applied{states: map[string]string{}, items: map[int64]string{}}
		want := applied{states: map[string]string{}, items: map[int64]string{}}
		now := model.Time(1000)

		position := int64(0)
		for claim := int64(1); claim <= int64(rapid.IntRange(1, 3).Draw(t, "claims")); claim++ {
			ref := model.ClaimRef{TaskRef: model.TaskRef{ID: "a"}, Claim: claim}
			var items []model.TaskItem
			for i := range rapid.IntRange(0, 12).Draw(t, "items") {
				it := model.TaskItem{
					Kind: model.ItemKind(rapid.IntRange(1, 8).Draw(t, "kind")), Name: rapid.SampledFrom([]string{"x", "y"}).Draw(t, "name"),
					Value: model.Payload{Data: []byte(fmt.Sprint(claim, ".", i))}, Text: fmt.Sprint(claim, ".", i), At: model.Time(rapid.Int64Range(0, 3000).Draw(t, "at")),
				}

				items = append(items, it)
				switch it.Kind { //nolint:exhaustive // the rest is streamed
				case model.ItemSet:
					want.states[it.Name] = it.Text
				case model.ItemRemove:
					delete(want.states, it.Name)
				case model.ItemClear:
					clear(want.states)
				case model.ItemLog:
					want.lines = append(want.lines, it.Text)
				default:
					position++
					want.items[position] = it.Text
				}
			}

			told := 0 // how many items have surely been written
			for told < len(items) {
				now += model.Time(rapid.Int64Range(0, 100).Draw(t, "later"))
				from := rapid.IntRange(0, told).Draw(t, "from")
				to := rapid.IntRange(from, len(items)).Draw(t, "to")

				if claim > 1 && told > 0 && rapid.Bool().Draw(t, "stale") {
					old := model.TaskWrite{Ref: ref, First: 1, Items: []model.TaskItem{{Kind: model.ItemLog, Text: "stale"}}}
					old.Ref.Claim--
					if _, news, err := w.Write(&old, now); news || !fault.Is(err, fault.NotOwned) {
						t.Fatalf("a claim that is over writes: %v, %v", news, err)
					}
				}

				c, news, err := w.Write(&model.TaskWrite{Ref: ref, First: int64(from) + 1, Items: items[from:to]}, now)
				if err != nil || news != (to > told) {
					t.Fatalf("items %d to %d of %d: news %v, %v", from, to, told, news, err)
				}
				got.add(&c)
				told = max(told, to)
			}
		}

		if fmt.Sprint(got.states, got.lines, got.items) != fmt.Sprint(want.states, want.lines, want.items) {
			t.Fatalf("stored is %v %v %v, want %v %v %v", got.states, got.lines, got.items, want.states, want.lines, want.items)
		}
		if !slices.IsSorted(got.times) || len(got.times) > 0 && got.times[len(got.times)-1] > now {
			t.Fatalf("times are %v at %v", got.times, now)
		}
		size := 0
		for name, v := range want.states {
			size += len(name) + model.Payload{Data: []byte(v)}.Size()
		}
		if w.Bytes != size || len(w.Sizes) != len(want.states) || w.Lines != int64(len(want.lines)) || w.Items != position {
			t.Fatalf("counted is %+v", w)
		}
	})
}

// If a write exceeds a bound, the core refuses the whole write, and nothing changes.
func TestWritesAreBounded(t *testing.T) {
	t.Parallel()
	ref := model.ClaimRef{Claim: 1}
	set := func(name string, n int) model.TaskItem {
		return model.TaskItem{Kind: model.ItemSet, Name: name, Value: model.Payload{Data: make([]byte, n)}}
	}
	many := make([]model.TaskItem, model.MaxTaskStates+1)
	for i := range many {
		many[i] = set(fmt.Sprint("s", i), 1)
	}

	for name, c := range map[string]struct {
		w     core.Written
		items []model.TaskItem
		text  string
	}{
		"states": {core.Written{}, many, "256 states"},
		"bytes":  {core.Written{}, []model.TaskItem{{Kind: model.ItemLog}, set("a", 1<<19), set("b", 1<<19)}, "1048576"},
		"lines":  {core.Written{Claim: 1, Lines: model.MaxLogLines - 1}, []model.TaskItem{{Kind: model.ItemLog}, {Kind: model.ItemLog}}, "10000 lines"},
	} {
		w := c.w
		change, news, err := w.Write(&model.TaskWrite{Ref: ref, Items: c.items}, 1)
		if news || !fault.Is(err, fault.Exhausted) || !strings.Contains(err.Error(), c.text) || fmt.Sprint(w) != fmt.Sprint(c.w) || len(change.States)+len(change.Lines) > 0 {
			t.Errorf("%s: %v, %v, %+v, %+v", name, news, err, change, w)
		}
		if _, news, err := w.Write(&model.TaskWrite{Ref: ref, Items: c.items[:1]}, 1); !news || err != nil {
			t.Errorf("%s: less of it is refused: %v", name, err)
		}
	}
}
