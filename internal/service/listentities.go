package service

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"strings"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// Bounds of one page of a list of entities with conditions that the store does not know. The
// service reads rows in portions of entityPortion, because each row contains a whole state, and
// stops after maxScanned rows. Such a page is short or even empty, and its cursor continues after
// the last row that was read.
const (
	entityPortion = 100
	maxScanned    = 5000
)

// ListEntities returns entities in the order of type and key. If the request selects entities with
// waiting calls, the list is in the order of shards, because no other order is stored.
func (s *Service) ListEntities(ctx context.Context, r api.EntityListRequest) (page api.EntityListPage, err error) {
	v := s.check("list entities")
	v.Tenant(r.Tenant)
	if r.Type != "" {
		v.Text("the type", r.Type, s.limits.Name)
	}
	if r.KeyPrefix != "" {
		v.Text("the beginning of the key", r.KeyPrefix, s.limits.Key)
	}
	if r.MinVersion < 0 || r.MaxVersion < 0 || r.ChangedFrom < 0 || r.ChangedTo < 0 {
		v.Wrong("a version or a time is below zero")
	}
	if r.Services && !r.Waiting {
		v.Wrong("services have no state: list the ones that have waiting calls")
	}
	if err := v.Err(); err != nil {
		return page, err
	}

	w := entityWalk{service: s, request: &r, limit: pageSize(r.Limit)}
	if r.Waiting {
		return w.waiting(ctx)
	}

	return w.rows(ctx)
}

// entityWalk reads one page of a list of entities.
type entityWalk struct {
	service *Service
	request *api.EntityListRequest
	now     model.Time // the time of the store; zero until it is needed
	limit   int
	page    api.EntityListPage
	scanned int
}

// rows walks along the rows, by type and key.
func (w *entityWalk) rows(ctx context.Context) (api.EntityListPage, error) {
	r := w.request
	q := store.EntityQuery{Tenant: r.Tenant, Type: r.Type, KeyPrefix: r.KeyPrefix, Locked: r.Locked}
	if r.Cursor != "" {
		raw, err := base64.RawURLEncoding.DecodeString(r.Cursor)
		kind, key, ok := strings.Cut(string(raw), "\x00")
		if err != nil || !ok {
			return api.EntityListPage{}, notOurs("list entities", r.Cursor)
		}
		q.After = model.Address{Tenant: q.Tenant, Type: kind, Key: key}
	}

	for {
		if q.Limit = w.limit - len(w.page.Entities); w.isPicky() {
			q.Limit = min(q.Limit, entityPortion)
		}
		found, err := w.service.store.ListEntities(ctx, q)
		if err != nil {
			return api.EntityListPage{}, err
		}
		for i := range found.Entities {
			if err := w.add(ctx, &found.Entities[i]); err != nil {
				return api.EntityListPage{}, err
			}
			q.After = found.Entities[i].Address
		}

		if !found.More {
			return w.page, nil
		}
		if w.isOver() || !w.isPicky() {
			w.page.Cursor = base64.RawURLEncoding.EncodeToString([]byte(q.After.Type + "\x00" + q.After.Key))
			return w.page, nil
		}
	}
}

// isPicky reports whether the request has conditions that the store cannot check, so that the
// service must check each row.
func (w *entityWalk) isPicky() bool {
	r := w.request
	return r.MinVersion > 0 || r.MaxVersion > 0 || r.ChangedFrom > 0 || r.ChangedTo > 0 || r.Expired
}

// isOver reports whether the page ends here.
func (w *entityWalk) isOver() bool {
	return len(w.page.Entities) >= w.limit || w.scanned >= maxScanned
}

// add adds an entity to the page, if the conditions hold. An entity whose TTL has passed is listed
// only if the request asks for such entities, because its owner is about to remove it.
func (w *entityWalk) add(ctx context.Context, n *model.Entity) error {
	w.scanned++
	r := w.request
	expired, err := w.isExpired(ctx, n)
	if err != nil {
		return err
	}
	if expired && r.Waiting && !r.Expired {
		n, expired = &model.Entity{Address: n.Address}, false // its calls find no state
	}

	switch {
	case expired != r.Expired:
	case r.Locked && !n.Locked():
	case n.Version < r.MinVersion || r.MaxVersion > 0 && n.Version > r.MaxVersion:
	case n.Changed < r.ChangedFrom || r.ChangedTo > 0 && n.Changed >= r.ChangedTo:
	default:
		listed := *n
		listed.Log = nil // only the description of one entity has it
		w.page.Entities = append(w.page.Entities, listed)
	}
	return nil
}

// isExpired reports whether the TTL of a state has passed, by the clock of the store.
func (w *entityWalk) isExpired(ctx context.Context, n *model.Entity) (bool, error) {
	if n.Expires == 0 {
		return false, nil
	}
	if w.now == 0 {
		j, err := w.service.judge(ctx, w.request.Tenant)
		if err != nil {
			return false, err
		}
		w.now = j.world.Now()
	}
	return n.Expired(w.now), nil
}

// waiting walks along the entities that have stored calls, shard by shard.
func (w *entityWalk) waiting(ctx context.Context) (api.EntityListPage, error) {
	st := w.service.store
	mark, err := w.parseMark()
	if err != nil {
		return api.EntityListPage{}, err
	}
	shards := make([]model.ShardID, st.Info().Shards)
	for i := range shards {
		shards[i] = model.ShardID(i)
	}

	for {
		keys, err := st.LoadMailboxes(ctx, shards, mark, entityPortion)
		if err != nil {
			return api.EntityListPage{}, err
		}
		for _, k := range keys {
			if k.Compare(mark) <= 0 {
				continue // the walk has moved past this shard
			}
			if mark, err = w.look(ctx, k); err != nil {
				return api.EntityListPage{}, err
			}
			if w.isOver() {
				w.page.Cursor = w.cursor(mark)
				return w.page, nil
			}
		}

		if len(keys) < entityPortion {
			return w.page, nil
		}
	}
}

// look adds an entity that has stored calls to the page, and returns the place after that entity.
// The entities of a shard are ordered by tenant, so the walk skips the entities of other tenants.
func (w *entityWalk) look(ctx context.Context, k store.EntityKey) (store.EntityKey, error) {
	r := w.request
	switch {
	case k.Address.Tenant < r.Tenant:
		w.scanned++
		return w.begin(k.Shard), nil
	case k.Address.Tenant > r.Tenant:
		w.scanned++
		return w.begin(k.Shard + 1), nil
	case r.Type != "" && k.Address.Type != r.Type, !strings.HasPrefix(k.Address.Key, r.KeyPrefix), r.Type == "" && k.Address.Stateless() != r.Services:
		w.scanned++
		return k, nil
	}

	found, err := w.service.store.LoadEntity(ctx, k, 1, w.service.limits.Payload)
	if err != nil {
		return k, err
	}
	n := model.Entity{Address: k.Address}
	if found.Entity != nil {
		n = *found.Entity
	}
	if len(found.Mailbox) > 0 { // otherwise the calls have run since
		err = w.add(ctx, &n)
	}

	return k, err
}

// begin returns the place before the first entity of the tenant in a shard.
func (w *entityWalk) begin(s model.ShardID) store.EntityKey {
	return store.EntityKey{Shard: s, Address: model.Address{Tenant: w.request.Tenant}}
}

// cursor encodes a place of this tenant.
func (w *entityWalk) cursor(k store.EntityKey) string {
	raw := binary.BigEndian.AppendUint16(nil, uint16(k.Shard))
	return base64.RawURLEncoding.EncodeToString(append(raw, k.Address.Type+"\x00"+k.Address.Key...))
}

// parseMark decodes the cursor of a request.
func (w *entityWalk) parseMark() (store.EntityKey, error) {
	mark := w.begin(0)
	if w.request.Cursor == "" {
		return mark, nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(w.request.Cursor)
	if err != nil || len(raw) < 2 {
		return mark, notOurs("list entities", w.request.Cursor)
	}

	kind, key, ok := strings.Cut(string(raw[2:]), "\x00")
	mark = w.begin(model.ShardID(binary.BigEndian.Uint16(raw)))
	if mark.Address.Type, mark.Address.Key = kind, key; !ok || mark.Shard > model.MaxShards {
		return mark, notOurs("list entities", w.request.Cursor)
	}

	return mark, nil
}
