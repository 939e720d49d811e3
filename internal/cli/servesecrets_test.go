package cli

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/internal/remote"
)

// In TestSecretsStayInside every secret contains the canary: passwords, keys, payloads, and errors
// of user code. The canary must not appear in any output. Keys of executions, which may be names of
// people, contain the marmot. It must not appear in metrics, spans and the log of requests.
const (
	canary      = "canary"
	marmot      = "marmot"
	canaryAdmin = "canary-7f3e9b1c5d2a8064"
)

// ask makes a request to a server and returns the body of its reply.
func (s *served) ask(method, url, token, body string) string {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return string(text)
}

// until waits for a text in the log.
func (s *served) until(text string) {
	s.t.Helper()
	end := time.After(2 * time.Minute)
	for !strings.Contains(s.log.String(), text) {
		select {
		case <-s.log.news:
		case <-end:
			s.t.Fatalf("the log has no %q:\n%s", text, s.log)
		}
	}
}

// secretCode is code that gets secrets and fails with them.
func secretCode() (*perdure.Workflow[string, string], *perdure.Activity[string, string], *perdure.Activity[string, string]) {
	fail := perdure.NewActivity("fail", func(_ context.Context, in string) (string, error) {
		return "", perdure.Permanent(errors.New(in))
	}, perdure.OnQueue("secrets"))
	crash := perdure.NewActivity("crash", func(_ context.Context, in string) (string, error) { panic(in) }, perdure.OnQueue("secrets"), perdure.RetryPolicy{MaxAttempts: 1})
	flow := perdure.NewWorkflow("secret", func(ctx perdure.WorkflowCtx, in string) (string, error) {
		if _, err := fail.Run(ctx, in); err == nil {
			return "", errors.New("the activity has not failed")
		}
		return perdure.Do(ctx, "step", func(context.Context) (string, error) { return "", perdure.Permanent(errors.New(in)) })
	})
	return flow, fail, crash
}

// runSecretCode runs this code in a program that is connected to the server, and waits until it
// fails.
func (s *served) runSecretCode(token string) {
	s.t.Helper()
	flow, fail, crash := secretCode()
	app, err := perdure.Dialer{Token: token}.Dial(s.t.Context(), "grpc://"+s.address, flow, fail, crash)
	if err != nil {
		s.t.Fatal(err)
	}
	defer app.Close()
	c := app.With(s.t.Context())
	if _, err := flow.Run(c, canary+" input", perdure.RawKey(marmot+"-1")); err == nil {
		s.t.Error("the workflow has not failed")
	}
	for _, a := range []*perdure.Activity[string, string]{fail, crash} {
		if _, err := a.Submit(c, canary+" task", perdure.RawKey(marmot+"-2")); err != nil {
			s.t.Fatal(err)
		}
		if _, err := a.Execution(perdure.RawKey(marmot + "-2")).Result(c); err == nil {
			s.t.Error("the task has not failed")
		}
	}
}

// A server keeps its secrets. Its log has no password, key, payload or error of user code, even if
// it is verbose. The same holds for its metrics, spans, health, audit log and profiles. Metrics,
// spans and the log of requests do not contain keys of executions either.
func TestSecretsStayInside(t *testing.T) {
	t.Parallel()
	database := pgtest.Start(t, pgtest.Options{Fsync: true})
	execute(t, database.URL("postgres"), "create role app login password 'canary'")
	execute(t, database.URL("postgres"), "create database owned template template0 owner app")
	to := &collector{got: map[string]string{}}
	otlp := httptest.NewServer(to)
	defer otlp.Close()
	dir := t.TempDir()
	config := writeFile(t, dir, "perdure.toml", "store = '"+as(t, database.URL("owned"), "app")+"'\nverbose = true\naccess_log = 1\nmetrics_by_tenant = true\nadmin_listen = '127.0.0.1:0'\n"+
		"nats = 'nats://u:canary@127.0.0.1:1'\notlp_endpoint = '"+otlp.URL+"'\nlisten = '127.0.0.1:0'\n")
	s := startServe(t, "--config", config, "--admin-key-file", writeFile(t, dir, "key", canaryAdmin))
	root := "http://" + s.address

	// Programs run code.
	s.runSecretCode(canaryAdmin)
	order := root + "/v1/executions/order/" + marmot
	for _, r := range [][3]string{
		{http.MethodPost, root + "/v1/executions", `{"workflow":"order","key":"` + marmot + `","input":"` + canary + `"}`},
		{http.MethodPost, order + "/signal", `{"name":"paid","input":"` + canary + `"}`},
		{http.MethodPost, order + "/query", `{"name":"none","input":"` + canary + `"`},
		{http.MethodPost, root + "/v1/executions", `{"workflow":7,"key":"` + marmot + `","input":"` + canary + `"}`},
		{http.MethodGet, order + "?run=" + canary, ""},
		{http.MethodGet, root + "/v1/executions?query=" + canary, ""},
		{http.MethodGet, root + "/v1/" + canary, ""},
		{http.MethodGet, root + "/" + canary + "?token=" + canary, ""},
		{http.MethodGet, root + "/api/orgs/" + canary + "/workers", ""},
		{http.MethodPost, order + "/terminate", `{"reason":"no longer wanted"}`},
	} {
		s.ask(r[0], r[1], canaryAdmin, r[2])
	}

	// Callers present wrong keys. The replies do not repeat the keys.
	for _, token := range []string{canary, "perdure_" + canary + "_" + canary, "eyJhbGciOiJub25lIn0." + canary + ".", canaryAdmin + "x"} {
		for _, path := range []string{"/v1/me", "/api/orgs/default/workers", "/v1/session"} {
			if body := s.ask(http.MethodGet, root+path, token, ""); strings.Contains(body, canary) {
				t.Errorf("%s repeats the key: %s", path, body)
			}
		}
		if _, err := remote.Dial(t.Context(), remote.Config{Addresses: []string{s.address}, PlainText: true, Token: token}); err == nil || strings.Contains(err.Error(), canary) {
			t.Errorf("gRPC with a wrong key: %v", err)
		}
	}

	admin := "http://" + s.logged("profiles are at /debug/pprof")
	shown := map[string]string{
		"the metrics": s.ask(http.MethodGet, root+"/metrics", "", ""), "the health": s.ask(http.MethodGet, root+"/v1/health", canaryAdmin, ""),
		"the audit log": s.ask(http.MethodGet, root+"/v1/audit", canaryAdmin, ""), "the stacks": s.ask(http.MethodGet, admin+"/debug/pprof/goroutine?debug=2", canaryAdmin, ""),
		"the settings": s.ask(http.MethodGet, root+"/v1/server", canaryAdmin, ""), "the health of Flovyn": s.ask(http.MethodGet, root+"/_/health", "", ""),
	}

	// When the database goes away, everything that uses it logs errors.
	if err := database.Stop(pgtest.Fast); err != nil {
		t.Fatal(err)
	}
	s.until("the store cannot be used")
	shown["the health without the database"] = s.ask(http.MethodGet, root+"/v1/health", canaryAdmin, "")
	shown["the readiness"] = s.ask(http.MethodGet, root+"/readyz", "", "")
	s.stop()
	<-s.code
	shown["the log"], shown["the exported metrics"], shown["the exported spans"] = s.log.String(), to.text("/v1/metrics"), to.text("/v1/traces")

	for what, text := range shown {
		if at := strings.Index(text, canary); at >= 0 {
			t.Errorf("%s: a secret is in …%.300s…", what, text[max(at-200, 0):])
		}
		if len(text) < 3 {
			t.Errorf("%s: %q, so nothing was looked at", what, text)
		}
	}
	for _, what := range []string{"the metrics", "the exported metrics", "the exported spans"} {
		if at := strings.Index(shown[what], marmot); at >= 0 {
			t.Errorf("%s: a key of an execution is in …%.300s…", what, shown[what][max(at-200, 0):])
		}
	}
	for line := range strings.Lines(shown["the log"]) {
		if strings.Contains(line, `"msg":"request"`) && strings.Contains(line, marmot) {
			t.Errorf("the log of requests has the key of an execution: %s", line)
		}
	}
	if !strings.Contains(shown["the log"], `"method":"signal-execution"`) || !strings.Contains(shown["the metrics"], `workflow="secret"`) || !strings.Contains(shown["the exported spans"], "secret") {
		t.Error("the server has not logged, counted and traced what happened")
	}
}
