package restapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/authz/policy"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/node"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/internal/restapi"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(pgtest.Main(m), goleak.IgnoreTopFunction("net/http.(*persistConn).roundTrip"))
}

// adminKey is the static admin key of the servers of these tests.
const adminKey = "0123456789abcdef0123456789abcdef"

// world is a server with the REST API, and a caller.
type world struct {
	t      testing.TB
	ctx    context.Context
	server *node.Server
	rest   *restapi.Server
	admin  api.Admin
	// policies decide what callers may do.
	policies *policy.Policies
	client   *http.Client
	url      string
	token    string // the credential of calls; none if it is empty
	contract *contract
}

// newWorld opens a server on a store in memory. change may change the configuration of its REST
// API.
func newWorld(t testing.TB, change func(*restapi.Config)) *world {
	t.Helper()
	return newWorldOn(t, "memory:", change)
}

// newWorldOn is newWorld on the store of a URL.
func newWorldOn(t testing.TB, url string, change func(*restapi.Config)) *world {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	static, err := authn.NewAdminKey(adminKey, model.DefaultTenant)
	if err != nil {
		t.Fatal(err)
	}
	policies, err := policy.Default()
	if err != nil {
		t.Fatal(err)
	}

	w := &world{t: t, ctx: ctx, policies: policies, token: adminKey, client: &http.Client{Transport: &http.Transport{DisableCompression: true}}}
	w.server, err = node.Serve(ctx, node.ServerConfig{
		Node: node.Config{URL: url, Shards: 4, Version: "test", AllowUnsafe: true}, Listen: "127.0.0.1:0", Authenticator: authn.NewKeyring(static), Authorizer: policies, Tenant: model.DefaultTenant,
		Web: func(p node.Parts) (node.Web, error) {
			cfg := restapi.Config{Backend: p.Backend, Admin: p.Admin, Authenticator: p.Authenticator, Authorizer: p.Authorizer, Log: p.Log, Version: p.Version}
			if change != nil {
				change(&cfg)
			}
			w.admin = p.Admin
			w.rest, err = restapi.New(cfg)
			return w.rest, err
		},
	})
	if err != nil {
		t.Fatal(err)
	}

	w.url, w.contract = "http://"+w.server.Addr().String(), newContract(w.rest)
	t.Cleanup(func() {
		w.client.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := w.server.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return w
}

// answer is a reply of the server.
type answer struct {
	status int
	header http.Header
	body   string
}

// problem reads the answer as a problem.
func (a *answer) problem(t testing.TB) restapi.Problem {
	t.Helper()
	var p restapi.Problem
	if err := json.Unmarshal([]byte(a.body), &p); err != nil || a.header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("%d %s is not a problem: %.200s, %v", a.status, a.header.Get("Content-Type"), a.body, err)
	}
	if p.Status != a.status || p.Kind == "" || p.Title == "" || p.Type != "urn:perdure:problem:"+p.Kind {
		t.Errorf("%d has the problem %+v", a.status, p)
	}
	return p
}

// send sends a request. header has names and values of headers, alternating.
func (w *world) send(method, path, body string, header ...string) *answer {
	w.t.Helper()
	var in io.Reader
	if body != "" {
		in = strings.NewReader(body)
	}
	r, err := http.NewRequestWithContext(w.ctx, method, w.url+path, in)
	if err != nil {
		w.t.Fatal(err)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if w.token != "" {
		r.Header.Set("Authorization", "Bearer "+w.token)
	}
	for i := 0; i+1 < len(header); i += 2 {
		if header[i] == "Host" {
			r.Host = header[i+1]
		}
		r.Header.Set(header[i], header[i+1])
	}

	got, err := w.client.Do(r)
	if err != nil {
		w.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	if err != nil {
		w.t.Fatalf("%s %s: %v", method, path, err)
	}
	a := &answer{got.StatusCode, got.Header, string(text)}
	if err := w.contract.check(r, a); err != nil {
		w.t.Errorf("%s %s: the answer %d differs from the document: %v\n%.600s", method, path, a.status, err, a.body)
	}
	return a
}

// want sends a request and fails the test unless the status is right and the body has the text.
//
//arch:parameters the parts of a request and of its answer
func (w *world) want(status int, text, method, path, body string, header ...string) *answer {
	w.t.Helper()
	a := w.send(method, path, body, header...)
	if a.status != status || !strings.Contains(a.body, text) {
		w.t.Errorf("%s %s %.200s: %d, want %d and %q:\n%.600s", method, path, body, a.status, status, text, a.body)
	}
	if a.status >= 400 {
		a.problem(w.t)
	}
	return a
}

// field returns a text in a JSON body.
func (a *answer) field(t testing.TB, name string) string {
	t.Helper()
	var all map[string]any
	if err := json.Unmarshal([]byte(a.body), &all); err != nil {
		t.Fatalf("%v: %.200s", err, a.body)
	}
	return fmt.Sprint(all[name])
}

// key creates a key of a tenant, which must exist, with roles.
func (w *world) key(tenant string, roles ...string) api.NewKey {
	w.t.Helper()
	k, err := w.admin.CreateKey(w.ctx, api.KeyRequest{Tenant: tenant, Roles: roles})
	if err != nil {
		w.t.Fatal(err)
	}
	return k
}

// document reads the OpenAPI document of the server.
func (w *world) document() map[string]any {
	w.t.Helper()
	var doc map[string]any
	d := json.NewDecoder(bytes.NewBufferString(w.send(http.MethodGet, "/v1/openapi.json", "").body))
	if err := d.Decode(&doc); err != nil {
		w.t.Fatal(err)
	}
	return doc
}
