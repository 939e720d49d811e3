package sim

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"

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
	settingPage    = "limit_page"
	settingFound   = "limit_found"
)

// flow is what people have set for tasks as a process knows it: package engine/flow, with events in place of goroutines.
type flow struct {
	p      *proc
	seen   int64
	all    map[store.SettingKey]store.Setting
	rules  *rule.Set
	paused map[string]bool
	dirty  map[string][]byte // states of breakers that are to be stored
	asks   map[rule.BreakerID][]breaker.ToOwner
	saving bool // somebody writes
	again  bool // there may be more to write
	look   bool // others may have written something
	busy   bool
	line   []func(leave func()) // who waits for a turn

	parting *board // of an incarnation that ends in order
}

func newFlow(p *proc) *flow {
	return &flow{p: p, all: map[store.SettingKey]store.Setting{}, dirty: map[string][]byte{}, paused: map[string]bool{}, asks: map[rule.BreakerID][]breaker.ToOwner{}}
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
	rules, states, pages := f.rules == nil, map[string][]byte{}, map[int][]byte{}
	for key := range changed {
		switch key.Kind {
		case settingLimit, settingBreaker:
			rules = true
		case settingState:
			states[key.Name] = f.all[key].Body
		case settingPage:
			pages[pageNumber(f.p.s, key)] = f.all[key].Body
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
	if b := f.board(); b != nil {
		b.configure(flowing{f.rules, f.paused, states, pages})
		if f.p.s.shared {
			f.tell(nil)
		}
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
	states, pages := map[string][]byte{}, map[int][]byte{}
	for key, x := range f.all {
		switch key.Kind {
		case settingState:
			states[key.Name] = x.Body
		case settingPage:
			pages[pageNumber(f.p.s, key)] = x.Body
		}
	}
	maps.Copy(states, f.dirty)
	clear(f.asks) // of the node that this one was before
	b.configure(flowing{f.rules, f.paused, states, pages})
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
				next.Version, err = s.putSetting(next, version)
			}
			return err
		}, func(err error) {
			switch {
			case err == nil:
				f.keep(next)
				f.apply(map[store.SettingKey]bool{key: true})
				s.nudge(f.p)
				if s.shared {
					f.hint()
				}
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
	f.flushed(func(err error) { // what happened here comes before
		if err != nil {
			then(err)
			return
		}
		f.change(store.SettingKey{Tenant: tenant, Kind: settingState, Name: name}, func(old *store.Setting) ([]byte, bool, error) {
			config := f.rules.BreakerConfig(id)
			o := breaker.New(config, now)
			if old != nil {
				o = f.p.s.breakerOf(old.Body, now, config)
			}
			do(now, o)
			body, err := o.Encode()
			return body, true, err
		}, then)
	})
}

// save has states of breakers stored, soon.
func (f *flow) save(rows []gate.Row) {
	for _, r := range rows {
		f.dirty[r.Breaker.Name] = r.Data
	}
	if len(rows) > 0 {
		f.begin()
	}
}

// begin has somebody write what there is to write.
func (f *flow) begin() {
	if f.again = true; !f.saving {
		f.saving = true
		s := f.p.s
		s.after(s.between(0, 500), f.p, f.saveAll)
	}
}

// saveAll stores what is to be stored until nothing is left.
func (f *flow) saveAll() {
	s := f.p.s
	f.again = false
	f.flushed(func(err error) {
		pause := s.between(0, 500)
		if err != nil {
			f.again, f.look = true, true // it may have landed all the same
			pause = s.between(1, 20) * millisecond
		}
		if f.saving = f.again; f.saving {
			s.after(pause, f.p, f.saveAll)
		}
	})
}

// flushed stores what is to be stored now, when it is its turn.
func (f *flow) flushed(then func(error)) {
	f.enter(func(leave func()) {
		f.flush(func(err error) {
			leave()
			then(err)
		})
	})
}

// flush stores what is to be stored now. It is called in turn.
func (f *flow) flush(then func(error)) {
	if f.look && f.p.s.shared {
		f.look = false
		f.refresh(func(err error) {
			if err != nil {
				then(err)
				return
			}
			f.flush(then)
		})
		return
	}
	ids := map[rule.BreakerID]bool{}
	for name := range f.dirty {
		ids[rule.BreakerID{Tenant: tenant, Name: name}] = true
	}
	for id := range f.asks {
		ids[id] = true
	}
	list := slices.SortedFunc(maps.Keys(ids), func(a, b rule.BreakerID) int { return strings.Compare(a.Name, b.Name) })
	inTurn(len(list), func(i int, next func(error)) {
		f.flushOne(list[i].Name, func(err error) {
			if err != nil {
				next(err)
				return
			}
			f.askOne(list[i], next)
		})
	}, func(err error) {
		if err != nil {
			then(err)
			return
		}
		f.writePages(then)
	})
}

// flushOne stores the state of a breaker that each node has its own of, or takes over that of somebody who was faster. It is called in turn.
func (f *flow) flushOne(name string, then func(error)) {
	row, ok := f.dirty[name]
	if !ok {
		then(nil)
		return
	}
	delete(f.dirty, name)
	f.put(store.Setting{SettingKey: store.SettingKey{Tenant: tenant, Kind: settingState, Name: name}, Body: row}, func(landed bool, err error) {
		if landed {
			f.p.s.did(opStateSaved)
		} else if _, newer := f.dirty[name]; err != nil && !newer {
			f.dirty[name] = row
		}
		then(err)
	})
}
