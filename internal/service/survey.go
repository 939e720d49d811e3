package service

import (
	"context"
	"sync"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/telemetry"
)

// Bounds of a survey: it reads the store when somebody gathers metrics.
const (
	// gathering waits no longer; the numbers of the last survey count then
	surveyWait = 2 * time.Second
	surveyRest = 20     // a survey is followed by a pause of so many times what it took
	surveyMost = 20_000 // open executions that are looked at, the newest first
)

// survey counts the executions that go on only when somebody changes something, for metrics.
type survey struct {
	mu    sync.Mutex
	next  time.Time
	found map[model.ReasonCode]int
}

// Observe has a meter show what is stranded of the shards that this node owns, until stop. It is
// the same judgement as that of Stranded, so the numbers of all nodes add up to that list.
func (s *Service) Observe(m *telemetry.Meter) (stop func()) {
	if m == nil || s.engine == nil {
		return func() {}
	}
	var v survey
	return m.Watch(func(g *telemetry.States) {
		found := v.counts(s)
		for _, code := range model.ReasonCodes() {
			if code.Strands() && code != model.WaitOwner {
				g.Set(telemetry.RunsStranded, float64(found[code]), string(code))
			}
		}
	})
}

// counts are those of the last survey. A new one is made when the last is old enough.
func (v *survey) counts(s *Service) map[model.ReasonCode]int {
	v.mu.Lock()
	defer v.mu.Unlock()
	began := time.Now()
	if began.Before(v.next) {
		return v.found
	}
	ctx, cancel := context.WithTimeout(context.Background(), surveyWait)
	defer cancel()
	if found, err := s.countStranded(ctx); err == nil {
		v.found = found
	}
	took := time.Since(began)
	v.next = began.Add(took + max(surveyRest*took, 500*time.Millisecond))
	return v.found
}

// countStranded counts what Stranded lists of the shards of this node, by reason.
func (s *Service) countStranded(ctx context.Context) (map[model.ReasonCode]int, error) {
	own, _, ok := s.engine.Self()
	if !ok {
		return nil, nil
	}
	found := map[model.ReasonCode]int{}

	req := api.ListRequest{Tenant: model.DefaultTenant, Statuses: []model.Status{model.Running}, Limit: maxPage, Explain: true}
	for looked := 0; looked < surveyMost; {
		page, err := s.List(ctx, req)
		if err != nil {
			return nil, err
		}
		for i := range page.Executions {
			if d := &page.Executions[i]; d.Owner == own && len(d.Reasons) > 0 && d.Reasons[0].Code.Strands() {
				found[d.Reasons[0].Code]++
			}
		}
		looked += len(page.Executions)
		if req.Cursor = page.Cursor; req.Cursor == "" {
			break
		}
	}

	return found, nil
}
