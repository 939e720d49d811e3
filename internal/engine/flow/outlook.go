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

// Outlook is what whoever does not own the run of a task can tell about what keeps it back: from
// the settings, and from what other nodes say of limits. It is a moment.
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

// Paused tells that the queue of a task is, and why.
func (o *Outlook) Paused(tenant, queue string) (model.Reason, bool) {
	why, ok := o.paused[Queue{tenant, queue}]
	return model.Reason{Code: model.WaitPaused, Name: queue, Detail: why}, ok
}

// Refuses tells what a task that has a worker would not get past: a limit that nobody has defined,
// its breaker, a limit that is taken. The nodes are asked about the latter, once, if the task needs
// any.
func (o *Outlook) Refuses(ctx context.Context, tenant string, spec *model.TaskSpec, input *model.Payload) (why model.Reason, ok bool, err error) {
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
		if o.uses, _, err = o.flow.everybody(ctx); err != nil {
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

// Holders tells who has the permits of a limit, by the name that reasons have for it: all nodes are
// asked, once. ok is false when nobody is known to hold one.
func (o *Outlook) Holders(ctx context.Context, name string) (text string, ok bool, err error) {
	if !o.asked {
		if o.uses, _, err = o.flow.everybody(ctx); err != nil {
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

// maxNamed are the holders of a limit that a reason names.
const maxNamed = 3

// heldBy tells who has the permits.
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
