package perdure

import (
	"context"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Query is the typed name of a question that the code of an execution answers from its variables. A
// query also works after the execution has ended.
type Query[I, O any] struct{ name string }

// NewQuery names a query.
func NewQuery[I, O any](name string) *Query[I, O] { return &Query[I, O]{name} }

// Handle makes fn the code that answers the query. fn must not wait and must change nothing.
func (q *Query[I, O]) Handle(ctx WorkflowCtx, fn func(I) (O, error)) {
	if fn == nil {
		panic(fault.New(fault.Invalid, "the handler of query %s is nil", q.name))
	}
	h := ctx.host()

	ctx.x.HandleQuery(q.name, func(p model.Payload) (model.Payload, error) {
		ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
		defer cancel()
		in, err := decode[I](callReader{h, ctx}, "input of query", q.name, p)
		if err != nil {
			return model.Payload{}, err
		}
		out, err := fn(in)
		if err != nil {
			return model.Payload{}, err
		}
		p, err = encodeFor(h, "output of query", q.name, out)
		if err != nil {
			return p, err
		}
		return h.seal(ctx, brief, "output of query", q.name, p)
	})
}

// Ask asks the code of an execution. The engine loads an execution that is not in memory. For a
// closed execution, the process that owns it replays the history without executing a step. If the
// owner lacks the code, this process replays the history instead.
//
// Ask returns ErrUnavailable if both processes lack the code, and ErrBlocked if the code no longer
// fits the history. A State can be read without the code.
func (q *Query[I, O]) Ask(c Client, to Target, in I) (out O, err error) {
	defer publish(&err)
	h := c.host()
	r := api.QueryRequest{Name: q.name}
	if r.Target, err = addressee(h, "query", q.name, to); err != nil {
		return out, err
	}
	if r.Input, err = encode(h, "query", q.name, in); err != nil {
		return out, err
	}
	if r.Input, err = h.seal(c.ctx, brief, "query", q.name, r.Input); err != nil {
		return out, err
	}

	p, err := h.backend.Query(c.ctx, r)
	// The owner may lack the code that this process has.
	if fault.Is(err, fault.Unavailable) && c.app.worker != nil {
		asked := model.Query{Name: r.Name, Input: r.Input}
		if here, ok, why := c.app.worker.AskEnded(c.ctx, r.Target.Address, r.Target.Run, asked); ok {
			p, err = here, why
		}
	}
	if err != nil {
		return out, err
	}
	return decode[O](c, "output of query", q.name, p)
}
