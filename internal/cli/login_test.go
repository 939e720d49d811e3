package cli

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/perdure/perdure/internal/fault"
)

// loginWorld is a server, and a directory with profiles.
type loginWorld struct {
	t   *testing.T
	s   *served
	dir string
}

func newLoginWorld(t *testing.T) *loginWorld {
	t.Helper()
	dir := t.TempDir()
	t.Setenv(profilesVariable, filepath.Join(dir, "perdure", "profiles.toml"))
	for _, name := range []string{"PERDURE_STORE", serverVariable, tokenVariable, tokenFileVariable, profileVariable, "PERDURE_TENANT"} {
		t.Setenv(name, "")
	}
	s := startServe(t, "--store", "memory:", "--listen", "127.0.0.1:0", "--admin-key-file", writeFile(t, dir, "admin", serveKey))
	return &loginWorld{t, s, dir}
}

// run runs a command with a text on its standard input, checks how it ends, and returns what it
// prints. No command prints the key.
func (w *loginWorld) run(in, want string, code int, args ...string) string {
	w.t.Helper()
	var out bytes.Buffer
	got := Main(w.t.Context(), args, Streams{In: strings.NewReader(in), Out: &out, Err: &out})
	if text := strings.Join(strings.Fields(out.String()), " "); got != code || !strings.Contains(text, want) {
		w.t.Errorf("perdure %s: exit %d, want %d and %q:\n%s", strings.Join(args, " "), got, code, want, &out)
	}
	if key := strings.TrimSpace(in); key != "" && strings.Contains(out.String(), key) {
		w.t.Errorf("perdure %s prints the key:\n%s", strings.Join(args, " "), &out)
	}
	return out.String()
}

// keyOf returns the stored key of a profile; empty if there is none.
func (w *loginWorld) keyOf(file string) string {
	w.t.Helper()
	path := filepath.Join(w.dir, "perdure", "keys", file)
	text, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return ""
	}
	if err != nil {
		w.t.Fatal(err)
	}
	for name, want := range map[string]os.FileMode{path: 0o600, filepath.Dir(path): 0o700} {
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != want {
			w.t.Errorf("%s: mode %v, %v; want %v", name, info.Mode().Perm(), err, want)
		}
	}
	return strings.TrimSpace(string(text))
}

// createKey creates a key on the server.
func (w *loginWorld) createKey(args ...string) string {
	w.t.Helper()
	var made struct{ Key string }
	text := w.run("", "", 0, append([]string{"key", "create", "-o", "json", "--profile", "prod"}, args...)...)
	if err := json.Unmarshal([]byte(text), &made); err != nil || made.Key == "" {
		w.t.Fatalf("key create: %v: %s", err, text)
	}
	return made.Key
}

// login stores a key only if the server accepts the key. logout removes the stored key.
func TestLogin(t *testing.T) { //nolint:paralleltest // it sets the environment
	w := newLoginWorld(t)
	defer w.s.end()
	url := "grpc://" + w.s.address

	w.run("", "login needs a profile, which names the server", 2, "login")
	w.run("", "there is no profile prod", 3, "login", "prod")
	w.run("", "", 0, "config", "set", "prod", "--server", url)
	w.run("", "", 0, "config", "set", "here", "--store", "file:app.db")
	w.run("x", "profile here has a store and no server", 2, "login", "here")
	w.run("", "the key is empty", 2, "login", "prod")
	w.run("two words\n", "the key has spaces", 2, "login", "prod")
	w.run(strings.Repeat("x", maxToken+1), "the key is longer than 16384 bytes", 2, "login", "prod")
	w.run("perdure_none_none\n", "the key is not stored: ", 7, "login", "prod")
	if key := w.keyOf("prod.key"); key != "" {
		t.Errorf("a key that the server refuses is stored: %s", key)
	}
	w.run("", "profile prod has no key", 3, "logout", "prod")

	// The current profile, with the key on standard input.
	w.run(serveKey+"\n", "logged in: profile prod, tenant default, admin with role admin", 0, "login")
	if w.keyOf("prod.key") != serveKey {
		t.Error("the key is not stored")
	}
	w.run("", "Roles admin May connect, read, use, operate, work, audit, administer", 0, "whoami")
	w.run("", "default enabled", 0, "tenant", "list")

	// A wrong key does not replace the right one.
	w.run("perdure_none_none\n", "the key is not stored: ", 7, "login", "prod")
	w.run("", "", 0, "tenant", "create", "acme")

	// A key of a tenant in a file, for a profile without a tenant.
	reader := w.createKey("--tenant", "acme", "--role", "reader", "--expires-in", "24h")
	w.run("", "", 0, "config", "set", "Prod", "--server", url)
	w.run("", "has mode 0666, and other users must not read or change the key", 2, "login", "Prod", "--token-file", openFile(t, w.dir, "open", reader))
	w.run("", "logged in: profile Prod, tenant acme, key ", 0, "login", "Prod", "--token-file", writeFile(t, w.dir, "closed", reader))
	if w.keyOf("prod.key") != serveKey || w.keyOf("prod.50726f64.key") != reader {
		t.Error("the keys of prod and Prod are not apart")
	}
	w.run("", "Tenant acme", 0, "whoami", "--profile", "Prod")
	w.run("", "Roles reader May connect, read Expires 20", 0, "whoami", "--profile", "Prod")
	w.sameOverREST(reader)

	// The variable wins over the stored key, and login says so.
	t.Setenv(tokenVariable, "perdure_none_none")
	w.run(serveKey, "$PERDURE_TOKEN is set, and commands use it instead of the stored key", 0, "login", "prod")
	w.run("", "", 7, "whoami", "--profile", "prod")
	t.Setenv(tokenVariable, "")

	w.run("", "logged out: profile prod", 0, "logout", "prod")
	if key := w.keyOf("prod.key"); key != "" {
		t.Error("logout leaves the key")
	}
	w.run("", "profile prod has no key", 3, "logout", "prod")
	w.run("", "", 7, "whoami", "--profile", "prod")
}

// sameOverREST checks that /v1/me says the same as whoami.
func (w *loginWorld) sameOverREST(key string) {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, "http://"+w.s.address+"/v1/me", http.NoBody)
	if err != nil {
		w.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+key)
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		w.t.Fatal(err)
	}

	type caller struct {
		Tenant         string
		Roles, Actions []string
		Expires        string
	}
	var rest, grpc caller
	text := w.run("", "", 0, "whoami", "--profile", "Prod", "-o", "json")
	if err := json.Unmarshal(body, &rest); err != nil {
		w.t.Fatalf("%v: %s", err, body)
	}
	if err := json.Unmarshal([]byte(text), &grpc); err != nil {
		w.t.Fatalf("%v: %s", err, text)
	}
	if len(rest.Actions) < 10 || !slices.Contains(rest.Actions, "execution:read") {
		w.t.Errorf("the reader may %q", rest.Actions)
	}
	if rest.Expires == "" || grpc.Expires == "" {
		w.t.Errorf("the key ends %q over REST, and %q over gRPC", rest.Expires, grpc.Expires)
	}
	rest.Expires, grpc.Expires = "", "" // the same time in two notations
	if diff := cmp.Diff(rest, grpc); diff != "" {
		w.t.Errorf("REST and gRPC differ: %s", diff)
	}
}

// The stored key is removed when its profile is removed, and when its profile gets another server
// or a store. Keys that login has not stored are left alone.
func TestLoginForgets(t *testing.T) { //nolint:paralleltest // it sets the environment
	w := newLoginWorld(t)
	defer w.s.end()
	url := "grpc://" + w.s.address
	enter := func() {
		t.Helper()
		w.run("", "", 0, "config", "set", "prod", "--server", url, "--tenant", "default")
		w.run(serveKey, "logged in", 0, "login", "prod")
	}
	gone := func(after string) {
		t.Helper()
		if w.keyOf("prod.key") != "" {
			t.Errorf("%s leaves the key", after)
		}
		all, err := readProfiles()
		if err != nil {
			t.Fatal(err)
		}
		if p := all.Named["prod"]; p.KeyFile != "" {
			t.Errorf("%s leaves the profile with key %s", after, p.KeyFile)
		}
	}

	enter()
	w.run("", "", 0, "config", "set", "prod", "--server", url)
	if w.keyOf("prod.key") == "" {
		t.Error("the same server again removes the key")
	}
	w.run("", "does not begin with grpc://", 2, "config", "set", "prod", "--server", "http://x")
	if w.keyOf("prod.key") == "" {
		t.Error("a change that is refused removes the key")
	}
	w.run("", "", 0, "config", "set", "prod", "--server", "grpc://localhost:1")
	gone("another server")
	enter()
	w.run("", "", 0, "config", "set", "prod", "--store", "file:app.db")
	gone("a store")
	enter()
	w.run("", "", 0, "config", "remove", "prod")
	gone("config remove")

	// The profile got another server while a person typed the key.
	enter()
	o := &options{Streams: Streams{Out: io.Discard, Err: io.Discard}, choice: &choice{secret: "other"}}
	if err := o.storeLogin("prod", "grpc://localhost:1", &whoami{}); !fault.Is(err, fault.Conflict) || w.keyOf("prod.key") != serveKey {
		t.Errorf("a changed profile: %v, and the key is %q", err, w.keyOf("prod.key"))
	}

	own := writeFile(t, w.dir, "own", serveKey)
	w.run("", "", 0, "config", "set", "prod", "--server", url, "--key-file", own)
	w.run("", "has its key in "+own+", which login has not stored", 2, "logout", "prod")
	w.run("", "", 0, "config", "remove", "prod")
	if _, err := os.Stat(own); err != nil {
		t.Error(err)
	}
}
