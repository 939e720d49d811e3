package service

import (
	"context"
	"slices"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
)

// maxWatchedTypes bounds the types, the kinds and the queues that one watch selects.
const maxWatchedTypes = 100

// checkWatched refuses a watch that selects too many names.
func checkWatched(v validator, what string, n int) {
	if n > maxWatchedTypes {
		v.Wrong("it names %d %s, at most %d", n, what, maxWatchedTypes)
	}
}

// Watch reports changes to the caller.
func (s *Service) Watch(ctx context.Context, r api.WatchRequest, take func(api.ChangePage) error) error {
	v := s.check("watch")
	v.Tenant(r.Tenant)
	if len(r.Classes) > len(model.ChangeClasses) {
		v.Wrong("it names %d classes, at most %d", len(r.Classes), len(model.ChangeClasses))
	}
	for _, c := range r.Classes {
		if !slices.Contains(model.ChangeClasses, c) {
			v.Wrong("%.40q is not a class of changes", string(c))
			break
		}
	}

	checkWatched(v, "types", len(r.Types))
	for _, name := range r.Types[:min(len(r.Types), maxWatchedTypes)] {
		v.Name("type", name)
	}
	if r.Key != "" {
		v.Text("the key", r.Key, s.limits.Key)
	}
	checkWatched(v, "kinds", len(r.Kinds))
	for _, kind := range r.Kinds[:min(len(r.Kinds), maxWatchedTypes)] {
		v.Name("kind", string(kind))
	}
	checkWatched(v, "queues", len(r.Queues))
	for _, queue := range r.Queues[:min(len(r.Queues), maxWatchedTypes)] {
		v.Name("queue", queue)
	}
	if len(r.Statuses) > int(model.LastStatus) {
		v.Wrong("it names %d statuses, at most %d", len(r.Statuses), model.LastStatus)
	}
	if err := v.Err(); err != nil {
		return err
	}

	if s.engine == nil {
		return api.ErrNoFeed
	}
	return s.engine.Watch(ctx, r.Tenant, r.ChangeFilter, r.Cursor, take)
}
