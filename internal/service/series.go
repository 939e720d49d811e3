package service

import (
	"bytes"
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/engine/series"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// AskSeriesFunc asks a node for the numbers of a tenant.
type AskSeriesFunc func(ctx context.Context, node model.NodeID, q series.Question) (series.Counts, error)

// AskSeriesBy sets how the service asks other nodes for series; see AskBy.
func (s *Service) AskSeriesBy(ask AskSeriesFunc) { s.askSeries = ask }

// Series returns what happened in a tenant in the last hour.
func (s *Service) Series(ctx context.Context, r api.SeriesRequest) (api.Series, error) {
	if err := s.checkTenant("series", r.Tenant); err != nil {
		return api.Series{}, err
	}
	step := cmp.Or(r.Step, api.DefaultSeriesStep)
	if step < api.SeriesStep || step > api.SeriesSpan || step%api.SeriesStep != 0 || api.SeriesSpan%step != 0 {
		return api.Series{}, fault.New(fault.Invalid, "series: the step is %s, must be a multiple of %s that divides %s", r.Step, api.SeriesStep, api.SeriesSpan)
	}
	j, err := s.judge(ctx, r.Tenant)
	if err != nil {
		return api.Series{}, err
	}

	last := int64(j.world.Now()) / step.Microseconds()
	n := int64(api.SeriesSpan / step)
	out := api.Series{From: model.Time((last - n + 1) * step.Microseconds()), Step: step}
	for _, k := range series.Kinds() {
		out.Lines = append(out.Lines, api.SeriesLine{Name: k.String(), Points: make([]int64, n)})
	}
	levels := levelSums{}
	for node, counts := range j.collectSeries(ctx, series.Question{Tenant: r.Tenant, Levels: r.Levels, Step: step}) {
		out.Nodes = append(out.Nodes, addSeries(&out, node, counts))
		if counts != nil && r.Levels {
			levels.add(&out, counts.Levels)
		}
	}
	levels.finish(&out)
	slices.SortFunc(out.Nodes, func(a, b api.SeriesNode) int { return bytes.Compare(a.Node[:], b.Node[:]) })
	return out, nil
}

// addSeries adds the numbers of a node. counts is nil if the node has not answered.
func addSeries(to *api.Series, node model.NodeID, counts *series.Counts) api.SeriesNode {
	if counts == nil {
		to.Partial = true
		return api.SeriesNode{Node: node}
	}

	to.Partial = to.Partial || counts.Since > to.From
	for k := range min(len(counts.Points), len(to.Lines)) {
		points := counts.Points[k]
		for i, v := range points {
			began := time.Duration(counts.Last-int64(len(points)-1-i)) * series.Step // since 1970
			at := (began.Microseconds() - int64(to.From)) / to.Step.Microseconds()
			if began.Microseconds() >= int64(to.From) {
				// The clocks of nodes differ a little. Add numbers of a later step to the current
				// step.
				to.Lines[k].Points[min(at, int64(len(to.Lines[k].Points)-1))] += int64(v)
			}
		}
	}
	return api.SeriesNode{Node: node, Answered: true, Since: counts.Since}
}

// collectSeries asks every live node, because a node that owns no shard now may have owned some
// within the last hour. The entry of a node that does not answer is nil.
func (j *judge) collectSeries(ctx context.Context, q series.Question) map[model.NodeID]*series.Counts {
	s, all := j.service, map[model.NodeID]*series.Counts{}
	for _, m := range j.world.Live() {
		all[m.ID] = nil
	}
	own := model.NodeID{}
	if s.engine != nil {
		if own = s.engine.Node(); !own.IsZero() {
			all[own] = nil // the view may be older than this node
		}
	}

	ctx, cancel := context.WithTimeout(ctx, askWithin(ctx))
	defer cancel()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, node := range slices.Collect(maps.Keys(all)) { // the answers change the map
		switch {
		case s.engine != nil && node == own:
			if c, ok := s.engine.Series(q); ok {
				mu.Lock()
				all[node] = &c
				mu.Unlock()
			}
		case s.askSeries != nil && s.store.Info().Shared:
			wg.Go(func() {
				// After an error, the entry of the node stays nil, as if it had not answered.
				if c, err := s.askSeries(ctx, node, q); err == nil {
					mu.Lock()
					all[node] = &c
					mu.Unlock()
				}
			})
		}
	}
	wg.Wait()
	return all
}
