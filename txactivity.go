package perdure

import (
	"context"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/replay"
	"github.com/perdure/perdure/internal/userdb"
)

// NewTxActivity defines an activity that runs in one transaction of the user's database, together
// with the record of its outcome. What fn does in this transaction happens exactly once, even after
// crashes. fn must not commit or roll back. fn should be short, because other transactions wait for
// the rows that it locks. The transaction may take five minutes and may be idle for one minute. A
// longer AttemptTimeout extends both times.
func NewTxActivity[T, I, O any](name string, db TxSource[T], fn func(context.Context, T, I) (O, error), opts ...ActivityOption) *Activity[I, O] {
	a := &Activity[I, O]{name: name, tx: newTxCode(db, fn), bound: true, at: callerPosition()}
	a.apply(opts)
	return a
}

// BindTx joins a declared activity with transactional code.
func BindTx[T, I, O any](a *Activity[I, O], db TxSource[T], fn func(context.Context, T, I) (O, error)) Binding {
	return Binding{a.definition(nil, newTxCode(db, fn), true, callerPosition())}
}

// txCode is the code of a transactional activity.
type txCode[I, O any] struct {
	db *userdb.Database
	fn func(context.Context, userdb.Tx, I) (O, error)
}

func newTxCode[T, I, O any](db TxSource[T], fn func(context.Context, T, I) (O, error)) *txCode[I, O] {
	c := &txCode[I, O]{db: db.db}
	if fn != nil {
		c.fn = func(ctx context.Context, tx userdb.Tx, in I) (O, error) { return fn(ctx, tx.Raw().(T), in) }
	}
	return c
}

// bindTx makes a step run in a transaction and record its outcome there.
func bindTx[I, O any](h *host, s *replay.Step, c *txCode[I, O], in I) {
	limit := s.AttemptTimeout
	s.Body = func(ctx context.Context) (model.Payload, error) {
		if err := h.storeInput(ctx, s); err != nil {
			return model.Payload{}, err
		}
		step := replay.StepFrom(ctx)
		if out, done, err := h.findEarlierOutcome(ctx, c.db, step); done || err != nil {
			return out, err
		}

		out, stands, err := c.db.Run(ctx, &userdb.Attempt{
			Step: h.outcomeOf(step), AsOf: step.AsOf(), Limit: limit,
			Body: func(ctx context.Context, tx userdb.Tx) (model.Payload, error) {
				out, err := c.fn(ctx, tx, in)
				if err != nil {
					return model.Payload{}, err
				}
				return result(ctx, h, "output of activity", s.Name, out)
			},
		})

		switch {
		case userdb.IsMisuse(err):
			return out, Permanent(err)
		case stands != nil:
			return out, Permanent(stands)
		}

		return out, err
	}

	s.Settle = func(ctx context.Context, f *model.Failure) (model.Payload, *model.Failure, error) {
		step := replay.StepFrom(ctx)
		if out, done, err := h.findEarlierOutcome(ctx, c.db, step); done || err != nil {
			return out, nil, err
		}
		key := h.outcomeOf(step)
		return c.db.Settle(ctx, &key, f)
	}
}

// findEarlierOutcome looks for the outcome of the step in the earlier runs that this run continues
// after a retry or an import. An earlier run may have executed the step although the history of
// this run does not show it. In that case the earlier run ended before it could journal the
// outcome, or the history was cut before that event. For each earlier run without an outcome,
// findEarlierOutcome records a failure, so that the earlier run can no longer execute the step.
func (h *host) findEarlierOutcome(ctx context.Context, db *userdb.Database, s *replay.StepContext) (out model.Payload, done bool, err error) {
	runs, err := h.earlier(ctx, s)
	if err != nil {
		return out, false, err
	}
	key := h.outcomeOf(s)
	gaveWay := &model.Failure{Kind: model.FailureCanceled, Message: "the run has given way to run " + key.Run.String(), Permanent: true}
	for _, key.Run = range runs {
		out, stands, err := db.Settle(ctx, &key, gaveWay)
		if err != nil || stands == nil {
			return out, err == nil, err
		}
	}
	return out, false, nil
}

// earlier returns the runs that the run of a step continues, the latest first. It returns no runs
// unless a retry or an import started the run.
func (h *host) earlier(ctx context.Context, s *replay.StepContext) (runs []model.RunID, err error) {
	if told := s.Earlier(); len(told) > 0 {
		return told, nil
	}
	run, _ := s.Run() // an older build started this run and did not record the earlier runs

	first, from := s.Origin()
	for run != first {
		run = from.Run
		runs = append(runs, run)
		if run == first {
			break
		}
		d, err := h.backend.Describe(ctx, api.Target{Address: from.Address, Run: run})
		switch from = d.Start.Source; {
		// The run was deleted, or it is in the store that it was exported from.
		case fault.Is(err, fault.NotFound):
			return append(runs, first), nil
		case err != nil:
			return nil, err
		case from.Run.IsZero():
			return nil, fault.New(fault.Internal, "run %s continues run %s but has no past", run, first)
		}
	}

	return runs, nil
}

// outcomeOf returns the key under which the database has the outcome of a step.
func (h *host) outcomeOf(s *replay.StepContext) userdb.Step {
	run, address := s.Run()
	return userdb.Step{Run: run, ID: s.ID(), Execution: address.Type + "/" + address.Key, Cluster: h.scope}
}
