package restapi

import (
	"context"
	"net/http"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/history"
)

// addRelations adds the operation that returns the relations of an execution.
func (s *Server) addRelations() {
	add(s, operation{id: "get-relations", method: http.MethodGet, path: "/executions/{workflow}/{key}/relations", tag: executionsTag, summary: "Read the parent, the children, the runs and the forks of an execution"}, s.relations)
}

type relationsInput struct {
	TargetPath

	After int64 `query:"after" minimum:"-1" default:"-1" doc:"Only children after this position of the history"`
	Forks bool  `query:"forks" doc:"Also search for forks, among the newest 5,000 executions of the workflow that started later"`
}

// relations are the runs and executions that a run is related to.
type relations struct {
	Run           string         `json:"run"`
	Parent        *relatedParent `json:"parent,omitempty" doc:"The execution that has started it; absent if a client has"`
	BeganWith     *past          `json:"began_with,omitempty" doc:"Where its first events come from, if it is a fork, a retry, a reset or an import"`
	Runs          []relatedRun   `json:"runs" doc:"The runs of its key, the newest first; at most 100"`
	MoreRuns      bool           `json:"more_runs"`
	Children      []relatedChild `json:"children" doc:"The executions that its code has started, in order; at most 1,000"`
	MoreChildren  bool           `json:"more_children" doc:"Whether there may be more children; ask for them with after"`
	After         int64          `json:"after" doc:"The position to ask for more children with"`
	Forks         []relatedFork  `json:"forks,omitempty" doc:"Executions that began with its past, the newest first"`
	ForksComplete bool           `json:"forks_complete" doc:"Whether all executions that could be a fork were searched"`
}

type relatedParent struct {
	Workflow string `json:"workflow"`
	Key      string `json:"key"`
	Run      string `json:"run"`
	Step     string `json:"step,omitempty"`
}

// relatedRun is a run of the same key.
type relatedRun struct {
	Run       string     `json:"run"`
	Status    string     `json:"status"`
	Current   bool       `json:"current"`
	Started   *time.Time `json:"started"`
	Ended     *time.Time `json:"ended,omitempty"`
	Previous  string     `json:"previous,omitempty" doc:"The run that it continues"`
	Next      string     `json:"next,omitempty" doc:"The run that it continues as"`
	Replaced  string     `json:"replaced,omitempty" doc:"The closed run whose key it took"`
	BeganWith *past      `json:"began_with,omitempty"`
}

// relatedChild is an execution that the run has started.
type relatedChild struct {
	Position int64      `json:"position" doc:"The position of the event that started it"`
	Step     string     `json:"step"`
	Workflow string     `json:"workflow"`
	Key      string     `json:"key"`
	Started  *time.Time `json:"started"`
	Status   string     `json:"status,omitempty" doc:"How it ended; absent if the run does not know yet that it has ended"`
	Ended    *time.Time `json:"ended,omitempty"`
	Failure  *failure   `json:"failure,omitempty"`
}

// relatedFork is an execution that began with the past of another execution.
type relatedFork struct {
	Workflow  string `json:"workflow"`
	Key       string `json:"key"`
	Run       string `json:"run"`
	Status    string `json:"status"`
	BeganWith *past  `json:"began_with"`
}

func (s *Server) relations(ctx context.Context, who *authn.Identity, in *relationsInput) (*reply[relations], error) {
	t, err := in.target(who)
	if err != nil {
		return nil, err
	}
	got, err := history.ReadRelations(ctx, s.config.Backend, history.RelationsRequest{Target: t, After: in.After, Forks: in.Forks})
	if err != nil {
		return nil, err
	}
	return ok(relationsOf(got, in.Forks))
}

func relationsOf(r *history.Relations, forks bool) relations {
	start := &r.Run.Start
	o := relations{
		Run: start.Run.String(), BeganWith: pastOf(&r.Run), Runs: each(r.Runs, relatedRunOf), MoreRuns: r.MoreRuns, Children: each(r.Children, relatedChildOf),
		MoreChildren: r.MoreChildren, After: r.LastChild, ForksComplete: forks && !r.PartForks,
	}
	if p := &start.Parent; !p.Address.IsZero() {
		o.Parent = &relatedParent{p.Address.Type, p.Address.Key, p.Run.String(), p.ID}
	}
	if forks {
		o.Forks = each(r.Forks, func(d *api.Description) relatedFork {
			return relatedFork{d.Start.Address.Type, d.Start.Address.Key, d.Start.Run.String(), d.Outcome.Status.String(), pastOf(d)}
		})
	}
	return o
}

func relatedRunOf(d *api.Description) relatedRun {
	o := relatedRun{Run: d.Start.Run.String(), Status: d.Outcome.Status.String(), Current: d.Current, Started: at(d.Start.At), Ended: at(d.Outcome.At), BeganWith: pastOf(d)}
	if !d.Start.Previous.IsZero() {
		o.Previous = d.Start.Previous.String()
	}
	if !d.Outcome.Next.IsZero() {
		o.Next = d.Outcome.Next.String()
	}
	if !d.Start.Replaced.IsZero() {
		o.Replaced = d.Start.Replaced.String()
	}
	return o
}

func relatedChildOf(c *history.Child) relatedChild {
	o := relatedChild{
		Position: c.Position, Step: c.Step, Workflow: c.Address.Type, Key: c.Address.Key, Started: at(c.At), Ended: at(c.Ended), Failure: failureOf(c.Failure),
	}
	if c.Status != 0 {
		o.Status = c.Status.String()
	}
	return o
}

// pastOf returns where the first events of a run come from. It returns nil if the run has no past.
func pastOf(d *api.Description) *past {
	from := &d.Start.Source
	if from.IsZero() {
		return nil
	}
	return &past{from.Address.Type, from.Address.Key, from.Run.String(), from.Position}
}
