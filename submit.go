package perdure

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/google/uuid"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Submit creates a task of the activity that belongs to no workflow, and does not wait for it. The
// task waits in the queue of the option OnQueue, or else in the queue of the activity, or else in
// DefaultQueue. The Execution of the task works like the Execution of a workflow: Result waits for
// the result, Cancel ends the task, and List shows the task under the name "task:" followed by the
// name of the activity. A RetryPolicy in opts replaces the policy of the activity.
//
// Without a key (KeyedBy, RawKey, HashKey) every submission is a new task. With a RequestID and no
// key, the id is the key. Like Start, a submission attaches to a task that already has the key. The
// option Reuse changes that. A task that a workflow submits is a child: the engine cancels it if
// the workflow ends first, unless the submission has AbandonChild.
func (a *Activity[I, O]) Submit(s Sender, in I, opts ...StartOption) (Execution[O], error) {
	from := s.sender()
	_, journaled := s.(WorkflowCtx)
	b, err := a.submission(from.host(), opts, !journaled)
	if err != nil {
		return Execution[O]{}, err
	}
	ref, p, err := b.one(from.host(), in, 0)
	if err != nil {
		return Execution[O]{}, err
	}
	b.o.keyed = ref.Key != ""
	ref, err = from.start(ref, p, &b.o, normalize[I])
	return executionOf[O](ref), remote(err)
}

// SubmitMany submits a task for every input, in one call: thousands of submissions cost little more
// than one submission. The executions have the order of the inputs. The execution of a refused
// submission is zero. The error names the first ten refused inputs, and says why each was refused.
// All other tasks exist. A call accepts at most 100,000 inputs, with at most 64 MiB in total.
func (a *Activity[I, O]) SubmitMany(c Client, ins []I, opts ...StartOption) ([]Execution[O], error) {
	b, err := a.submission(c.host(), opts, true)
	switch {
	case err != nil:
		return nil, err
	case b.o.keyed:
		return nil, fault.New(fault.Invalid, "submit %d tasks of activity %s: they cannot have one key: use KeyedBy", len(ins), a.name)
	}

	h := c.host()
	var (
		problems []error
		runs     = make([]Execution[O], len(ins))
		requests = make([]api.StartRequest, 0, len(ins))
		plain    = make([]model.Payload, 0, len(ins))
		places   = make([]int, 0, len(ins))
	)

	refuse := func(i int, err error) { problems = append(problems, fmt.Errorf("input %d: %w", i, public(err))) }
	for i, in := range ins {
		ref, p, err := b.one(h, in, i)
		if err != nil {
			refuse(i, err)
			continue
		}
		r, err := c.startRequest(ref, p, &b.o)
		if err != nil {
			refuse(i, err)
			continue
		}
		runs[i] = Execution[O]{Ref: ref}
		requests, plain, places = append(requests, r), append(plain, p), append(places, i)
	}

	if len(requests) > 0 {
		replies, err := h.backend.StartMany(c.ctx, requests)
		if err != nil {
			return nil, public(err)
		}
		for n := range replies {
			i := places[n]
			if err := replies[n].Err; err != nil && !c.canAttach(err, &requests[n], plain[n], normalize[I]) {
				runs[i] = Execution[O]{}
				refuse(i, err)
				continue
			}
			runs[i] = executionOf[O](runs[i].Ref.startedBy(b.o.requestID, &replies[n].StartReply))
		}
	}
	return runs, a.joinRefusals(len(ins), problems)
}

// joinRefusals returns one error for all refused tasks of a call.
func (a *Activity[I, O]) joinRefusals(of int, problems []error) error {
	const most = 10
	if len(problems) == 0 {
		return nil
	}
	more := ""
	if n := len(problems); n > most {
		more = fmt.Sprintf("\nand %d more", n-most)
	}
	shown := problems[:min(len(problems), most)]
	return fault.New(fault.KindOf(problems[0]), "%d of %d tasks of activity %s were refused:\n%w%s", len(problems), of, a.name, errors.Join(shown...), more)
}

// submission has what all submissions of one call share.
type submission[I any] struct {
	o    startOptions
	kind string
	key  func(I) Key
	// fresh says that a task without a key gets a random key. Otherwise the key is derived from the
	// step of the workflow.
	fresh    bool
	requests string
}

// submission applies the options of a call of Submit or SubmitMany.
func (a *Activity[I, O]) submission(h *host, opts []StartOption, fresh bool) (*submission[I], error) {
	b := &submission[I]{kind: a.name, key: a.taskKey, fresh: fresh}
	b.o.in = reflect.TypeFor[I]()
	for _, opt := range opts {
		opt.applyStart(&b.o)
	}

	wrong := func(format string, args ...any) (*submission[I], error) {
		return nil, fault.New(fault.Invalid, "submit activity %s: "+format, append([]any{a.name}, args...)...)
	}
	so := a.opts
	for _, opt := range b.o.task {
		opt.applyActivity(&so)
	}

	if so.task == nil || !so.task.queued {
		OnQueue(DefaultQueue).applyActivity(&so)
	}
	if p := b.o.retry; p != nil {
		if err := p.checkQueued(); err != nil {
			return wrong("%w", err)
		}
		so.retry = p
	}

	switch err := so.check(); {
	case err != nil:
		return wrong("%w", err)
	case a.tx != nil || h.activities[a.name].transactional:
		return wrong("it is transactional, and its transaction happens exactly once only as a step of a workflow")
	case strings.Contains(a.name, "/"):
		return wrong("its name contains a slash, which separates the name of a task from its key")
	case len(b.o.timed) > 0:
		return wrong("%s is for workflows: a task has Delay and ScheduleToClose", b.o.timed[0])
	case len(b.o.with) > 0:
		return wrong("a task takes no signals")
	case b.o.err != nil:
		return nil, b.o.err
	}

	b.o.spec, b.requests = so.spec(a.name), b.o.requestID
	b.o.spec.Retry.Given = b.o.retry != nil
	return b, nil
}

// one returns the address and the encoded input of the n-th submission. If a workflow submits a
// task without a key, the engine derives the key from the step.
func (b *submission[I]) one(h *host, in I, n int) (ref Ref, p model.Payload, err error) {
	ref.Workflow = model.TaskPrefix + b.kind
	if p, err = encode(h, "input of activity", b.kind, in); err != nil {
		return ref, p, err
	}

	if b.requests != "" && n > 0 {
		b.o.requestID = fmt.Sprintf("%s-%d", b.requests, n)
	}
	var key Key

	switch {
	case b.o.keyed:
		key = b.o.key
	case b.key != nil:
		key = b.key(in)
	case b.requests != "":
		key = RawKey(b.o.requestID)
	case b.fresh:
		key = RawKey(uuid.Must(uuid.NewV7()).String())
	default:
		return ref, p, nil
	}

	if ref.Key = key.id; key.err != nil {
		return ref, p, key.err
	}
	if !textFits(key.id, maxKey) {
		return ref, p, checkText("submit activity "+b.kind+": the key", key.id, maxKey)
	}
	return ref, p, nil
}
