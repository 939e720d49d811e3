package cli

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/pgtest"
)

// Each fact about a server and its store has its finding.
func TestServerFindings(t *testing.T) {
	t.Parallel()
	now := time.Now()
	health := func(change func(*api.StoreHealth)) []finding {
		h := api.Health{Ready: true, Store: &api.StoreHealth{Now: model.TimeOf(now), Schema: 16, Shards: 64, Role: "app"}}
		change(h.Store)
		return storeFindings(&h, now, now)
	}
	agents := func(names ...string) (all []api.WorkerSession) {
		for _, name := range names {
			all = append(all, api.WorkerSession{Agent: name})
		}
		return all
	}

	for _, c := range []struct {
		found []finding
		want  finding
	}{
		{health(func(*api.StoreHealth) {}), finding{"schema", "ok", "version 16, 64 shards"}},
		{health(func(*api.StoreHealth) {}), finding{"clock", "ok", "agree"}},
		{health(func(s *api.StoreHealth) { s.Now = model.TimeOf(now.Add(time.Minute)) }), finding{"clock", "warning", "differ by 1m0s"}},
		{health(func(s *api.StoreHealth) { s.Now = model.TimeOf(now.Add(-time.Minute)) }), finding{"clock", "warning", "differ by -1m0s"}},
		{health(func(*api.StoreHealth) {}), finding{"role", "ok", "role app"}},
		{health(func(s *api.StoreHealth) { s.Superuser = true }), finding{"role", "warning", "role app is a superuser"}},
		{health(func(s *api.StoreHealth) { s.Standby = true }), finding{"role", "problem", "is a standby"}},
		{health(func(*api.StoreHealth) {}), finding{"pooler", "ok", "none between"}},
		{health(func(s *api.StoreHealth) { s.Pooler = "session" }), finding{"pooler", "ok", "session mode"}},
		{health(func(s *api.StoreHealth) { s.Pooler = "transaction" }), finding{"pooler", "ok", "not prepared"}},
		{storeFindings(&api.Health{StoreError: "gone"}, now, now), finding{"store", "problem", "cannot read its store: gone"}},
		{storeFindings(&api.Health{}, now, now), finding{"store", "warning", "too old"}},
		{[]finding{healthFinding(&api.Health{Reasons: []string{"no lease", "stops"}})}, finding{"server", "problem", "not ready: no lease; stops"}},
		{[]finding{sessionFinding(agents("a", "b", "a", ""))}, finding{"workers", "ok", "4 connected: 2 of a, 1 of b, 1 of unknown"}},
		{[]finding{versionFinding([]api.WorkerInfo{{Version: "v1", Alike: 2}, {Version: "v1"}})}, finding{"code", "ok", "version v1 (4)"}},
		{[]finding{versionFinding([]api.WorkerInfo{{Version: "v1"}, {Version: "v2"}})}, finding{"code", "warning", "different versions: v1 (1), v2 (1)"}},
		{[]finding{nodeFinding([]api.NodeInfo{{Live: true, Shards: 64}, {}})}, finding{"nodes", "warning", "1 with an expired lease"}},
	} {
		if !slices.ContainsFunc(c.found, func(f finding) bool {
			return f.Check == c.want.Check && f.State == c.want.State && strings.Contains(f.Detail, c.want.Detail)
		}) {
			t.Errorf("%+v has no %+v", c.found, c.want)
		}
	}
}

// examine runs perdure doctor on a server and returns its findings by check, and its exit code.
func examine(t *testing.T, profiles string, args ...string) (found map[string]string, code int) {
	t.Helper()
	var out, complaints bytes.Buffer
	code = Main(t.Context(), append([]string{"doctor", "--profile", "one"}, args...), Streams{In: strings.NewReader(""), Out: &out, Err: &complaints})
	found = map[string]string{}
	for line := range strings.Lines(out.String()) {
		if words := strings.Fields(line); len(words) > 2 {
			found[words[1]] = strings.Join(words, " ")
		}
	}
	if len(found) == 0 {
		t.Fatalf("doctor with %s: exit %d: %s%s", profiles, code, &out, &complaints)
	}
	return found, code
}

// doctor checks, through a server, its database, its workers and the calls without code.
func TestDoctorOfAServer(t *testing.T) { //nolint:paralleltest // it sets the environment
	dir := t.TempDir()
	database := pgtest.Start(t, pgtest.Options{Fsync: true})
	config := writeFile(t, dir, "perdure.toml", "store = '"+database.NewDatabase(t)+"'\nlisten = '127.0.0.1:0'\n")
	key := writeFile(t, dir, "key", serveKey)
	s := startServe(t, "--config", config, "--admin-key-file", key)
	profiles := writeFile(t, dir, "profiles.toml", "[profile.one]\nserver = 'grpc://"+s.address+"'\nkey_file = '"+key+"'\n")
	t.Setenv(profilesVariable, profiles)
	for _, name := range []string{"PERDURE_STORE", serverVariable, tokenVariable, profileVariable} {
		t.Setenv(name, "")
	}

	found, code := examine(t, profiles)
	for check, want := range map[string]string{
		"server": "ok server ready", "schema": "ok schema version", "clock": "ok clock the clocks of the store and of this machine agree", "role": "is a superuser",
		"pooler": "ok pooler none", "workers": "ok workers 0 connected", "calls": "ok calls", "code": "ok code no process runs code", "tasks": "ok tasks",
	} {
		if !strings.Contains(found[check], want) {
			t.Errorf("%s: %q, want %q", check, found[check], want)
		}
	}
	if code != 0 {
		t.Errorf("a server with warnings only: exit %d: %v", code, found)
	}

	// Two builds of a program are connected, and a call waits for an entity that neither has.
	greet := perdure.NewWorkflow("greet", func(_ perdure.WorkflowCtx, in string) (string, error) { return in, nil })
	for _, version := range []string{"v1", "v2"} {
		app, err := perdure.Dialer{Token: serveKey, Version: version}.Dial(t.Context(), "grpc://"+s.address, greet)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = app.Close() })
	}
	var out bytes.Buffer
	if code := Main(t.Context(), []string{"entity", "send", "account/1", "deposit", "--profile", "one"}, Streams{In: strings.NewReader(""), Out: &out, Err: &out}); code != 0 {
		t.Fatalf("entity send: exit %d: %s", code, &out)
	}
	found, code = examine(t, profiles)
	for check, want := range map[string]string{
		"workers": "ok workers 2 connected", "code": "warning code workers have different versions: v1 (1), v2 (1)", "calls": "problem calls calls wait for entities that no live process can run: 1 of account",
	} {
		if !strings.Contains(found[check], want) {
			t.Errorf("%s: %q, want %q", check, found[check], want)
		}
	}
	if code != 9 {
		t.Errorf("a call without code: exit %d: %v", code, found)
	}
	if code := Main(t.Context(), []string{"whoami", "--profile", "one", "-o", "json"}, Streams{In: strings.NewReader(""), Out: &out, Err: &out}); code != 0 || !strings.Contains(out.String(), `"tenant": "default"`) || strings.Contains(out.String(), serveKey) {
		t.Errorf("whoami: exit %d: %s", code, &out)
	}

	// The command refuses a key file that other users can read, even if its mode changed after the
	// profile was created.
	withMode(t, key, 0o640)
	out.Reset()
	if code := Main(t.Context(), []string{"workflow", "list", "--profile", "one"}, Streams{In: strings.NewReader(""), Out: &out, Err: &out}); code != 2 || !strings.Contains(out.String(), "has mode 0640, and other users must not read or change the key") {
		t.Errorf("a key that a group can read: exit %d: %s", code, &out)
	}
	s.stop()
	<-s.code
}
