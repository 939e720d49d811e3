package perdure

import (
	"cmp"
	"context"
	"io"
	"iter"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/codec"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/history"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/replay"
)

// Histories reads, exports and imports the histories of runs.
type Histories struct{ app *App }

// Histories reads and writes the histories of the store.
func (a *App) Histories() Histories { return Histories{a} }

// Events returns the history of a run, from its start.
func (h Histories) Events(ctx context.Context, t Target) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		to, err := t.target().api(h.app.host)
		if err != nil {
			yield(Event{}, err)
			return
		}

		req := api.HistoryRequest{Target: to, After: -1}
		for {
			page, err := h.app.host.backend.History(ctx, req)
			if err != nil {
				yield(Event{}, public(err))
				return
			}
			for i := range page.Events {
				if !yield(h.eventOf(ctx, &page.Events[i]), nil) {
					return
				}
			}
			if !page.More || len(page.Events) == 0 {
				return
			}
			req.After, req.Target.Run = page.Events[len(page.Events)-1].Seq, page.Run
		}
	}
}

// Export writes the history of a run as JSON lines; docs/histories.md has the format. The file of
// an open run ends with its last event so far.
func (h Histories) Export(ctx context.Context, t Target, w io.Writer) error {
	to, err := t.target().api(h.app.host)
	if err == nil {
		err = history.Export(ctx, h.app.host.backend, to, w)
	}
	return public(err)
}

// Import stores a run that Export wrote, under its own key or the key in opts. An open run
// continues in this store with the idempotency keys that it had, so do not let it continue in the
// store that it comes from. A closed run is stored with its outcome.
func (h Histories) Import(ctx context.Context, r io.Reader, opts ...PastOption) (next Ref, err error) {
	defer publish(&err)
	o, err := h.app.pastOf(ctx, nil, opts)
	if err != nil {
		return Ref{}, err
	}
	past, err := history.Read(r)
	if err != nil {
		return Ref{}, err
	}
	return refOfReply(h.app.host.backend.Import(ctx, api.ImportRequest{
		History: *past, Tenant: h.app.host.tenant, Key: o.request.Key, Reuse: o.request.Reuse, RequestID: o.request.RequestID,
	}))
}

// Event is one entry in the history of a run.
type Event struct {
	Position int64
	Time     time.Time
	Kind     string // such as step_completed, timer_fired, signal_received
	Name     string // of the step, signal, promise or child
	Attempt  int
	// Queue and Worker belong to a task: the queue that carries it, and the worker that has claimed
	// it. Worker is worker@node, or worker@node/owner if the node lent the worker to the owner of
	// the run.
	Queue, Worker string
	// Input and Output are JSON. They are nil when the value is stored in another form that this
	// app cannot decode.
	Input, Output []byte
	// InputIs and OutputIs say how the values are stored, such as "512 bytes of json+aes-gcm".
	InputIs, OutputIs string
	Err               error
}

func (h Histories) eventOf(ctx context.Context, e *model.Event) Event {
	out := Event{Position: e.Seq, Time: e.At.Std(), Kind: e.Kind.String(), Name: e.Name, Attempt: e.Attempt, Worker: e.Worker}
	if e.Task != nil {
		out.Queue = e.Task.Queue
	}
	out.Input, out.InputIs = h.app.host.show(ctx, e.Input)
	out.Output, out.OutputIs = h.app.host.show(ctx, e.Output)
	if e.Failure != nil {
		out.Err = remote(e.Failure)
	}
	return out
}

// Replay runs the code of the definitions against a history that Export wrote. It needs no store
// and executes no step. It returns nil if the code asks for everything in the history and ends as
// the run did. Otherwise it returns an ErrBlocked that says what is recorded and what the code does
// instead.
//
// Keep exported histories in the repository and replay them in a test, to find out which running
// executions a deploy would block. For payloads that are not plain JSON, use embedded.Config.Replay
// or perduretest.Config.Replay with the settings of the app.
func Replay(ctx context.Context, r io.Reader, defs ...Definition) error {
	return public(replayHistory(ctx, attachment{}, r, defs...))
}

// replayHistory is Replay with the payload settings of an app.
func replayHistory(ctx context.Context, cfg attachment, r io.Reader, defs ...Definition) error {
	c, err := codec.New(ctx, codec.Config{Settings: cfg.Payloads, MaxPayload: cmp.Or(cfg.MaxPayload, maxReplayed)})
	if err != nil {
		return err
	}
	reg, err := register(defs, c.CheckType)
	if err != nil {
		return err
	}

	h, err := history.Read(r)
	if err != nil {
		return err
	}
	def, ok := reg.workflows[h.Start.Address.Type]
	if !ok {
		return fault.New(fault.NotFound, "there is no definition of workflow %s", h.Start.Address.Type)
	}

	host := &host{tenant: h.Start.Address.Tenant, activities: reg.activities, logger: cmp.Or(cfg.Logger, silent), codec: c, plain: c.Plain(), dry: true}
	host.payloads = payloadTrouble(host.logger)
	return replay.Check(ctx, replay.Config{
		Code: map[string]replay.Code{h.Start.Address.Type: def.code}, Host: host, Plain: host.plainInput, Logger: cfg.Logger,
	}, h)
}

// maxReplayed bounds a payload that has no configured limit.
const maxReplayed = 64 << 20
