package restapi_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/attach"
	"github.com/perdure/perdure/internal/model"
)

// logs starts an app with an entity whose stream counts from its input to 5. If the input is
// negative, the stream sends one item and then waits until its reader leaves.
func (w *world) logs() (left chan error) {
	w.t.Helper()
	left = make(chan error, 10)
	logs := perdure.NewEntity[[]string]("log")
	perdure.NewView(logs, "size", func(lines []string, _ perdure.Void) (int, error) { return len(lines), nil })
	perdure.NewStream(logs, "count", func(ctx context.Context, _ []string, from int, send func(string) error) error {
		if from < 0 {
			err := send("only")
			<-ctx.Done()
			left <- err
			return ctx.Err()
		}
		for n := from; n <= 5; n++ {
			if err := send(fmt.Sprintf("item %d", n)); err != nil {
				return err
			}
		}
		if from > 5 {
			return perdure.Permanent(errors.New("the log is too short"))
		}
		return nil
	})

	app, err := attach.Open(w.ctx, attach.Config{Backend: w.server.Node().Backend(), Tenant: model.DefaultTenant}, logs)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = app.Close() })
	return left
}

const ofLog = "/v1/entities/log/web-1/stream"

// A client reads a stream of an entity: every item in order, and then the end, or the error of the
// code.
func TestEntityStream(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.logs()
	s := w.open(t, http.MethodPost, ofLog, `{"stream": "count", "input": 3}`)
	var got strings.Builder
	for {
		name, _, data, ok := s.next()
		if !ok {
			break
		}
		got.WriteString(name + data + " ")
	}
	text := got.String()
	for _, item := range []string{"item 3", "item 4", "item 5"} {
		before, after, found := strings.Cut(text, item)
		if !found || strings.Contains(after, item) || strings.Contains(before, "end{") {
			t.Errorf("the stream is %s, want %s once, before the end", got.String(), item)
		}
	}
	if !strings.HasSuffix(text, "end{\"items\":3} ") {
		t.Errorf("the stream is %s, want the end after three items", text)
	}

	failed := w.open(t, http.MethodPost, ofLog, `{"stream": "count", "input": 6}`)
	if name, _, data, ok := failed.next(); !ok || name != "problem" || !strings.Contains(data, "too short") {
		t.Errorf("the stream has %q %s, want the error of the code", name, data)
	}
	if name, _, data, ok := failed.next(); ok {
		t.Errorf("after the error, the stream has %q %s", name, data)
	}
}

// The server refuses a stream that it cannot start with the status of the error.
func TestEntityStreamIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.logs()
	w.want(http.StatusNotFound, "nothing", http.MethodPost, ofLog, `{"stream": "nothing"}`)
	w.want(http.StatusBadRequest, "size", http.MethodPost, ofLog, `{"stream": "size"}`)
	w.want(http.StatusBadRequest, "", http.MethodPost, ofLog, `{"stream": "count", "input": "x"}`)
	w.want(http.StatusUnprocessableEntity, "", http.MethodPost, ofLog, `{"stream": ""}`)
}

// When the client leaves, or the server stops, the code of the stream ends. Another tenant cannot
// read the stream.
func TestEntityStreamEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	left := w.logs()
	wantLeft := func(why string) {
		t.Helper()
		select {
		case err := <-left:
			if err != nil {
				t.Errorf("%s: the only item was not sent: %v", why, err)
			}
		case <-time.After(2 * time.Minute):
			t.Fatalf("%s, and the code of the stream goes on", why)
		}
	}
	const waits = `{"stream": "count", "input": -1}`
	s := w.open(t, http.MethodPost, ofLog, waits)
	if name, _, data, ok := s.next(); !ok || name != "items" || !strings.Contains(data, "only") {
		t.Fatalf("the stream has %q %s", name, data)
	}
	s.close()
	wantLeft("the client has left")

	if _, err := w.admin.CreateTenant(w.ctx, api.TenantChange{Name: "acme"}); err != nil {
		t.Fatal(err)
	}
	w.token = w.key("acme").Secret
	if a := w.send(http.MethodPost, ofLog+"?timeout=1s", waits); a.status < 400 {
		t.Errorf("another tenant reads the stream: %d %s", a.status, a.body)
	}
	w.token = adminKey
	last := w.open(t, http.MethodPost, ofLog, waits)
	last.next()
	w.rest.Shutdown()
	if name, _, data, ok := last.next(); ok && name != "problem" {
		t.Errorf("the server stops, and the stream has %q %s", name, data)
	}
	wantLeft("the server has stopped")
}
