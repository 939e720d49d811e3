package cluster

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"time"

	"github.com/perdure/perdure/internal/core/limit"
	"github.com/perdure/perdure/internal/core/rule"
	"github.com/perdure/perdure/internal/engine/flow"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/sim/disk"
	"github.com/perdure/perdure/internal/sim/kernel"
	"github.com/perdure/perdure/internal/sim/scenario"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/memory"
)

// Package engine/flow of production stores the settings of users and makes nodes agree on them.
// This file implements the interfaces flow.Node, flow.Life and the store that engine/flow needs.
// The code of engine/flow blocks, so the simulator runs it as threads. A write of a setting may
// fail, its request or its reply may get lost, or it may take effect late. Nodes may die between
// two writes.

func newFlow(p *Proc) *flow.Flow {
	return flow.New(flow.Config{
		Store: &connection{Store: p.Cluster.Disk.Mem, p: p}, Log: slog.New(complaints{p}), Node: flowNode{p},
		// These limits count real time, and a busy machine may stop a simulation for seconds.
		Timeout: time.Hour, LeaveTimeout: time.Hour,
	})
}

// readSettings reads the settings and then registers the process.
func (p *Proc) readSettings() {
	p.Spawn(func() {
		for p.Flow.Load(context.Background(), math.MaxInt64) != nil {
			p.Cluster.Sleep(p.Cluster.Between(1, 20) * kernel.Millisecond)
		}
		p.register()
	})
}

// flowNode implements flow.Node for a process.
type flowNode struct{ p *Proc }

func (n flowNode) Now() model.Time { return n.p.Now() }

// Announce does nothing: a simulated process has no feed.
func (flowNode) Announce([]model.Change) {}

func (n flowNode) Beside(do func(context.Context)) bool {
	s := n.p.Cluster
	s.After(s.Between(0, 500), n.p.Process, func() { n.p.Spawn(func() { do(context.Background()) }) })
	return true
}

func (n flowNode) Await(_ context.Context, ready <-chan struct{}) bool {
	n.p.Receive(ready)
	return true
}

// Pause waits for a shorter time than the caller asks for, because a second is a long time here.
func (n flowNode) Pause(_ context.Context, d time.Duration) bool {
	n.p.Cluster.Sleep(n.p.Cluster.Between(1, min(d.Microseconds(), 20*kernel.Millisecond)))
	return true
}

func (n flowNode) Hint() {
	s := n.p.Cluster
	for _, p := range s.Procs {
		if p != nil && p != n.p && !s.hintIsLost() {
			s.After(s.Disk.Latency(), p.Process, func() {
				if p.Inc != nil {
					p.Flow.ReadSoon()
				}
			})
		}
	}
}

// Participant returns the participant of the current incarnation, or of an incarnation that is
// about to end.
func (n flowNode) Participant() *flow.Participant {
	switch {
	case n.p.Inc != nil:
		return n.p.Inc.participant
	case n.p.parting != nil:
		return n.p.parting.participant
	default:
		return nil
	}
}

// Retain does nothing: the simulator sets no allowances of tenants.
func (flowNode) Retain(map[string]time.Duration) {}

func (n flowNode) Works() bool { return len(n.p.Hands) > 0 }

// participantLife implements flow.Life for an incarnation.
type participantLife struct{ inc *incarnation }

// KnownShards asks one lane after the other, and stops at a lane that no longer answers.
func (l participantLife) KnownShards(context.Context) (shards []model.ShardID, ok bool, err error) {
	s, p := l.inc.p.Cluster, l.inc.p
	for _, sh := range l.inc.Shells {
		ok = false
		s.Wait(func(done func()) {
			sh.asked = func() {
				sh.asked = nil
				s.At(s.Now, p.Process, done)
			}
			if sh.dead {
				sh.asked()
				return
			}
			sh.result(func(model.Time) {
				shards, ok = append(shards, sh.Lane.KnownShards()...), true
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
	inc.p.Cluster.At(inc.p.Cluster.Now, inc.p.Process, func() {
		if !inc.ended {
			inc.member.RenewNow()
			inc.loop()
		}
	})
}

func (inc *incarnation) place() limit.Place { return limit.Place(inc.epoch) }

// applyView updates the limits with the members of a view, after a renewal.
func (inc *incarnation) applyView(v *store.View) {
	inc.p.Flow.ReadIfNewer(v.Settings)
	if inc.participant.UpdateMembers(v, len(inc.member.OwnedShards())) {
		inc.member.RenewNow()
	}
}

// complaints receives the log of a flow. It writes each line to the trace. A line at level error
// fails the simulation, unless expects allows it.
type complaints struct{ p *Proc }

func (c complaints) Enabled(_ context.Context, level slog.Level) bool {
	return level >= slog.LevelError || c.p.Cluster.Tracing
}

func (c complaints) Handle(_ context.Context, r slog.Record) error {
	text := r.Message
	r.Attrs(func(a slog.Attr) bool {
		text += " " + a.String()
		return true
	})
	if r.Level >= slog.LevelError && !c.expects(r.Message) {
		c.p.Cluster.Fail("%s: %s", c.p.Name(), text)
	}
	c.p.Cluster.Logf("%s %s", c.p.Name(), text)
	return nil
}

func (c complaints) WithAttrs([]slog.Attr) slog.Handler { return c }
func (c complaints) WithGroup(string) slog.Handler      { return c }

// connection is the store for the flow of a process.
type connection struct {
	*memory.Store

	p *Proc
}

func (c *connection) Info() store.Info {
	i := c.Store.Info()
	i.Shared = c.p.Cluster.Has(scenario.SharedGates)
	return i
}

// ask makes a call to the store.
func (c *connection) ask(name string, write bool, exec func() error) (err error) {
	s := c.p.Cluster
	s.Wait(func(done func()) {
		var said error
		s.Disk.Call(&disk.Request{
			Process: c.p.Process, Name: name, Fate: s.Disk.Draw(scenario.FaultSettingFails, scenario.FaultSettingLost, write),
			Exec: func(answer func()) {
				said = exec()
				answer()
			},
			OK: func() {
				err = said
				done()
			},
			Bad: func(e error) {
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
	return reply(c, "load settings", false, func() (store.SettingChanges, error) {
		changes, err := c.Store.LoadSettings(ctx, after)
		c.p.Cluster.damageSettings(changes.Changed)
		return changes, err
	})
}

func (c *connection) DeleteSetting(ctx context.Context, key store.SettingKey, expected int64) (int64, error) {
	return reply(c, "delete setting", true, func() (int64, error) { return c.Store.DeleteSetting(ctx, key, expected) })
}

func (c *connection) PutSetting(_ context.Context, x store.Setting, expected int64) (int64, error) {
	version, err := reply(c, "put setting", true, func() (int64, error) { return c.p.Cluster.putSetting(x, expected) })
	c.p.Cluster.wrote(c.p, &x, err)
	return version, err
}

// wrote counts the outcome of a write.
func (s *Cluster) wrote(p *Proc, x *store.Setting, err error) {
	if conflict := (*store.VersionError)(nil); errors.As(err, &conflict) {
		if s.Running.User {
			s.Did(scenario.OpSettingRace)
		} else {
			s.Did(scenario.OpStateLost)
		}
	}

	if err != nil {
		return
	}

	switch x.Kind {
	case scenario.SettingState:
		s.Did(scenario.OpStateSaved)
		if s.Has(scenario.SharedGates) {
			p.told = append(p.told, rule.BreakerID{Tenant: x.Tenant, Name: x.Name})
		}
	case scenario.SettingPage:
		s.Did(scenario.OpPage)
	case scenario.SettingFound:
		s.Did(scenario.OpFound)
	}
}

// putSetting writes a setting at the store.
func (s *Cluster) putSetting(x store.Setting, version int64) (int64, error) {
	now, err := s.Disk.Mem.PutSetting(context.Background(), x, version)
	if err != nil {
		return 0, err
	}
	if s.Tracing {
		s.Logf("store    setting %s version %d%s", x.SettingKey, now, s.DescribeSetting(&x))
	}
	switch {
	case x.Kind == scenario.SettingState && s.Has(scenario.SharedGates):
		s.BreakerStored(x.Name, x.Body)
	case x.Kind == scenario.SettingPage:
		s.PageStored(&x)
	}
	return now, nil
}
