package flow

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/perdure/perdure/internal/core/breaker"
	"github.com/perdure/perdure/internal/core/rule"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Outlook explains what holds a task back, on a node that does not own the run of the task. It is a
// snapshot of the settings and of the answers of other nodes about limits.
type Outlook struct {
	flow   *Flow
	now    model.Time
	rules  *rule.Set
	paused map[Queue]string
	states map[rule.BreakerID][]byte

	asked bool
	uses  []LimitUse
}

// Outlook reads the settings for tasks of a tenant.
func (f *Flow) Outlook(ctx context.Context, tenant string) (*Outlook, error) {
	leave, err := f.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	if err := f.refresh(ctx); err != nil {
		return nil, err
	}
	now, err := f.now(ctx)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return &Outlook{flow: f, now: now, rules: f.rules, paused: f.paused, states: f.states(tenant)}, nil
}

// PauseOf reports whether a queue is paused, and why.
func (o *Outlook) PauseOf(tenant, queue string) (model.Reason, bool) {
	why, ok := o.paused[Queue{tenant, queue}]
	return model.Reason{Code: model.WaitPaused, Name: queue, Detail: why}, ok
}

// RefusalOf returns what would hold back a task that has a worker: an undefined limit, its breaker,
// or a limit without free permits. If the task needs a limit, RefusalOf asks all nodes about free
// permits. An Outlook asks the nodes only once.
func (o *Outlook) RefusalOf(ctx context.Context, tenant string, spec *model.TaskSpec, input *model.Payload) (why model.Reason, ok bool, err error) {
	needs := o.rules.Resolve(tenant, spec, input)
	if i := slices.IndexFunc(needs, func(u rule.Use) bool { return u.Missing }); i >= 0 {
		return model.Reason{Code: model.WaitPermit, Name: needs[i].Resource.Name, Detail: "no limit of that name is defined"}, true, nil
	}

	if id, config := o.rules.Breaker(tenant, spec); id.Name != "" && o.states[id] != nil {
		b, err := breaker.Decode(o.states[id])
		if err != nil {
			return why, false, fault.New(fault.KindOf(err), "breaker %s: %w", id, err)
		}
		if b.Status(o.now).Config != config {
			b.Configure(o.now, config)
		}
		if until, text := b.Until(o.now); o.now < until {
			return model.Reason{Code: model.WaitBreaker, Name: id.String(), Until: until, Detail: text}, true, nil
		}
	}

	if len(needs) == 0 {
		return why, false, nil
	}

	if !o.asked {
		if o.uses, _, err = o.flow.askNodes(ctx); err != nil {
			return why, false, err
		}
		o.asked = true
	}

	for i := range needs {
		n := &needs[i]
		at := slices.IndexFunc(o.uses, func(u LimitUse) bool { return u.Keys == 0 && u.Resource == n.Resource })
		switch {
		case at < 0:
		case n.Numbers.Concurrency > 0 && o.uses[at].Held >= n.Numbers.Concurrency:
			return model.Reason{Code: model.WaitPermit, Name: n.Resource.String(), Detail: o.uses[at].heldBy()}, true, nil
		case n.Numbers.Rate > 0 && o.uses[at].Waiting > 0:
			return model.Reason{Code: model.WaitRate, Name: n.Resource.String(), Detail: n.Numbers.String()}, true, nil
		}
	}

	return why, false, nil
}

// Holders describes which tasks have the permits of a limit. name is the name that reasons use for
// the limit. An Outlook asks all nodes only once. ok is false if no holder is known.
func (o *Outlook) Holders(ctx context.Context, name string) (text string, ok bool, err error) {
	if !o.asked {
		if o.uses, _, err = o.flow.askNodes(ctx); err != nil {
			return "", false, err
		}
		o.asked = true
	}
	for i := range o.uses {
		if u := &o.uses[i]; u.Keys == 0 && u.Held > 0 && u.Resource.String() == name {
			return u.heldBy(), true, nil
		}
	}
	return "", false, nil
}

// maxNamed is the number of holders that a reason names.
const maxNamed = 3

// heldBy describes the holders.
func (u *LimitUse) heldBy() string {
	text := fmt.Sprintf("all %d are held", u.Held)
	var names []string
	for _, ref := range u.Holders[:min(len(u.Holders), maxNamed)] {
		names = append(names, ref.String())
	}
	if len(names) == 0 {
		return text
	}
	if more := u.Held - len(names); more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return text + ", by " + strings.Join(names, "; ")
}
