package service

import (
	"context"
	"sync"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/telemetry"
)

// Bounds of a survey. A survey reads the store when metrics are collected.
const (
	// A collection of metrics waits no longer than surveyWait. A survey that takes longer has
	// failed.
	surveyWait = 2 * time.Second
	surveyRest = 20 // a survey is followed by a pause this many times as long
	// surveyMost is how many open executions a survey visits: tenant by tenant, the newest of each
	// tenant first.
	surveyMost = 20_000
)

// survey counts, for metrics, the executions that continue only after a person changes something.
type survey struct {
	mu    sync.Mutex
	next  time.Time
	found map[model.ReasonCode]int // nil if the last survey failed
}

// Observe reports to a meter how many executions are stranded in the shards that this node owns,
// until the caller calls stop. It judges as Stranded does. So the numbers of all nodes add up to
// the length of that list, apart from executions without an owner, and executions beyond
// surveyMost. It reports no number while it cannot read the store or the node has no lease, because
// 0 would mean that nothing is stranded.
func (s *Service) Observe(m *telemetry.Meter) (stop func()) {
	if m == nil || s.engine == nil {
		return func() {}
	}
	var v survey
	return m.Watch(func(g *telemetry.States) {
		found := v.counts(s)
		if found == nil {
			return
		}
		for _, code := range model.ReasonCodes() {
			if code.Strands() && code != model.WaitOwner {
				g.Set(telemetry.RunsStranded, float64(found[code]), string(code))
			}
		}
	})
}

// counts returns the counts of the last survey, or nil if it failed. It makes a new survey if the
// last one is old enough.
func (v *survey) counts(s *Service) map[model.ReasonCode]int {
	v.mu.Lock()
	defer v.mu.Unlock()
	began := time.Now()
	if began.Before(v.next) {
		return v.found
	}
	ctx, cancel := context.WithTimeout(context.Background(), surveyWait)
	defer cancel()
	found, err := s.countStranded(ctx)
	if err != nil {
		found = nil // another log line says that the store cannot be reached
	}
	v.found = found
	took := time.Since(began)
	v.next = began.Add(took + max(surveyRest*took, 500*time.Millisecond))

	return v.found
}

// countStranded counts the executions in the shards of this node that Stranded lists, by reason. It
// returns nil if this node has no lease, and so owns no shards.
func (s *Service) countStranded(ctx context.Context) (map[model.ReasonCode]int, error) {
	own, _, ok := s.engine.Self()
	if !ok {
		return nil, nil
	}
	tenants, err := s.store.Tenants(ctx)
	if err != nil {
		return nil, err
	}

	found, looked := map[model.ReasonCode]int{}, 0
	for _, tenant := range tenants {
		req := api.ListRequest{Tenant: tenant, Statuses: []model.Status{model.Running}, Limit: maxPage, Explain: true}
		for looked < surveyMost {
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
	}

	return found, nil
}
