package flow

import (
	"context"
	"encoding/json"
	"sync"
	"sync/atomic"
	"time"

	"github.com/perdure/perdure/internal/core/rule"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// A tenant has one allowance, which is a setting of this kind and name.
const (
	settingTenant = "tenant"
	allowanceName = "allowance"
)

func allowanceKey(tenant string) store.SettingKey {
	return store.SettingKey{Tenant: tenant, Kind: settingTenant, Name: allowanceName}
}

// A node uses a count of open executions for at least recountRest, and for at least recountShare
// times as long as the count took. So counting takes at most a twentieth of the time.
const (
	recountRest  = time.Second
	recountShare = 20
)

// doors has a door for each tenant with an allowance. A door applies the allowance in this process.
type doors struct {
	mu  sync.Mutex
	all atomic.Pointer[map[string]*door] // replaced as a whole, so that a start takes no lock
}

// of returns the door of a tenant, or nil if the tenant has no allowance.
func (d *doors) of(tenant string) *door {
	if all := d.all.Load(); all != nil {
		return (*all)[tenant]
	}
	return nil
}

// set replaces the allowances. A tenant whose allowance has not changed keeps its counts.
func (d *doors) set(to map[string]rule.Allowance) {
	d.mu.Lock()
	defer d.mu.Unlock()
	next := make(map[string]*door, len(to))
	for tenant, a := range to {
		if old := d.of(tenant); old != nil && old.allowance == a {
			next[tenant] = old
		} else {
			next[tenant] = &door{tenant: tenant, allowance: a}
		}
	}
	d.all.Store(&next)
}

// door admits the starts of one tenant.
type door struct {
	tenant    string
	allowance rule.Allowance

	mu sync.Mutex
	// The number of open executions is the sum of three numbers: the last count, the executions
	// that began since, and the executions that are being started. An execution that begins while
	// the store counts may be counted twice until the next count. No execution is forgotten.
	counted, since, starting int64
	known                    bool
	recount                  time.Time // when the next count may start
	// counting is the count in progress, or nil. Two counts at the same time would both subtract
	// the executions that began before them, so executions would be forgotten.
	counting *counting
	// Starts per second: a bucket that holds the starts of one second.
	tokens float64
	filled time.Time
}

// counting is a count of open executions in progress.
type counting struct {
	done chan struct{} // closed at the end of the count
	err  error         // why the count failed; set before done is closed
}

// Bounded reports whether the number of open executions of a tenant is limited.
func (f *Flow) Bounded(tenant string) bool {
	d := f.doors.of(tenant)
	return d != nil && d.allowance.Open > 0
}

// Admit lets a client start an execution, or refuses it as Exhausted. Once the start has an answer,
// the caller must call done and say whether an execution began. exists reports whether the start
// would find an existing execution instead of beginning one. Admit calls it only if the tenant has
// no room.
func (f *Flow) Admit(ctx context.Context, tenant string, exists func(context.Context) (bool, error)) (done func(began bool), err error) {
	d := f.doors.of(tenant)
	if d == nil {
		return func(bool) {}, nil
	}
	if err := d.spend(time.Now()); err != nil {
		return nil, err
	}
	if d.allowance.Open == 0 {
		return func(bool) {}, nil
	}

	for {
		if d.enter() {
			return d.leave, nil
		}
		fresh, err := f.count(ctx, d)
		if err != nil {
			return nil, err
		}
		if fresh {
			continue
		}
		if there, err := exists(ctx); err != nil || there {
			return func(bool) {}, err
		}
		return nil, fault.New(fault.Exhausted, "tenant %s has %d open executions, which is its allowance: try again when some have ended", d.tenant, d.allowance.Open)
	}
}

// spend takes a start from the bucket.
func (d *door) spend(now time.Time) error {
	most := float64(d.allowance.Starts)
	if most == 0 {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()

	if d.filled.IsZero() {
		d.tokens = most
	} else {
		d.tokens = min(most, d.tokens+most*now.Sub(d.filled).Seconds())
	}

	d.filled = now
	if d.tokens < 1 {
		return fault.New(fault.Exhausted, "tenant %s may start %d executions per second: try again later", d.tenant, d.allowance.Starts)
	}
	d.tokens--

	return nil
}

// enter admits one more start if there is room according to the last count.
func (d *door) enter() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.known || d.counted+d.since+d.starting >= d.allowance.Open {
		return false
	}
	d.starting++
	return true
}

func (d *door) leave(began bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.starting--
	if began {
		d.since++
	}
}

// count counts the open executions of the tenant in the store, unless the last count is recent or a
// count is in progress. fresh says whether there is a new count.
func (f *Flow) count(ctx context.Context, d *door) (fresh bool, err error) {
	began := time.Now()
	d.mu.Lock()
	if d.known && (d.counting != nil || began.Before(d.recount)) {
		d.mu.Unlock()
		return false, nil
	}
	if c := d.counting; c != nil { // the first count: without it, no start can be admitted
		d.mu.Unlock()
		return c.wait(ctx)
	}
	c := &counting{done: make(chan struct{})}
	d.counting = c
	before := d.since
	d.mu.Unlock()

	n, err := f.store.Count(ctx, store.Query{Tenant: d.tenant, Statuses: []model.Status{model.Running}})
	d.mu.Lock()
	defer d.mu.Unlock()
	defer close(c.done)
	d.counting = nil
	if err != nil {
		if ctx.Err() == nil {
			c.err = err
		}
		d.recount = time.Time{}
		return false, err
	}
	d.counted, d.known, d.since = n, true, d.since-before
	d.recount = began.Add(max(recountRest, recountShare*time.Since(began)))
	return true, nil
}

// wait waits for the end of a count. If the count ended because its own caller gave up, wait
// returns fresh, so that the waiting caller tries again.
func (c *counting) wait(ctx context.Context) (fresh bool, err error) {
	select {
	case <-c.done:
		return c.err == nil, c.err
	case <-ctx.Done():
		return false, fault.New(fault.KindOf(ctx.Err()), "count the open executions: %w", context.Cause(ctx))
	}
}

// Allowance returns what a tenant may use.
func (f *Flow) Allowance(ctx context.Context, tenant string) (a rule.Allowance, err error) {
	leave, err := f.enter(ctx)
	if err != nil {
		return a, err
	}
	defer leave()
	if err := f.refresh(ctx); err != nil {
		return a, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if s, ok := f.all[allowanceKey(tenant)]; ok {
		err = readSetting(&s, &a)
	}
	return a, err
}

// SetAllowance sets what a tenant may use. A zero allowance removes all bounds.
func (f *Flow) SetAllowance(ctx context.Context, tenant string, a rule.Allowance) error {
	return f.ChangeAllowance(ctx, tenant, func(rule.Allowance) rule.Allowance { return a })
}

// ChangeAllowance changes what a tenant may use. make gets the current allowance and returns the
// new one.
func (f *Flow) ChangeAllowance(ctx context.Context, tenant string, make func(rule.Allowance) rule.Allowance) error {
	e := editAllowance(tenant, make)
	return f.change(ctx, e.key, e.make)
}

// editAllowance returns the edit that changes an allowance.
func editAllowance(tenant string, make func(rule.Allowance) rule.Allowance) edit {
	return edit{allowanceKey(tenant), func(old *store.Setting) (body []byte, needed bool, err error) {
		var a rule.Allowance
		if old != nil {
			if err := readSetting(old, &a); err != nil {
				a = rule.Allowance{} // a damaged allowance sets no bound, and this edit replaces it
			}
		}

		a = make(a)
		switch err := a.Validate(); {
		case err != nil:
			return nil, false, fault.New(fault.Invalid, "allowance of tenant %s: %w", tenant, err)
		case a == (rule.Allowance{}):
			return nil, old != nil, nil
		}
		body, err = json.Marshal(a)
		return body, true, err
	}}
}

// allowances returns the known allowances. An allowance that cannot be read sets no bound, and
// allowances logs it. The caller must hold f.mu.
func (f *Flow) allowances() map[string]rule.Allowance {
	all := map[string]rule.Allowance{}
	for key, s := range f.all {
		if key.Kind != settingTenant || key.Name != allowanceName {
			continue
		}
		var a rule.Allowance
		if err := readSetting(&s, &a); err != nil {
			f.log.Error("the allowance of a tenant cannot be read and is not applied", "tenant", key.Tenant, "error", err)
			continue
		}
		all[key.Tenant] = a
	}
	return all
}

// Retention returns how long closed runs are kept, by tenant, where the tenant has its own time.
func (f *Flow) Retention() map[string]time.Duration {
	keep := map[string]time.Duration{}
	if all := f.doors.all.Load(); all != nil {
		for tenant, d := range *all {
			if d.allowance.Retention > 0 {
				keep[tenant] = d.allowance.Retention
			}
		}
	}
	return keep
}

// weights returns the shares of tenants in queues.
func (f *Flow) weights() map[string]int {
	weights := map[string]int{}
	if all := f.doors.all.Load(); all != nil {
		for tenant, d := range *all {
			if d.allowance.Weight > 0 {
				weights[tenant] = d.allowance.Weight
			}
		}
	}
	return weights
}
