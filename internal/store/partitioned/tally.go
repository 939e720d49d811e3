package partitioned

import (
	"cmp"
	"context"
	"time"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// Tally counts the matching executions in groups, the newest q.Limit of all parts.
//
// The tallies of the parts do not say how old their executions are. If they have more than q.Limit
// together, Tally looks for a time since which nearly q.Limit executions have started, with further
// tallies. Then it reads only the few executions before that time that are still missing.
func (s *Store) Tally(ctx context.Context, q store.Query, by store.TallyBy) ([]store.TallyGroup, error) {
	all, err := s.tallySince(ctx, q, by, q.StartedFrom)
	if err != nil || all.total <= int64(q.Limit) {
		return all.Groups, err
	}
	found, err := s.tallyNewest(ctx, q, by)
	if err != nil {
		return nil, err
	}
	err = s.addOlder(ctx, q, found)
	return found.Groups, err
}

// tallied is a tally of the executions that have started at a time or later.
type tallied struct {
	store.Tally
	from  model.Time
	total int64
}

// tallySince adds the tallies of all parts.
func (s *Store) tallySince(ctx context.Context, q store.Query, by store.TallyBy, from model.Time) (*tallied, error) {
	t := &tallied{Tally: store.Tally{By: by}, from: from}
	q.StartedFrom = from
	err := s.everywhere(ctx, func(p *part) error {
		groups, err := p.Tally(ctx, q, by)
		for _, g := range groups {
			t.Add(g, g.Count)
			t.total += g.Count
		}
		return err
	})
	if err != nil {
		return &tallied{}, err
	}
	return t, nil
}

// fewExecutions is how many executions Tally reads, at most, unless more of them have started in
// the same microsecond. These are whole executions, with their inputs.
const fewExecutions = 100

// tallyNewest returns a tally of the newest executions, at most q.Limit. The caller knows that the
// parts have more than that. The tally may have fewer executions than q.Limit, by up to
// fewExecutions. If many executions have started in the same microsecond, even more may be missing,
// because the tally has all of them or none.
func (s *Store) tallyNewest(ctx context.Context, q store.Query, by store.TallyBy) (*tallied, error) {
	first := q
	first.Limit, first.After = 1, store.PageMark{}
	newest, err := s.List(ctx, first)
	if err != nil {
		return nil, err
	}

	// Too many executions have started since low. The result has the executions that have started
	// since high.
	low, high := q.StartedFrom, &tallied{Tally: store.Tally{By: by}, from: cmp.Or(q.StartedTo, model.MaxTime)}
	if len(newest.Executions) > 0 {
		high.from = newest.Executions[0].Start.At + 1
	}

	// First look back in larger and larger steps, then divide the last step.
	step, growing := model.Time(time.Second.Microseconds()), true
	for high.from-low > 1 && int64(q.Limit)-high.total > fewExecutions {
		middle := low + (high.from-low)/2
		if growing && high.from-step > middle {
			middle = high.from - step
		}
		step = min(16*step, model.MaxTime)

		t, err := s.tallySince(ctx, q, by, middle)
		switch {
		case err != nil:
			return nil, err
		case t.total <= int64(q.Limit):
			high = t
		default:
			low, growing = middle, false
		}
	}
	return high, nil
}

// addOlder adds the newest executions from before the time of a tally, until it has q.Limit.
func (s *Store) addOlder(ctx context.Context, q store.Query, t *tallied) error {
	left := q.Limit - int(t.total)
	q.After, q.StartedTo = store.PageMark{}, t.from
	for left > 0 {
		q.Limit = min(left, fewExecutions)
		found, err := s.List(ctx, q)
		if err != nil {
			return err
		}
		for i := range found.Executions {
			x := &found.Executions[i]
			t.Add(store.TallyGroup{Workflow: x.Start.Address.Type, Status: x.Outcome.Status, Reason: x.Reason()}, 1)
			q.After = store.PageMark{Started: x.Start.At, Run: x.Start.Run}
		}
		if left -= len(found.Executions); !found.More || len(found.Executions) == 0 {
			break
		}
	}
	return nil
}
