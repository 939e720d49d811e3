package restapi_test

import (
	"bufio"
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/perdure/perdure/internal/api"
)

// stream is a stream of events.
type stream struct {
	t     *testing.T
	lines *bufio.Scanner
	close func()
}

// follow opens the stream of changes.
func (w *world) follow(t *testing.T, query string, header ...string) *stream {
	t.Helper()
	return w.stream(t, "/v1/changes"+query, header...)
}

// stream opens a stream of events.
func (w *world) stream(t *testing.T, path string, header ...string) *stream {
	t.Helper()
	return w.open(t, http.MethodGet, path, "", header...)
}

// open opens a stream of events with a request of any method.
//
//arch:parameters the parts of a request
func (w *world) open(t *testing.T, method, path, body string, header ...string) *stream {
	t.Helper()
	ctx, cancel := context.WithCancel(w.ctx)
	r, err := http.NewRequestWithContext(ctx, method, w.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+w.token)
	r.Header.Set("Accept-Encoding", "gzip")
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	got, err := w.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}

	if got.StatusCode != http.StatusOK || got.Header.Get("Content-Type") != "text/event-stream" || got.Header.Get("Content-Encoding") != "" {
		t.Fatalf("%d %v", got.StatusCode, got.Header)
	}
	s := &stream{t, bufio.NewScanner(got.Body), func() { cancel(); _ = got.Body.Close() }}
	s.lines.Buffer(nil, 4<<20) // a page is one line
	t.Cleanup(s.close)

	return s
}

// next returns the next event. It returns false at the end of the stream.
func (s *stream) next() (name, id, data string, ok bool) {
	for s.lines.Scan() {
		line := s.lines.Text()
		field, value, _ := strings.Cut(line, ": ")
		switch field {
		case "event":
			name = value
		case "id":
			id = value
		case "data":
			data = value
		case "":
			if data != "" {
				return name, id, data, true
			}
		}
	}

	return "", "", "", false
}

// until reads events until one has the text, and returns its id.
func (s *stream) until(text string) string {
	s.t.Helper()
	for {
		name, id, data, ok := s.next()
		if !ok || name != "changes" {
			s.t.Fatalf("the stream ended with %q %s before %q", name, data, text)
		}
		if strings.Contains(data, text) {
			return id
		}
	}
}

// A client follows the changes of one queue, and changes of the kinds that it names.
func TestChangesOfAQueue(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	mail, done := w.follow(t, "?queue=mail"), w.follow(t, "?class=task&kind=canceled,terminated")
	mail.next()
	done.next()
	start := func(key, queue string) {
		t.Helper()
		w.want(http.StatusCreated, "", http.MethodPost, "/v1/tasks", `{"activity":"send","key":"`+key+`","queue":"`+queue+`"}`)
	}
	start("other", "print")
	start("mine", "mail")
	w.want(http.StatusNoContent, "", http.MethodPost, "/v1/executions/task:send/other/terminate", `{"reason":"x"}`)
	w.want(http.StatusNoContent, "", http.MethodPost, "/v1/executions/task:send/mine/terminate", `{"reason":"x"}`)
	w.want(http.StatusNoContent, "", http.MethodPost, "/v1/queues/print/pause", `{"reason":"x"}`)
	w.want(http.StatusNoContent, "", http.MethodPost, "/v1/queues/mail/pause", `{"reason":"x"}`)

	for paused := false; !paused; {
		_, _, data, ok := mail.next()
		if !ok || strings.Contains(data, `"print"`) || strings.Contains(data, `"key":"other"`) {
			t.Fatalf("the watch of a queue has %s", data)
		}
		paused = strings.Contains(data, `"kind":"paused"`) && strings.Contains(data, `"name":"mail"`)
	}
	for ended := 0; ended < 2; {
		_, _, data, ok := done.next()
		if !ok || strings.Contains(data, `"scheduled"`) {
			t.Fatalf("the watch of a kind has %s", data)
		}
		ended += strings.Count(data, `"kind":"terminated"`)
	}
}

// Clients follow changes as server-sent events. A client that connects again with the id of its
// last event misses nothing. The stream ends when the key of its caller ends, and when the server
// stops.
func TestChanges(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	start := func(key string) {
		t.Helper()
		w.want(http.StatusCreated, "", http.MethodPost, "/v1/executions", `{"workflow":"order","key":"`+key+`"}`)
	}
	s := w.follow(t, "?class=execution&workflow=order")
	if _, id, data, ok := s.next(); !ok || id == "" || !strings.Contains(data, `"changes":[]`) {
		t.Fatalf("the first page is %s", data)
	}
	start("a")
	last := s.until(`"key":"a"`)
	s.close()

	start("b")
	s = w.follow(t, "?class=execution", "Last-Event-ID", last)
	s.until(`"key":"b"`)
	s = w.follow(t, "?cursor="+last)
	s.until(`"key":"b"`)
	w.want(http.StatusBadRequest, "is not a cursor", http.MethodGet, "/v1/changes", "", "Last-Event-ID", "nonsense")
	w.want(http.StatusBadRequest, "is not a status", http.MethodGet, "/v1/changes?status=flying", "")

	if _, err := w.admin.CreateTenant(w.ctx, api.TenantChange{Name: "acme"}); err != nil {
		t.Fatal(err)
	}
	k := w.key("acme", "reader")
	w.token = k.Secret
	s = w.follow(t, "")
	if _, _, data, ok := s.next(); !ok || strings.Contains(data, `"key"`) {
		t.Errorf("another tenant sees %s", data)
	}
	if err := w.admin.RevokeKey(w.ctx, k.ID); err != nil {
		t.Fatal(err)
	}
	for ok := true; ok; {
		_, _, _, ok = s.next()
	}

	w.token = adminKey
	s = w.follow(t, "")
	s.next()
	w.rest.Shutdown()
	for ok := true; ok; {
		_, _, _, ok = s.next()
	}
}
