package sim

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"slices"

	"github.com/perdure/perdure/internal/core/breaker"
	"github.com/perdure/perdure/internal/core/rule"
	"github.com/perdure/perdure/internal/engine/gate"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// Kinds of settings, as engine/flow has them.
const (
	settingLimit   = "limit"
	settingBreaker = "breaker"
	settingState   = "breaker_state"
	settingQueue   = "queue"
)

// flow is what people have set for tasks as a process knows it: package engine/flow, with events in place of goroutines.
type flow struct {
	p      *proc
	seen   int64
	all    map[store.SettingKey]store.Setting
	rules  *rule.Set
	paused map[string]bool
	dirty  map[string][]byte // states of breakers that are to be stored
	saving bool
	busy   bool
	line   []func(leave func()) // who waits for a turn
}

func newFlow(p *proc) *flow {
	return &flow{p: p, all: map[store.SettingKey]store.Setting{}, dirty: map[string][]byte{}, paused: map[string]bool{}}
}

// enter lets somebody read or change settings when it is his turn.
func (f *flow) enter(do func(leave func())) {
	if f.busy {
		f.line = append(f.line, do)
		return
	}
	f.busy = true
	do(func() {
		f.busy = false
		if len(f.line) > 0 {
			next := f.line[0]
			f.line = f.line[1:]
			f.enter(next)
		}
	})
}

// ask makes a call to the store.
func (f *flow) ask(name string, write bool, exec func() error, then func(error)) {
	s := f.p.s
	var err error
	s.disk.call(&request{
		p: f.p, name: name, fate: s.disk.draw(faultSettingFails, faultSettingLost, write),
		exec: func(done func()) {
			err = exec()
			done()
		},
		ok: func() { then(err) }, bad: then,
	})
}

// load reads what has changed, unless everything up to the counter is known.
func (f *flow) load(counter int64, then func(error)) {
	f.enter(func(leave func()) {
		if f.seen >= counter {
			leave()
			then(nil)
			return
		}
		f.refresh(func(err error) {
			leave()
			then(err)
		})
	})
}

// refresh reads what has changed and applies it. It is called in turn.
func (f *flow) refresh(then func(error)) {
	var c store.SettingChanges
	after := f.seen
	f.ask("load settings", false, func() (err error) {
		c, err = f.p.s.disk.mem.LoadSettings(background, after)
		return err
	}, func(err error) {
		if err != nil {
			then(err)
			return
		}
		changed := map[store.SettingKey]bool{}
		if c.Whole {
			here := map[store.SettingKey]bool{}
			for i := range c.Changed {
				here[c.Changed[i].SettingKey] = true
			}
			for key := range f.all {
				if !here[key] {
					delete(f.all, key)
					changed[key] = true
				}
			}
		}
		for _, x := range c.Changed {
			if old, ok := f.all[x.SettingKey]; x.Version <= old.Version || x.Deleted && !ok {
				continue // our own
			}
			changed[x.SettingKey] = true
			f.keep(x)
		}
		f.seen = max(f.seen, c.Counter)
		f.apply(changed)
		then(nil)
	})
}

func (f *flow) keep(x store.Setting) {
	if x.Deleted {
		delete(f.all, x.SettingKey)
	} else {
		f.all[x.SettingKey] = x
	}
}

// apply has the node act on settings that have changed.
func (f *flow) apply(changed map[store.SettingKey]bool) {
	rules, states := f.rules == nil, map[string][]byte{}
	for key := range changed {
		switch key.Kind {
		case settingLimit, settingBreaker:
			rules = true
		case settingState:
			states[key.Name] = f.all[key].Body
		}
	}
	if rules {
		f.rules = f.parse()
	}
	f.paused = map[string]bool{}
	for key := range f.all {
		if key.Kind == settingQueue {
			f.paused[key.Name] = true
		}
	}
	if inc := f.p.inc; inc != nil {
		inc.board.configure(f.rules, f.paused, states)
	}
}

// parse makes a set of the rules, which never contradict each other here.
func (f *flow) parse() *rule.Set {
	var limits []rule.Limit
	var breakers []rule.Breaker
	for _, key := range slices.SortedFunc(maps.Keys(f.all), store.SettingKey.Compare) {
		var err error
		switch body := f.all[key].Body; key.Kind {
		case settingLimit:
			limits = append(limits, rule.Limit{})
			err = json.Unmarshal(body, &limits[len(limits)-1])
		case settingBreaker:
			breakers = append(breakers, rule.Breaker{})
			err = json.Unmarshal(body, &breakers[len(breakers)-1])
		}
		if err != nil {
			f.p.s.fail("setting %s: %v", key, err)
		}
	}
	set, err := rule.NewSet(limits, breakers)
	if err != nil {
		f.p.s.fail("rules: %v", err)
	}
	return set
}

// adopted is told that breakers have got other states: what they had come to by themselves is not to be stored any more.
func (f *flow) adopted(states map[string][]byte) {
	for name, row := range states {
		if !bytes.Equal(f.dirty[name], row) {
			delete(f.dirty, name)
		}
	}
}

// equip has a new incarnation act on everything that is known.
func (f *flow) equip(b *board) {
	states := map[string][]byte{}
	for key, x := range f.all {
		if key.Kind == settingState {
			states[key.Name] = x.Body
		}
	}
	maps.Copy(states, f.dirty)
	b.configure(f.rules, f.paused, states)
}

// heard is told with every renewal how far the counter of settings is.
func (f *flow) heard(counter int64) {
	if counter > f.seen {
		f.load(counter, func(error) {}) // else the next renewal tries again
	}
}

// change stores a setting, or removes it when body is nil, as make says when it has seen the one that there is.
func (f *flow) change(key store.SettingKey, make func(old *store.Setting) (body []byte, needed bool, err error), then func(error)) {
	f.enter(func(leave func()) { f.try(key, make, 1, func(err error) { leave(); then(err) }) })
}

func (f *flow) try(key store.SettingKey, make func(old *store.Setting) ([]byte, bool, error), n int, then func(error)) {
	s := f.p.s
	f.refresh(func(err error) {
		if err != nil {
			then(err)
			return
		}
		var old *store.Setting
		version := int64(0)
		if x, ok := f.all[key]; ok {
			old, version = &x, x.Version
		}
		body, needed, err := make(old)
		if err != nil || !needed {
			then(err)
			return
		}
		next := store.Setting{SettingKey: key, Body: body, Deleted: body == nil}
		f.ask("put setting", true, func() (err error) {
			if next.Deleted {
				next.Version, err = s.disk.mem.DeleteSetting(background, key, version)
			} else {
				next.Version, err = s.disk.mem.PutSetting(background, next, version)
			}
			if err == nil && s.opts.Trace {
				s.logf("store    setting %s version %d", key, next.Version)
			}
			return err
		}, func(err error) {
			switch {
			case err == nil:
				f.keep(next)
				f.apply(map[store.SettingKey]bool{key: true})
				s.nudge(f.p)
				then(nil)
			case outrun(err) && n < 10:
				s.did(opSettingRace)
				f.try(key, make, n+1, then)
			default:
				then(err)
			}
		})
	})
}

// outrun reports whether somebody else has changed the setting meanwhile.
func outrun(err error) bool {
	conflict := (*store.VersionError)(nil)
	return errors.As(err, &conflict)
}

// operate changes the state of a breaker in the store, and here.
func (f *flow) operate(name string, do func(now model.Time, o *breaker.Breaker), then func(error)) {
	if f.p.inc != nil {
		f.operateAt(f.p.now(), name, do, then)
		return
	}
	var now model.Time // its own clock has perhaps never been set
	f.ask("members", false, func() error {
		v, err := f.p.s.disk.mem.Members(background)
		now = v.Now
		return err
	}, func(err error) {
		if err != nil {
			then(err)
			return
		}
		f.operateAt(now, name, do, then)
	})
}

func (f *flow) operateAt(now model.Time, name string, do func(now model.Time, o *breaker.Breaker), then func(error)) {
	id := rule.BreakerID{Tenant: tenant, Name: name}
	f.enter(func(leave func()) {
		f.flush(func(err error) { // what happened here comes before
			leave()
			if err != nil {
				then(err)
				return
			}
			f.change(store.SettingKey{Tenant: tenant, Kind: settingState, Name: name}, func(old *store.Setting) ([]byte, bool, error) {
				config := f.rules.BreakerConfig(id)
				o := breaker.New(config, now)
				if old != nil {
					var err error
					if o, err = breaker.Decode(old.Body); err != nil {
						return nil, false, err
					}
					if o.Status(now).Config != config {
						o.Configure(now, config)
					}
				}
				do(now, o)
				body, err := o.Encode()
				return body, true, err
			}, then)
		})
	})
}

// save has states of breakers stored, soon.
func (f *flow) save(rows []gate.Row) {
	for _, r := range rows {
		f.dirty[r.Breaker.Name] = r.Data
	}
	if !f.saving && len(f.dirty) > 0 {
		f.saving = true
		s := f.p.s
		s.after(s.between(0, 500), f.p, f.saveAll)
	}
}

func (f *flow) saveAll() {
	f.enter(func(leave func()) {
		f.flush(func(err error) {
			leave()
			s := f.p.s
			if f.saving = len(f.dirty) > 0; f.saving {
				s.after(s.between(1, 20)*millisecond, f.p, f.saveAll)
			}
			_ = err // it is tried again
		})
	})
}

// flush stores the states that are to be stored now, or takes over those of somebody who was faster. It is called in turn.
func (f *flow) flush(then func(error)) {
	s := f.p.s
	names := slices.Sorted(maps.Keys(f.dirty))
	var one func(i int)
	one = func(i int) {
		if i == len(names) {
			then(nil)
			return
		}
		name := names[i]
		row, ok := f.dirty[name]
		if !ok {
			one(i + 1)
			return
		}
		delete(f.dirty, name)
		x := store.Setting{SettingKey: store.SettingKey{Tenant: tenant, Kind: settingState, Name: name}, Body: row}
		version := f.all[x.SettingKey].Version
		f.ask("put setting", true, func() (err error) {
			x.Version, err = s.disk.mem.PutSetting(background, x, version)
			return err
		}, func(err error) {
			switch {
			case err == nil:
				f.all[x.SettingKey] = x
				s.did(opStateSaved)
				one(i + 1)
			case outrun(err):
				s.did(opStateLost)
				f.refresh(func(err error) {
					if err != nil {
						then(err)
						return
					}
					one(i + 1)
				})
			default:
				if _, newer := f.dirty[name]; !newer {
					f.dirty[name] = row
				}
				then(err)
			}
		})
	}
	one(0)
}
