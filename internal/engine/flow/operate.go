package flow

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/perdure/perdure/internal/core/breaker"
	"github.com/perdure/perdure/internal/core/rule"
	"github.com/perdure/perdure/internal/engine/gate"
	"github.com/perdure/perdure/internal/engine/queue"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// maxTries is the number of times that a node tries a write if other nodes write first each time.
const maxTries = 10

// change stores or removes a setting. make gets the current setting, or nil if there is none. It
// returns the new body, nil to remove the setting, or needed = false to leave the setting as it is.
// If another node changes the setting at the same moment, change reads it and calls make again.
func (f *Flow) change(ctx context.Context, key store.SettingKey, make func(old *store.Setting) (body []byte, needed bool, err error)) error {
	if f.node == nil {
		return fault.New(fault.Denied, "setting %s: the store is open for reading only", key)
	}
	leave, err := f.enter(ctx)
	if err != nil {
		return err
	}

	defer leave()
	for try := 1; ; try++ {
		if err := f.refresh(ctx); err != nil {
			return err
		}
		f.mu.Lock()
		var old *store.Setting
		if s, ok := f.all[key]; ok {
			old = &s
		}
		f.mu.Unlock()
		body, needed, err := make(old)
		if err != nil || !needed {
			return err
		}

		next := store.Setting{SettingKey: key, Body: body, Deleted: body == nil}
		version := int64(0)
		if old != nil {
			version = old.Version
		}

		if next.Deleted {
			next.Version, err = f.store.DeleteSetting(ctx, key, version)
		} else {
			next.Version, err = f.store.PutSetting(ctx, next, version)
		}

		if err == nil {
			if now, err := f.now(ctx); err == nil {
				next.At = now // about the time at which the store recorded the setting
			}
			f.record(next)
			return f.keep(ctx, &next, old)
		}

		if conflict := (*store.VersionError)(nil); !errors.As(err, &conflict) || try == maxTries {
			return err
		}
	}
}

// keep checks a rule that this process has just set. If the rule contradicts an earlier one that
// was set at the same moment, keep undoes the change: it removes the rule, or restores the rule
// that was replaced. The process that has set the earlier rule does not see the later one. The
// caller must hold the turn.
func (f *Flow) keep(ctx context.Context, made, old *store.Setting) error {
	if made.Deleted || made.Kind != settingLimit && made.Kind != settingBreaker {
		return nil
	}
	if err := f.refresh(ctx); err != nil {
		return fault.New(fault.KindOf(err), "%s %s is set, but it is unknown whether it contradicts other rules: %w", made.Kind, made.Name, err)
	}
	var limits []rule.Limit
	var breakers []rule.Breaker
	f.mu.Lock()

	for _, s := range f.sortedSettings() {
		if s.Version > made.Version {
			break
		}
		if l, err := readLimit(&s); s.Kind == settingLimit && err == nil {
			limits = append(limits, l)
		} else if b, err := readBreaker(&s); s.Kind == settingBreaker && err == nil {
			breakers = append(breakers, b)
		}
	}

	f.mu.Unlock()
	_, conflict := rule.NewSet(limits, breakers)
	if conflict == nil {
		return nil
	}
	undone := store.Setting{SettingKey: made.SettingKey, Deleted: old == nil}
	var err error

	if old == nil {
		undone.Version, err = f.store.DeleteSetting(ctx, made.SettingKey, made.Version)
	} else {
		undone.Body = old.Body
		undone.Version, err = f.store.PutSetting(ctx, undone, made.Version)
	}

	if err == nil {
		f.record(undone)
	}
	// The removal may fail. In that case either another node has changed the rule since, or the
	// rule stays in the store, and all nodes leave it out and log that.
	return conflict
}

// SetLimit creates a rule of a tenant or replaces the rule of that name. A disabled rule stays
// disabled. SetLimit refuses a rule that contradicts other rules. Unless anyQueue is true, it also
// refuses a rule for a queue that has neither workers nor waiting tasks. A refused call changes
// nothing.
func (f *Flow) SetLimit(ctx context.Context, tenant string, l rule.Limit, anyQueue bool) error {
	known := []string(nil)
	if !anyQueue {
		var err error
		if known, err = f.queues(ctx, tenant); err != nil {
			return err
		}
	}
	e := f.editLimit(tenant, l.Name, known, func(old *store.Setting) (rule.Limit, error) {
		l.Disabled, l.Why = false, ""
		if old != nil {
			// If the old rule cannot be read, the new one replaces it and is enabled.
			if was, err := readLimit(old); err == nil {
				l.Disabled, l.Why = was.Disabled, was.Why
			}
		}
		return l, nil
	})
	return f.change(ctx, e.key, e.make)
}

// DisableLimit makes a rule bound nothing until EnableLimit. The rest of the rule stays as it is.
func (f *Flow) DisableLimit(ctx context.Context, tenant, name, why string) error {
	return f.switchLimit(ctx, tenant, name, func(l *rule.Limit) { l.Disabled, l.Why = true, why })
}

// EnableLimit undoes DisableLimit. Like SetLimit, it refuses a rule that contradicts another one.
func (f *Flow) EnableLimit(ctx context.Context, tenant, name string) error {
	return f.switchLimit(ctx, tenant, name, func(l *rule.Limit) { l.Disabled, l.Why = false, "" })
}

// switchLimit changes a rule that exists.
func (f *Flow) switchLimit(ctx context.Context, tenant, name string, do func(*rule.Limit)) error {
	e := f.editLimit(tenant, name, nil, func(old *store.Setting) (l rule.Limit, err error) {
		if old == nil {
			return l, fault.New(fault.NotFound, "there is no rule for %s %s", settingLimit, name)
		}
		if l, err = readLimit(old); err == nil {
			do(&l)
		}
		return l, err
	})
	return f.change(ctx, e.key, e.make)
}

// CheckLimit returns the error that SetLimit would return with anyQueue set.
func (f *Flow) CheckLimit(tenant string, l rule.Limit) error {
	_, _, err := f.editLimit(tenant, l.Name, nil, func(*store.Setting) (rule.Limit, error) { return l, nil }).make(nil)
	return err
}

// edit is a change of one setting, in the form that the method change takes.
type edit struct {
	key  store.SettingKey
	make func(old *store.Setting) (body []byte, needed bool, err error)
}

// editLimit returns the edit that stores the limit that next returns. next gets the stored limit,
// or nil if there is none. If known is not empty, the limit must be for one of these queues.
func (f *Flow) editLimit(tenant, name string, known []string, next func(old *store.Setting) (rule.Limit, error)) edit {
	return edit{store.SettingKey{Tenant: tenant, Kind: settingLimit, Name: name}, func(old *store.Setting) ([]byte, bool, error) {
		l, err := next(old)
		if err != nil {
			return nil, false, err
		}
		if err := checkReason(settingLimit, name, l.Why); err != nil {
			return nil, false, err
		}
		l.Tenant = tenant
		body, err := json.Marshal(l)
		if err != nil {
			return nil, false, fault.New(fault.Invalid, "limit %s: %w", name, err)
		}

		one, err := rule.NewSet([]rule.Limit{l}, nil)
		if err != nil {
			return nil, false, err
		}
		if len(known) > 0 {
			if err := one.CheckQueues(known); err != nil {
				return nil, false, fault.WithHint(err, "queues that have workers, or waiting tasks here: %s", strings.Join(known, ", "))
			}
		}
		limits, breakers := f.rulesOf(tenant)
		limits = slices.DeleteFunc(limits, func(o rule.Limit) bool { return o.Name == l.Name })
		_, err = rule.NewSet(append(limits, l), breakers)
		return body, old == nil || string(old.Body) != string(body), err
	}}
}

// rulesOf returns the rules of a tenant. Rules of other tenants cannot contradict them.
func (f *Flow) rulesOf(tenant string) ([]rule.Limit, []rule.Breaker) {
	f.mu.Lock()
	limits, breakers, _ := f.storedRules()
	f.mu.Unlock()
	return slices.DeleteFunc(limits, func(o rule.Limit) bool { return o.Tenant != tenant }),
		slices.DeleteFunc(breakers, func(o rule.Breaker) bool { return o.Tenant != tenant })
}

// queues returns the queues of a tenant that workers of any node serve, or in which tasks of this
// node wait. It returns none on a node without workers of its own. Such a node may be the first of
// a deployment, so it cannot know whether a queue without workers is a mistake or its workers come
// later.
func (f *Flow) queues(ctx context.Context, tenant string) (known []string, err error) {
	s := f.participant()
	if f.node == nil || s != nil && !f.node.Works() {
		return nil, nil
	}
	v, err := f.store.Members(ctx)
	if err != nil {
		return nil, err
	}

	for i := range v.Members {
		for _, w := range v.Members[i].Serves {
			if w.Tenant == tenant && v.Members[i].Expires >= v.Now {
				known = append(known, w.Queues...)
			}
		}
	}

	if s != nil {
		s.board.Look(func(_ *BoardGate, tasks *queue.Board) {
			for _, q := range tasks.Stats().Queues {
				if q.Tenant == tenant {
					known = append(known, q.Queue)
				}
			}
		})
	}

	slices.Sort(known)
	return slices.Compact(known), nil
}

// DeleteLimit removes a rule. Tasks that name it wait until a rule of that name exists again.
func (f *Flow) DeleteLimit(ctx context.Context, tenant, name string) error {
	return f.remove(ctx, tenant, settingLimit, name)
}

func (f *Flow) remove(ctx context.Context, tenant, kind, name string) error {
	return f.change(ctx, store.SettingKey{Tenant: tenant, Kind: kind, Name: name}, func(old *store.Setting) ([]byte, bool, error) {
		if old == nil {
			return nil, false, fault.New(fault.NotFound, "there is no rule for %s %s", kind, name)
		}
		return nil, true, nil
	})
}

// ruleName returns the name of the setting of a breaker rule, which is the name of the breaker.
func ruleName(b *rule.Breaker) string {
	if b.Kind != "" {
		return rule.KindBreaker(b.Kind)
	}
	return b.Name
}

// SetBreaker creates a rule for breakers or replaces the rule of the same name.
func (f *Flow) SetBreaker(ctx context.Context, tenant string, b rule.Breaker) error {
	e, err := f.editBreaker(tenant, b)
	if err != nil {
		return err
	}
	return f.change(ctx, e.key, e.make)
}

// editBreaker returns the edit that sets a rule for breakers.
func (f *Flow) editBreaker(tenant string, b rule.Breaker) (edit, error) {
	b.Tenant = tenant
	body, err := json.Marshal(b)
	if err != nil {
		return edit{}, fault.New(fault.Invalid, "breaker %s: %w", ruleName(&b), err)
	}
	return edit{store.SettingKey{Tenant: tenant, Kind: settingBreaker, Name: ruleName(&b)}, func(*store.Setting) ([]byte, bool, error) {
		limits, breakers := f.rulesOf(tenant)
		breakers = slices.DeleteFunc(breakers, func(o rule.Breaker) bool { return ruleName(&o) == ruleName(&b) })
		_, err := rule.NewSet(limits, append(breakers, b))
		return body, true, err
	}}, nil
}

// DeleteBreaker removes a rule. From then on, breakers that tasks name have the defaults.
func (f *Flow) DeleteBreaker(ctx context.Context, tenant, name string) error {
	return f.remove(ctx, tenant, settingBreaker, name)
}

// Trip opens a breaker. It creates the breaker if there is none.
func (f *Flow) Trip(ctx context.Context, id rule.BreakerID, why string) error {
	return f.operate(ctx, id, true, func(now model.Time, o *breaker.Breaker) { o.Trip(now, why) })
}

// Pause makes a breaker refuse everything before the given time; a time in the past ends the pause.
// It creates the breaker if there is none.
func (f *Flow) Pause(ctx context.Context, id rule.BreakerID, until model.Time, why string) error {
	return f.operate(ctx, id, true, func(now model.Time, o *breaker.Breaker) { o.PauseUntil(now, until, why) })
}

// Reset closes a breaker and ends its pause.
func (f *Flow) Reset(ctx context.Context, id rule.BreakerID) error {
	return f.operate(ctx, id, false, func(now model.Time, o *breaker.Breaker) { o.Reset(now) })
}

// operate changes the state of a breaker in the store and in this process.
func (f *Flow) operate(ctx context.Context, id rule.BreakerID, create bool, do func(model.Time, *breaker.Breaker)) error {
	now, err := f.now(ctx)
	if err != nil {
		return err
	}

	if f.node != nil {
		if err := f.flush(ctx); err != nil { // first store the earlier changes of this process
			return err
		}
	}

	return f.change(ctx, store.SettingKey{Tenant: id.Tenant, Kind: settingState, Name: id.Name}, func(old *store.Setting) ([]byte, bool, error) {
		f.mu.Lock()
		config := f.rules.BreakerConfig(id)
		f.mu.Unlock()
		o := breaker.New(config, now)

		switch {
		case old != nil:
			var err error
			if o, err = breaker.Decode(old.Body); err != nil {
				return nil, false, fault.New(fault.KindOf(err), "breaker %s: %w", id, err)
			}
			if o.Status(now).Config != config {
				o.Configure(now, config)
			}
		case !create && !f.usesBreaker(now, id):
			return nil, false, fault.New(fault.NotFound, "there is no breaker %s", id)
		}

		do(now, o)
		body, err := o.Encode()
		return body, true, err
	})
}

// usesBreaker reports whether a task of this process has used a breaker.
func (f *Flow) usesBreaker(now model.Time, id rule.BreakerID) bool {
	s := f.participant()
	if s == nil {
		return false
	}
	breakers, _ := s.status(now)
	return slices.ContainsFunc(breakers, func(s gate.BreakerStatus) bool { return s.ID == id })
}

// PauseQueue makes the nodes start no further tasks of a queue until ResumeQueue. Running tasks
// continue.
func (f *Flow) PauseQueue(ctx context.Context, tenant, name, why string) error {
	e, err := editQueue(tenant, name, why)
	if err != nil {
		return err
	}
	return f.change(ctx, e.key, e.make)
}

// editQueue returns the edit that pauses a queue.
func editQueue(tenant, name, why string) (edit, error) {
	if err := checkReason(settingQueue, name, why); err != nil {
		return edit{}, err
	}
	body, err := json.Marshal(pausedQueue{Why: why})
	if err != nil {
		return edit{}, fault.New(fault.Invalid, "queue %s: %w", name, err)
	}
	return edit{store.SettingKey{Tenant: tenant, Kind: settingQueue, Name: name}, func(old *store.Setting) ([]byte, bool, error) {
		return body, old == nil || string(old.Body) != string(body), nil
	}}, nil
}

// ResumeQueue undoes PauseQueue. It does nothing if the queue is not paused.
func (f *Flow) ResumeQueue(ctx context.Context, tenant, name string) error {
	return f.change(ctx, store.SettingKey{Tenant: tenant, Kind: settingQueue, Name: name}, func(old *store.Setting) ([]byte, bool, error) {
		return nil, old != nil, nil
	})
}

// State describes the flow of the tasks of a tenant.
type State struct {
	Now      model.Time
	Limits   []rule.Limit   // by name
	Rules    []rule.Breaker // by name
	Breakers []gate.BreakerStatus
	// Uses are the limits that tasks hold or wait for, in all processes that answered. Known is
	// false if no process could be asked.
	Uses  []LimitUse
	Known bool
	// Queues are the queues that this process knows. Here is false if this process executes no
	// tasks. In that case Queues is empty.
	Here   bool
	Queues []queue.QueueStats
	Paused map[string]string // by queue, with the reason
}

// StateWithUses returns State with the uses of limits. It asks all nodes for them.
func (f *Flow) StateWithUses(ctx context.Context, tenant string) (State, error) {
	uses, known, err := f.askNodes(ctx)
	if err != nil {
		return State{}, err
	}
	s, err := f.State(ctx, tenant)
	s.Known = known
	for _, u := range uses {
		if u.Resource.Tenant == tenant {
			s.Uses = append(s.Uses, u)
		}
	}
	return s, err
}

// State returns the state of the flow of a tenant's tasks. It asks no other node.
func (f *Flow) State(ctx context.Context, tenant string) (s State, err error) {
	leave, err := f.enter(ctx)
	if err != nil {
		return s, err
	}
	defer leave()
	if err := f.refresh(ctx); err != nil {
		return s, err
	}

	if s.Now, err = f.now(ctx); err != nil {
		return s, err
	}
	f.mu.Lock()
	limits, rules, _ := f.storedRules()
	stored := f.states(tenant)
	s.Paused = map[string]string{}

	for q, why := range f.paused {
		if q.Tenant == tenant {
			s.Paused[q.Name] = why
		}
	}

	set := f.rules
	f.mu.Unlock()
	for _, l := range limits {
		if l.Tenant == tenant {
			s.Limits = append(s.Limits, l)
		}
	}

	for _, b := range rules {
		if b.Tenant == tenant {
			s.Rules = append(s.Rules, b)
		}
	}

	slices.SortFunc(s.Limits, func(a, b rule.Limit) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(s.Rules, func(a, b rule.Breaker) int { return strings.Compare(ruleName(&a), ruleName(&b)) })
	if self := f.participant(); self != nil {
		s.Here = true
		breakers, stats := self.status(s.Now)
		for _, q := range stats.Queues {
			if q.Tenant == tenant {
				s.Queues = append(s.Queues, q)
			}
		}
		for _, b := range breakers {
			if b.ID.Tenant == tenant {
				s.Breakers = append(s.Breakers, b)
				delete(stored, b.ID)
			}
		}
	}

	for id, row := range stored {
		o, err := breaker.Decode(row)
		if err != nil {
			return s, fault.New(fault.KindOf(err), "breaker %s: %w", id, err)
		}
		if n := set.BreakerConfig(id); n != o.Status(s.Now).Config {
			o.Configure(s.Now, n)
		}
		s.Breakers = append(s.Breakers, gate.BreakerStatus{ID: id, Status: o.Status(s.Now)})
	}

	slices.SortFunc(s.Breakers, func(a, b gate.BreakerStatus) int { return strings.Compare(a.ID.Name, b.ID.Name) })
	return s, nil
}

// states returns the stored states of the breakers of a tenant.
func (f *Flow) states(tenant string) map[rule.BreakerID][]byte {
	rows := map[rule.BreakerID][]byte{}
	for key, s := range f.all {
		if key.Kind == settingState && key.Tenant == tenant {
			rows[rule.BreakerID{Tenant: tenant, Name: key.Name}] = s.Body
		}
	}
	return rows
}
