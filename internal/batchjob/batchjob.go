// Package batchjob has the code of batch jobs: executions that apply one verb to every execution
// that a query selects. A batch job is an execution of the workflow model.BatchType.
//
// A batch works page by page. Before it acts on a page, the executions of that page are recorded in
// the outcome of the previous step. Each request to an execution has an id that is made of the id
// of the batch and the id of the run. So a batch that a crash interrupts repeats at most one page,
// and the repetition changes nothing twice. If the page is so old that owners may have forgotten
// the ids, the histories of the executions show which of them have received the request. The list
// moves to older starts only, so a batch does not touch executions that start while it runs. It
// names each execution by the run that was listed, so it does not touch later runs of the same key.
//
// A batch acts with the rights of the caller that started it. The service has checked these rights.
// It refuses every other way to start a batch, by a request or by code.
package batchjob

import (
	"context"
	"encoding/json"
	"log/slog"
	"strconv"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/batch"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/replay"
)

// pagesPerRun is how many pages one run acts on. It keeps histories short.
const pagesPerRun = 20

// maxBodies is how many batches act at the same time in a process.
const maxBodies = 8

// ClientHost gives batch jobs the client for their requests. The host of the code implements it.
type ClientHost interface {
	// BatchClient returns a client of the process itself. The limits for callers do not apply to
	// this client.
	BatchClient() api.Client
}

// page is the outcome of a step: the results for the items of the previous page, and the items of
// the next page.
type page struct {
	Results batch.Progress `json:"results"`
	Items   []batch.Item   `json:"items,omitempty"`
	// Cursor is where the page after these items starts; empty if there is none.
	Cursor string `json:"cursor,omitempty"`
}

// Code is the workflow of batch jobs. It stores plain JSON, so that every process can run it.
func Code(x replay.Ctx, p model.Payload) (model.Payload, error) {
	in, err := batch.Decode(p)
	if err != nil {
		x.Block(err.Error())
	}
	host, ok := x.Host().(ClientHost)
	if !ok {
		x.Block("this process cannot run batch jobs")
	}
	self, _ := x.Self()
	w := &work{client: host.BatchClient(), tenant: self.Tenant, id: self.Key, spec: &in.Spec}

	progress := in.Progress
	next := page{Cursor: in.Cursor}
	for n := 0; ; n++ {
		// A batch that is canceled ends between two pages, so that its progress is exact.
		if err := x.Err(); err != nil {
			return model.Payload{}, err
		}
		if n > 0 && len(next.Items) == 0 && next.Cursor == "" {
			return model.Payload{}, nil
		}
		if n > pagesPerRun && len(next.Items) == 0 {
			rest := batch.Input{Spec: in.Spec, Cursor: next.Cursor, Progress: progress}
			input, err := rest.Encode()
			return model.Payload{}, orContinue(err, input)
		}

		next, err = step(x, w, n, next)
		if err != nil {
			return model.Payload{}, err
		}
		progress.Add(&next.Results)
		if err := show(x, &progress); err != nil {
			return model.Payload{}, err
		}
	}
}

// orContinue returns err, or the value that continues the batch in a new run if err is nil.
func orContinue(err error, input model.Payload) error {
	if err != nil {
		return err
	}
	return &replay.Continue{Workflow: model.BatchType, Input: input}
}

// step acts on the items of a page and lists the next page. The last step of a run lists nothing,
// because the next run does.
func step(x replay.Ctx, w *work, n int, now page) (next page, err error) {
	tries, listed := 0, x.Now()
	out, err := x.Detached().Step(&replay.Step{
		Name: "page", Key: strconv.Itoa(n), Keyed: true,
		Body: func(ctx context.Context) (model.Payload, error) {
			tries++
			var out page
			var err error
			if out.Results, err = w.on(listed).act(ctx, now.Items, tries >= maxTries); err != nil {
				return model.Payload{}, err
			}

			switch {
			case n == pagesPerRun:
				out.Cursor = now.Cursor
			case n == 0 || now.Cursor != "":
				if out.Items, out.Cursor, err = w.list(ctx, now.Cursor); err != nil {
					return model.Payload{}, err
				}
			}
			data, err := json.Marshal(out)
			return model.Payload{Data: data}, err
		},
	})
	if err != nil {
		return next, err
	}
	if err := json.Unmarshal(out.Data, &next); err != nil {
		x.Block("batch " + w.id + ": " + err.Error())
	}
	return next, nil
}

// show stores the progress where callers can read it.
func show(x replay.Ctx, p *batch.Progress) error {
	data, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return x.Detached().SetState(batch.StateProgress, model.Payload{Data: data}, nil)
}

// Host is an engine in this process, which gives work of every tenant to workers that run code of
// Perdure itself.
type Host interface {
	api.Client
	// JoinBuiltIn adds a worker that runs the workflows for every tenant.
	JoinBuiltIn(ctx context.Context, w api.Worker, workflows ...string) (api.Session, error)
}

// clientHost is the host of the code in a server.
type clientHost struct{ client api.Client }

// BatchClient returns the client of the server.
func (h clientHost) BatchClient() api.Client { return h.client }

// ServeAll runs the batch jobs of every tenant until the caller calls stop.
func ServeAll(ctx context.Context, h Host, log *slog.Logger) (stop func(), err error) {
	w := replay.NewWorker(replay.Config{Code: map[string]replay.Code{model.BatchType: Code}, Host: clientHost{h}, Logger: log, MaxSteps: maxBodies})
	session, err := h.JoinBuiltIn(ctx, w, model.BatchType)
	if err != nil {
		return nil, err
	}
	w.Serve(session)
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = w.Close(ctx) // another process continues its batches
	}, nil
}

// errorOf describes an error of an item.
func errorOf(item batch.Item, err error) batch.Item {
	item.Kind, item.Text = fault.KindOf(err).String(), model.Cut(err.Error(), maxErrorText)
	return item
}
