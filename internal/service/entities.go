package service

import (
	"context"

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

// entityAt describes an entity. It asks the owner before it reads the store, so that calls that the
// owner drops from memory in between are seen in the store.
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
	if info.Entity.Expired(j.world.Now()) {
		info.Entity = model.Entity{Address: a} // it has expired; its owner will remove it
	}
	for i := range info.Waiting {
		info.Waiting[i].Message.Input = model.Payload{}
	}
	info.Reasons = j.entity(&info)
	return info, nil
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

// EditEntity replaces the state of an entity.
func (s *Service) EditEntity(ctx context.Context, r api.EditRequest) (version model.EntityVersion, err error) {
	v := s.check("edit entity")
	v.Entity(r.Address)
	v.RequestID(r.RequestID)
	v.Payload("state", r.State)
	if r.Address.Stateless() {
		v.Wrong("%s is a service: it has no state", r.Address.EntityName())
	}
	if len(r.State.Data) == 0 {
		v.Wrong("the state is empty")
	}
	if r.Version.Number < 0 || r.Version.Changed < 0 {
		v.Wrong("the version %s is below zero", r.Version)
	}
	if err := v.Err(); err != nil {
		return version, err
	}

	a, err := s.send(ctx, &model.Message{
		Kind: model.MessageMailbox, Name: model.MailboxEdit, To: r.Address, ID: r.Version.String(), Input: r.State, RequestID: r.RequestID,
	})
	if err != nil {
		return version, err
	}
	version, ok := model.ParseEntityVersion(string(a.Output.Data))
	if !ok {
		return version, fault.New(fault.Internal, "edit %s: the owner answers with the version %.80q", r.Address, a.Output.Data)
	}

	return version, nil
}

// Mailbox asks the owner of an entity to list the calls in its mailbox, or to act on one of these
// calls. If no live node owns the entity, the list has only the calls that are stored.
func (s *Service) Mailbox(ctx context.Context, r api.MailboxRequest) (model.Calls, error) {
	v := s.check("mailbox")
	v.Entity(r.Address)
	if r.Do == model.MailboxEdit {
		v.Wrong("an edit is a request of its own")
	}
	if r.Do != model.MailboxList && (r.Do != model.MailboxInterrupt || r.ID != "") {
		v.Text("the id of the call", r.ID, s.limits.Name)
	}
	if r.Limit < 0 {
		v.Wrong("the limit %d is below zero", r.Limit)
	}
	if err := v.Err(); err != nil {
		return model.Calls{}, err
	}
	if r.Do == model.MailboxList {
		return s.listMailbox(ctx, r)
	}

	a, err := s.send(ctx, &model.Message{Kind: model.MessageMailbox, To: r.Address, Name: r.Do, ID: r.ID})
	if err != nil {
		return model.Calls{}, err
	}

	return model.DecodeCalls(a.Output)
}

// listMailbox returns a page of the waiting calls of an entity.
func (s *Service) listMailbox(ctx context.Context, r api.MailboxRequest) (c model.Calls, err error) {
	after, ok := model.ParseMailboxMark(r.Cursor)
	if !ok {
		return c, notOurs("mailbox", r.Cursor)
	}
	owned, err := s.hasOwner(ctx, r.Address)
	if err != nil {
		return c, err
	}

	if owned {
		a, err := s.send(ctx, &model.Message{Kind: model.MessageMailbox, To: r.Address, Name: r.Do, ID: r.Cursor})
		if err != nil {
			return c, err
		}
		c, err = model.DecodeCalls(a.Output)
		if err != nil {
			return c, err
		}
	} else if c, err = s.storedCalls(ctx, r.Address, after); err != nil {
		return c, err
	}

	c.Page(r.Limit)
	return c, nil
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

// storedCalls returns a page of the stored part of a mailbox. The total in the result is the number
// of calls up to the end of the page, because the later calls are not counted.
func (s *Service) storedCalls(ctx context.Context, a model.Address, after model.MailboxMark) (c model.Calls, err error) {
	key, seq := store.EntityKey{Shard: s.shard(a), Address: a}, after.Seq()
	for len(c.Calls) <= model.MailboxListed {
		items, err := s.store.LoadMailbox(ctx, key, seq, model.MailboxListed+1-len(c.Calls), s.limits.Payload)
		if err != nil {
			return model.Calls{}, err
		}
		if len(items) == 0 {
			break
		}

		for i := range items {
			it := &items[i]
			c.Calls = append(c.Calls, model.CallOf(after.Position+len(c.Calls)+1, it.Seq, it.At, &it.Message))
			seq = it.Seq
		}
	}

	c.Total = after.Position + len(c.Calls)
	c.Page(model.MailboxListed)

	return c, nil
}

// JoinEntities adds a worker that has the code of entities and services.
func (s *Service) JoinEntities(_ context.Context, w api.EntityWorker, offer model.EntityOffer) (api.EntitySession, error) {
	if s.engine == nil {
		return nil, fault.New(fault.Denied, "the store is open for reading only")
	}
	v := s.check("join")
	v.Tenant(offer.Tenant)
	if offer.Slots < 0 {
		v.Wrong("it has %d slots", offer.Slots)
	}

	for i := range offer.Types {
		t := &offer.Types[i]
		v.Entity(model.Address{Tenant: offer.Tenant, Type: t.Type, Key: "key"})
		for _, name := range t.Views {
			v.Name("view", name)
		}
		if t.Concurrency < 0 || t.Mailbox < 0 || t.MailboxBytes < 0 || t.Idle < 0 || t.TTL < 0 || t.IdleTTL < 0 {
			v.Wrong("%s has a concurrency, a mailbox, an idle time or a TTL below zero", t.Type)
		}
		if t.StateVersion < 0 || t.StateVersion > model.MaxStateVersion || t.Log < 0 || t.Log > model.MaxOperationLog {
			v.Wrong("%s has a state version of %d and a log of %d: the limits are %d and %d", t.Type, t.StateVersion, t.Log, model.MaxStateVersion, model.MaxOperationLog)
		}
		if t.MailboxBytes > model.MaxMailboxBytes {
			v.Wrong("%s has a mailbox of %d bytes: the limit is %d", t.Type, t.MailboxBytes, model.MaxMailboxBytes)
		}
	}

	if err := v.Err(); err != nil {
		return nil, err
	}
	return s.engine.JoinEntities(w, offer), nil
}
