package sim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/core/breaker"
	"github.com/perdure/perdure/internal/core/limit"
	"github.com/perdure/perdure/internal/core/rule"
	"github.com/perdure/perdure/internal/engine/flow"
	limits "github.com/perdure/perdure/internal/engine/ledger"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/memory"
)

// Package engine/flow of production stores the settings of users and makes nodes agree on them.
// This file has the node, the life and the store that it needs. Its code waits, so it runs as
// threads. Writes of settings fail, get lost on the way there or back, or land late, and nodes die
// between them.

// Kinds of settings, as they are stored.
const (
	settingLimit   = "limit"
	settingBreaker = "breaker"
	settingState   = "breaker_state"
	settingQueue   = "queue"
	settingPage    = "limit_page"
	settingFound   = "limit_found"
)

func newFlow(p *proc) *flow.Flow {
	return flow.New(flow.Config{Store: &connection{Store: p.s.disk.mem, p: p}, Log: slog.New(complaints{p}), Node: flowNode{p}, Timeout: time.Hour})
}

// readSettings registers the process once it has read the settings.
func (p *proc) readSettings() {
	p.spawn(func() {
		for p.flow.Load(background, math.MaxInt64) != nil {
			p.s.sleep(p.s.between(1, 20) * millisecond)
		}
		p.register()
	})
}

// flowNode implements flow.Node for a process.
type flowNode struct{ p *proc }

func (n flowNode) Now() model.Time { return n.p.now() }

func (n flowNode) Beside(do func(context.Context)) bool {
	s := n.p.s
	s.after(s.between(0, 500), n.p, func() { n.p.spawn(func() { do(background) }) })
	return true
}

func (n flowNode) Await(_ context.Context, ready <-chan struct{}) bool {
	n.p.receive(ready)
	return true
}

// Pause is shortened, because a second is a long time here.
func (n flowNode) Pause(_ context.Context, d time.Duration) bool {
	n.p.s.sleep(n.p.s.between(1, min(d.Microseconds(), 20*millisecond)))
	return true
}

func (n flowNode) Hint() {
	s := n.p.s
	for _, p := range s.procs {
		if p != nil && p != n.p && !s.hintIsLost() {
			s.after(s.disk.latency(), p, func() {
				if p.inc != nil {
					p.flow.ReadSoon()
				}
			})
		}
	}
}

// Participant returns the participant of the current life, or of a life that is about to end.
func (n flowNode) Participant() *flow.Participant {
	switch {
	case n.p.inc != nil:
		return n.p.inc.participant
	case n.p.parting != nil:
		return n.p.parting.participant
	default:
		return nil
	}
}

// Retain does nothing: the simulator sets no allowances of tenants.
func (flowNode) Retain(map[string]time.Duration) {}

func (n flowNode) Works() bool { return len(n.p.hands) > 0 }

// participantLife implements flow.Life for an incarnation.
type participantLife struct{ inc *incarnation }

// KnownShards asks one lane after the other, and stops at a lane that no longer answers.
func (l participantLife) KnownShards(context.Context) (shards []model.ShardID, ok bool, err error) {
	s, p := l.inc.p.s, l.inc.p
	for _, sh := range l.inc.shells {
		ok = false
		s.wait(func(done func()) {
			sh.asked = func() {
				sh.asked = nil
				s.at(s.now, p, done)
			}
			if sh.dead {
				sh.asked()
				return
			}
			sh.result(func(model.Time) {
				shards, ok = append(shards, sh.lane.Known()...), true
				sh.asked()
			})
		})

		if !ok {
			return nil, false, nil
		}
	}

	return shards, true, nil
}

func (l participantLife) LookAround() {
	inc := l.inc
	inc.p.s.at(inc.p.s.now, inc.p, func() {
		if !inc.ended {
			inc.member.RenewNow()
			inc.loop()
		}
	})
}

func (inc *incarnation) place() limit.Place { return limit.Place(inc.epoch) }

// viewed updates the limits with the members of a view, after a renewal.
func (inc *incarnation) viewed(v *store.View) {
	inc.p.flow.ReadIfNewer(v.Settings)
	if inc.participant.UpdateMembers(v, len(inc.member.Owned())) {
		inc.member.RenewNow()
	}
}

// complaints receives the log of a flow. It writes the log to the trace. An error fails the
// simulation.
type complaints struct{ p *proc }

func (c complaints) Enabled(_ context.Context, level slog.Level) bool {
	return level >= slog.LevelError || c.p.s.opts.Trace
}

func (c complaints) Handle(_ context.Context, r slog.Record) error {
	text := r.Message
	r.Attrs(func(a slog.Attr) bool {
		text += " " + a.String()
		return true
	})
	if r.Level >= slog.LevelError {
		c.p.s.fail("%s: %s", c.p.name(), text)
	}
	c.p.s.logf("%s %s", c.p.name(), text)
	return nil
}

func (c complaints) WithAttrs([]slog.Attr) slog.Handler { return c }
func (c complaints) WithGroup(string) slog.Handler      { return c }

// connection is the store for the flow of a process.
type connection struct {
	*memory.Store

	p *proc
}

func (c *connection) Info() store.Info {
	i := c.Store.Info()
	i.Shared = c.p.s.shared
	return i
}

// ask makes a call to the store.
func (c *connection) ask(name string, write bool, exec func() error) (err error) {
	s := c.p.s
	s.wait(func(done func()) {
		var said error
		s.disk.call(&request{
			p: c.p, name: name, fate: s.disk.draw(faultSettingFails, faultSettingLost, write),
			exec: func(answer func()) {
				said = exec()
				answer()
			},
			ok: func() {
				err = said
				done()
			},
			bad: func(e error) {
				err = e
				done()
			},
		})
	})

	return err
}

// reply makes a call that returns a value. If the call gets lost, the value is lost too.
func reply[T any](c *connection, name string, write bool, exec func() (T, error)) (T, error) {
	var got, none T
	if err := c.ask(name, write, func() (err error) {
		got, err = exec()
		return err
	}); err != nil {
		return none, err
	}
	return got, nil
}

func (c *connection) Members(ctx context.Context) (store.View, error) {
	return reply(c, "members", false, func() (store.View, error) { return c.Store.Members(ctx) })
}

func (c *connection) LoadSettings(ctx context.Context, after int64) (store.SettingChanges, error) {
	return reply(c, "load settings", false, func() (store.SettingChanges, error) { return c.Store.LoadSettings(ctx, after) })
}

func (c *connection) DeleteSetting(ctx context.Context, key store.SettingKey, expected int64) (int64, error) {
	return reply(c, "delete setting", true, func() (int64, error) { return c.Store.DeleteSetting(ctx, key, expected) })
}

func (c *connection) PutSetting(_ context.Context, x store.Setting, expected int64) (int64, error) {
	version, err := reply(c, "put setting", true, func() (int64, error) { return c.p.s.putSetting(x, expected) })
	c.p.s.wrote(c.p, &x, err)
	return version, err
}

// wrote counts the outcome of a write.
func (s *Sim) wrote(p *proc, x *store.Setting, err error) {
	if conflict := (*store.VersionError)(nil); errors.As(err, &conflict) {
		if s.running.user {
			s.did(opSettingRace)
		} else {
			s.did(opStateLost)
		}
	}

	if err != nil {
		return
	}

	switch x.Kind {
	case settingState:
		s.did(opStateSaved)
		if s.shared {
			p.told = append(p.told, rule.BreakerID{Tenant: x.Tenant, Name: x.Name})
		}
	case settingPage:
		s.did(opPage)
	case settingFound:
		s.did(opFound)
	}
}

// putSetting writes a setting at the store.
func (s *Sim) putSetting(x store.Setting, version int64) (int64, error) {
	now, err := s.disk.mem.PutSetting(background, x, version)
	if err != nil {
		return 0, err
	}
	if s.opts.Trace {
		s.logf("store    setting %s version %d%s", x.SettingKey, now, s.describeSetting(&x))
	}
	switch {
	case x.Kind == settingState && s.shared:
		s.breakerStored(x.Name, x.Body)
	case x.Kind == settingPage:
		s.pageStored(&x)
	}
	return now, nil
}

// pageStored counts shares of dead nodes that have become free.
func (s *Sim) pageStored(x *store.Setting) {
	list, sole, err := limits.Read(x.Body)
	if err != nil {
		s.fail("page: %v", err)
	}

	places := []limit.Place{sole}
	for _, e := range list {
		for _, l := range e.Leases {
			if !slices.Contains(places, l.Place) {
				places = append(places, l.Place)
			}
		}
	}

	before := s.places[x.Name]
	s.places[x.Name] = places
	for _, p := range before {
		if p != 0 && !slices.Contains(places, p) && !s.ledger.lives(int64(p)) {
			s.did(opCleaned)
			return
		}
	}
}

// lives reports whether the node of an epoch has a lease.
func (l *ledger) lives(epoch int64) bool {
	for _, m := range l.nodes {
		if m.epoch == epoch {
			return m.alive
		}
	}
	return false
}

// describeSetting lists the leases on a page, or the state of a breaker, for the trace.
func (s *Sim) describeSetting(x *store.Setting) string {
	switch x.Kind {
	case settingState:
		o, err := breaker.Decode(x.Body)
		if err != nil {
			return ": " + err.Error()
		}
		st := o.Status(s.storeTime())
		return fmt.Sprintf(": %s since %s until %s, held %v (%s), %d failures, %d probes", st.State, st.Since, st.Until, st.Held, st.Why, st.Failures, st.Probes)
	case settingPage:
		list, sole, err := limits.Read(x.Body)
		if sole != 0 {
			return fmt.Sprintf(": all of it is with place %d, %v", sole, err)
		}
		return fmt.Sprintf(": %+v, %v", list, err)
	default:
		return ": " + strings.TrimSpace(string(x.Body))
	}
}
