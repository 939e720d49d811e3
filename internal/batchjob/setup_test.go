package batchjob_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/attach"
	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/node"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/internal/remote"
	"github.com/perdure/perdure/internal/store/postgres"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Main(m)) }

// patience bounds waits on a busy machine.
const patience = 5 * time.Minute

const tenant = model.DefaultTenant

var migrated = pgtest.Template{Fill: func(ctx context.Context, url string) error {
	_, err := postgres.Migrate(ctx, postgres.Config{URL: url, AllowUnsafe: true})
	return err
}}

// world is a server, a program with code, and a client.
type world struct {
	t      *testing.T
	ctx    context.Context
	server *node.Server
	// client is the backend of the server, or a connection to it.
	client api.Backend
}

// urlOf returns an empty store.
func urlOf(t *testing.T, kind string) string {
	t.Helper()
	switch kind {
	case "sqlite":
		return "file:" + filepath.Join(t.TempDir(), "batch.db")
	case "postgres":
		return migrated.URL(t)
	}
	return "memory:"
}

// newWorld starts a server on a store.
func newWorld(t *testing.T, kind string) *world {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	s, err := node.Serve(ctx, node.ServerConfig{
		Node: node.Config{URL: urlOf(t, kind), AllowUnsafe: true}, Listen: "127.0.0.1:0", Authenticator: authn.Open{Tenant: tenant, Choose: true}, Tenant: tenant,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return &world{t: t, ctx: ctx, server: s, client: s.Node().Backend()}
}

// dial makes the world use a connection to its server.
func (w *world) dial(tenant string) *remote.Backend {
	w.t.Helper()
	b, err := remote.Dial(w.ctx, remote.Config{Addresses: []string{w.server.Addr().String()}, PlainText: true, Tenant: tenant})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = b.Close() })
	return b
}

// serve runs the code of the workflow "job". The code waits for the signal "go", or fails if its
// input says so.
func (w *world) serve() {
	w.t.Helper()
	start := perdure.NewSignal[string]("go")
	job := perdure.NewWorkflow("job", func(ctx perdure.WorkflowCtx, in string) (string, error) {
		if in == "fail" {
			return "", errors.New("it fails")
		}
		return start.Receive(ctx)
	})
	app, err := attach.Open(w.ctx, attach.Config{Backend: w.server.Node().Backend(), Tenant: tenant}, job)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = app.Close() })
}

// start starts executions of a workflow with a label.
//
//arch:parameters who starts what, and how many
func (w *world) start(c api.Client, a model.Address, input, label string, n int) {
	w.t.Helper()
	all := make([]api.StartRequest, n)
	for i := range all {
		at := a
		at.Key = fmt.Sprintf("%s-%s-%d", a.Key, label, i)
		all[i] = api.StartRequest{Address: at, Input: model.Payload{Data: []byte(input)}, Labels: []model.Label{{Name: "set", Value: label}}}
	}
	got, err := c.StartMany(w.ctx, all)
	if err != nil {
		w.t.Fatal(err)
	}
	for i := range got {
		if got[i].Err != nil {
			w.t.Fatal(got[i].Err)
		}
	}
}

// until waits until fact returns true.
func (w *world) until(what string, fact func() bool) {
	w.t.Helper()
	for pause := 5 * time.Millisecond; !fact(); pause = min(pause*5/4, 100*time.Millisecond) {
		select {
		case <-time.After(pause):
		case <-w.ctx.Done():
			w.t.Fatalf("%s did not happen", what)
		}
	}
}

// ended waits for the end of a batch.
func (w *world) ended(id string) (b api.Batch) {
	w.t.Helper()
	w.until("the end of batch "+id, func() bool {
		var err error
		if b, err = w.client.Batch(w.ctx, api.BatchTarget{Tenant: tenant, ID: id}); err != nil {
			w.t.Fatal(err)
		}
		return b.Status.Closed()
	})
	return b
}

// run runs a batch to its end.
func (w *world) run(r api.BatchRequest) api.Batch {
	w.t.Helper()
	r.Tenant = tenant
	b, err := w.client.StartBatch(w.ctx, r)
	if err != nil {
		w.t.Fatal(err)
	}
	return w.ended(b.ID)
}

// count counts executions of the default tenant.
func (w *world) count(label string, statuses ...model.Status) int64 {
	w.t.Helper()
	n, err := w.client.Count(w.ctx, api.ListRequest{Tenant: tenant, Statuses: statuses, Labels: []model.LabelCondition{{Name: "set", Values: []string{label}}}})
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}

// want checks the progress of a batch that has completed.
//
//arch:parameters the numbers of a batch
func (w *world) want(b api.Batch, matched, done, skipped, failed int64) {
	w.t.Helper()
	p := b.Progress
	if b.Status != model.Completed || p.Matched != matched || p.Done != done || p.Skipped != skipped || p.Failed != failed {
		w.t.Errorf("batch %s of %s: %s, %+v, %v; want %d matched, %d done, %d skipped, %d failed", b.ID, b.Verb, b.Status, p, b.Failure, matched, done, skipped, failed)
	}
}
