package core_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/model"
)

// mortal is an entity whose state expires, with the timers that the store would have.
type mortal struct {
	*testing.T
	n      *core.Entity
	life   core.Life
	now    model.Time
	timers map[string]model.Time
	fired  map[string]bool // an owner fires a timer once
	row    model.Entity    // the row in the store
	handed []*core.Item
	last   model.Time // time of the last successful operation
}

func newMortal(t *testing.T, life core.Life) *mortal {
	t.Helper()
	a := model.Address{Tenant: "default", Type: "entity:session", Key: "a"}
	return &mortal{T: t, n: core.NewEntity(a, nil, nil), life: life, now: 1, timers: map[string]model.Time{}, fired: map[string]bool{}, row: model.Entity{Address: a}}
}

// take stores what a decision writes, with the same guards as the store.
func (m *mortal) take(d core.Decision) {
	m.Helper()
	for _, id := range d.StopTimers {
		if _, ok := m.timers[id]; !ok {
			m.Fatalf("timer %s is stopped and does not exist", id)
		}
		delete(m.timers, id)
	}

	for _, timer := range d.StartTimers {
		if _, ok := m.timers[timer.ID]; ok {
			m.Fatalf("timer %s is started twice", timer.ID)
		}
		m.timers[timer.ID] = timer.Due
	}

	if c := d.Entity; c != nil {
		if c.Prev != m.row.Version {
			m.Fatalf("the row of version %d is changed, and there is %d", c.Prev, m.row.Version)
		}
		m.row = c.Entity
		if c.Gone {
			m.row = model.Entity{Address: c.Entity.Address}
		}
	}

	if m.row.Expires != 0 && len(m.timers) != 1 || m.row.Expires == 0 && len(m.timers) != 0 {
		m.Fatalf("the state expires at %d, and there are the timers %v", m.row.Expires, m.timers)
	}
}

func (m *mortal) call(name string) {
	m.Helper()
	m.take(m.n.Deliver(&model.Message{Kind: model.MessageCall, To: m.n.Row.Address, Name: name, OneWay: true}, core.Arrival{Stored: true, Room: 100}, m.now))
}

// begin hands a call to a worker, and reports whether the call finds a state.
func (m *mortal) begin() (exists bool) {
	m.handed = m.n.Next(1, 1<<20)
	over := m.n.Row.Expired(m.now)
	exists = m.n.Row.Exists && !over
	if len(m.handed) > 0 {
		core.Attach(m.handed, core.HandOver{Life: m.life, Fresh: over})
	}
	return exists
}

// end reports the call.
func (m *mortal) end(r model.Operated) {
	m.Helper()
	r.Results = []model.OperationResult{{}}
	d, ok := m.n.Apply(m.handed, &r, m.n.Row.Version, m.now)
	if !ok {
		m.Fatal("the report does not count")
	}
	m.handed, m.last = nil, m.now
	m.take(d)
}

// ring fires the timers that are due, as the lane does.
func (m *mortal) ring() {
	m.Helper()
	for id, due := range m.timers {
		if due <= m.now && !m.fired[id] {
			m.fired[id] = true
			m.take(m.n.Ring(id, m.now))
		}
	}
}

func (m *mortal) section(kind model.MessageKind) {
	m.Helper()
	from := model.Link{Address: address("w"), Run: runID(1), ID: "s"}
	m.take(m.n.Deliver(&model.Message{Kind: kind, To: m.n.Row.Address, From: from}, core.Arrival{Room: 100}, m.now))
}

var someState = model.Operated{Changed: true, Exists: true, State: model.Payload{Data: []byte("1")}}

// The entity removes a state when the state expires, and the next operation finds no state. The
// entity writes the timer once, however often the state is prolonged.
func TestIdleStateExpires(t *testing.T) {
	t.Parallel()
	m := newMortal(t, core.Life{Idle: time.Hour})
	for range 10 {
		m.call("touch")
		m.begin()
		m.end(someState)
		m.now = m.now.Add(30 * time.Minute)
		if first := model.Time(1).Add(time.Hour); m.now < first && m.timers[fmt.Sprintf("expires-%d", first)] != first {
			t.Errorf("the timers are %v", m.timers)
		}
		m.ring()
	}

	if m.row.Expires != m.last.Add(time.Hour) || !m.row.Exists {
		t.Fatalf("the state is %+v", m.row)
	}
	m.now = m.row.Expires
	if m.ring(); m.row.Version != 0 || m.n.Row.Exists {
		t.Errorf("the state is kept: %+v", m.row)
	}
	m.call("touch")
	if m.begin() {
		t.Error("a call finds a state that has expired")
	}
}

// A state does not expire while an operation runs or a section holds the lock. It expires when the
// operation or the section ends.
func TestExpiryWaits(t *testing.T) {
	t.Parallel()
	m := newMortal(t, core.Life{TTL: time.Hour})
	m.call("make")
	m.begin()
	m.end(someState)

	m.call("slow")
	if !m.begin() {
		t.Fatal("there is no state")
	}
	m.now = m.now.Add(2 * time.Hour)
	if m.ring(); !m.row.Exists {
		t.Fatal("the state expires under an operation")
	}
	m.end(model.Operated{})
	if m.row.Exists {
		t.Fatalf("the state outlives the operation: %+v", m.row)
	}

	m.call("make")
	m.begin()
	m.end(someState)
	m.section(model.MessageLock)
	m.now = m.now.Add(2 * time.Hour)
	if m.ring(); !m.row.Exists || !m.row.Locked() {
		t.Fatal("the state expires in a section")
	}
	m.section(model.MessageRelease)
	if m.row.Exists || m.row.Version != 0 {
		t.Fatalf("the state outlives the section: %+v", m.row)
	}
}

// A call that waited while the state expired finds an entity without a state.
func TestWaitingCallMeetsNewEntity(t *testing.T) {
	t.Parallel()
	m := newMortal(t, core.Life{TTL: time.Hour})
	m.call("make")
	m.begin()
	m.end(someState)
	created := m.row.Created
	m.call("waits")
	m.now = m.now.Add(2 * time.Hour) // no timer has fired
	if m.begin() {
		t.Error("the call finds a state that has expired")
	}
	m.end(someState)
	if m.row.Created == created || m.row.Expires != m.now.Add(time.Hour) {
		t.Errorf("the new entity is %+v", m.row)
	}
}

// Whatever happens, in any order, the timers match the row. A state that is old enough is gone as
// soon as no operation runs and no section holds the lock.
func TestExpiryInAnyOrder(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		m := newMortal(t, core.Life{TTL: time.Duration(r.IntN(3)) * time.Hour, Idle: time.Duration(r.IntN(3)) * time.Hour})
		for range 60 {
			m.now = m.now.Add(time.Duration(r.IntN(80)) * time.Minute)
			switch r.IntN(6) {
			case 0:
				m.call("op")
			case 1:
				m.section(model.MessageLock)
			case 2:
				m.section(model.MessageRelease)
			case 3:
				m.ring()
			case 4:
				m.n = core.NewEntity(m.row.Address, &m.row, nil) // another owner reads the entity
				m.handed, m.fired = nil, map[string]bool{}
			default:
				if m.handed == nil {
					m.begin()
				}
				if len(m.handed) > 0 && r.IntN(2) == 0 {
					m.end([]model.Operated{someState, {}, {Changed: true}}[r.IntN(3)])
				}
			}

			if m.ring(); m.row.Expired(m.now) && len(m.handed) == 0 {
				t.Fatalf("seed %d: at %d the state is kept: %+v", seed, m.now, m.row)
			}
		}
	}
}
