package perdure

import (
	"context"
	"fmt"
	"strings"

	"github.com/perdure/perdure/internal/entity"
	"github.com/perdure/perdure/internal/model"
)

// joinEntities has the engine give us calls of the entities and services whose code is here.
func (a *App) joinEntities(ctx context.Context, r *registry) error {
	if len(r.entities) == 0 {
		return nil
	}
	offer := model.EntityOffer{Name: workerName(), Tenant: model.DefaultTenant}
	cfg := entity.Config{Types: map[string]entity.Type{}, Logger: a.cfg.Logger}
	for _, typ := range sortedKeys(r.entities) {
		d := r.entities[typ]
		offer.Types = append(offer.Types, d.offer())
		cfg.Types[typ] = d.code(a.host)
	}
	if c := a.cfg.Checks; c != nil {
		cfg.Base = c.Base
	}
	w := entity.New(cfg)
	session, err := a.cfg.Backend.JoinEntities(ctx, w, offer)
	if err != nil {
		return public(fmt.Errorf("serve %s: %w", strings.Join(sortedKeys(r.entities), ", "), err))
	}
	w.Serve(session)
	a.entities = w
	return nil
}

// closeEntities takes no new calls and waits for those that are being made.
func (a *App) closeEntities() error {
	if a.entities == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), a.cfg.DrainTimeout)
	defer cancel()
	return public(a.entities.Close(ctx))
}
