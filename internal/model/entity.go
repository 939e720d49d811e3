package model

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Entities and services have addresses as executions have; these prefixes begin their types.
// Workflows may not have such names.
const (
	EntityPrefix  = "entity:"
	ServicePrefix = "service:"
)

// IsEntity reports whether the address is that of an entity or of a service: no run has it.
func (a Address) IsEntity() bool {
	return strings.HasPrefix(a.Type, EntityPrefix) || strings.HasPrefix(a.Type, ServicePrefix)
}

// Stateless reports whether the address is that of a service: it has no state and no locks, and its
// calls may overlap.
func (a Address) Stateless() bool { return strings.HasPrefix(a.Type, ServicePrefix) }

// MaxLocks is how many entities a section may lock.
const MaxLocks = 100

// Fence is the token under which an entity is locked for whatever is done in a section. It grows
// with every lock of the entity.
type Fence struct {
	Entity Address `cbor:"1,keyasint"`
	Epoch  int64   `cbor:"2,keyasint"`
}

// SortLocks are the entities of a section in the order in which they are locked, each once: by type
// and key, each by its bytes. The order is the same for everybody, so that nobody waits for
// somebody who waits for him.
func SortLocks(set []Address) []Address {
	locks := slices.Clone(set)
	slices.SortFunc(locks, func(a, b Address) int {
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Type, b.Type), cmp.Compare(a.Key, b.Key))
	})
	return slices.Compact(locks)
}

// EntityName is entity/key, for people: the type without its prefix.
func (a Address) EntityName() string {
	_, name, _ := strings.Cut(a.Type, ":")
	return name + "/" + a.Key
}

// Entity is what is stored of an entity. One that has no state and is not locked has no row.
type Entity struct {
	Address Address `cbor:"-"` // stored as columns, like what follows
	// Version counts the changes of the row.
	Version int64 `cbor:"-"`
	// Changed is the time of the last one.
	Changed Time `cbor:"-"`

	// State is what its operations made of it; meaningless unless Exists.
	State  Payload `cbor:"1,keyasint,omitzero"`
	Exists bool    `cbor:"2,keyasint,omitempty"`
	// Created is when the state began to exist.
	Created Time `cbor:"3,keyasint,omitempty"`
	// Holder is the section that has locked it: step ID of a run; zero when none has.
	Holder Link `cbor:"4,keyasint,omitzero"`
	// Held is since when.
	Held Time `cbor:"5,keyasint,omitempty"`
	// Epoch is the fencing token of the last lock. It never decreases, also when the row has been
	// gone in between.
	Epoch int64 `cbor:"6,keyasint,omitempty"`
}

// Locked reports whether a section holds the entity.
func (n *Entity) Locked() bool { return n.Holder.ID != "" }

// Empty reports whether nothing of the entity needs to be stored.
func (n *Entity) Empty() bool { return !n.Exists && !n.Locked() }

// Size is roughly what the entity costs in memory and on disk.
func (n *Entity) Size() int {
	return 160 + len(n.Address.Key) + n.State.Size() + len(n.Holder.Address.Key) + len(n.Holder.ID)
}

// DecodeEntity reads the stored body of an entity.
func DecodeEntity(a Address, version int64, changed Time, body []byte) (Entity, error) {
	var n Entity
	if err := decMode.Unmarshal(body, &n); err != nil {
		return n, fmt.Errorf("entity %s: %w", a, err)
	}
	n.Address, n.Version, n.Changed = a, version, changed
	return n, nil
}

// MailboxItem is a message that waits for an entity: a call or the request of a lock. Seq orders
// the items of an entity.
type MailboxItem struct {
	Seq     int64
	At      Time // since when
	Message Message
	// Damaged is set in place of the message when its body cannot be read.
	Damaged *Damaged
}

// EntityOffer says which entities and services a worker has the code of.
type EntityOffer struct {
	Name   string // for people
	Tenant string // whose; empty for the default one
	Types  []EntityType
}

// EntityType is an entity or a service as a worker offers it.
type EntityType struct {
	Type string // with its prefix
	// Views are operations that change nothing: they wait for nobody.
	Views []string
	// Concurrency is how many calls of one service and key may overlap; 0 for any number. Of an
	// entity it is always 1.
	Concurrency int
	// Mailbox is how many calls may wait for one key; 0 for the default.
	Mailbox int
	// Idle is how long one that nobody calls stays in memory; 0 for the default.
	Idle time.Duration
}

// Operations are calls of one entity, handed to a worker: it makes them one after the other, each
// on what the one before has left.
type Operations struct {
	Entity Address
	// Generation names the hand-over; the worker's report has it too.
	Generation uint64
	// State is how the entity stands; meaningless unless Exists.
	State  Payload
	Exists bool
	Calls  []OperationCall
	// Now is the owner's clock.
	Now Time
}

// OperationCall is a call of an operation, a view or an RPC.
type OperationCall struct {
	Name  string
	Input Payload
	// Trace is the trace context of whoever calls; empty when nobody traces.
	Trace string
}

// Operated is what a worker reports of Operations.
type Operated struct {
	Entity     Address
	Generation uint64
	// Results are in the order of the calls. Calls behind the last one were not made: they are made
	// by whoever gets them next.
	Results []OperationResult
	// Changed tells that the state is another one: State, or none unless Exists.
	Changed bool
	State   Payload
	Exists  bool
}

// Size is roughly what the report costs in memory.
func (r *Operated) Size() int {
	n := r.State.Size()
	for i := range r.Results {
		res := &r.Results[i]
		n += 64 + res.Output.Size()
		for j := range res.Messages {
			n += res.Messages[j].Size()
		}
	}
	return n
}

// OperationResult is what came of a call. One that failed has changed nothing and sends nothing.
type OperationResult struct {
	Output  Payload
	Failure *Failure
	// Unmade tells that the call failed for no reason of its own: this build does not have the
	// operation, or cannot read the state.
	Unmade bool
	// Messages are what the call sends: starts, signals, calls of others that nobody waits for.
	Messages []Message
}
