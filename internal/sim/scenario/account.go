package scenario

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/sim/kernel"
)

// Some simulations have entities: accounts, whose state is a sum and the list of applied deeds, and
// desks, which are services. Clients, workflows and the entities themselves call them, and
// workflows lock them. The rules are in holding.go and section.go of package oracle.

// Types of entities.
const (
	AccountType = model.EntityPrefix + "account"
	DeskType    = model.ServicePrefix + "desk"
)

var (
	accountKeys = [...]string{"a0", "a1", "a2", "a3", "a4"}
	deskKeys    = [...]string{"d0", "d1"}
)

// AccountAddress returns the address of an account.
func AccountAddress(i int) model.Address {
	return model.Address{Tenant: Tenant, Type: AccountType, Key: accountKeys[i]}
}

// DeskAddress returns the address of a desk.
func DeskAddress(i int) model.Address {
	return model.Address{Tenant: Tenant, Type: DeskType, Key: deskKeys[i]}
}

// Operations of accounts. Desks have two other operations, echo and forward.
const (
	DoAdd  = "add"
	DoFail = "fail"
	// DoPass takes an amount from this account and sends it to another account without waiting.
	DoPass    = "pass"
	DoSpawn   = "spawn" // starts a workflow and sends a signal to another workflow
	DoDelete  = "delete"
	DoRead    = "read" // a view
	DoEcho    = "echo"
	DoForward = "forward" // adds to an account without waiting
	DoKill    = "kill"    // kills the process, so that the call never ends
)

// deed is a call as its input encodes it. Every deed has its own id, and a repeated call has the
// same id.
type deed struct {
	ID     uint64
	Amount int64
	// target is the other account for pass and forward, and the workflow to start or signal for
	// spawn.
	target uint8
	Source uint8 // the entity that sent the deed, if an entity did
}

func (d deed) Input() model.Payload {
	b := binary.BigEndian.AppendUint64(nil, d.ID)
	b = binary.BigEndian.AppendUint64(b, uint64(d.Amount))
	return model.Payload{Data: append(b, d.target, d.Source)}
}

// DeedOf decodes the input of a call.
func DeedOf(p model.Payload) (d deed, ok bool) {
	if len(p.Data) != 18 {
		return d, false
	}
	return deed{ID: binary.BigEndian.Uint64(p.Data), Amount: int64(binary.BigEndian.Uint64(p.Data[8:])), target: p.Data[16], Source: p.Data[17]}, true
}

// Follows returns the id of a message that the deed with the given id sends. The parameter what
// names the message.
func Follows(id uint64, what string) uint64 {
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

// EntityOf returns the entity that a source number of a deed names.
func EntityOf(source uint8) model.Address {
	if source >= 10 {
		return DeskAddress(int(source - 10))
	}
	return AccountAddress(int(source))
}

// Account is the state of an account.
type Account struct {
	stamp uint64 // the stamp of the hand-over that produced the state
	Sum   int64
	Deeds []uint64 // the deeds that were applied since the account was created
}

func (a *Account) payload() model.Payload {
	b := binary.BigEndian.AppendUint64(nil, a.stamp)
	b = binary.BigEndian.AppendUint64(b, uint64(a.Sum))
	for _, id := range a.Deeds {
		b = binary.BigEndian.AppendUint64(b, id)
	}
	return model.Payload{Data: b}
}

// AccountOf decodes a state. It returns nil if the entity does not exist.
func AccountOf(p model.Payload, exists bool) *Account {
	if !exists {
		return nil
	}
	a := &Account{stamp: binary.BigEndian.Uint64(p.Data), Sum: int64(binary.BigEndian.Uint64(p.Data[8:]))}
	for b := p.Data[16:]; len(b) > 0; b = b[8:] {
		a.Deeds = append(a.Deeds, binary.BigEndian.Uint64(b))
	}
	return a
}

// StampOf returns the stamp of a state. It is zero if the entity does not exist.
func StampOf(a *Account) uint64 {
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

// StampIn returns the stamp of a receipt.
func StampIn(p model.Payload) uint64 {
	if len(p.Data) != 24 {
		return 0
	}
	return binary.BigEndian.Uint64(p.Data)
}

// Made is a call of a hand-over and its outcome.
type Made struct {
	deed
	Name   string
	Result model.OperationResult
	// Changed says that the call changed the state.
	Changed bool
}

// Handover is a list of calls that a lane has handed to a worker, with the outcome.
type Handover struct {
	Entity    model.Address
	Life      int64 // epoch of the node that has handed the operations over
	Stamp     uint64
	Base, End *Account
	Calls     []Made
	Committed bool
}

// Operate is the code of accounts and desks. The parameter most bounds the number of calls that it
// makes.
func (s *Scenario) Operate(o *model.Operations, most int) (*Handover, model.Operated) {
	s.stamps++
	h := &Handover{Entity: o.Entity, Life: int64(o.Generation >> 32), Stamp: s.stamps}
	if !o.Entity.Stateless() {
		h.Base = AccountOf(o.State, o.Exists)
	}
	state := h.Base

	r := model.Operated{Entity: o.Entity, Generation: o.Generation}
	for i := range o.Calls[:min(most, len(o.Calls))] {
		c := Made{Name: o.Calls[i].Name}
		d, ok := DeedOf(o.Calls[i].Input)
		if !ok {
			s.Fail("%s is called with %x", o.Entity, o.Calls[i].Input.Data)
		}
		c.deed = d
		state = s.perform(h, state, &c)
		h.Calls = append(h.Calls, c)
		r.Results = append(r.Results, c.Result)
		r.Changed = r.Changed || c.Changed
	}

	h.End = state
	r.State, r.Exists = model.Payload{}, state != nil
	if state != nil {
		r.State = state.payload()
	}

	return h, r
}

// perform makes one call.
func (s *Scenario) perform(h *Handover, state *Account, c *Made) *Account {
	apply := func(amount int64) {
		next := &Account{stamp: h.Stamp, Sum: amount}
		if state != nil {
			next.Sum, next.Deeds = next.Sum+state.Sum, slices.Clone(state.Deeds)
		}
		next.Deeds = append(next.Deeds, c.ID)
		state, c.Changed = next, true
		c.Result.Output = receipt(h.Stamp, c.ID, next.Sum)
	}

	one := func(m model.Message) { c.Result.Messages = append(c.Result.Messages, m) }
	add := func() {
		one(model.Message{
			Kind: model.MessageCall, To: AccountAddress(int(c.target)), Name: DoAdd, OneWay: true,
			Input: deed{ID: Follows(c.ID, DoAdd), Amount: c.Amount, Source: sourceOf(h.Entity)}.Input(),
		})
	}

	switch c.Name {
	case DoAdd:
		apply(c.Amount)
	case DoPass:
		apply(-c.Amount)
		add()
	case DoSpawn:
		apply(0)
		child := model.Address{Tenant: Tenant, Type: s.workflow(int(c.target)%3 + 1), Key: childKeys[c.target%3]}
		one(model.Message{Kind: model.MessageStart, To: child, Input: Input(0, 0, 0), Reuse: model.ReuseAlways})
		one(model.Message{Kind: model.MessageSignal, To: s.rootAddress(int(c.target) % s.Plan.Keys), Name: SignalNames[c.target%2], Input: SignalPayload(Follows(c.ID, DoSpawn))})
	case DoDelete:
		c.Result.Output = receipt(h.Stamp, c.ID, 0)
		c.Changed = state != nil
		state = nil
	case DoFail:
		c.Result.Failure = &model.Failure{Message: fmt.Sprintf("deed %x is meant to fail", c.ID)}
	case DoRead:
		var sum int64
		if state != nil {
			sum = state.Sum
		}
		c.Result.Output = receipt(StampOf(state), c.ID, sum)
	case DoEcho:
		c.Result.Output = receipt(h.Stamp, c.ID, c.Amount)
	case DoForward:
		c.Result.Output = receipt(h.Stamp, c.ID, c.Amount)
		add()
	default:
		s.Fail("%s is to %s", h.Entity, c.Name)
	}

	return state
}

// drawEntities decides which entities a simulation has.
func (s *Scenario) drawEntities() {
	s.Plan.Accounts, s.Plan.Desks = 2+s.Pick(len(accountKeys)-1), 1+s.Pick(len(deskKeys))
	s.Plan.EntityIdle = kernel.OneOf(s, 0, kernel.Microseconds(s.Between(5, 60)*kernel.Millisecond), kernel.Microseconds(s.Between(100, 500)*kernel.Millisecond))
	s.Plan.Overlap = kernel.OneOf(s, 0, 1, 2)
	s.Plan.EntityMoves = s.Pick(5)
	if s.Has(Expiring) {
		// A state must live much longer than a commit takes, because the oracle does not know
		// states that the store never had.
		life := kernel.Microseconds(s.Between(4000, 12_000) * kernel.Millisecond)
		s.Plan.EntityTTL, s.Plan.EntityIdleTTL = kernel.OneOf(s, life, 0), life/2
		if s.Plan.EntityTTL > 0 && s.Chance(0.5) {
			s.Plan.EntityIdleTTL = 0
		}
	}
}

// NewDeed draws a deed for an account. If mayStart is false, the deed starts no workflow. The
// caller uses that where the started workflow could cause the same deed again.
func (s *Scenario) NewDeed(mayStart bool) (name string, d deed) {
	s.deeds++
	d = deed{ID: s.deeds, Amount: s.Between(1, 100), target: uint8(s.Pick(s.Plan.Accounts))}
	name = kernel.OneOf(s, DoAdd, DoAdd, DoAdd, DoAdd, DoPass, DoPass, DoFail, DoSpawn, DoRead)
	if name != DoRead && s.Chance(0.06) {
		name = DoDelete
	}
	if name == DoSpawn && !mayStart {
		name = DoAdd
	}
	return name, d
}

// SumBefore is the sum of an account before a call of a hand-over.
func (h *Handover) SumBefore(c *Made) (sum int64) {
	if h.Base != nil {
		sum = h.Base.Sum
	}

	for i := range h.Calls {
		o := &h.Calls[i]
		switch {
		case o.ID == c.ID:
			return sum
		case !o.Changed:
		case o.Name == DoDelete:
			sum = 0
		case o.Name == DoAdd:
			sum += o.Amount
		case o.Name == DoPass:
			sum -= o.Amount
		}
	}

	return sum
}
