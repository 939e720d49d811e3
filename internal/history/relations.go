package history

import (
	"context"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
)

// Bounds of relations.
const (
	// mostRelationEvents is how many events of a history are searched for children.
	mostRelationEvents = 100_000
	// mostChildren is how many children one answer has.
	mostChildren = 1000
	// mostRuns is how many runs of the execution one answer has.
	mostRuns = 100
	// mostForkSources is how many executions are searched for forks.
	mostForkSources = 5000
)

// Relations are the runs and executions that are related to a run.
type Relations struct {
	// Run describes the run itself: its parent, the runs before it, and where its past comes from.
	Run api.Description
	// Runs are the runs of the same key, the newest first. MoreRuns says that there are others.
	Runs     []api.Description
	MoreRuns bool
	// Children are the executions that the code of the run has started, in order. If MoreChildren
	// is set, there may be others after the position LastChild.
	Children     []Child
	MoreChildren bool
	LastChild    int64
	// Forks are executions of the same workflow that began with the past of the execution, the
	// newest first. PartForks says that there are more executions that could be forks, which the
	// search has not looked at.
	Forks     []api.Description
	PartForks bool
}

// Child is an execution that the code of a run has started.
type Child struct {
	// Position is the position of the event that started it, and Step is the id of the step.
	Position int64
	Step     string
	Address  model.Address
	At       model.Time
	// Status is how the child ended. It is 0 if the part of the history that was read does not have
	// the end of the child. The history never has the end of a child that the run has abandoned.
	Status  model.Status
	Failure *model.Failure
	Ended   model.Time
}

// RelationsRequest says which relations to read.
type RelationsRequest struct {
	Target api.Target
	// After leaves out children up to a position; -1 for none.
	After int64
	// Forks says that the search includes forks. There is no index of forks, so this reads many
	// executions.
	Forks bool
}

// ReadRelations reads the relations of a run.
func ReadRelations(ctx context.Context, b api.Client, r RelationsRequest) (*Relations, error) {
	d, err := b.Describe(ctx, r.Target)
	if err != nil {
		return nil, err
	}
	all := &Relations{Run: d, LastChild: r.After}
	own := d.Start.Address
	runs, err := b.List(ctx, api.ListRequest{Tenant: own.Tenant, Workflows: []string{own.Type}, Key: own.Key, AllRuns: true, Limit: mostRuns})
	if err != nil {
		return nil, err
	}
	all.Runs, all.MoreRuns = runs.Executions, runs.Cursor != ""

	if err := all.readChildren(ctx, b, r.After); err != nil {
		return nil, err
	}
	if r.Forks {
		err = all.findForks(ctx, b)
	}
	return all, err
}

// readChildren reads the history for children and their ends.
func (r *Relations) readChildren(ctx context.Context, b api.Client, after int64) error {
	t := api.Target{Address: r.Run.Start.Address, Run: r.Run.Start.Run}
	walk, err := Walk(ctx, b, t, Window{After: after, Limit: mostRelationEvents})
	if err != nil {
		return err
	}

	byStep := map[string]int{}
	err = walk.Each(ctx, func(e *model.Event) error {
		switch i, known := byStep[e.ID]; {
		case e.Kind == model.EventChildStarted && len(r.Children) == mostChildren:
			r.MoreChildren = true
		case e.Kind == model.EventChildStarted:
			byStep[e.ID], r.LastChild = len(r.Children), e.Seq
			r.Children = append(r.Children, Child{Position: e.Seq, Step: e.ID, Address: e.Target, At: e.At})
		case e.Kind == model.EventChildClosed && known:
			c := &r.Children[i]
			c.Status, c.Failure, c.Ended = e.Status, e.Failure, e.At
		}
		return nil
	})
	// The next search begins where this one ended.
	if walk.to < walk.Total && !r.MoreChildren {
		r.MoreChildren, r.LastChild = true, walk.to-1
	}
	return err
}

// findForks searches executions of the same workflow that started later.
func (r *Relations) findForks(ctx context.Context, b api.Client) error {
	own, from := r.Run.Start.Address, r.Run.Start.At
	for i := range r.Runs {
		from = min(from, r.Runs[i].Start.At)
	}
	q := api.ListRequest{Tenant: own.Tenant, Workflows: []string{own.Type}, StartedFrom: from, AllRuns: true, Limit: 1000}
	for seen := 0; ; {
		page, err := b.List(ctx, q)
		if err != nil {
			return err
		}
		for i := range page.Executions {
			if s := &page.Executions[i].Start; s.Source.Address == own && s.Address != own {
				r.Forks = append(r.Forks, page.Executions[i])
			}
		}
		if q.Cursor = page.Cursor; q.Cursor == "" {
			r.PartForks = r.MoreRuns
			return nil
		}
		if seen += len(page.Executions); seen >= mostForkSources {
			r.PartForks = true
			return nil
		}
	}
}
