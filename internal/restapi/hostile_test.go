package restapi_test

import (
	"compress/gzip"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/restapi"
	"github.com/perdure/perdure/internal/tenanttest"
)

// Invalid requests are refused with a problem, before anything happens.
func TestHostileRequests(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *restapi.Config) { c.MaxPayload = 1 << 10 })
	const get, post, path = http.MethodGet, http.MethodPost, "/v1/executions"
	deep := strings.Repeat("[", 100) + strings.Repeat("]", 100)
	for _, c := range []struct {
		status             int
		want, method, path string
		body               string
		header             []string
	}{
		{400, "twice in one object", post, path, `{"workflow":"order","key":"1","key":"2"}`, nil},
		{400, "twice in one object", post, path, `{"workflow":"order","key":"1","input":{"a":{"b":1,"b":2}}}`, nil},
		{400, "not valid UTF-8", post, path, "{\"workflow\":\"order\",\"key\":\"1\",\"input\":\"caf\xe9\"}", nil},
		{400, "one half of a character", post, path, `{"workflow":"order","key":"1","input":{"a":"\ud800"}}`, nil},
		{400, "contains a slash", post, path, `{"workflow":"order/new","key":"1"}`, nil},
		{400, "reserved for Perdure", post, path, `{"workflow":"perdure.new","key":"1"}`, nil},
		{400, "reserved for Perdure", post, path, `{"workflow":"perdure.schedule","key":"1"}`, nil},
		{400, "takes no If-Match", http.MethodPut, "/v1/limits/smtp", `{"concurrency":5}`, []string{"If-Match", `"1"`}},
		{400, "takes no If-None-Match", http.MethodPut, "/v1/breaker-rules/bank", `{"failures":3}`, []string{"If-None-Match", "*"}},
		{400, "takes no If-Unmodified-Since", http.MethodDelete, "/v1/limits/smtp", "", []string{"If-Unmodified-Since", "Thu, 19 Nov 2026 17:00:00 GMT"}},
		{404, "", get, path + "/order/1", "", []string{"If-None-Match", "*"}},
		{400, "levels deep", post, path, `{"workflow":"order","key":"1","input":` + deep + `}`, nil},
		{400, "", post, path, `{"workflow":"order"`, nil},
		{400, "after its JSON value", post, path, `{"workflow":"order","key":"1"} {}`, nil},
		{422, "unexpected property", post, path, `{"workflow":"order","key":"1","admin":true}`, nil},
		{422, "required property", post, path, `{"workflow":"order"}`, nil},
		{422, "", post, path, `{"workflow":7,"key":"1"}`, nil},
		{422, "", post, path, `{"workflow":"order","key":"1","reuse":"perhaps"}`, nil},
		{422, "", post, path, `[]`, nil},
		{400, "", post, path, `{"workflow":"order","key":"1","delay":"soon"}`, nil},
		{400, "", post, path, `{"workflow":"` + strings.Repeat("x", 600) + `","key":"1"}`, nil},
		{413, "", post, path, `{"workflow":"order","key":"1","input":"` + strings.Repeat("x", 16<<10) + `"}`, nil},
		{415, "must have application/json", post, path, `{"workflow":"order","key":"1"}`, []string{"Content-Type", "text/plain"}},
		{415, "must have application/json", post, path, `workflow=order`, []string{"Content-Type", "application/x-www-form-urlencoded"}},
		{415, "must have application/json", post, path, `{"workflow":"order","key":"1"}`, []string{"Content-Type", ""}},
		{415, "must have none", post, path, "\x1f\x8b", []string{"Content-Encoding", "gzip"}},
		{415, "application/jsonl", post, "/v1/imports", `{}`, nil},
		{400, "", post, "/v1/imports", "nonsense", []string{"Content-Type", "application/jsonl"}},
		{422, "unknown query parameter", get, path + "?quary=x", "", nil},
		{422, "", get, path + "?limit=0", "", nil},
		{422, "", get, path + "?limit=1000000", "", nil},
		{422, "", get, path + "?limit=many", "", nil},
		{400, "", get, path + "?cursor=nonsense", "", nil},
		{400, "run", get, path + "/order/1?run=run_1", "", nil},
		{400, "wait is", get, path + "/order/1/result?wait=24h", "", nil},
		{400, "dead task", get, "/v1/dead-tasks/none", "", nil},
		{404, "", get, path + "/order/1", "", nil},
		{404, "there is no GET", get, "/v1/", "", nil},
		{404, "there is no GET", get, "/v1/nothing", "", nil},
		{404, "there is no DELETE", http.MethodDelete, path, "", nil},
		{404, "", get, "/v1/executions/%2e%2e/%2e%2e%2f", "", nil},
		{404, "there is no GET", get, "/v1/executions/", "", nil},
		{400, "is not a name", get, "/v1/tenants/none%2Fsettings", "", nil},
		{403, "another site", post, path, `{"workflow":"order","key":"1"}`, []string{"Sec-Fetch-Site", "cross-site"}},
		{403, "another site", post, path, `{"workflow":"order","key":"1"}`, []string{"Origin", "https://evil.example"}},
		{422, "", post, "/v1/schedules/nightly/fly", "", nil},
	} {
		a := w.want(c.status, c.want, c.method, c.path, c.body, c.header...)
		for header, want := range map[string]string{
			"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store", "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
			"Access-Control-Allow-Origin": "",
		} {
			if got := a.header.Get(header); got != want {
				t.Errorf("%s %s: %s is %q, want %q", c.method, c.path, header, got, want)
			}
		}
		if strings.Contains(a.body, strings.Repeat("x", 1000)) {
			t.Errorf("%s %s: the problem repeats the value", c.method, c.path)
		}
	}

	w.token = ""
	if a := w.want(http.StatusUnauthorized, "has no key", get, path, ""); a.header.Get("WWW-Authenticate") == "" {
		t.Error("the refusal does not say how to present a key")
	}
	if a := w.send(get, "/v1/openapi.json", ""); a.status != http.StatusOK {
		t.Errorf("the document needs a key: %d", a.status)
	}
}

// A server that asks for no key answers only requests to this machine, so that a page in a browser
// cannot reach it under another name.
func TestLocalServerChecksTheHost(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *restapi.Config) { c.Local = true })
	for host, want := range map[string]int{
		"localhost": 200, "localhost:7800": 200, "127.0.0.1:7800": 200, "[::1]:7800": 200, "evil.example": 403, "evil.example:7800": 403, "127.0.0.1.evil.example": 403, "192.168.0.1": 403,
	} {
		if a := w.send(http.MethodGet, "/v1/me", "", "Host", host); a.status != want {
			t.Errorf("%s: %d, want %d", host, a.status, want)
		}
	}
}

// The server serves a bounded number of requests at the same time.
func TestCallsAreBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *restapi.Config) { c.MaxCalls = 1 })
	r, err := http.NewRequestWithContext(w.ctx, http.MethodGet, w.url+"/v1/changes", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+adminKey)
	stream, err := w.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	w.want(http.StatusTooManyRequests, "try again later", http.MethodGet, "/v1/me", "")
}

// Large replies are compressed for clients that accept it.
func TestGzip(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	plain := w.send(http.MethodGet, "/v1/openapi.json", "")
	for accept, want := range map[string]string{"gzip": "gzip", "br, gzip;q=0.5": "gzip", "identity": "", "gzip;q=0": ""} {
		a := w.send(http.MethodGet, "/v1/openapi.json", "", "Accept-Encoding", accept)
		if a.header.Get("Content-Encoding") != want || a.header.Get("Vary") != "Accept-Encoding" {
			t.Errorf("%q: %v", accept, a.header)
		}
		text := a.body

		if want == "gzip" {
			z, err := gzip.NewReader(strings.NewReader(a.body))
			if err != nil {
				t.Fatal(err)
			}
			all, err := io.ReadAll(z)
			if err != nil {
				t.Fatal(err)
			}
			text = string(all)
		}

		if text != plain.body {
			t.Errorf("%q: another body", accept)
		}
	}

	if a := w.send(http.MethodGet, "/v1/me", "", "Accept-Encoding", "br"); a.header.Get("Content-Encoding") != "" {
		t.Error("compressed without being asked")
	}
}

// A caller of one tenant reaches nothing of another tenant through any operation, no matter which
// ids of that tenant it presents.
func TestTenantsDoNotReachEachOtherOverREST(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	for _, name := range []string{"acme", "globex"} {
		if _, err := w.admin.CreateTenant(w.ctx, api.TenantChange{Name: name}); err != nil {
			t.Fatal(err)
		}
	}
	b := w.server.Node().Backend()
	theirs := tenanttest.Fill(t, b, "acme")
	tenanttest.Fill(t, b, "globex")
	before := tenanttest.Snapshot(t, b, "acme", theirs)
	w.token = w.key("globex").Secret

	ids := map[string][]string{
		"workflow": {theirs.Workflow, "task:" + theirs.Activity}, "key": {theirs.Key, theirs.Closed}, "entity": {"account"}, "id": {theirs.Dead.String(), "1-000000000000"},
		"name": {theirs.Limit, theirs.Breaker, theirs.Queue, "state"}, "verb": {"resume"}, "tenant": {"acme"}, "kind": {"limit"}, "session": {"none"}, "node": {model.NodeID{1}.String(), "none"},
		"position": {"0", "1"}, "field": {"input", "output"},
	}
	bodies := []string{"", `{}`, `{"name":"query"}`, `{"operation":"set","input":"x"}`, `{"workflow":"none","key":"none"}`, `{"reason":"x"}`}
	queries := []string{"", "?run=" + theirs.Run.String(), "?cursor=" + theirs.ListCursor, "?tenant=acme"}
	probes := 0
	for _, r := range w.routes() {
		if strings.HasPrefix(r.id, "watch-") {
			continue // TestStreamsOfTenantsDoNotReachEachOther
		}

		for turn := range 4 {
			path := fill(r.path, func(name string) string { return ids[name][turn%len(ids[name])] })
			for _, query := range queries {
				if r.id == "await-execution" { // it waits for an execution of the caller
					query += map[bool]string{true: "?", false: "&"}[query == ""] + "wait=1ms"
				}
				for _, body := range bodies {
					if (r.method == http.MethodGet || r.method == http.MethodDelete) && body != "" {
						continue
					}
					probes++
					a := w.send(r.method, path+query, body)
					// The audit log shows the ids that the caller itself has sent.
					shows := strings.Contains(strings.ReplaceAll(a.body, path, ""), theirs.Run.String()) && !strings.Contains(query, "run=") && r.id != "list-audit"
					if shows || strings.Contains(a.body, theirs.Secret) || strings.Contains(a.body, `"tenant":"acme"`) {
						t.Errorf("%s %s%s %s: %d %s", r.method, path, query, body, a.status, a.body)
					}
					if a.status >= 500 {
						t.Errorf("%s %s%s %s: %d %s", r.method, path, query, body, a.status, a.body)
					}
				}
			}
		}
	}
	if after := tenanttest.Snapshot(t, b, "acme", theirs); after != before {
		t.Errorf("the probes have changed the other tenant:\n%s\nwas\n%s", after, before)
	}
	if probes < 3000 {
		t.Errorf("%d probes", probes)
	}
}
