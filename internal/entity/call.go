package entity

import (
	"context"
	"sync"
	"time"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Type is the code of an entity or of a service.
type Type struct {
	// Calls are its operations, views or RPCs, by name.
	Calls map[string]Handler
	// State reads and writes its state; nil for a service, which has none.
	State *State
}

// Handler is the code of an operation, a view or an RPC.
type Handler struct {
	// View has it get the state and leave it as it is, whatever it does to its copy.
	View bool
	// Limit is how long a call may take; no limit when it is zero. Its context ends then, and a
	// little later the worker leaves it alone.
	Limit time.Duration
	// Run makes a call. The state is what State.New or State.Decode have returned, for the code to
	// change; nil for services. What it returns has its stored form.
	Run func(c *Call, state any) (model.Payload, error)
}

// State is how the state of an entity is read and written.
type State struct {
	// New is the state of an entity that does not exist.
	New func() any
	// Open undoes Seal; it fails when that is impossible for good.
	Open func(ctx context.Context, p model.Payload) (model.Payload, error)
	// Decode and Encode are the inverse of each other. The same state has the same encoding.
	Decode func(plain model.Payload) (any, error)
	Encode func(state any) (model.Payload, error)
	// Seal gives an encoded state its stored form. It may take its time: what was done is not
	// thrown away because a store of blobs is away.
	Seal func(ctx context.Context, plain model.Payload) (model.Payload, error)
}

// MaxMessages is how many messages one call may send.
const MaxMessages = 10_000

// Call is a call while its code runs. It is safe for concurrent use, and of no use once the code
// has returned.
type Call struct {
	model.OperationCall

	Entity model.Address
	// Exists tells whether the entity had a state before the call.
	Exists bool

	ctx context.Context //nolint:containedctx // it is the unit of work

	mu       sync.Mutex
	messages []model.Message
	deleted  bool
	over     bool
}

// Context ends when the worker does not wait for the call any more, and when the call has reached
// its limit.
func (c *Call) Context() context.Context { return c.ctx }

// Delete has the entity exist no more when the call succeeds.
func (c *Call) Delete() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deleted = !c.over
}

// Send has a message leave when the call succeeds.
func (c *Call) Send(m model.Message) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.over:
		return fault.New(fault.Invalid, "send %s to %s: call %s of %s has returned: send before it does", m.Kind, m.To, c.Name, c.Entity)
	case len(c.messages) >= MaxMessages:
		return fault.New(fault.Exhausted, "send %s to %s: call %s of %s has sent %d messages, which is the limit", m.Kind, m.To, c.Name, c.Entity, MaxMessages)
	}
	if m.Trace == "" {
		m.Trace = c.Trace
	}
	c.messages = append(c.messages, m)
	return nil
}

// unmade is an error of a handler that has not begun with its call.
type unmade struct{ error }

// Unmade marks the error of a call that the code of this build cannot make, such as one whose input
// it cannot read. A call that nobody waits for is kept as a dead letter then.
func Unmade(err error) error { return unmade{err} }

// Unwrap gives errors.As the error.
func (u unmade) Unwrap() error { return u.error }

// end takes what the call has done; from then on it does nothing any more.
func (c *Call) end() (messages []model.Message, deleted bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	return c.messages, c.deleted
}
