package audit

import (
	"context"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
)

// limit returns a limit before it changes.
func (b *backend) limit(ctx context.Context, tenant, name string) []byte {
	if !b.log.records(ctx) {
		return nil
	}
	all, err := b.Limits(ctx, tenant)
	if err != nil {
		return nil
	}
	for i := range all {
		if all[i].Rule.Name == name {
			return value(all[i].Rule)
		}
	}
	return nil
}

// SetLimit creates or changes a limit.
func (b *backend) SetLimit(ctx context.Context, tenant string, l api.Limit, anyQueue bool) error {
	e := api.AuditEntry{Tenant: tenant, Call: "SetLimit", Resource: "limit " + l.Name, Before: b.limit(ctx, tenant, l.Name)}
	return b.log.record(ctx, e, func(ctx context.Context) (any, error) { return l, b.Backend.SetLimit(ctx, tenant, l, anyQueue) })
}

// DeleteLimit removes a limit.
func (b *backend) DeleteLimit(ctx context.Context, tenant, name string) error {
	e := api.AuditEntry{Tenant: tenant, Call: "DeleteLimit", Resource: "limit " + name, Before: b.limit(ctx, tenant, name)}
	return b.log.record(ctx, e, func(ctx context.Context) (any, error) { return nil, b.Backend.DeleteLimit(ctx, tenant, name) })
}

// switchValue is the part of a limit that an entry shows after a caller has disabled or enabled the
// limit.
type switchValue struct {
	Disabled bool `json:"disabled"`
}

// DisableLimit turns a limit off.
func (b *backend) DisableLimit(ctx context.Context, tenant, name, why string) error {
	e := api.AuditEntry{Tenant: tenant, Call: "DisableLimit", Resource: "limit " + name, Reason: why, Before: b.limit(ctx, tenant, name)}
	return b.log.record(ctx, e, func(ctx context.Context) (any, error) {
		return switchValue{true}, b.Backend.DisableLimit(ctx, tenant, name, why)
	})
}

// EnableLimit undoes DisableLimit.
func (b *backend) EnableLimit(ctx context.Context, tenant, name string) error {
	e := api.AuditEntry{Tenant: tenant, Call: "EnableLimit", Resource: "limit " + name, Before: b.limit(ctx, tenant, name)}
	return b.log.record(ctx, e, func(ctx context.Context) (any, error) { return switchValue{}, b.Backend.EnableLimit(ctx, tenant, name) })
}

// breakerRule returns the rule of a breaker before it changes.
func (b *backend) breakerRule(ctx context.Context, tenant, name string) []byte {
	if !b.log.records(ctx) {
		return nil
	}
	all, err := b.BreakerRules(ctx, tenant)
	if err != nil {
		return nil
	}
	for i := range all {
		if all[i].Name == name {
			return value(showRule(&all[i]))
		}
	}
	return nil
}

// ruleValue is the part of the rule of a breaker that an entry shows.
type ruleValue struct {
	Failures      int     `json:"failures,omitempty"`
	Ratio         float64 `json:"ratio,omitempty"`
	Calls         int     `json:"calls,omitempty"`
	Window        string  `json:"window,omitempty"`
	Reset         string  `json:"reset,omitempty"`
	Probes        int     `json:"probes,omitempty"`
	Successes     int     `json:"successes,omitempty"`
	Lease         string  `json:"lease,omitempty"`
	MaxRetryAfter string  `json:"max_retry_after,omitempty"`
}

func showRule(r *api.Breaker) ruleValue {
	text := func(d time.Duration) string {
		if d == 0 {
			return ""
		}
		return d.String()
	}
	return ruleValue{r.Failures, r.Ratio, r.Calls, text(r.Window), text(r.Reset), r.Probes, r.Successes, text(r.Lease), text(r.MaxRetryAfter)}
}

// breakerValue is the part of the state of a breaker that an entry shows.
type breakerValue struct {
	State string `json:"state"`
	Until string `json:"until,omitempty"`
}

// breakerState returns the state of a breaker before it changes.
func (b *backend) breakerState(ctx context.Context, tenant, name string) []byte {
	if !b.log.records(ctx) {
		return nil
	}
	all, err := b.Breakers(ctx, tenant)
	if err != nil {
		return nil
	}
	for i := range all {
		if all[i].Name == name {
			return value(showBreaker(all[i].State, all[i].Until))
		}
	}
	return nil
}

func showBreaker(state string, until model.Time) breakerValue {
	v := breakerValue{State: state}
	if !until.IsZero() {
		v.Until = until.String()
	}
	return v
}

// SetBreaker creates or changes a rule.
func (b *backend) SetBreaker(ctx context.Context, tenant string, r api.Breaker) error {
	e := api.AuditEntry{Tenant: tenant, Call: "SetBreaker", Resource: "breaker rule " + r.Name, Before: b.breakerRule(ctx, tenant, r.Name)}
	return b.log.record(ctx, e, func(ctx context.Context) (any, error) { return showRule(&r), b.Backend.SetBreaker(ctx, tenant, r) })
}

// DeleteBreaker removes a rule.
func (b *backend) DeleteBreaker(ctx context.Context, tenant, name string) error {
	e := api.AuditEntry{Tenant: tenant, Call: "DeleteBreaker", Resource: "breaker rule " + name, Before: b.breakerRule(ctx, tenant, name)}
	return b.log.record(ctx, e, func(ctx context.Context) (any, error) { return nil, b.Backend.DeleteBreaker(ctx, tenant, name) })
}

// TripBreaker opens a breaker.
func (b *backend) TripBreaker(ctx context.Context, tenant, name, why string) error {
	e := api.AuditEntry{Tenant: tenant, Call: "TripBreaker", Resource: "breaker " + name, Reason: why, Before: b.breakerState(ctx, tenant, name)}
	return b.log.record(ctx, e, func(ctx context.Context) (any, error) {
		return showBreaker("open", 0), b.Backend.TripBreaker(ctx, tenant, name, why)
	})
}

// ResetBreaker closes a breaker.
func (b *backend) ResetBreaker(ctx context.Context, tenant, name string) error {
	e := api.AuditEntry{Tenant: tenant, Call: "ResetBreaker", Resource: "breaker " + name, Before: b.breakerState(ctx, tenant, name)}
	return b.log.record(ctx, e, func(ctx context.Context) (any, error) {
		return showBreaker("closed", 0), b.Backend.ResetBreaker(ctx, tenant, name)
	})
}

// PauseBreaker makes a breaker hold all tasks back until a time.
//
//arch:parameters given by api.Backend
func (b *backend) PauseBreaker(ctx context.Context, tenant, name string, until model.Time, why string) error {
	e := api.AuditEntry{Tenant: tenant, Call: "PauseBreaker", Resource: "breaker " + name, Reason: why, Before: b.breakerState(ctx, tenant, name)}
	return b.log.record(ctx, e, func(ctx context.Context) (any, error) {
		return showBreaker("paused", until), b.Backend.PauseBreaker(ctx, tenant, name, until, why)
	})
}

// SetAllowance changes how much of the system a tenant may use.
func (b *backend) SetAllowance(ctx context.Context, tenant string, a api.Allowance) error {
	e := api.AuditEntry{Tenant: tenant, Call: "SetAllowance", Resource: "allowance"}
	if b.log.records(ctx) {
		if old, err := b.Allowance(ctx, tenant); err == nil {
			e.Before = value(old)
		}
	}
	return b.log.record(ctx, e, func(ctx context.Context) (any, error) { return a, b.Backend.SetAllowance(ctx, tenant, a) })
}

// queueValue says whether a queue is paused.
type queueValue struct {
	Paused bool `json:"paused"`
}

// PauseQueue makes the engine start no further tasks of a queue.
func (b *backend) PauseQueue(ctx context.Context, tenant, name, why string) error {
	e := api.AuditEntry{Tenant: tenant, Call: "PauseQueue", Resource: "queue " + name, Reason: why, Before: b.queue(ctx, tenant, name)}
	return b.log.record(ctx, e, func(ctx context.Context) (any, error) {
		return queueValue{true}, b.Backend.PauseQueue(ctx, tenant, name, why)
	})
}

// ResumeQueue undoes PauseQueue.
func (b *backend) ResumeQueue(ctx context.Context, tenant, name string) error {
	e := api.AuditEntry{Tenant: tenant, Call: "ResumeQueue", Resource: "queue " + name, Before: b.queue(ctx, tenant, name)}
	return b.log.record(ctx, e, func(ctx context.Context) (any, error) {
		return queueValue{}, b.Backend.ResumeQueue(ctx, tenant, name)
	})
}

// queue says whether a queue was paused before a change.
func (b *backend) queue(ctx context.Context, tenant, name string) []byte {
	if !b.log.records(ctx) {
		return nil
	}
	all, err := b.Queues(ctx, tenant)
	if err != nil {
		return nil
	}
	for i := range all {
		if all[i].Name == name {
			return value(queueValue{all[i].Paused})
		}
	}
	return value(queueValue{})
}
