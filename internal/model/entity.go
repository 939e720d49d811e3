package model

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Entities and services have addresses like executions. Their types begin with these prefixes. The
// name of a workflow may not begin with one of them.
const (
	EntityPrefix  = "entity:"
	ServicePrefix = "service:"
)

// IsEntity reports whether the address belongs to an entity or a service, so that no run can have
// it.
func (a Address) IsEntity() bool {
	return strings.HasPrefix(a.Type, EntityPrefix) || strings.HasPrefix(a.Type, ServicePrefix)
}

// Stateless reports whether the address belongs to a service: it has no state and no locks, and its
// calls may overlap.
func (a Address) Stateless() bool { return strings.HasPrefix(a.Type, ServicePrefix) }

// MaxLocks is how many entities a section may lock.
const MaxLocks = 100

// Fence is the fencing token of a locked entity. The code of a section passes the token to the
// systems that the code writes to. The token grows with every lock of the entity.
type Fence struct {
	Entity Address `cbor:"1,keyasint"`
	Epoch  int64   `cbor:"2,keyasint"`
}

// SortLocks returns the entities of a section without duplicates, in the order in which they are
// locked. The order is by tenant, then type, then key, all compared by bytes. All sections use the
// same order, so that two sections cannot wait for each other.
func SortLocks(set []Address) []Address {
	locks := slices.Clone(set)
	slices.SortFunc(locks, func(a, b Address) int {
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Type, b.Type), cmp.Compare(a.Key, b.Key))
	})
	return slices.Compact(locks)
}

// EntityName returns entity/key for operators: the type without its prefix.
func (a Address) EntityName() string {
	_, name, _ := strings.Cut(a.Type, ":")
	return name + "/" + a.Key
}

// Entity is the stored form of an entity. An entity has a row only if it has a state or is locked.
type Entity struct {
	Address Address `cbor:"-"` // stored as columns, like the next two
	// Version counts the changes of the row.
	Version int64 `cbor:"-"`
	// Changed is the time of the last change.
	Changed Time `cbor:"-"`

	// State is the result of the operations of the entity. It is valid only if Exists is set.
	State  Payload `cbor:"1,keyasint,omitzero"`
	Exists bool    `cbor:"2,keyasint,omitempty"`
	// Created is when the state began to exist.
	Created Time `cbor:"3,keyasint,omitempty"`
	// Holder is the section that has locked the entity: a run, and the id of the step that opened
	// the section. It is zero when the entity is not locked.
	Holder Link `cbor:"4,keyasint,omitzero"`
	// Held is when the lock was granted.
	Held Time `cbor:"5,keyasint,omitempty"`
	// Epoch is the fencing token of the last lock. It never decreases, even if the row was removed
	// in between.
	Epoch int64 `cbor:"6,keyasint,omitempty"`
	// Expires is when the state is removed; zero for never. Alarm is when the timer that removes
	// the state fires. It may be earlier than Expires. In that case the entity sets the timer
	// again.
	Expires Time `cbor:"7,keyasint,omitempty"`
	Alarm   Time `cbor:"8,keyasint,omitempty"`
	// Log is the last operations, oldest first, if the entity keeps them. It is never changed in
	// place.
	Log []OperationRecord `cbor:"9,keyasint,omitempty"`
}

// Expired reports whether the time of the state is over. A state does not expire while a section
// holds the lock.
func (n *Entity) Expired(now Time) bool {
	return n.Exists && n.Expires != 0 && n.Expires <= now && !n.Locked()
}

// TimerRun returns the id under which the timers of an entity are stored. Timers of runs have the
// id of their run.
func (a Address) TimerRun() (id RunID) {
	sum := sha256.Sum256([]byte(a.Tenant + "\x00" + a.Type + "\x00" + a.Key))
	copy(id[:], sum[:])
	return id
}

// Locked reports whether a section holds the entity.
func (n *Entity) Locked() bool { return n.Holder.ID != "" }

// Empty reports whether nothing of the entity needs to be stored.
func (n *Entity) Empty() bool { return !n.Exists && !n.Locked() }

// Size estimates the bytes that the entity takes in memory and on disk.
func (n *Entity) Size() int {
	return 160 + len(n.Address.Key) + n.State.Size() + len(n.Holder.Address.Key) + len(n.Holder.ID) + LogSize(n.Log)
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

// MailboxItem is a message that waits for an entity: a call or a lock request. Seq orders the items
// of an entity.
type MailboxItem struct {
	Seq     int64
	At      Time // when it arrived
	Message Message
	// Damaged is set in place of the message when its body cannot be read.
	Damaged *Damaged
}

// EntityOffer says which entities and services a worker has code for.
type EntityOffer struct {
	Name   string // for operators
	Tenant string // tenant of the entities
	Types  []EntityType
	// Version is the version of the program of the worker, for operators. Empty if it has none.
	Version string
	// Slots is how many hand-overs of calls the worker takes at a time; 0 for any number.
	Slots int
	// Held are the entities whose calls the worker still makes for an owner that has lost the
	// connection to the worker. The field Run of these entries is zero.
	Held []HeldRun
	// Remote has the same meaning as Offer.Remote.
	Remote RemoteMember
}

// EntityType is an entity or a service in an offer.
type EntityType struct {
	Type string // with its prefix
	// Views are operations that change nothing. They do not wait for their turn.
	Views []string
	// Concurrency is how many calls of one service and key may overlap; 0 for any number. For an
	// entity it is always 1.
	Concurrency int
	// Mailbox is how many calls may wait for one key; 0 for the default.
	Mailbox int
	// MailboxBytes is how many bytes of calls may wait for one key; 0 for the default.
	MailboxBytes int
	// Idle is how long an entity without calls stays in memory; 0 for the default.
	Idle time.Duration
	// TTL is how long a state is kept after it was created, and IdleTTL after its last successful
	// operation; 0 for no limit.
	TTL, IdleTTL time.Duration
	// StateVersion is the version of the states that the worker writes. The worker reads states of
	// this version and of earlier versions. 0 means 1.
	StateVersion int
	// Log is how many operations of a key the engine keeps. LogInputs says whether it keeps their
	// inputs too.
	Log       int
	LogInputs bool
}

// MaxMailboxBytes is the largest EntityType.MailboxBytes.
const MaxMailboxBytes = 256 << 20

// Operations are calls of one entity, handed to a worker. The worker makes them one after the
// other. Each call works on the state after the previous call.
type Operations struct {
	Entity Address
	// Generation identifies the hand-over. The worker repeats it in its report.
	Generation uint64
	// State is the state of the entity. It is valid only if Exists is set.
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
	// Trace is the trace context of the caller; empty when it is not traced.
	Trace string
	// Number identifies the call among the calls of its entity. It stays the same when another node
	// becomes the owner of the entity. It is 0 for a call that is only in memory and is lost if the
	// owner dies.
	Number int64
}

// Interruption interrupts a call that a worker makes.
type Interruption struct {
	Entity     Address
	Generation uint64 // the generation of the hand-over
	// Call is the index of the call in the hand-over, or AnyCall for the running one.
	Call int
}

// AnyCall means the call of a hand-over that is running, whichever it is.
const AnyCall = -1

// Operated is the worker's report on Operations.
type Operated struct {
	Entity     Address
	Generation uint64
	// Results are in the order of the calls. If there are fewer results than calls, the worker did
	// not make the last calls, and the next hand-over has them again.
	Results []OperationResult
	// Changed says that the calls changed the state. If Exists is set, State is the new state.
	// Otherwise the calls removed the state.
	Changed bool
	State   Payload
	Exists  bool
}

// Size estimates the bytes that the report takes in memory.
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

// OperationResult is the result of a call. A call that failed has changed nothing and sends
// nothing.
type OperationResult struct {
	Output  Payload
	Failure *Failure
	// Unmade says that the worker could not make the call, because its build does not have the
	// operation or cannot read the state.
	Unmade bool
	// Messages are the messages that the call sends: starts, signals, and one-way calls.
	Messages []Message
}
