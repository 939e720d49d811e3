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
	// Calls are the operations, views or RPCs, by name.
	Calls map[string]Handler
	// State reads and writes the state. It is nil for a service, which has no state.
	State *State
}

// Handler is the code of an operation, a view or an RPC.
type Handler struct {
	// View says that the code only reads the state. The worker gives the code a copy of the state,
	// and drops the changes that the code makes to the copy.
	View bool
	// Limit is how long a call may take; zero for no limit. After that time the context of the call
	// ends. If the code does not return within lateBy after that, the worker abandons the call.
	Limit time.Duration
	// Run executes a call. state is the value that State.New or State.Decode returned, and the code
	// may change it; nil for services. The returned payload has its stored form.
	Run func(c *Call, state any) (model.Payload, error)
}

// State says how the state of an entity is read and written.
type State struct {
	// New returns the state of an entity that does not exist yet.
	New func() any
	// Open reverses Seal. An error means that the state can never be opened, not even later.
	Open func(ctx context.Context, p model.Payload) (model.Payload, error)
	// Decode and Encode are inverses of each other. Equal states have equal encodings.
	Decode func(plain model.Payload) (any, error)
	Encode func(state any) (model.Payload, error)
	// Seal gives an encoded state its stored form. It may take long: it keeps trying while a blob
	// store is unavailable, so that the results of the calls are not lost.
	Seal func(ctx context.Context, plain model.Payload) (model.Payload, error)
}

// MaxMessages is how many messages one call may send.
const MaxMessages = 10_000

// Call is a call whose code runs. It is safe for concurrent use. After the code has returned,
// Delete and Send have no effect.
type Call struct {
	model.OperationCall

	Entity model.Address
	// Exists says whether the entity had a state before the call.
	Exists bool

	ctx     context.Context //nolint:containedctx // a Call is a unit of work
	streams *streams

	mu       sync.Mutex
	messages []model.Message
	deleted  bool
	over     bool
}

// Context returns the context of the call. It ends when the call has reached its time limit, when
// an operator interrupts the call, or when the worker no longer waits for the call.
func (c *Call) Context() context.Context { return c.ctx }

// Stream starts a stream of items for the caller, and does not wait for its end. The code of the
// stream runs in parallel with all calls.
func (c *Call) Stream(id string, code StreamFunc) error {
	if c.streams == nil || c.streams.outlet == nil {
		return fault.New(fault.Unavailable, "%s of %s: this process has no way to send the items of a stream", c.Name, c.Entity)
	}
	return c.streams.begin(c.Entity, id, code)
}

// Delete removes the entity if the call succeeds.
func (c *Call) Delete() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deleted = !c.over
}

// Send sends a message if the call succeeds. It returns an error after the code has returned.
func (c *Call) Send(m model.Message) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.over:
		return fault.New(fault.Invalid, "send %s to %s: call %s of %s has returned; send messages before the call returns", m.Kind, m.To, c.Name, c.Entity)
	case len(c.messages) >= MaxMessages:
		return fault.New(fault.Exhausted, "send %s to %s: call %s of %s has sent %d messages, which is the limit", m.Kind, m.To, c.Name, c.Entity, MaxMessages)
	}
	if m.Trace == "" {
		m.Trace = c.Trace
	}
	c.messages = append(c.messages, m)
	return nil
}

// unmade is an error that Unmade has marked.
type unmade struct{ error }

// Unmade marks the error of a call that the code of this build cannot execute, for example because
// the code cannot read the input. If the call is one-way, the engine keeps it as a dead letter.
func Unmade(err error) error { return unmade{err} }

// Unwrap returns the error for errors.As.
func (u unmade) Unwrap() error { return u.error }

// end closes the call. It returns the messages of the call, and whether the call deleted the
// entity. Later sends and deletes have no effect.
func (c *Call) end() (messages []model.Message, deleted bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	return c.messages, c.deleted
}
