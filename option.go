package perdure

import (
	"reflect"
	"time"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/replay"
)

type (
	// WorkflowOption configures a workflow definition.
	WorkflowOption interface{ applyWorkflow(*workflowOptions) }
	// ActivityOption configures an activity definition.
	ActivityOption interface{ applyActivity(*stepOptions) }
	// StartOption configures one start.
	StartOption interface{ applyStart(*startOptions) }
	// CallOption configures one step, call or send.
	CallOption interface{ applyCall(*stepOptions) }
)

type workflowOptions struct {
	uses   []Definition
	pinned bool
	retain time.Duration
	retry  *RetryPolicy
}

type stepOptions struct {
	retry     *RetryPolicy
	timeout   time.Duration
	key       string
	keyed     bool
	requestID string
	task      *taskSettings // nil unless a task option was given
}

type startOptions struct {
	key       Key
	keyed     bool
	reuse     model.ReusePolicy
	policy    model.ParentClosePolicy
	requestID string
	with      []signalWith
	labels    []model.Label
	retry     *RetryPolicy
	terms     model.Terms
	timed     []string        // the options that have said something about them
	task      []submitOption  // of submissions only
	spec      *model.TaskSpec // of a task
	in        reflect.Type    // of the input
	err       error
}

type signalWith struct {
	name   string
	encode func(*host) (model.Payload, error)
	value  model.Payload // once it is encoded
}

// RetryPolicy says when a failed attempt is repeated. The zero value never gives up: after 1 s, doubled each time, at most 1 min.
type RetryPolicy struct {
	// MaxAttempts counts all attempts; 0 is no limit.
	MaxAttempts int
	// Initial is the pause after the first attempt (1 s), Max the longest one (1 min).
	Initial, Max time.Duration
	// Coefficient multiplies the pause each time (2). Jitter moves it by up to that share either way (0).
	Coefficient, Jitter float64
	// Except are the errors that are not worth another attempt, as if they were Permanent.
	Except []ErrorKind
	// If decides about the others; nil means that every one is worth another attempt.
	If func(error) bool
}

func (p RetryPolicy) applyActivity(o *stepOptions) { o.retry = &p }
func (p RetryPolicy) applyCall(o *stepOptions)     { o.retry = &p }
func (p RetryPolicy) applyStart(o *startOptions)   { o.retry = &p }

func (p RetryPolicy) applyWorkflow(o *workflowOptions) { o.retry = &p }

func (p RetryPolicy) policy() replay.Policy {
	return replay.Policy{
		MaxAttempts: p.MaxAttempts, Initial: p.Initial, Max: p.Max, Coefficient: p.Coefficient, Jitter: p.Jitter, If: p.worth(),
	}
}

// Exponential pauses 1 s, doubled up to 60 s, and makes at most n attempts.
func Exponential(n int) RetryPolicy {
	return RetryPolicy{MaxAttempts: n, Initial: time.Second, Max: time.Minute, Coefficient: 2}
}

// Constant pauses d each time and makes at most n attempts. Without a pause, they follow each other at once.
func Constant(n int, d time.Duration) RetryPolicy {
	if d == 0 {
		d = 1 // zero would be the default
	}
	return RetryPolicy{MaxAttempts: n, Initial: d, Max: d, Coefficient: 1}
}

type timeoutOption time.Duration

func (t timeoutOption) applyActivity(o *stepOptions) { o.timeout = time.Duration(t) }
func (t timeoutOption) applyCall(o *stepOptions)     { o.timeout = time.Duration(t) }

func (t timeoutOption) applyStart(o *startOptions) {
	o.task = append(o.task, submitOption{"AttemptTimeout", t})
}

// AttemptTimeout limits one attempt: its context ends after d, and the attempt has failed. That of a task counts from the moment at which a worker claims it.
func AttemptTimeout(d time.Duration) TaskOption { return timeoutOption(d) }

type stepKey string

func (k stepKey) applyCall(o *stepOptions) { o.key, o.keyed = string(k), true }

// StepKey names a step explicitly; needed for Do in a loop.
func StepKey(k string) CallOption { return stepKey(k) }

type requestID string

func (r requestID) applyCall(o *stepOptions)   { o.requestID = string(r) }
func (r requestID) applyStart(o *startOptions) { o.requestID = string(r) }

// RequestID lets a client repeat a request whose answer it has lost. The engine carries out the request
// once, and a repetition with the same id gets the first answer. The engine remembers an id for a day,
// or for as long as embedded.Config.KeepRequests says.
//
// An id belongs to one target, so two executions, tasks or entities may use the same one. All of these
// requests to an execution or a task share one space of ids: start or submit, signal, resolve or reject
// of a promise, cancel, retry, reset, fork, import and requeue. Updates of an execution have a space of
// their own. Calls of an entity or a service share one space, whether they wait (Call) or not (Send).
//
// Within its space an id stands for one verb, one name and one input. Any other request under it gets
// ErrConflict and does nothing. Without an id every request of a client is a new one. Workflows need
// none, because what a workflow sends is sent once.
func RequestID(id string) interface {
	CallOption
	StartOption
	PastOption
	RequeueOption
} {
	return requestID(id)
}

type usesOption []Definition

func (u usesOption) applyWorkflow(o *workflowOptions) { o.uses = append(o.uses, u...) }

// Uses makes opening fail, naming it, when an activity the workflow needs has no code here.
func Uses(defs ...Definition) WorkflowOption { return usesOption(defs) }

type pinnedOption struct{}

func (pinnedOption) applyWorkflow(o *workflowOptions) { o.pinned = true }

// Pinned has an execution continued only by processes of the version that began it (embedded.Config.Version), so that no deploy changes the
// code under it. While there is none, it waits and says so. A run that continues as new may begin on any version. A build in which the workflow is not
// pinned any more continues all of them.
func Pinned() WorkflowOption { return pinnedOption{} }

type retainOption time.Duration

func (r retainOption) applyWorkflow(o *workflowOptions) { o.retain = time.Duration(r) }

// Retain keeps the runs of a workflow for d after they have ended, in place of what the nodes keep others for (embedded.Config.Retention): at least
// a minute, or Forever. It counts for runs that end from then on, and not for those that are terminated, because their code has no say in it.
func Retain(d time.Duration) WorkflowOption { return retainOption(d) }

// Forever is the retention time of what is never removed.
const Forever = time.Duration(1<<63 - 1)

// ParentClose says what happens to a child when its parent closes.
type ParentClose int

// Policies of ParentClose.
const (
	CancelChild  ParentClose = iota // it is asked to end
	AbandonChild                    // it goes on
)

func (p ParentClose) applyStart(o *startOptions) {
	switch p {
	case CancelChild:
		o.policy = model.CancelChild
	case AbandonChild:
		o.policy = model.AbandonChild
	default:
		o.refuse("there is no ParentClose %d", int(p))
	}
}

// refuse keeps the first mistake in options; a start with one is not made.
func (o *startOptions) refuse(format string, args ...any) {
	if o.err == nil {
		o.err = Permanent(fault.New(fault.Invalid, format, args...))
	}
}

// Reuse says what a start does when the key was used by a closed execution.
type Reuse int

// Policies of Reuse.
const (
	ReturnExisting Reuse = iota // the closed execution and its result stand
	ReuseIfFailed               // a new run begins unless the last one completed
	ReuseAlways                 // a new run begins
)

func (r Reuse) applyStart(o *startOptions) {
	switch r {
	case ReturnExisting:
		o.reuse = model.ReturnExisting
	case ReuseIfFailed:
		o.reuse = model.ReuseIfFailed
	case ReuseAlways:
		o.reuse = model.ReuseAlways
	default:
		o.refuse("there is no Reuse %d", int(r))
	}
}
