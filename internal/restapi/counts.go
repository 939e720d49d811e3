package restapi

import (
	"context"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Counted is a number of things.
type Counted struct {
	Count   int64 `json:"count"`
	AtLeast bool  `json:"at_least,omitempty" doc:"Whether the count has stopped at its bound, so that there may be more"`
}

type countInput struct {
	SelectQuery

	Bound int `query:"bound" minimum:"0" maximum:"100000" doc:"Stop counting at this number; 0 counts all executions, which may take long"`
}

func (s *Server) count(ctx context.Context, who *authn.Identity, in *countInput) (*reply[Counted], error) {
	r, err := in.request(who.Tenant)
	if err != nil {
		return nil, err
	}
	if in.Bound > 0 {
		t, err := s.config.Backend.Tally(ctx, api.TallyRequest{ListRequest: r, Bound: in.Bound})
		if err != nil {
			return nil, err
		}
		return ok(Counted{t.Count, t.AtLeast})
	}

	n, err := s.config.Backend.Count(ctx, r)
	if err != nil {
		return nil, err
	}
	return ok(Counted{Count: n})
}

type tallyInput struct {
	SelectQuery

	By    string `query:"by" example:"status,reason" default:"status" doc:"The properties that form the groups: workflow, status and reason, separated by commas"`
	Bound int    `query:"bound" minimum:"1" maximum:"100000" default:"10000" doc:"How many executions are counted at most, the newest first"`
}

// tally is a count in groups that stops at a bound.
type tally struct {
	Counted

	Groups []tallyGroup `json:"groups" doc:"The largest group first, at most 1,000 groups"`
	Others int64        `json:"others,omitempty" doc:"Executions of groups that are not listed"`
}

// tallyGroup counts the executions that have the same properties.
type tallyGroup struct {
	Workflow string `json:"workflow,omitempty"`
	Status   string `json:"status,omitempty"`
	Reason   string `json:"reason,omitempty" doc:"The code of the main reason as far as the store knows it; absent for closed executions"`
	Count    int64  `json:"count"`
}

func (s *Server) tally(ctx context.Context, who *authn.Identity, in *tallyInput) (*reply[tally], error) {
	r, err := in.request(who.Tenant)
	if err != nil {
		return nil, err
	}
	q := api.TallyRequest{ListRequest: r, Bound: in.Bound}
	for word := range words(in.By) {
		switch word {
		case "workflow":
			q.ByWorkflow = true
		case "status":
			q.ByStatus = true
		case "reason":
			q.ByReason = true
		default:
			return nil, fault.New(fault.Invalid, "by has %.40q, must have workflow, status or reason", word)
		}
	}

	t, err := s.config.Backend.Tally(ctx, q)
	if err != nil {
		return nil, err
	}
	return ok(tally{Counted{t.Count, t.AtLeast}, each(t.Groups, tallyGroupOf), t.Others})
}

func tallyGroupOf(g *api.TallyGroup) tallyGroup {
	o := tallyGroup{Workflow: g.Workflow, Reason: string(g.Reason), Count: g.Count}
	if g.Status != model.Status(0) {
		o.Status = g.Status.String()
	}
	return o
}
