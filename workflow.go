package perdure

import (
	"errors"
	"reflect"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/replay"
)

// Workflow is the typed name of a workflow. It is safe for concurrent use and can be a package
// variable.
type Workflow[I, O any] struct {
	name  string
	fn    func(WorkflowCtx, I) (O, error)
	bound bool // defined together with its code, not declared
	key   func(I) Key
	opts  workflowOptions
	at    string
}

// NewWorkflow defines a workflow together with its code.
func NewWorkflow[I, O any](name string, fn func(WorkflowCtx, I) (O, error), opts ...WorkflowOption) *Workflow[I, O] {
	w := &Workflow[I, O]{name: name, fn: fn, bound: true, at: callerPosition()}
	w.apply(opts)
	return w
}

// DeclareWorkflow names a workflow whose code is elsewhere, or is bound later.
func DeclareWorkflow[I, O any](name string, opts ...WorkflowOption) *Workflow[I, O] {
	w := &Workflow[I, O]{name: name, at: callerPosition()}
	w.apply(opts)
	return w
}

func (w *Workflow[I, O]) apply(opts []WorkflowOption) {
	for _, o := range opts {
		o.applyWorkflow(&w.opts)
	}
}

// KeyedBy returns a copy of the workflow that derives the key of an execution from the input.
// Without KeyedBy, the key is the hash of the input, and a child gets a unique key. If the options
// of a start contain a Key, that key is used instead.
func (w *Workflow[I, O]) KeyedBy(key func(I) Key) *Workflow[I, O] {
	c := *w
	c.key = key
	return &c
}

// Bind joins a declared workflow with its code. Pass the Binding to Open.
func (w *Workflow[I, O]) Bind(fn func(WorkflowCtx, I) (O, error)) Binding {
	return Binding{w.definition(fn, true, callerPosition())}
}

// Run starts the execution of the key, or attaches to an execution that already has the key, and
// waits for the result. In workflow code, the execution is a child.
func (w *Workflow[I, O]) Run(c Caller, in I, opts ...StartOption) (out O, err error) {
	defer publish(&err)
	from := c.caller()
	ref, p, o, err := w.resolve(from.host(), in, opts)
	if err != nil {
		return out, err
	}
	got, err := from.run(ref, p, o, normalize[I])
	if err != nil {
		return out, err
	}
	return decode[O](from, "output of workflow", w.name, got)
}

// Start starts the execution of the key, or attaches to an execution that already has the key, and
// does not wait for the result. In workflow code, the execution is a child. If the execution of the
// key has another input, Start returns ErrConflict, unless Reuse lets it start a new run.
func (w *Workflow[I, O]) Start(s Sender, in I, opts ...StartOption) (Execution[O], error) {
	from := s.sender()
	ref, p, o, err := w.resolve(from.host(), in, opts)
	if err != nil {
		return Execution[O]{}, err
	}
	ref, err = from.start(ref, p, o, normalize[I])
	return executionOf[O](ref), remote(err)
}

// Execution refers to the execution of a key. It does not read the store.
func (w *Workflow[I, O]) Execution(key Key) Execution[O] {
	return Execution[O]{Ref: Ref{Workflow: w.name, Key: key.id}}
}

// ContinueAsNew returns an error. A workflow function returns that error to end this run and to
// start the next run with the input in, under the same key. Labels, states, unread signals, updates
// that have not started and the execution timeout carry over.
func (w *Workflow[I, O]) ContinueAsNew(in I) error {
	return &nextRun{w.name, func(h *host) (model.Payload, error) { return encodeFor(h, "input of workflow", w.name, in) }}
}

func (w *Workflow[I, O]) define(r *registry) { r.workflow(w.definition(w.fn, w.bound, w.at)) }

func (w *Workflow[I, O]) definition(fn func(WorkflowCtx, I) (O, error), bound bool, at string) workflowDefinition {
	d := workflowDefinition{name: w.name, bound: bound, uses: w.opts.uses, pinned: w.opts.pinned, retain: w.opts.retain, retry: w.opts.retry, at: at, input: inputOf[I]("input of workflow", w.name), types: []typeOf{
		typeFor[I]("input of workflow " + w.name), typeFor[O]("output of workflow " + w.name),
	}}
	if fn != nil {
		d.code = w.code(fn)
	}
	return d
}

// code returns the workflow as a function from encoded input to encoded output.
func (w *Workflow[I, O]) code(fn func(WorkflowCtx, I) (O, error)) replay.Code {
	return func(x replay.Ctx, p model.Payload) (model.Payload, error) {
		ctx := WorkflowCtx{x}
		in, err := w.input(ctx, p)
		if err != nil {
			return model.Payload{}, err
		}
		out, err := fn(ctx, in)
		if err != nil {
			if next := (*nextRun)(nil); errors.As(err, &next) {
				err = next.begin(ctx)
			}
			return model.Payload{}, err
		}

		p, err = encodeFor(ctx.host(), "output of workflow", w.name, out)
		if err != nil {
			return p, err
		}
		return ctx.sealOutput("output of workflow", w.name, p), nil
	}
}

// input decodes the input of a run. An input that does not fit the type fails the run before the
// code does anything. But if the code of the run has started before, an earlier build could read
// the input. In that case the run is blocked until a build that can read the input continues the
// run.
func (w *Workflow[I, O]) input(ctx WorkflowCtx, p model.Payload) (in I, err error) {
	in, err = decode[I](ctx, "input of workflow", w.name, p)
	switch {
	case err == nil:
	case !fault.Is(err, fault.WrongType):
		ctx.x.Block(err.Error())
	case ctx.x.HasBegun():
		ctx.x.BlockType(err.Error())
	}
	return in, err
}

// nextRun is the error that asks for the next run. encode runs later, when the app and its payload
// settings are known.
type nextRun struct {
	workflow string
	encode   func(*host) (model.Payload, error)
}

// Error says what the code asked for. People see this text if the workflow function does not return
// the error itself, for example if a step returns it.
func (n *nextRun) Error() string { return "continue workflow " + n.workflow + " as new" }

// begin returns the error that starts the next run, or the error of an input that cannot be stored.
func (n *nextRun) begin(ctx WorkflowCtx) error {
	p, err := n.encode(ctx.host())
	if err != nil {
		return err
	}
	return &replay.Continue{Workflow: n.workflow, Input: ctx.sealOutput("input of workflow", n.workflow, p)}
}

// resolve applies options and finds the key.
func (w *Workflow[I, O]) resolve(h *host, in I, opts []StartOption) (Ref, model.Payload, *startOptions, error) {
	o := startOptions{in: reflect.TypeFor[I]()}
	for _, opt := range opts {
		opt.applyStart(&o)
	}

	if err := api.CheckWorkflowName(w.name); err != nil {
		return Ref{}, model.Payload{}, &o, Permanent(err)
	}
	p, err := encode(h, "input of workflow", w.name, in)
	if err == nil {
		err = o.checkTerms("start of workflow " + w.name)
	}

	if err == nil && len(o.task) > 0 {
		err = fault.New(fault.Invalid, "start of workflow %s: %s is for activities", w.name, o.task[0].name)
	}
	if err != nil {
		return Ref{}, p, &o, err
	}

	for i := range o.with {
		w := &o.with[i]
		if w.value, err = w.encode(h); err != nil {
			return Ref{}, p, &o, err
		}
	}

	switch {
	case o.keyed:
	case w.key != nil:
		o.key, o.keyed = w.key(in), true
	case p.Encoding == model.JSON:
		o.key = hashJSON(p.Data)
	default:
		o.key = HashKey(in) // the hash is the same for every payload format
	}

	if err = o.err; err == nil {
		err = o.key.err
	}
	if err == nil && !textFits(o.key.id, maxKey) {
		err = checkText("start of workflow "+w.name+": the key", o.key.id, maxKey)
	}
	return Ref{Workflow: w.name, Key: o.key.id}, p, &o, err
}
