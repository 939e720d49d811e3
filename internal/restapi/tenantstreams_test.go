package restapi_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/tenanttest"
)

// probe is a stream that a caller has opened with ids of another tenant.
type probe struct {
	what string
	text []byte        // what the stream has sent; complete when done is closed
	done chan struct{} // closed when the stream has ended
}

// openProbe opens a stream and reads it in the background until it ends. The server may refuse the
// request, but it must not answer with a status of 500 or more.
func (w *world) openProbe(path string, header ...string) *probe {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.ctx, http.MethodGet, w.url+path, http.NoBody)
	if err != nil {
		w.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+w.token)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	got, err := w.client.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}

	p := &probe{what: path + " " + strings.Join(header, " "), done: make(chan struct{})}
	if got.StatusCode >= http.StatusInternalServerError {
		w.t.Errorf("%s: %d", p.what, got.StatusCode)
	}
	go func() {
		defer close(p.done)
		defer got.Body.Close()
		p.text, _ = io.ReadAll(got.Body) // the error says that the server broke the stream off
	}()
	return p
}

// probePaths returns the paths of all streams, with ids and cursors of another tenant.
func probePaths(theirs, mine *tenanttest.IDs, cursor string) (paths []string) {
	for _, query := range []string{
		"", "?cursor=" + cursor, "?workflow=" + theirs.Workflow, "?workflow=" + theirs.Workflow + "&key=" + theirs.Key, "?key=theirs", "?class=execution,task,entity,setting",
		"?kind=started", "?queue=" + theirs.Queue, "?status=running,completed",
	} {
		paths = append(paths, "/v1/changes"+query)
	}
	for _, name := range []string{
		theirs.Workflow + "/" + theirs.Key, theirs.Workflow + "/" + theirs.Closed, "task:" + theirs.Activity + "/" + theirs.Key, theirs.Workflow + "/theirs",
		mine.Workflow + "/" + mine.Key, "task:" + mine.Activity + "/" + mine.Key,
	} {
		for _, query := range []string{"", "?run=" + theirs.Run.String(), "?run=" + theirs.ClosedRun.String(), "?run=" + theirs.TaskRun.String(), "?after=0"} {
			for _, stream := range []string{"/event-stream", "/task-stream/events"} {
				paths = append(paths, "/v1/executions/"+name+stream+query)
			}
		}
	}
	return paths
}

// A caller that follows streams gets nothing of another tenant, even if the caller presents ids and
// cursors of that tenant, and even if something changes in that tenant at the same time.
func TestStreamsOfTenantsDoNotReachEachOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	tokens, own := map[string]api.NewKey{}, map[string]*tenanttest.IDs{}
	for _, name := range []string{"acme", "globex"} {
		if _, err := w.admin.CreateTenant(w.ctx, api.TenantChange{Name: name}); err != nil {
			t.Fatal(err)
		}
		tokens[name], own[name] = w.key(name), tenanttest.Fill(t, w.server.Node().Backend(), name)
	}
	theirs := own["acme"]
	w.token = tokens["acme"].Secret
	watched := w.follow(t, "")
	_, cursor, _, _ := watched.next()

	w.token = tokens["globex"].Secret
	mine := w.follow(t, "")
	mine.next()
	var all []*probe
	for _, path := range probePaths(theirs, own["globex"], cursor) {
		for _, header := range [][]string{nil, {"Last-Event-ID", cursor}, {"Last-Event-ID", "0"}, {"Last-Event-ID", theirs.Run.String() + ":0"}, {"Last-Event-ID", theirs.TaskRun.String() + ":1"}, {"Perdure-Tenant", "acme"}} {
			all = append(all, w.openProbe(path, header...))
		}
	}

	// Change something in both tenants, and wait until a stream of each tenant has the change of
	// its own tenant. Then revoke the key of the caller, which ends all streams of the caller.
	for tenant, key := range map[string]string{"acme": "theirs", "globex": "mine"} {
		w.token = tokens[tenant].Secret
		w.want(http.StatusCreated, "", http.MethodPost, "/v1/executions", `{"workflow":"`+theirs.Workflow+`","key":"`+key+`","input":"`+own[tenant].Secret+`"}`)
	}
	watched.until(`"key":"theirs"`)
	mine.until(`"key":"mine"`)
	if err := w.admin.RevokeKey(w.ctx, tokens["globex"].ID); err != nil {
		t.Fatal(err)
	}

	seen := 0
	for _, p := range all {
		select {
		case <-p.done:
		case <-w.ctx.Done():
			t.Fatalf("%s does not end after the key was revoked: %v", p.what, context.Cause(w.ctx))
		}
		text := string(p.text)
		for _, foreign := range []string{theirs.Secret, `"key":"theirs"`, `"run":"` + theirs.Run.String(), `"run":"` + theirs.ClosedRun.String(), `"run":"` + theirs.TaskRun.String()} {
			if strings.Contains(text, foreign) {
				t.Errorf("%s shows %s:\n%.2000s", p.what, foreign, text)
			}
		}
		if strings.Contains(text, `"key":"mine"`) {
			seen++
		}
	}
	if len(all) < 250 || seen == 0 {
		t.Errorf("%d streams, %d of them show the change of the caller; want at least 250 streams, and at least 1 of them", len(all), seen)
	}
	t.Logf("%d streams, %d of them with the change of the caller", len(all), seen)
}
