package perdure

import (
	"reflect"
	"time"

	"github.com/perdure/perdure/internal/model"
)

// EntityOption configures an entity or a service: Concurrency, MaxIdle, MailboxSize, MailboxBytes,
// OperationTimeout, TTL, IdleTTL, StateVersion, MigrateState, OperationLog or LogInputs.
type EntityOption interface{ applyEntity(*entityOptions) }

// Concurrency is how many calls of one key of a service may overlap. The default is 1; 0 means no
// limit. It is not for entities, whose operations never overlap.
func Concurrency(n int) EntityOption {
	return entityOption(func(o *entityOptions) { o.concurrency = &n })
}

// MaxIdle is how long a key without calls stays in memory; 1 min by default.
func MaxIdle(d time.Duration) EntityOption {
	return entityOption(func(o *entityOptions) { o.idle = &d })
}

// TTL is how long the engine keeps the state of a key after its creation; forever by default. When
// this time is over, the engine removes the state, and the next operation gets the zero value. The
// engine never removes a state while an operation runs or a workflow holds the lock: it waits until
// the operation has ended and the lock is free.
func TTL(d time.Duration) EntityOption { return entityOption(func(o *entityOptions) { o.ttl = &d }) }

// IdleTTL is how long the engine keeps the state of a key after the last operation that succeeded;
// forever by default. Views and failed operations do not count. With TTL and IdleTTL, the state
// expires at the earlier of the two times.
func IdleTTL(d time.Duration) EntityOption {
	return entityOption(func(o *entityOptions) { o.idleTTL = &d })
}

// MailboxSize is how many calls of one key may wait in addition to the running one; 10,000 by
// default. Further calls get ErrExhausted.
func MailboxSize(n int) EntityOption { return entityOption(func(o *entityOptions) { o.mailbox = &n }) }

// MailboxBytes is how many bytes the waiting calls of one key may have together; 16 MiB by default,
// and at most 256 MiB, because the process that owns the key has them in memory. Further calls get
// ErrExhausted. A key without waiting calls always accepts one call, even a larger one.
func MailboxBytes(n int) EntityOption {
	return entityOption(func(o *entityOptions) { o.mailboxBytes = &n })
}

// OperationTimeout is how long one operation, view or RPC may take; by default 1 min for entities
// and no limit for services. After this time the context of the call ends. If the code does not
// return within another second, the caller gets ErrTimeout, nothing is changed or sent, and the
// next call of the key runs. The engine ignores everything that the abandoned code returns or sends
// later.
func OperationTimeout(d time.Duration) EntityOption {
	return entityOption(func(o *entityOptions) { o.limit = &d })
}

// StateVersion is the version of the state type of this build; 1 by default. MigrateState says how
// the engine turns states of earlier versions into this version when it reads them. A process whose
// StateVersion is lower than the version of a state gets no calls for that state. The calls wait
// for a process that knows the version.
func StateVersion(n int) EntityOption {
	return entityOption(func(o *entityOptions) { o.stateVersion = &n })
}

// MigrateState turns a state of version from into a state of version from+1. When the engine reads
// a state, it applies these functions one after the other up to StateVersion, and stores the result
// with the next operation that succeeds. The functions must be pure, because they may run many
// times.
func MigrateState[Old, New any](from int, fn func(Old) (New, error)) EntityOption {
	m := stateMigration{
		from: from, old: reflect.TypeFor[Old](), next: reflect.TypeFor[New](), missing: fn == nil,
		read: func(h *host, name string, p model.Payload) (any, error) {
			return unmarshal[Old](h, stateKind, name, p)
		},
		run: func(old any) (any, error) { return fn(old.(Old)) },
	}
	return entityOption(func(o *entityOptions) { o.migrations = append(o.migrations, m) })
}

// OperationLog keeps the last n operations of a key, at most 100, with name, caller, time and
// outcome; EntityInfo.Log shows them. The engine stores them in the row of the entity, up to 64
// KiB, so every operation writes the row, even one that fails. The engine removes the log together
// with the state.
func OperationLog(n int) EntityOption { return entityOption(func(o *entityOptions) { o.log = &n }) }

// LogInputs adds the stored form of each input of at most 1 KiB to the OperationLog.
func LogInputs() EntityOption { return entityOption(func(o *entityOptions) { o.logInputs = true }) }

// defaultOperationTimeout is the OperationTimeout of entities that set none. Services that set none
// have no limit.
const defaultOperationTimeout = time.Minute

type entityOptions struct {
	concurrency, mailbox, mailboxBytes *int
	idle, limit, ttl, idleTTL          *time.Duration

	stateVersion *int
	migrations   []stateMigration
	log          *int
	logInputs    bool
}

type entityOption func(*entityOptions)

func (f entityOption) applyEntity(o *entityOptions) { f(o) }

// check calls wrong for each mistake in the options.
func (o *entityOptions) check(wrong func(format string, args ...any), k *calleeKind) {
	if n := o.concurrency; n != nil {
		switch {
		case k == entityKind:
			wrong("Concurrency is for services: operations of an entity never overlap")
		case *n < 0:
			wrong("Concurrency(%d) must be >= 0", *n)
		}
	}

	if n := o.mailbox; n != nil && *n < 1 {
		wrong("MailboxSize(%d) must be at least 1", *n)
	}
	if n := o.mailboxBytes; n != nil && (*n < 1 || *n > model.MaxMailboxBytes) {
		wrong("MailboxBytes(%d) must be at least 1 and at most %d", *n, model.MaxMailboxBytes)
	}
	if d := o.idle; d != nil && *d <= 0 {
		wrong("MaxIdle(%s) must be more than 0", *d)
	}
	for name, d := range map[string]*time.Duration{"TTL": o.ttl, "IdleTTL": o.idleTTL} {
		switch {
		case d == nil:
		case k != entityKind:
			wrong("%s is for entities: a service has no state", name)
		case *d < time.Millisecond || *d > maxTaskTime:
			wrong("%s(%s) must be at least a millisecond and at most 100 years", name, *d)
		}
	}
	o.checkLog(wrong, k)
	if d := o.limit; d != nil && (*d < time.Millisecond || *d > maxTaskTime) {
		wrong("OperationTimeout(%s) must be at least a millisecond and at most 100 years", *d)
	}
}

func (o *entityOptions) checkLog(wrong func(format string, args ...any), k *calleeKind) {
	switch n := o.log; {
	case n == nil && o.logInputs:
		wrong("LogInputs needs OperationLog")
	case n == nil:
	case k != entityKind:
		wrong("OperationLog is for entities: a service stores nothing")
	case *n < 1 || *n > model.MaxOperationLog:
		wrong("OperationLog(%d) must be at least 1 and at most %d", *n, model.MaxOperationLog)
	}
}
