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

// explainLate adds to the error of a caller whose deadline has passed why its request was not
// served. A caller that canceled its context does not wait for an explanation.
func (s *Service) explainLate(ctx context.Context, a model.Address, err error) error {
	if err == nil || !fault.Is(err, fault.Timeout) || !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), latePatience)
	defer cancel()

	links := s.whyLate(ctx, a)
	if len(links) == 0 {
		return err
	}
	texts := make([]string, len(links))
	for i, l := range links {
		texts[i] = l.String()
	}
	return fault.New(fault.Timeout, "%w; %s", err, strings.Join(texts, "; "))
}

// whyLate returns why an execution or entity has not done what a caller waited for, and the chain
// of its causes. It is empty if that is unknown.
func (s *Service) whyLate(ctx context.Context, a model.Address) []api.Link {
	j, err := s.judge(ctx, a.Tenant)
	if err != nil {
		return nil
	}
	var reasons []model.Reason

	if a.IsEntity() {
		reasons = j.lateEntity(ctx, a)
	} else if reasons, _ = j.why(ctx, a); len(reasons) == 0 {
		// It does not exist, or cannot be read.
		if why, ok := j.world.Unowned(s.shard(a)); ok {
			reasons = []model.Reason{why}
		}
	}

	if len(reasons) == 0 {
		return nil
	}
	chain := []api.Link{{Subject: nameOf(a), Reason: reasons[0]}}
	return append(chain, j.follow(ctx, &model.Start{Address: a}, reasons)...)
}

// lateEntity returns why an entity has not answered. The call of a caller that gave up may no
// longer wait, so its mailbox may not show the reason.
func (j *judge) lateEntity(ctx context.Context, a model.Address) []model.Reason {
	info, err := j.entityAt(ctx, a)
	if err != nil {
		return nil
	}
	if len(info.Reasons) > 0 {
		return info.Reasons
	}

	shard := j.service.shard(a)
	if why, ok := j.world.Unowned(shard); ok {
		return []model.Reason{why}
	}
	if why, ok := j.world.Lacks(shard, a, ""); ok {
		return []model.Reason{why}
	}

	if info.Entity.Locked() {
		return []model.Reason{core.EntityReason(&info.Entity, true)}
	}
	return nil
}
