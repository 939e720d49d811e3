package service

import (
	"context"
	"encoding/base64"
	"strings"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/diagnosis"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// Call calls an operation, a view or an RPC.
func (s *Service) Call(ctx context.Context, r api.CallRequest) (model.Payload, error) {
	m, err := s.limits.Call(&r)
	if err != nil {
		return model.Payload{}, err
	}
	if s.engine == nil {
		return model.Payload{}, readOnly(m)
	}
	ctx, span := s.tracer.Send(ctx, m)
	a, err := s.engine.Call(ctx, m, r.View)
	span.End(failureOf(err))
	return payloadOf(a, s.explainLate(ctx, m.To, err))
}

// Entity reads the committed state of an entity.
func (s *Service) Entity(ctx context.Context, a model.Address) (api.EntityInfo, error) {
	v := s.check("entity")
	v.Entity(a)
	if err := v.Err(); err != nil {
		return api.EntityInfo{}, err
	}
	j, err := s.judge(ctx, a.Tenant)
	if err != nil {
		return api.EntityInfo{}, err
	}
	return j.entityAt(ctx, a)
}

// entityAt describes an entity. It asks the owner first: whatever the owner no longer holds is in
// the store by then.
func (j *judge) entityAt(ctx context.Context, a model.Address) (api.EntityInfo, error) {
	j.ask(ctx, []model.Address{a})
	s := j.service
	stored, err := s.store.LoadEntity(ctx, store.EntityKey{Shard: s.shard(a), Address: a}, defaultPage, s.limits.Payload)
	if err != nil {
		if fault.Is(err, fault.Corrupt) {
			err = fault.WithHint(err, "%s", model.EntityWayOut)
		}
		return api.EntityInfo{}, err
	}

	info := api.EntityInfo{Entity: model.Entity{Address: a}, Waiting: stored.Mailbox, More: stored.More}
	if stored.Entity != nil {
		info.Entity = *stored.Entity
	}
	for i := range info.Waiting {
		info.Waiting[i].Message.Input = model.Payload{}
	}
	info.Reasons = j.entity(&info)
	return info, nil
}

// ListEntities returns entities in the order of type and key.
func (s *Service) ListEntities(ctx context.Context, r api.EntityListRequest) (api.EntityListPage, error) {
	q := store.EntityQuery{
		Tenant: r.Tenant, Type: r.Type, KeyPrefix: r.KeyPrefix, Locked: r.Locked, Limit: pageSize(r.Limit),
	}
	v := s.check("list entities")
	v.Tenant(q.Tenant)
	if r.Type != "" {
		v.Text("the type", r.Type, s.limits.Name)
	}
	if r.KeyPrefix != "" {
		v.Text("the beginning of the key", r.KeyPrefix, s.limits.Key)
	}
	if err := v.Err(); err != nil {
		return api.EntityListPage{}, err
	}

	if r.Cursor != "" {
		raw, err := base64.RawURLEncoding.DecodeString(r.Cursor)
		kind, key, ok := strings.Cut(string(raw), "\x00")
		if err != nil || !ok {
			return api.EntityListPage{}, notOurs("list entities", r.Cursor)
		}
		q.After = model.Address{Tenant: q.Tenant, Type: kind, Key: key}
	}

	rows, err := s.store.ListEntities(ctx, q)
	if err != nil {
		return api.EntityListPage{}, err
	}
	page := api.EntityListPage{Entities: rows.Entities}

	if rows.More {
		last := rows.Entities[len(rows.Entities)-1].Address
		page.Cursor = base64.RawURLEncoding.EncodeToString([]byte(last.Type + "\x00" + last.Key))
	}

	return page, nil
}

// Unlock takes a lock from the section that holds it.
func (s *Service) Unlock(ctx context.Context, r api.UnlockRequest) error {
	v := s.check("unlock")
	v.Entity(r.Address)
	v.RequestID(r.RequestID)
	if r.Epoch < 0 {
		v.Wrong("the epoch %d is below zero", r.Epoch)
	}
	if err := v.Err(); err != nil {
		return err
	}
	_, err := s.send(ctx, &model.Message{Kind: model.MessageUnlock, To: r.Address, Epoch: r.Epoch, RequestID: r.RequestID})
	return err
}

// Mailbox asks the owner for the mailbox of an entity, or lets it act on one call. If no live node
// owns the entity, a list contains what is stored.
func (s *Service) Mailbox(ctx context.Context, r api.MailboxRequest) (model.Calls, error) {
	v := s.check("mailbox")
	v.Entity(r.Address)
	if r.Do != model.MailboxList {
		v.Text("the id of the call", r.ID, s.limits.Name)
	}
	if err := v.Err(); err != nil {
		return model.Calls{}, err
	}
	if r.Do == model.MailboxList {
		owned, err := s.hasOwner(ctx, r.Address)
		if err != nil || !owned {
			return s.storedCalls(ctx, r.Address, err)
		}
	}

	a, err := s.send(ctx, &model.Message{Kind: model.MessageMailbox, To: r.Address, Name: r.Do, ID: r.ID})
	if err != nil {
		return model.Calls{}, err
	}

	return model.DecodeCalls(a.Output)
}

// hasOwner reports whether a live node can be asked about an address.
func (s *Service) hasOwner(ctx context.Context, a model.Address) (bool, error) {
	if s.engine == nil {
		return false, nil
	}
	if !s.store.Info().Shared {
		return true, nil
	}
	view, err := s.store.Members(ctx)

	return err == nil && diagnosis.NewWorld(view).Owner(s.shard(a)) != nil, err
}

// storedCalls returns the stored part of a mailbox.
func (s *Service) storedCalls(ctx context.Context, a model.Address, err error) (model.Calls, error) {
	if err != nil {
		return model.Calls{}, err
	}
	stored, err := s.store.LoadEntity(ctx, store.EntityKey{Shard: s.shard(a), Address: a}, model.MailboxListed, s.limits.Payload)
	if err != nil {
		return model.Calls{}, err
	}

	c := model.Calls{Total: len(stored.Mailbox)}
	for i := range stored.Mailbox {
		it := &stored.Mailbox[i]
		c.Calls = append(c.Calls, model.CallOf(i+1, it.Seq, it.At, &it.Message))
	}

	return c, nil
}

// JoinEntities adds a worker that has the code of entities and services.
func (s *Service) JoinEntities(_ context.Context, w api.EntityWorker, offer model.EntityOffer) (api.EntitySession, error) {
	if s.engine == nil {
		return nil, fault.New(fault.Denied, "the store is open for reading only")
	}
	v := s.check("join")
	v.Tenant(offer.Tenant)

	for i := range offer.Types {
		t := &offer.Types[i]
		v.Entity(model.Address{Tenant: offer.Tenant, Type: t.Type, Key: "key"})
		for _, name := range t.Views {
			v.Name("view", name)
		}
		if t.Concurrency < 0 || t.Mailbox < 0 || t.Idle < 0 {
			v.Wrong("%s has a concurrency, a mailbox or an idle time below zero", t.Type)
		}
	}

	if err := v.Err(); err != nil {
		return nil, err
	}
	return s.engine.JoinEntities(w, offer), nil
}
