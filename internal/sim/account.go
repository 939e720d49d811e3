package sim

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/perdure/perdure/internal/model"
)

// Some simulations have entities: accounts, whose state is a sum and the list of applied deeds, and
// desks, which are services. Clients, workflows and the entities themselves call them, and
// workflows lock them. The rules are in holding.go and section.go.

const (
	accountType = model.EntityPrefix + "account"
	deskType    = model.ServicePrefix + "desk"
)

var (
	accountKeys = [...]string{"a0", "a1", "a2", "a3", "a4"}
	deskKeys    = [...]string{"d0", "d1"}
)

func accountAddress(i int) model.Address {
	return model.Address{Tenant: tenant, Type: accountType, Key: accountKeys[i]}
}

func deskAddress(i int) model.Address {
	return model.Address{Tenant: tenant, Type: deskType, Key: deskKeys[i]}
}

// Operations of accounts. Desks have two others, echo and forward.
const (
	doAdd  = "add"
	doFail = "fail"
	// takes from this account, and sends the amount to another one without waiting
	doPass    = "pass"
	doSpawn   = "spawn" // starts a workflow and sends a signal to another
	doDelete  = "delete"
	doRead    = "read" // a view
	doEcho    = "echo"
	doForward = "forward" // adds to an account without waiting
)

// deed is a call as its input encodes it. Every deed has its own id, and a repeated call has the
// same id.
type deed struct {
	id     uint64
	amount int64
	// for pass and forward the other account; for spawn the workflow to start and to signal
	target uint8
	source uint8 // which entity sent it, if an entity did
}

func (d deed) input() model.Payload {
	b := binary.BigEndian.AppendUint64(nil, d.id)
	b = binary.BigEndian.AppendUint64(b, uint64(d.amount))
	return model.Payload{Data: append(b, d.target, d.source)}
}

func deedOf(p model.Payload) (d deed, ok bool) {
	if len(p.Data) != 18 {
		return d, false
	}
	return deed{id: binary.BigEndian.Uint64(p.Data), amount: int64(binary.BigEndian.Uint64(p.Data[8:])), target: p.Data[16], source: p.Data[17]}, true
}

// follows returns the id of a message that a deed sends.
func follows(id uint64, what string) uint64 {
	h := id ^ 14695981039346656037
	for i := range len(what) {
		h = (h ^ uint64(what[i])) * 1099511628211
		h ^= h >> 31
	}
	return h | 1<<62
}

// sourceOf returns the number by which deeds name an entity.
func sourceOf(a model.Address) uint8 {
	if a.Stateless() {
		return uint8(10 + slices.Index(deskKeys[:], a.Key))
	}
	return uint8(slices.Index(accountKeys[:], a.Key))
}

func entityOf(source uint8) model.Address {
	if source >= 10 {
		return deskAddress(int(source - 10))
	}
	return accountAddress(int(source))
}

// account is the state of an account.
type account struct {
	stamp uint64 // of the hand-over that produced it
	sum   int64
	deeds []uint64 // applied since the account was created
}

func (a *account) payload() model.Payload {
	b := binary.BigEndian.AppendUint64(nil, a.stamp)
	b = binary.BigEndian.AppendUint64(b, uint64(a.sum))
	for _, id := range a.deeds {
		b = binary.BigEndian.AppendUint64(b, id)
	}
	return model.Payload{Data: b}
}

// accountOf decodes a state. It returns nil if the entity does not exist.
func accountOf(p model.Payload, exists bool) *account {
	if !exists {
		return nil
	}
	a := &account{stamp: binary.BigEndian.Uint64(p.Data), sum: int64(binary.BigEndian.Uint64(p.Data[8:]))}
	for b := p.Data[16:]; len(b) > 0; b = b[8:] {
		a.deeds = append(a.deeds, binary.BigEndian.Uint64(b))
	}
	return a
}

// stampOf returns the stamp of a state. It is zero if the entity does not exist.
func stampOf(a *account) uint64 {
	if a == nil {
		return 0
	}
	return a.stamp
}

// receipt returns the answer to a call. No two calls have the same answer.
func receipt(stamp, id uint64, sum int64) model.Payload {
	b := binary.BigEndian.AppendUint64(nil, stamp)
	b = binary.BigEndian.AppendUint64(b, id)
	return model.Payload{Data: binary.BigEndian.AppendUint64(b, uint64(sum))}
}

// stampIn returns the stamp of a receipt.
func stampIn(p model.Payload) uint64 {
	if len(p.Data) != 24 {
		return 0
	}
	return binary.BigEndian.Uint64(p.Data)
}

// made is a call of a hand-over and its outcome.
type made struct {
	deed
	name   string
	result model.OperationResult
	// changed says that the call changed the state.
	changed bool
}

// handover is one run of operations by a worker, with its result.
type handover struct {
	entity    model.Address
	life      int64 // epoch of the node that has handed the operations over
	stamp     uint64
	base, end *account
	calls     []made
	committed bool
}

// operate is the code of accounts and desks. It makes at most the given number of calls.
func (s *Sim) operate(o *model.Operations, most int) (*handover, model.Operated) {
	s.stamps++
	h := &handover{entity: o.Entity, life: int64(o.Generation >> 32), stamp: s.stamps}
	if !o.Entity.Stateless() {
		h.base = accountOf(o.State, o.Exists)
	}
	state := h.base

	r := model.Operated{Entity: o.Entity, Generation: o.Generation}
	for i := range o.Calls[:min(most, len(o.Calls))] {
		c := made{name: o.Calls[i].Name}
		d, ok := deedOf(o.Calls[i].Input)
		if !ok {
			s.fail("%s is called with %x", o.Entity, o.Calls[i].Input.Data)
		}
		c.deed = d
		state = s.perform(h, state, &c)
		h.calls = append(h.calls, c)
		r.Results = append(r.Results, c.result)
		r.Changed = r.Changed || c.changed
	}

	h.end = state
	r.State, r.Exists = model.Payload{}, state != nil
	if state != nil {
		r.State = state.payload()
	}

	return h, r
}

// perform makes one call.
func (s *Sim) perform(h *handover, state *account, c *made) *account {
	apply := func(amount int64) {
		next := &account{stamp: h.stamp, sum: amount}
		if state != nil {
			next.sum, next.deeds = next.sum+state.sum, slices.Clone(state.deeds)
		}
		next.deeds = append(next.deeds, c.id)
		state, c.changed = next, true
		c.result.Output = receipt(h.stamp, c.id, next.sum)
	}

	one := func(m model.Message) { c.result.Messages = append(c.result.Messages, m) }
	add := func() {
		one(model.Message{
			Kind: model.MessageCall, To: accountAddress(int(c.target)), Name: doAdd, OneWay: true,
			Input: deed{id: follows(c.id, doAdd), amount: c.amount, source: sourceOf(h.entity)}.input(),
		})
	}

	switch c.name {
	case doAdd:
		apply(c.amount)
	case doPass:
		apply(-c.amount)
		add()
	case doSpawn:
		apply(0)
		child := model.Address{Tenant: tenant, Type: workflows[(int(c.target)%3+1)%len(workflows)], Key: childKeys[c.target%3]}
		one(model.Message{Kind: model.MessageStart, To: child, Input: input(0, 0, 0), Reuse: model.ReuseAlways})
		one(model.Message{Kind: model.MessageSignal, To: rootAddress(int(c.target) % s.plan.keys), Name: signalNames[c.target%2], Input: signalPayload(follows(c.id, doSpawn))})
	case doDelete:
		c.result.Output = receipt(h.stamp, c.id, 0)
		c.changed = state != nil
		state = nil
	case doFail:
		c.result.Failure = &model.Failure{Message: fmt.Sprintf("deed %x is meant to fail", c.id)}
	case doRead:
		var sum int64
		if state != nil {
			sum = state.sum
		}
		c.result.Output = receipt(stampOf(state), c.id, sum)
	case doEcho:
		c.result.Output = receipt(h.stamp, c.id, c.amount)
	case doForward:
		c.result.Output = receipt(h.stamp, c.id, c.amount)
		add()
	default:
		s.fail("%s is to %s", h.entity, c.name)
	}

	return state
}
