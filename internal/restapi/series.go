package restapi

import (
	"context"
	"net/http"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/authn"
)

// addSeries adds the numbers of the last hour.
func (s *Server) addSeries() {
	add(s, operation{id: "get-series", method: http.MethodGet, path: "/series", tag: "Server", summary: "Count what happened in the last hour, by time"}, s.series)
}

type seriesInput struct {
	Step string `query:"step" example:"1m" doc:"The length of a point: a multiple of 5s that divides 1h; 1m by default"`
}

// seriesBody has numbers by time.
type seriesBody struct {
	From    *time.Time         `json:"from" doc:"The beginning of the first point"`
	Step    string             `json:"step"`
	Lines   map[string][]int64 `json:"lines" doc:"Numbers by name, the oldest point first; the last point is the current one"`
	Nodes   []seriesNode       `json:"nodes" doc:"The live nodes that own executions"`
	Partial bool               `json:"partial" doc:"A node has not answered, or has counted for less than the whole time"`
}

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
	got, err := s.config.Backend.Series(ctx, api.SeriesRequest{Tenant: who.Tenant, Step: step})
	if err != nil {
		return nil, err
	}

	b := seriesBody{From: at(got.From), Step: got.Step.String(), Lines: map[string][]int64{}, Partial: got.Partial}
	for _, l := range got.Lines {
		b.Lines[l.Name] = l.Points
	}
	b.Nodes = each(got.Nodes, func(n *api.SeriesNode) seriesNode { return seriesNode{n.Node.String(), n.Answered, at(n.Since)} })
	return ok(b)
}
