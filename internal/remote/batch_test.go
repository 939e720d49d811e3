package remote_test

import (
	"fmt"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/remote"
)

// batches calls the methods of batches over the wire.
func batches(w *world) {
	ctx := w.ctx
	for i := range 3 {
		ok[api.StartReply](w)(w.far.Start(ctx, api.StartRequest{
			Address: address("idle", fmt.Sprint(i)), Input: text("1"), Labels: []model.Label{{Name: "team", Value: "batch"}},
		}))
	}
	r := api.BatchRequest{Tenant: tenant, ID: "b-1", Verb: api.BatchPause, Query: `label.team = "batch"`, Reason: "stock"}
	dry := r
	dry.DryRun = true
	if got := ok[api.Batch](w)(w.far.StartBatch(ctx, dry)); got.Progress.Matched != 3 || got.Status != 0 {
		w.t.Errorf("a dry run: %+v", got)
	}
	ok[api.Batch](w)(w.far.StartBatch(ctx, r))
	at := api.BatchTarget{Tenant: tenant, ID: "b-1"}
	w.until("the batch has ended", func() bool { b, err := w.local.Batch(ctx, at); return err != nil || b.Status.Closed() })
	if got := same(w, func(c api.Client) (api.Batch, error) { return c.Batch(ctx, at) }); got.Progress.Done != 3 {
		w.t.Errorf("the batch: %+v", got)
	}
	same(w, func(c api.Client) (api.BatchPage, error) {
		return c.ListBatches(ctx, api.BatchListRequest{Tenant: tenant})
	})
	same(w, func(c api.Client) (api.Batch, error) { return c.StartBatch(ctx, r) })
	same(w, func(c api.Client) (api.Batch, error) {
		return c.Batch(ctx, api.BatchTarget{Tenant: tenant, ID: "none"})
	})

	// A batch may be faster than the call that cancels it.
	tries := 0
	w.until("a batch is canceled", func() bool {
		tries++
		r.ID, r.Verb = fmt.Sprint("c-", tries), []string{api.BatchPause, api.BatchResume}[tries%2]
		ok[api.Batch](w)(w.far.StartBatch(ctx, r))
		err := w.far.CancelBatch(ctx, api.BatchTarget{Tenant: tenant, ID: r.ID})
		if err != nil && !fault.Is(err, fault.Conflict) {
			w.t.Fatal(err)
		}
		return err == nil
	})
	at.ID = r.ID
	w.until("the canceled batch has ended", func() bool { b, err := w.local.Batch(ctx, at); return err != nil || b.Status.Closed() })
	for i := range 3 {
		w.must(w.far.Terminate(ctx, api.CancelRequest{Target: target("idle", fmt.Sprint(i))}))
		ok[api.DeleteReply](w)(w.far.Delete(ctx, api.DeleteRequest{Target: target("idle", fmt.Sprint(i))}))
	}
}

// A server is killed several times in the middle of a batch. Each execution still gets the signal
// once, and the batch counts each execution once.
func TestKilledServerRepeatsNothingOfABatch(t *testing.T) {
	t.Parallel()
	const n, kills = 1500, 4
	p := &process{store: "file:" + filepath.Join(t.TempDir(), "server.db"), listen: freePort(t)}
	p.start(t)
	b, err := remote.Dial(t.Context(), remote.Config{Addresses: []string{p.listen}, PlainText: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = b.Close()
		p.stop(t, syscall.SIGKILL)
	}()

	all := make([]api.StartRequest, n)
	for i := range all {
		all[i] = api.StartRequest{Address: address("idle", fmt.Sprint(i)), Input: text("1")}
	}
	if _, err := b.StartMany(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	at := api.BatchTarget{Tenant: tenant, ID: "s"}
	if _, err := b.StartBatch(t.Context(), api.BatchRequest{Tenant: tenant, ID: "s", Verb: api.BatchSignal, Query: `workflow = "idle"`, Signal: "go", Input: text("7")}); err != nil {
		t.Fatal(err)
	}

	progress := func(least int64) api.Batch {
		for {
			got, err := b.Batch(t.Context(), at)
			if err != nil {
				t.Fatal(err)
			}
			if got.Status.Closed() || got.Progress.Done >= least {
				return got
			}
			time.Sleep(time.Millisecond)
		}
	}
	struck := 0
	for i := range kills {
		// A page has 100 executions. Wait until the batch is somewhere inside a page.
		if got := progress(int64(i*300 + 100)); got.Status.Closed() {
			break
		}
		p.stop(t, syscall.SIGKILL)
		p.start(t)
		struck++
	}
	if struck == 0 {
		t.Error("the batch was faster than the first kill")
	}
	got := progress(n + 1)
	if got.Status != model.Completed || got.Progress.Done != n || got.Progress.Skipped+got.Progress.Failed != 0 {
		t.Errorf("%s, %+v, %v", got.Status, got.Progress, got.Failure)
	}
	for i := range n {
		calls, err := b.Signals(t.Context(), api.SignalsRequest{Target: target("idle", fmt.Sprint(i)), Do: model.MailboxList})
		if err != nil || calls.Total != 1 {
			t.Fatalf("execution %d has %d signals, %v", i, calls.Total, err)
		}
	}
}
