package perdure

import (
	"time"
)

// EntityOption configures an entity or a service: Concurrency, MaxIdle, MailboxSize or
// OperationTimeout.
type EntityOption interface{ applyEntity(*entityOptions) }

// Concurrency is how many calls of one service and key may overlap. The default is 1; 0 is any
// number. It is not for entities, whose operations never overlap.
func Concurrency(n int) EntityOption {
	return entityOption(func(o *entityOptions) { o.concurrency = &n })
}

// MaxIdle is how long a key without calls stays in memory.
func MaxIdle(d time.Duration) EntityOption {
	return entityOption(func(o *entityOptions) { o.idle = &d })
}

// MailboxSize is how many calls of one key may wait beside the one that runs. Further calls get
// ErrExhausted.
func MailboxSize(n int) EntityOption { return entityOption(func(o *entityOptions) { o.mailbox = &n }) }

// OperationTimeout is how long one operation, view or RPC may take; 1 min for entities, no limit
// for services. Then its context ends. When its code does not return within another second, the
// caller gets ErrTimeout, nothing is changed or sent, and the next call of the key runs. The engine
// drops what the code still does.
func OperationTimeout(d time.Duration) EntityOption {
	return entityOption(func(o *entityOptions) { o.limit = &d })
}

// defaultOperationTimeout is how long an operation or a view of an entity may take without
// OperationTimeout. RPCs of services have no limit without it.
const defaultOperationTimeout = time.Minute

type entityOptions struct {
	concurrency, mailbox *int
	idle, limit          *time.Duration
}

type entityOption func(*entityOptions)

func (f entityOption) applyEntity(o *entityOptions) { f(o) }

// check says what is wrong with options.
func (o *entityOptions) check(wrong func(format string, args ...any), k *calleeKind) {
	if n := o.concurrency; n != nil {
		switch {
		case k == entityKind:
			wrong("Concurrency is for services: operations of an entity never overlap")
		case *n < 0:
			wrong("Concurrency(%d) is below zero", *n)
		}
	}

	if n := o.mailbox; n != nil && *n < 1 {
		wrong("MailboxSize(%d) has no room for a call", *n)
	}
	if d := o.idle; d != nil && *d <= 0 {
		wrong("MaxIdle(%s): nothing can be called in no time", *d)
	}
	if d := o.limit; d != nil && (*d < time.Millisecond || *d > maxTaskTime) {
		wrong("OperationTimeout(%s) must be at least a millisecond and at most 100 years", *d)
	}
}
