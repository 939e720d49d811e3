package flovyn

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// maxPlaces bounds the addresses that the door remembers.
const maxPlaces = 50_000

// places remembers the addresses that belong to ids. When it is full, it forgets the older half.
type places struct {
	mu       sync.Mutex
	now, old map[placeKey]model.Address
}

type placeKey struct{ tenant, id string }

func newPlaces() *places { return &places{now: map[placeKey]model.Address{}} }

func (p *places) put(id string, a model.Address) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.now) >= maxPlaces/2 {
		p.now, p.old = map[placeKey]model.Address{}, p.now
	}
	p.now[placeKey{a.Tenant, id}] = a
}

func (p *places) get(tenant, id string) (model.Address, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := placeKey{tenant, id}
	a, ok := p.now[k]
	if !ok {
		a, ok = p.old[k]
	}
	return a, ok
}

// findFlow returns the address of an execution.
func (d *Door) findFlow(ctx context.Context, tenant, id string) (model.Address, error) {
	id, err := parseID("workflow execution", id)
	if err != nil {
		return model.Address{}, err
	}
	return d.find(ctx, tenant, id, Prefix, "workflow execution")
}

// findTask returns the address of a task.
func (d *Door) findTask(ctx context.Context, tenant, id string) (model.Address, error) {
	id, err := parseID("task", id)
	if err != nil {
		return model.Address{}, err
	}
	return d.find(ctx, tenant, id, model.TaskPrefix, "task")
}

func (d *Door) find(ctx context.Context, tenant, id, prefix, what string) (model.Address, error) {
	if a, ok := d.places.get(tenant, id); ok && strings.HasPrefix(a.Type, prefix) {
		return a, nil
	}
	page, err := d.backend.List(ctx, api.ListRequest{Tenant: tenant, Key: id, Limit: 10})
	if err != nil {
		return model.Address{}, err
	}
	for i := range page.Executions {
		if a := page.Executions[i].Start.Address; strings.HasPrefix(a.Type, prefix) {
			d.places.put(id, a)
			return a, nil
		}
	}
	return model.Address{}, fault.New(fault.NotFound, "there is no %s %s", what, id)
}

// findPromise returns the address of the execution that has a promise.
func (d *Door) findPromise(ctx context.Context, tenant, id string) (model.Address, error) {
	id, err := parseID("promise", id)
	if err != nil {
		return model.Address{}, err
	}
	if a, ok := d.places.get(tenant, id); ok {
		return a, nil
	}

	page, err := d.backend.List(ctx, api.ListRequest{Tenant: tenant, KeyPrefix: promisePrefix(id), Limit: 10})
	if err != nil {
		return model.Address{}, err
	}

	for i := range page.Executions {
		a := page.Executions[i].Start.Address
		if !strings.HasPrefix(a.Type, Prefix) {
			continue
		}
		j, err := d.journal(ctx, a, false)
		if err != nil {
			return model.Address{}, err
		}
		if j.byID[id] != nil {
			d.places.put(id, a)
			return a, nil
		}
	}

	return model.Address{}, fault.New(fault.NotFound, "there is no promise %s", id)
}

// journal reads the event log of an execution from the store.
func (d *Door) journal(ctx context.Context, a model.Address, older bool) (*journal, error) {
	j := newJournal(a.Key, older)
	r := api.HistoryRequest{Target: api.Target{Address: a}, After: -1}
	for {
		page, err := d.backend.History(ctx, r)
		if err != nil {
			return nil, err
		}
		for i := range page.Events {
			j.add(&page.Events[i])
		}
		if !page.More || len(page.Events) == 0 {
			return j, nil
		}
		// Read all pages from the run of the first page.
		r.Target.Run, r.After = page.Run, page.Events[len(page.Events)-1].Seq
	}
}

// sortReasons puts reasons into an order that does not depend on maps.
func sortReasons(rs []model.Reason) {
	slices.SortFunc(rs, func(a, b model.Reason) int {
		if c := strings.Compare(string(a.Code), string(b.Code)); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
}
