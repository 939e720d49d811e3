package restapi_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/attach"
	"github.com/perdure/perdure/internal/model"
)

// writer starts an app with a task that streams each text from the channel, until the channel is
// closed.
func (w *world) writer(words <-chan string) *perdure.Activity[perdure.Void, perdure.Void] {
	w.t.Helper()
	write := perdure.NewActivity("write", func(ctx context.Context, _ perdure.Void) (perdure.Void, error) {
		for word := range words {
			if err := perdure.StreamToken(ctx, word); err != nil {
				return perdure.Void{}, err
			}
		}
		return perdure.Void{}, nil
	}, perdure.OnQueue("words"))
	app, err := attach.Open(w.ctx, attach.Config{Backend: w.server.Node().Backend(), Tenant: model.DefaultTenant}, write)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = app.Close() })
	if _, err := write.Submit(app.With(w.ctx), perdure.Void{}, perdure.RawKey("a")); err != nil {
		w.t.Fatal(err)
	}
	return write
}

// items reads messages until it has n items. It returns the texts of these messages and the last
// id.
func (s *stream) items(n int) (text, id string) {
	s.t.Helper()
	for n > 0 {
		name, at, data, ok := s.next()
		var page struct{ Items []struct{ Position int64 } }
		if !ok || name != "items" || json.Unmarshal([]byte(data), &page) != nil || len(page.Items) == 0 {
			s.t.Fatalf("the stream has %q %s, want %d items more", name, data, n)
		}
		n, text, id = n-len(page.Items), text+data, at
	}
	return text, id
}

const ofTask = "/v1/executions/task:write/a/task-stream/events"

// Clients follow what a task streams while it runs. A client that comes back misses nothing and
// gets nothing twice. A client that has seen everything gets no stream.
func TestTaskStreamAsEvents(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.want(http.StatusNotFound, "task:write/a", http.MethodGet, ofTask, "")
	words := make(chan string)
	w.writer(words)
	for _, wrong := range []string{"nonsense", "1", "run_1:1", model.RunID{1}.String() + ":-1", model.RunID{1}.String()} {
		w.want(http.StatusBadRequest, "Last-Event-ID is", http.MethodGet, ofTask, "", "Last-Event-ID", wrong)
	}
	w.want(http.StatusNotFound, "", http.MethodGet, ofTask, "", "Last-Event-ID", model.RunID{1}.String()+":1")

	early := w.stream(t, ofTask) // it begins before there is an item
	words <- "one"
	text, first := early.items(1)
	if !strings.Contains(text, "one") || !strings.HasPrefix(first, "run_") {
		t.Errorf("the first message is %s with the id %q", text, first)
	}
	late := w.stream(t, ofTask, "Last-Event-ID", first)
	words <- "two"
	words <- "three"
	for _, s := range []*stream{early, late} {
		if text, _ := s.items(2); !strings.Contains(text, "two") || !strings.Contains(text, "three") || strings.Contains(text, "one") || strings.Contains(text, `"gap"`) {
			t.Errorf("a client gets %s", text)
		}
	}

	close(words)
	for _, s := range []*stream{early, late} {
		if name, _, data, ok := s.next(); !ok || name != "end" {
			t.Errorf("the task has ended, and the stream has %q %s", name, data)
		}
		if _, _, data, ok := s.next(); ok {
			t.Errorf("after the end: %s", data)
		}
	}
	whole := w.stream(t, ofTask)
	_, last := whole.items(3)
	if a := w.send(http.MethodGet, ofTask, "", "Last-Event-ID", last); a.status != http.StatusNoContent || a.body != "" {
		t.Errorf("a client that has seen everything gets %d %s", a.status, a.body)
	}
}

// The stream of a task shows nothing to another tenant. It ends when the key of its caller ends,
// and when the server stops.
func TestTaskStreamEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	words := make(chan string)
	w.writer(words)
	t.Cleanup(func() { close(words) }) // before the app is closed
	s := w.stream(t, ofTask)
	words <- "one"
	_, id := s.items(1)

	if _, err := w.admin.CreateTenant(w.ctx, api.TenantChange{Name: "acme"}); err != nil {
		t.Fatal(err)
	}
	k := w.key("acme")
	w.token = k.Secret
	w.want(http.StatusNotFound, "", http.MethodGet, ofTask, "", "Last-Event-ID", id)
	w.token = w.key(model.DefaultTenant).Secret
	own := w.stream(t, ofTask)
	own.items(1)
	w.token = adminKey
	w.rest.Shutdown()
	for _, one := range []*stream{s, own} {
		if name, _, data, ok := one.next(); ok {
			t.Errorf("the server stops, and the stream has %q %s", name, data)
		}
	}
}
