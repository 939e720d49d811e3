package restapi

import (
	"context"
	"net/http"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/authn"
)

// addSeries adds the operation that returns the numbers of the last hour.
func (s *Server) addSeries() {
	add(s, operation{id: "get-series", method: http.MethodGet, path: "/series", tag: "Server", summary: "Count what happened in the last hour, by time"}, s.series)
}

type seriesInput struct {
	Step   string `query:"step" example:"1m" doc:"The time that one point covers: a multiple of 5s that divides 1h; 1m by default"`
	Levels bool   `query:"levels" doc:"Return the state of queues and limits too"`
}

// seriesBody has numbers by time.
type seriesBody struct {
	From    *time.Time         `json:"from" doc:"The beginning of the first point"`
	Step    string             `json:"step"`
	Lines   map[string][]int64 `json:"lines" doc:"Numbers by name, the oldest point first; the last point is the current one"`
	Nodes   []seriesNode       `json:"nodes" doc:"The live nodes that own executions"`
	Partial bool               `json:"partial" doc:"Whether a node has not answered, or has counted for less than the whole time"`
	Queues  map[string]levels  `json:"queues,omitempty" doc:"For each queue with tasks: how many tasks were waiting, delayed and running at the end of each point, and for how many seconds the oldest waiting task had waited"`
	Limits  map[string]levels  `json:"limits,omitempty" doc:"For each limit in use, over all its keys: permits held, tasks waiting and permits that the nodes may hand out, each at the end of a point, and how often the limit refused a task"`
	Cut     bool               `json:"cut,omitempty" doc:"Whether there were more queues or limits than a reply has; it has the 100 of each with the most tasks"`
}

// levels are the numbers of a queue or a limit by name, the oldest point first.
type levels map[string][]int64

// seriesNode is a node that counts.
type seriesNode struct {
	Node     string     `json:"node"`
	Answered bool       `json:"answered"`
	Since    *time.Time `json:"since,omitempty" doc:"When it began to count"`
}

func (s *Server) series(ctx context.Context, who *authn.Identity, in *seriesInput) (*reply[seriesBody], error) {
	step, err := readDuration("step", in.Step)
	if err != nil {
		return nil, err
	}
	got, err := s.config.Backend.Series(ctx, api.SeriesRequest{Tenant: who.Tenant, Step: step, Levels: in.Levels})
	if err != nil {
		return nil, err
	}

	b := seriesBody{From: at(got.From), Step: got.Step.String(), Lines: linesOf(got.Lines), Partial: got.Partial, Cut: got.Cut}
	b.Queues, b.Limits = levelsOf(got.Queues), levelsOf(got.Limits)
	b.Nodes = each(got.Nodes, func(n *api.SeriesNode) seriesNode { return seriesNode{n.Node.String(), n.Answered, at(n.Since)} })
	return ok(b)
}

func linesOf(all []api.SeriesLine) map[string][]int64 {
	lines := make(map[string][]int64, len(all))
	for _, l := range all {
		lines[l.Name] = l.Points
	}
	return lines
}

func levelsOf(all []api.SeriesOf) map[string]levels {
	if len(all) == 0 {
		return nil
	}
	out := make(map[string]levels, len(all))
	for _, s := range all {
		out[s.Name] = linesOf(s.Lines)
	}
	return out
}
