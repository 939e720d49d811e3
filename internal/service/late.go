package service

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// latePatience bounds how long a caller whose deadline has passed waits for an explanation.
const latePatience = 200 * time.Millisecond

// explainLate adds to the error of a caller why its request was not served, if the deadline of the
// caller has passed. A caller that canceled its context does not wait for an explanation.
func (s *Service) explainLate(ctx context.Context, a model.Address, err error) error {
	if !tooLate(ctx, err) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), latePatience)
	defer cancel()

	return s.lateReason(ctx, a).add(err)
}

// lateMany is like explainLate, for many addresses. All explanations together take at most as long
// as a single explanation may take. lateMany explains only one address of each shard, and the other
// addresses of the shard get the same explanation. It is for requests that start executions: an
// execution that does not exist yet can only wait for the owner of its shard.
func (s *Service) lateMany(ctx context.Context) func(a model.Address, err error) error {
	var end time.Time
	found := map[model.ShardID]lateReason{}

	return func(a model.Address, err error) error {
		if !tooLate(ctx, err) {
			return err
		}
		shard := s.shard(a)
		why, known := found[shard]
		if !known {
			if end.IsZero() {
				end = time.Now().Add(latePatience)
			}
			brief, cancel := context.WithDeadline(context.WithoutCancel(ctx), end)
			defer cancel()
			why = s.lateReason(brief, a)
			found[shard] = why
		}
		return why.add(err)
	}
}

// tooLate reports whether a caller got an error because its deadline has passed.
func tooLate(ctx context.Context, err error) bool {
	return err != nil && fault.Is(err, fault.Timeout) && errors.Is(ctx.Err(), context.DeadlineExceeded)
}

// lateReason says why a request was not served before the deadline of its caller. It has the reason
// of the execution or entity and the chain of its causes, or the error that kept the service from
// reading them. It is empty if the reason is unknown.
type lateReason struct {
	links []api.Link
	err   error
}

// add adds the reason to the error of the caller.
func (r lateReason) add(err error) error {
	switch {
	case r.err != nil:
		return fault.New(fault.Timeout, "%w; the reason is unknown, because the store cannot be read: %v", err, r.err)
	case len(r.links) == 0:
		return err
	}

	texts := make([]string, len(r.links))
	for i, l := range r.links {
		texts[i] = l.String()
	}
	return fault.New(fault.Timeout, "%w; %s", err, strings.Join(texts, "; "))
}

// lateReason returns why an execution or entity has not done what a caller waited for.
func (s *Service) lateReason(ctx context.Context, a model.Address) lateReason {
	j, err := s.judge(ctx, a.Tenant)
	if err != nil {
		return lateReason{err: err}
	}
	// Without an owner, no node accepts messages for the execution, regardless of what it waits
	// for.
	if why, ok := j.world.WhyUnowned(s.shard(a)); ok {
		return lateReason{links: []api.Link{{Subject: nameOf(a), Reason: why}}}
	}

	var reasons []model.Reason

	if a.IsEntity() {
		reasons = j.lateEntity(ctx, a)
	} else {
		reasons, _ = j.why(ctx, a) // empty if the execution does not exist or cannot be read
	}

	switch {
	case len(reasons) > 0:
	case ctx.Err() != nil:
		return lateReason{err: fault.New(fault.Timeout, "that took longer than %v", latePatience)}
	default:
		return lateReason{}
	}
	chain := []api.Link{{Subject: nameOf(a), Reason: reasons[0]}}
	return lateReason{links: append(chain, j.follow(ctx, &model.Start{Address: a}, reasons)...)}
}

// lateEntity returns why an entity has not answered. The call of a caller that gave up may have
// left the mailbox, so the mailbox may not show the reason.
func (j *judge) lateEntity(ctx context.Context, a model.Address) []model.Reason {
	info, err := j.whyEntity(ctx, a)
	if err != nil {
		return nil
	}
	if len(info.Reasons) > 0 {
		return info.Reasons
	}
	if why, ok := j.world.WhyNoCode(j.service.shard(a), a, "", j.told[a]); ok {
		return []model.Reason{why}
	}

	if info.Entity.Locked() {
		return []model.Reason{core.EntityReason(&info.Entity, true)}
	}
	return nil
}
