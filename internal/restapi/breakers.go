package restapi

import (
	"context"
	"net/http"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/model"
)

// addBreakers adds the operations on circuit breakers.
func (s *Server) addBreakers() {
	add(s, operation{id: "list-breakers", method: http.MethodGet, path: "/breakers", tag: flowTag, summary: "List circuit breakers"}, s.listBreakers)
	add(s, operation{id: "trip-breaker", method: http.MethodPost, path: "/breakers/{name}/trip", tag: flowTag, summary: "Open a breaker", status: http.StatusNoContent}, s.tripBreaker)
	add(s, operation{id: "reset-breaker", method: http.MethodPost, path: "/breakers/{name}/reset", tag: flowTag, summary: "Close a breaker and end its pause", status: http.StatusNoContent}, s.resetBreaker)
	add(s, operation{id: "pause-breaker", method: http.MethodPost, path: "/breakers/{name}/pause", tag: flowTag, summary: "Hold all tasks of a breaker back until a time", status: http.StatusNoContent}, s.pauseBreaker)
	add(s, operation{id: "list-breaker-rules", method: http.MethodGet, path: "/breaker-rules", tag: flowTag, summary: "List the rules that say when breakers open and close"}, s.listBreakerRules)
	add(s, operation{id: "set-breaker-rule", method: http.MethodPut, path: "/breaker-rules/{name}", tag: flowTag, summary: "Create or change a rule", status: http.StatusNoContent}, s.setBreakerRule)
	add(s, operation{id: "delete-breaker-rule", method: http.MethodDelete, path: "/breaker-rules/{name}", tag: flowTag, summary: "Remove a rule", status: http.StatusNoContent}, s.deleteBreakerRule)
}

// BreakerRule says when a breaker opens and closes.
type BreakerRule struct {
	Failures      int     `json:"failures,omitempty" minimum:"0" doc:"Failures in a row that open the breaker"`
	Ratio         float64 `json:"ratio,omitempty" minimum:"0" maximum:"1" doc:"The ratio of failed calls that opens the breaker"`
	Calls         int     `json:"calls,omitempty" minimum:"0" doc:"How many calls there must be before the ratio applies"`
	Window        string  `json:"window,omitempty" example:"1m"`
	Reset         string  `json:"reset,omitempty" example:"30s" doc:"How long the breaker stays open"`
	Probes        int     `json:"probes,omitempty" minimum:"0"`
	Successes     int     `json:"successes,omitempty" minimum:"0"`
	Lease         string  `json:"lease,omitempty"`
	MaxRetryAfter string  `json:"max_retry_after,omitempty"`
}

func breakerRuleOf(b *api.Breaker) BreakerRule {
	return BreakerRule{
		b.Failures, b.Ratio, b.Calls, writeDuration(b.Window), writeDuration(b.Reset), b.Probes, b.Successes, writeDuration(b.Lease), writeDuration(b.MaxRetryAfter),
	}
}

// breaker is the state of a breaker.
type breaker struct {
	Name   string      `json:"name"`
	State  string      `json:"state" enum:"closed,open,half_open"`
	Since  *time.Time  `json:"since,omitempty"`
	Until  *time.Time  `json:"until,omitempty" doc:"No task starts before this time"`
	Reason string      `json:"reason,omitempty"`
	Paused bool        `json:"paused,omitempty"`
	Probes int         `json:"probes,omitempty"`
	Rule   BreakerRule `json:"rule"`
}

func (s *Server) listBreakers(ctx context.Context, who *authn.Identity, _ *nothing) (*reply[page[breaker]], error) {
	got, err := s.config.Backend.Breakers(ctx, who.Tenant)
	if err != nil {
		return nil, err
	}
	return ok(page[breaker]{Items: each(got, func(b *api.BreakerStatus) breaker {
		return breaker{b.Name, b.State, at(b.Since), at(b.Until), b.Why, b.Held, b.Probes, breakerRuleOf(&b.Rule)}
	})})
}

// namedRule is a rule with its name.
type namedRule struct {
	BreakerRule

	Name string `json:"name"`
}

func (s *Server) listBreakerRules(ctx context.Context, who *authn.Identity, _ *nothing) (*reply[page[namedRule]], error) {
	got, err := s.config.Backend.BreakerRules(ctx, who.Tenant)
	if err != nil {
		return nil, err
	}
	return ok(page[namedRule]{Items: each(got, func(b *api.Breaker) namedRule { return namedRule{breakerRuleOf(b), b.Name} })})
}

type breakerRuleInput struct {
	NamePath

	Body BreakerRule
}

func (s *Server) setBreakerRule(ctx context.Context, who *authn.Identity, in *breakerRuleInput) (*none, error) {
	r := &in.Body
	b := api.Breaker{Name: in.Name, Failures: r.Failures, Ratio: r.Ratio, Calls: r.Calls, Probes: r.Probes, Successes: r.Successes}
	for _, d := range []struct {
		name, text string
		to         *time.Duration
	}{
		{"window", r.Window, &b.Window}, {"reset", r.Reset, &b.Reset}, {"lease", r.Lease, &b.Lease}, {"max_retry_after", r.MaxRetryAfter, &b.MaxRetryAfter},
	} {
		var err error
		if *d.to, err = readDuration(d.name, d.text); err != nil {
			return nil, err
		}
	}
	return done(s.config.Backend.SetBreaker(ctx, who.Tenant, b))
}

func (s *Server) deleteBreakerRule(ctx context.Context, who *authn.Identity, in *NamePath) (*none, error) {
	return done(s.config.Backend.DeleteBreaker(ctx, who.Tenant, in.Name))
}

func (s *Server) tripBreaker(ctx context.Context, who *authn.Identity, in *namedReason) (*none, error) {
	return done(s.config.Backend.TripBreaker(ctx, who.Tenant, in.Name, in.why()))
}

func (s *Server) resetBreaker(ctx context.Context, who *authn.Identity, in *NamePath) (*none, error) {
	return done(s.config.Backend.ResetBreaker(ctx, who.Tenant, in.Name))
}

type pauseBreakerInput struct {
	NamePath

	Body struct {
		Until  time.Time `json:"until" example:"2099-01-01T00:00:00Z" doc:"A time in the past ends the pause"`
		Reason string    `json:"reason,omitempty"`
	}
}

func (s *Server) pauseBreaker(ctx context.Context, who *authn.Identity, in *pauseBreakerInput) (*none, error) {
	return done(s.config.Backend.PauseBreaker(ctx, who.Tenant, in.Name, model.TimeOf(in.Body.Until), in.Body.Reason))
}
