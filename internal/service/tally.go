package service

import (
	"cmp"
	"context"
	"slices"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/store"
)

// Tally counts executions, the newest first, and stops at a bound.
func (s *Service) Tally(ctx context.Context, r api.TallyRequest) (api.Tally, error) {
	bound := cmp.Or(r.Bound, api.DefaultTally)
	if bound < 0 || bound > api.MaxTally {
		return api.Tally{}, fault.New(fault.Invalid, "tally: the bound is %d, must be between 1 and %d", r.Bound, api.MaxTally)
	}
	r.Cursor = ""
	q, err := s.query(r.ListRequest)
	if err != nil {
		return api.Tally{}, err
	}

	q.Limit = bound
	by := store.TallyBy{Workflow: r.ByWorkflow, Status: r.ByStatus, Reason: r.ByReason}
	groups, err := s.store.Tally(ctx, q, by)
	if err != nil {
		return api.Tally{}, err
	}
	return tallyOf(groups, by, bound), nil
}

// tallyOf returns the counts of a store, the largest groups first.
func tallyOf(groups []store.TallyGroup, by store.TallyBy, bound int) (t api.Tally) {
	slices.SortFunc(groups, func(a, b store.TallyGroup) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Workflow, b.Workflow), cmp.Compare(a.Status, b.Status), cmp.Compare(a.Reason, b.Reason))
	})
	for i, g := range groups {
		t.Count += g.Count
		switch {
		case by == store.TallyBy{}:
		case i >= api.MaxGroups:
			t.Others += g.Count
		default:
			t.Groups = append(t.Groups, api.TallyGroup(g))
		}
	}
	t.AtLeast = t.Count >= int64(bound)
	return t
}
