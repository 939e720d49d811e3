package restapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/attach"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/pgtest"
)

// levelsOf reads the newest numbers of the queues and limits of a tenant, and how often each limit
// has refused a task.
func (w *world) levelsOf(tenant string) (queues, limits map[string]map[string]int64) {
	w.t.Helper()
	var s struct{ Queues, Limits map[string]map[string][]int64 }
	a := w.want(http.StatusOK, "", http.MethodGet, "/v1/series?step=5s&levels=true", "", "Perdure-Tenant", tenant)
	if err := json.Unmarshal([]byte(a.body), &s); err != nil {
		w.t.Fatal(err)
	}
	newest := func(all map[string]map[string][]int64) map[string]map[string]int64 {
		out := map[string]map[string]int64{}
		for name, lines := range all {
			out[name] = map[string]int64{}
			for line, points := range lines {
				if len(points) != 720 {
					w.t.Errorf("%s of %s has %d points", line, name, len(points))
				}
				out[name][line] = points[len(points)-1]
				for _, n := range points[:len(points)-1] {
					if line == "refused" {
						out[name][line] += n
					}
				}
			}
		}
		return out
	}
	return newest(s.Queues), newest(s.Limits)
}

// awaitLevels waits until the newest numbers are right.
func (w *world) awaitLevels(right func(queues, limits map[string]map[string]int64) bool) {
	w.t.Helper()
	for {
		queues, limits := w.levelsOf(model.DefaultTenant)
		if right(queues, limits) {
			return
		}
		select {
		case <-w.ctx.Done():
			w.t.Fatalf("the queues are %v, the limits %v", queues, limits)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// submit submits a task that no process executes.
func (w *world) submit(key, queue string) {
	w.t.Helper()
	_, err := w.server.Node().Backend().Start(w.ctx, api.StartRequest{
		Address: model.Address{Tenant: model.DefaultTenant, Type: model.TaskPrefix + "fax", Key: key}, Task: &model.TaskSpec{Kind: "fax", Queue: queue},
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

// Every node returns the numbers of the queues of all nodes, but only for one tenant.
func TestLevelsOfAllNodes(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	a := newWorldOn(t, url, nil)
	b := newWorldOn(t, url, nil)
	a.want(http.StatusCreated, "", http.MethodPost, "/v1/tenants", `{"name":"acme"}`)
	const tasks = 20
	for i := range tasks {
		[]*world{a, b}[i%2].submit(fmt.Sprint(i), "faxes")
	}
	for _, w := range []*world{a, b} {
		w.awaitLevels(func(queues, _ map[string]map[string]int64) bool {
			if n := queues["faxes"]["waiting"]; n > tasks {
				t.Fatalf("%d tasks wait", n)
			}
			return queues["faxes"]["waiting"] == tasks
		})
		if queues, limits := w.levelsOf("acme"); len(queues)+len(limits) != 0 {
			t.Errorf("another tenant sees %v and %v", queues, limits)
		}
	}
	if got := a.want(http.StatusOK, "", http.MethodGet, "/v1/series", ""); json.Valid([]byte(got.body)) && got.field(t, "queues") != "<nil>" {
		t.Errorf("the caller has not asked for the queues: %s", got.field(t, "queues"))
	}
}

// The reply shows for a limit its permits, the tasks that wait for a permit, and how often the
// limit has held a task back.
func TestLevelsOfALimit(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	free := make(chan struct{})
	mail := perdure.NewActivity("mail", func(context.Context, int) (int, error) {
		<-free
		return 0, nil
	}, perdure.OnQueue("mails"))
	app, err := attach.Open(w.ctx, attach.Config{Backend: w.server.Node().Backend(), Tenant: model.DefaultTenant}, mail)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = app.Close() })
	w.want(http.StatusNoContent, "", http.MethodPut, "/v1/limits/smtp", `{"queue":"mails","concurrency":1}`)
	for i := range 3 {
		if _, err := mail.Submit(app.With(w.ctx), i, perdure.RawKey(fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}

	w.awaitLevels(func(queues, limits map[string]map[string]int64) bool {
		q, l := queues["mails"], limits["smtp"]
		return q["running"] == 1 && q["waiting"] == 2 && l["held"] == 1 && l["waiting"] == 2 && l["permits"] == 1 && l["refused"] > 0
	})
	close(free)
	w.awaitLevels(func(queues, limits map[string]map[string]int64) bool {
		return queues["mails"]["running"]+queues["mails"]["waiting"]+limits["smtp"]["held"]+limits["smtp"]["waiting"] == 0
	})
}
