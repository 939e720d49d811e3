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

// latePatience bounds how long a caller whose deadline has passed waits to hear why.
const latePatience = 200 * time.Millisecond

// late adds to the error of a caller whose deadline has passed why the thing did not happen. A
// caller that gave up by itself does not wait for an explanation.
func (s *Service) late(ctx context.Context, a model.Address, err error) error {
	if !tooLate(ctx, err) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), latePatience)
	defer cancel()

	return because(err, s.whyLate(ctx, a))
}

// lateMany is late for many addresses. Together they wait as long as one does, and one address of
// each shard is explained: what is to be started does not exist, and waits for whoever owns its
// shard.
func (s *Service) lateMany(ctx context.Context) func(a model.Address, err error) error {
	var end time.Time
	found := map[model.ShardID][]api.Link{}

	return func(a model.Address, err error) error {
		if !tooLate(ctx, err) {
			return err
		}
		shard := s.shard(a)
		links, known := found[shard]
		if !known {
			if end.IsZero() {
				end = time.Now().Add(latePatience)
			}
			brief, cancel := context.WithDeadline(context.WithoutCancel(ctx), end)
			defer cancel()
			links = s.whyLate(brief, a)
			found[shard] = links
		}
		return because(err, links)
	}
}

// tooLate reports whether an error is that of a caller whose deadline has passed.
func tooLate(ctx context.Context, err error) bool {
	return err != nil && fault.Is(err, fault.Timeout) && errors.Is(ctx.Err(), context.DeadlineExceeded)
}

// because adds reasons to an error.
func because(err error, links []api.Link) error {
	if len(links) == 0 {
		return err
	}
	texts := make([]string, len(links))
	for i, l := range links {
		texts[i] = l.String()
	}
	return fault.New(fault.Timeout, "%w; %s", err, strings.Join(texts, "; "))
}

// whyLate is why an execution or an entity has not done what a caller waited for, and what that
// waits for in turn. It is empty when that is not known.
func (s *Service) whyLate(ctx context.Context, a model.Address) []api.Link {
	j, err := s.judge(ctx, a.Tenant)
	if err != nil {
		return nil
	}
	// whatever the execution waits for, nobody takes what is sent to it
	if why, ok := j.world.Unowned(s.shard(a)); ok {
		return []api.Link{{Subject: nameOf(a), Reason: why}}
	}

	var reasons []model.Reason

	if a.IsEntity() {
		reasons = j.lateEntity(ctx, a)
	} else {
		reasons, _ = j.why(ctx, a) // none when it does not exist, or cannot be read
	}

	if len(reasons) == 0 {
		return nil
	}
	chain := []api.Link{{Subject: nameOf(a), Reason: reasons[0]}}
	return append(chain, j.follow(ctx, &model.Start{Address: a}, reasons)...)
}

// lateEntity is why an entity has not answered. The call of a caller that gave up no longer waits
// for it, so the reason may be one that nothing in its mailbox shows.
func (j *judge) lateEntity(ctx context.Context, a model.Address) []model.Reason {
	info, err := j.entityAt(ctx, a)
	if err != nil {
		return nil
	}
	if len(info.Reasons) > 0 {
		return info.Reasons
	}
	if why, ok := j.world.Lacks(j.service.shard(a), a, ""); ok {
		return []model.Reason{why}
	}

	if info.Entity.Locked() {
		return []model.Reason{core.EntityReason(&info.Entity, true)}
	}
	return nil
}
