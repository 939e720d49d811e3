package restapi_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/pgtest"
)

// seen are the positions of the events that a client has received, in order.
type seen []int64

// take reads a message of the stream of events. It returns its name and its id.
func (s *seen) take(t *testing.T, from *stream) (name, id string) {
	t.Helper()
	name, id, data, ok := from.next()
	if !ok {
		t.Fatalf("the stream ended after %v", *s)
	}
	var page struct{ Events []struct{ Seq int64 } }
	if err := json.Unmarshal([]byte(data), &page); err != nil {
		t.Fatal(err)
	}
	for _, e := range page.Events {
		if want := int64(len(*s)); e.Seq != want {
			t.Fatalf("event %d follows %v", e.Seq, *s)
		}
		*s = append(*s, e.Seq)
	}
	return name, id
}

// untilEnd reads the rest of a stream and returns the id of its last message with events.
func (s *seen) untilEnd(t *testing.T, from *stream) (last string) {
	t.Helper()
	for {
		name, id := s.take(t, from)
		switch name {
		case "end":
			if _, _, data, ok := from.next(); ok {
				t.Errorf("after the end: %s", data)
			}
			return last
		case "events":
			last = id
		default:
			t.Fatalf("a message %q", name)
		}
	}
}

const ofOne = "/v1/executions/order/a"

// order starts an execution and waits until its first event can be read.
func (w *world) order(key string) {
	w.t.Helper()
	w.want(http.StatusCreated, "", http.MethodPost, "/v1/executions", `{"workflow":"order","key":"`+key+`","input":{"n":1}}`)
}

// Clients follow the events of a run. A client that comes back misses nothing and gets nothing
// twice. A client that has seen the end of the run gets no stream.
func TestEventStream(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.want(http.StatusNotFound, "order/a", http.MethodGet, ofOne+"/event-stream", "")
	w.order("a")
	w.want(http.StatusBadRequest, "Last-Event-ID is", http.MethodGet, ofOne+"/event-stream", "", "Last-Event-ID", "nonsense")
	w.want(http.StatusBadRequest, "Last-Event-ID is", http.MethodGet, ofOne+"/event-stream", "", "Last-Event-ID", "-2")

	var all seen
	s := w.stream(t, ofOne+"/event-stream")
	name, first := all.take(t, s)
	if name != "events" || first == "" {
		t.Fatalf("the first message is %q with the id %q", name, first)
	}
	w.want(http.StatusNoContent, "", http.MethodPost, ofOne+"/signal", `{"name":"paid","input":true}`)
	for before := len(all); len(all) == before; {
		all.take(t, s)
	}
	w.want(http.StatusNoContent, "", http.MethodPost, ofOne+"/terminate", `{"reason":"x"}`)
	last := all.untilEnd(t, s)

	again := seen{0}
	if got := again.untilEnd(t, w.stream(t, ofOne+"/event-stream", "Last-Event-ID", "0")); got != last || len(again) != len(all) {
		t.Errorf("a client that comes back has %v, want %v", again, all)
	}
	if a := w.send(http.MethodGet, ofOne+"/event-stream", "", "Last-Event-ID", last); a.status != http.StatusNoContent || a.body != "" {
		t.Errorf("a client that has seen everything gets %d %s", a.status, a.body)
	}
	if a := w.send(http.MethodGet, ofOne+"/event-stream?after=100000", ""); a.status != http.StatusNoContent {
		t.Errorf("a client behind the end gets %d %s", a.status, a.body)
	}
	if a := w.send(http.MethodGet, ofOne+"/event-stream?preview=0", ""); a.status != http.StatusOK || strings.Contains(a.body, `"text"`) || !strings.Contains(a.body, `"bytes":7`) || !strings.Contains(a.body, `"status":"terminated"`) {
		t.Errorf("the stream without previews is %d %s", a.status, a.body)
	}
}

// A stream of events shows nothing of another tenant. It ends when the key of its caller ends, and
// when the server stops.
func TestEventStreamEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.order("a")
	var own struct{ Run string }
	if a := w.send(http.MethodGet, ofOne, ""); json.Unmarshal([]byte(a.body), &own) != nil || own.Run == "" {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if _, err := w.admin.CreateTenant(w.ctx, api.TenantChange{Name: "acme"}); err != nil {
		t.Fatal(err)
	}
	k := w.key("acme")
	w.token = k.Secret
	w.want(http.StatusNotFound, "", http.MethodGet, ofOne+"/event-stream?run="+own.Run, "")
	w.order("a")
	w.want(http.StatusNotFound, "", http.MethodGet, ofOne+"/event-stream?run="+own.Run, "")

	s, all := w.stream(t, ofOne+"/event-stream"), seen{}
	all.take(t, s)
	if err := w.admin.RevokeKey(w.ctx, k.ID); err != nil {
		t.Fatal(err)
	}
	for ok := true; ok; {
		_, _, _, ok = s.next()
	}

	w.token = adminKey
	s, all = w.stream(t, ofOne+"/event-stream"), seen{}
	all.take(t, s)
	w.rest.Shutdown()
	for ok := true; ok; {
		_, _, _, ok = s.next()
	}
}

// A client can follow a run at any server of a cluster, no matter which server owns the run.
func TestEventStreamOfACluster(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	both := []*world{newWorldOn(t, url, nil), newWorldOn(t, url, nil)}
	both[0].order("a")
	var streams []*stream
	for _, w := range both {
		streams = append(streams, w.stream(t, ofOne+"/event-stream"))
	}
	for i := range 3 {
		both[i%2].want(http.StatusNoContent, "", http.MethodPost, ofOne+"/signal", `{"name":"paid","input":true}`)
	}
	both[0].want(http.StatusNoContent, "", http.MethodPost, ofOne+"/terminate", `{"reason":"x"}`)
	for _, s := range streams {
		var all seen
		all.untilEnd(t, s)
		if len(all) < 5 {
			t.Errorf("the stream has %v", all)
		}
	}
}
