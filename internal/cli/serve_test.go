package cli

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/remote"
)

const serveKey = "0123456789abcdef0123456789abcdef"

// lines collects the log of a server, and signals each line.
type lines struct {
	mu   sync.Mutex
	all  bytes.Buffer
	news chan struct{}
}

// Write adds to the log.
func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case l.news <- struct{}{}:
	default:
	}
	return l.all.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}

// served is a running perdure serve.
type served struct {
	t       *testing.T
	log     *lines
	address string
	stop    context.CancelFunc
	code    chan int
}

// startServe runs perdure serve with a JSON log until the test stops it.
func startServe(t *testing.T, args ...string) *served {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), 5*time.Minute)
	s := &served{t: t, log: &lines{news: make(chan struct{}, 1)}, stop: stop, code: make(chan int, 1)}
	go func() {
		s.code <- Main(ctx, append([]string{"serve", "--log-format", "json"}, args...), Streams{In: strings.NewReader(""), Out: io.Discard, Err: s.log})
	}()
	t.Cleanup(stop)

	for s.address == "" {
		select {
		case <-s.log.news:
		case code := <-s.code:
			t.Fatalf("perdure serve ended with exit code %d:\n%s", code, s.log)
		}
		for line := range strings.Lines(s.log.String()) {
			var entry struct{ Msg, Address string }
			if json.Unmarshal([]byte(line), &entry) == nil && entry.Msg == "serving" {
				s.address = entry.Address
			}
		}
	}
	return s
}

// end stops the server and checks that it ends without an error.
func (s *served) end() {
	s.t.Helper()
	s.stop()
	if code := <-s.code; code != 0 {
		s.t.Errorf("perdure serve ended with exit code %d:\n%s", code, s.log)
	}
	if strings.Contains(s.log.String(), serveKey) {
		s.t.Error("the log has the admin key")
	}
}

// certificate writes a certificate for 127.0.0.1 and its key, and returns the pool that trusts it.
func certificate(t *testing.T, dir string) (cert, key string, trust *x509.CertPool) {
	t.Helper()
	return certificateUntil(t, dir, time.Now().Add(time.Hour))
}

// certificateUntil is like certificate, for a certificate that expires at the given time.
func certificateUntil(t *testing.T, dir string, end time.Time) (cert, key string, trust *x509.CertPool) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: end,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}

	trust = x509.NewCertPool()
	public := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	trust.AppendCertsFromPEM(public)
	return writeFile(t, dir, "cert.pem", string(public)), writeFile(t, dir, "key.pem", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}))), trust
}

func writeFile(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// openFile writes a file that all users may read and write.
func openFile(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := writeFile(t, dir, name, text)
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

// readOnlyFile creates an empty file without permission to write.
func readOnlyFile(t *testing.T, dir, name string) string {
	t.Helper()
	path := writeFile(t, dir, name, "")
	if err := os.Chmod(path, 0o400); err != nil {
		t.Fatal(err)
	}
	return path
}

// collector is an OpenTelemetry collector that keeps what it receives.
type collector struct {
	mu  sync.Mutex
	got map[string]string // by path
}

// ServeHTTP keeps what the server exports.
func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.got[r.URL.Path] += string(body)
	w.Header().Set("Content-Type", "application/x-protobuf")
}

// text returns what the collector has received at a path.
func (c *collector) text(path string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.got[path]
}

// A server runs with TLS, a key from a file, metrics by tenant and an export to a collector. It
// shuts down in order.
func TestServe(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert, key, trust := certificate(t, dir)
	to := &collector{got: map[string]string{}}
	otlp := httptest.NewServer(to)
	defer otlp.Close()
	config := writeFile(t, dir, "perdure.toml", "listen = '127.0.0.1:0'\nlease = '20s'\nmetrics_by_tenant = true\nverbose = false\n")
	s := startServe(t, "--config", config, "--store", "memory:", "--admin-key-file", writeFile(t, dir, "key", serveKey+"\n"), "--tls-cert", cert, "--tls-key", key,
		"--otlp-endpoint", otlp.URL, "--worker-grace", "1s", "--drain-timeout", "5s")

	secure := &tls.Config{RootCAs: trust, MinVersion: tls.VersionTLS12}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: secure}}
	defer client.CloseIdleConnections()
	read := func(path string) string {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+s.address+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		res, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(body)
	}
	b, err := remote.Dial(t.Context(), remote.Config{Addresses: []string{s.address}, TLS: secure, Token: serveKey, Tenant: "acme"})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if _, err := b.Start(t.Context(), api.StartRequest{Address: model.Address{Tenant: "acme", Type: "order", Key: "1"}}); err != nil {
		t.Fatal(err)
	}

	for path, want := range map[string]string{
		"/livez": "ok", "/readyz": "ok", "/metrics": `perdure_workflow_runs_started_total{tenant="acme",workflow="order"} 1`,
	} {
		if got := read(path); !strings.Contains(got, want) {
			t.Errorf("%s has no %s:\n%s", path, want, got)
		}
	}

	s.end()
	for path, wants := range map[string][]string{
		"/v1/metrics": {"perdure_workflow_runs_started_total", "acme", "perdure_commit_seconds", "service.name"}, "/v1/traces": {"order"},
	} {
		for _, want := range wants {
			if !strings.Contains(to.got[path], want) {
				t.Errorf("the collector got no %s at %s (%d bytes)", want, path, len(to.got[path]))
			}
		}
	}
}

// If a value is invalid, the server prints a sentence about it and ends, before it changes
// anything. If a flag cannot be parsed, the exit code is 2. If an address is taken or the database
// does not answer, it is 5. In all other cases it is the exit code of a refusal. The test tries
// every flag of the command.
func TestServeRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	key := writeFile(t, dir, "key", serveKey)
	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()

	open := writeFile(t, dir, "open", serveKey)
	if err := os.Chmod(open, 0o644); err != nil {
		t.Fatal(err)
	}
	jwks := writeFile(t, dir, "keys.json", `{"keys":[]}`)
	certFile, certKey, _ := certificate(t, t.TempDir())
	oldFile, oldKey, _ := certificateUntil(t, t.TempDir(), time.Now().Add(-time.Minute))

	// Any text may be the name of a claim.
	tried := map[string]bool{"store": true, "jwt-tenant-claim": true, "jwt-tenants-claim": true, "jwt-roles-claim": true}
	for _, c := range []struct {
		want string
		code int
		args []string
	}{
		{`--listen is "nonsense", must be host:port`, exitRefused, []string{"--listen", "nonsense"}},
		{`--listen is "127.0.0.1:99999", must be host:port`, exitRefused, []string{"--listen", "127.0.0.1:99999"}},
		{":7800 can be reached from other machines, and there is no certificate", exitRefused, []string{"--listen", ":7800"}},
		{`--log-format is "xml", must be text or json`, exitRefused, []string{"--log-format", "xml"}},
		{"must be > 0", 2, []string{"--worker-grace", "-1s"}},
		{"must be a duration such as 90m", 2, []string{"--worker-grace", "soon"}},
		{"must be > 0", 2, []string{"--drain-timeout", "0s"}},
		{"must be > 0", 2, []string{"--store-wait", "0s"}},
		{"must be > 0", 2, []string{"--lease", "-1s"}},
		{"the lease is 1000h0m0s, must be at most", exitRefused, []string{"--lease", "1000h"}},
		{"must be a duration such as 90m", 2, []string{"--retain-audit", "soon"}},
		{"must be", exitRefused, []string{"--weight", "-1"}},
		{"must be", exitRefused, []string{"--weight", "10001"}},
		{`"GPU" is not the name of a shard group`, exitRefused, []string{"--groups", "default,GPU"}},
		{`names the shard group "gpu" twice`, exitRefused, []string{"--groups", "gpu,default,gpu"}},
		{"read the certificate", exitRefused, []string{"--tls-cert", "none.pem", "--tls-key", "none.key"}},
		{"--tls-cert and --tls-key belong together", exitRefused, []string{"--tls-cert", "none.pem"}},
		{"--tls-cert and --tls-key belong together", exitRefused, []string{"--tls-key", "none.key"}},
		{"read the admin key", exitRefused, []string{"--admin-key-file", filepath.Join(dir, "none")}},
		{"the admin key has 5 bytes, must be >= 16", exitRefused, []string{"--admin-key-file", writeFile(t, dir, "short", "short")}},
		{"has 1 different bytes, must have >= 8", exitRefused, []string{"--admin-key-file", writeFile(t, dir, "equal", strings.Repeat("a", 64))}},
		{`has the word "changeme", as examples have`, exitRefused, []string{"--admin-key-file", writeFile(t, dir, "copied", "change-me-0123456789")}},
		{"schema \"pg_app\" belongs to PostgreSQL", exitRefused, []string{"--store", "postgres://127.0.0.1:1/app?schema=pg_app"}},
		{"all users of this machine can write", exitRefused, []string{"--store", "file:" + openFile(t, dir, "open.db", "")}},
		{"make the file and its directory writable", exitRefused, []string{"--store", "file:" + readOnlyFile(t, dir, "fixed.db")}},
		{"the server has no admin key", exitRefused, []string{"--admin-key-file", writeFile(t, dir, "empty", "\n")}},
		{"read the policies", exitRefused, []string{"--policies", filepath.Join(dir, "none.cedar")}},
		{"has no policy", exitRefused, []string{"--policies", writeFile(t, dir, "a.cedar", "")}},
		{"b.cedar:1: policy policy1", exitRefused, []string{"--policies", writeFile(t, dir, "b.cedar", `permit (principal, action == Action::"execution:fly", resource);`)}},
		{"all users of this machine can read the admin key", exitRefused, []string{"--admin-key-file", open}},
		{"all users of this machine can read the private key", exitRefused, []string{"--tls-cert", certFile, "--tls-key", open}},
		{"has expired at", exitRefused, []string{"--tls-cert", oldFile, "--tls-key", oldKey}},
		{"--tls-client-ca needs", exitRefused, []string{"--tls-client-ca", certFile}},
		{"read the certificates of clients", exitRefused, []string{"--tls-cert", certFile, "--tls-key", certKey, "--tls-client-ca", filepath.Join(dir, "none")}},
		{"has no certificate", exitRefused, []string{"--tls-cert", certFile, "--tls-key", certKey, "--tls-client-ca", key}},
		{"tokens need an audience", exitRefused, []string{"--jwt-issuer", "https://id.example"}},
		{"need --jwt-issuer", exitRefused, []string{"--jwt-admin-role", "boss"}},
		{"--jwt-issuer: the URL of an issuer must use https", exitRefused, []string{"--jwt-issuer", "http://id.example", "--jwt-audience", "a"}},
		{"--jwt-issuer: read the key set: read the configuration of the issuer", exitRefused, []string{"--jwt-issuer", "https://127.0.0.1:1", "--jwt-audience", "a"}},
		{"tokens need an audience", exitRefused, []string{"--jwt-keys", jwks, "--jwt-issuer", "https://id.example"}},
		{"tokens need an issuer", exitRefused, []string{"--jwt-keys", jwks, "--jwt-audience", "perdure"}},
		{"must use https", exitRefused, []string{"--jwt-keys", "http://id.example/keys", "--jwt-issuer", "i", "--jwt-audience", "a"}},
		{"read the key set", exitRefused, []string{"--jwt-keys", "https://127.0.0.1:1/keys", "--jwt-issuer", "i", "--jwt-audience", "a"}},
		{"read the key set", exitRefused, []string{"--jwt-keys", filepath.Join(dir, "none"), "--jwt-issuer", "i", "--jwt-audience", "a"}},
		{"no key with an id (kid) for signatures", exitRefused, []string{"--jwt-keys", jwks, "--jwt-issuer", "i", "--jwt-audience", "a"}},
		{"is not an algorithm for tokens", exitRefused, []string{"--jwt-keys", jwks, "--jwt-issuer", "i", "--jwt-audience", "a", "--jwt-algorithms", "none"}},
		{"is not an algorithm for tokens", exitRefused, []string{"--jwt-keys", jwks, "--jwt-issuer", "i", "--jwt-audience", "a", "--jwt-algorithms", "HS256"}},
		{"invalid argument", 2, []string{"--allow-plaintext=perhaps"}},
		{"invalid argument", 2, []string{"--no-migrate=perhaps"}},
		{"invalid argument", 2, []string{"--production=perhaps"}},
		{"--store has a password", exitRefused, []string{"--production", "--store", "postgres://app:canary@127.0.0.1:1/app"}},
		{"--store has a password", exitRefused, []string{"--production", "--store", "postgres://127.0.0.1:1/app?password=canary"}},
		{"the URL of NATS cannot be read", exitRefused, []string{"--nats", "redis://localhost"}},
		{"the URL of NATS cannot be read", exitRefused, []string{"--nats", "nats://a:4222,%zz"}},
		{"read the credentials for NATS", exitRefused, []string{"--nats", "nats://127.0.0.1:1", "--nats-credentials", filepath.Join(dir, "none")}},
		{"--nats-credentials needs --nats", exitRefused, []string{"--nats-credentials", key}},
		{"the prefix of NATS subjects is \"a.*\"", exitRefused, []string{"--nats", "nats://127.0.0.1:1", "--nats-prefix", "a.*"}},
		{"--nats has a password", exitRefused, []string{"--production", "--nats", "nats://u:canary@127.0.0.1:1"}},
		{"--access-log is -1, must be >= 0", exitRefused, []string{"--access-log", "-1"}},
		{`--admin-listen is "nonsense", must be host:port`, exitRefused, []string{"--admin-listen", "nonsense"}},
		{"--admin-listen :7801 can be reached from other machines", exitRefused, []string{"--admin-listen", ":7801"}},
		{"invalid argument", 2, []string{"--no-peer-link=perhaps"}},
		{`the address for other nodes is "nonsense", must be host:port or :port`, exitRefused, []string{"--peer-listen", "nonsense"}},
		{`the address for other nodes is ":99999", must be host:port or :port`, exitRefused, []string{"--peer-listen", ":99999"}},
		{`the address that other nodes connect to is ":4000", must be host:port`, exitRefused, []string{"--peer-advertise", ":4000"}},
		{`the address that other nodes connect to is "0.0.0.0:4000", must be host:port`, exitRefused, []string{"--peer-advertise", "0.0.0.0:4000"}},
		{`the address that other nodes connect to is "shop-1:0", must be host:port`, exitRefused, []string{"--peer-advertise", "shop-1:0"}},
		{"invalid argument", 2, []string{"--use-proxy=perhaps"}},
		{"--max-connections is -1, must be >= 0", exitRefused, []string{"--max-connections", "-1"}},
		{"--call-rate is -1, must be >= 0", exitRefused, []string{"--call-rate", "-1"}},
		{"invalid argument", 2, []string{"--metrics-by-tenant=perhaps"}},
		{"invalid argument", 2, []string{"--flovyn-contract=perhaps"}},
		{`"collector:4318" is not the URL of a collector`, exitRefused, []string{"--otlp-endpoint", "collector:4318"}},
		{"read the configuration", exitRefused, []string{"--config", filepath.Join(dir, "none.toml")}},
		{`unknown key "listn" (did you mean listen?`, exitRefused, []string{"--config", writeFile(t, dir, "a.toml", "listn = 'x'")}},
		{"the admin key does not belong in the configuration", exitRefused, []string{"--config", writeFile(t, dir, "b.toml", "admin_key = 'x'")}},
		{"lease is \"soon\": must be a duration", exitRefused, []string{"--config", writeFile(t, dir, "c.toml", "lease = 'soon'")}},
		{"c2.toml:1:", exitRefused, []string{"--config", writeFile(t, dir, "c2.toml", "lease = ")}},
		{"must be a text, a number or a truth value", exitRefused, []string{"--config", writeFile(t, dir, "d.toml", "[listen]\na = 1")}},
		{"serve needs that of a store", exitRefused, []string{"--store", "grpc://localhost:7800"}},
		{"is not known", exitRefused, []string{"--store", "mysql://x"}},
		{"does not work with the argument \"now\"", 2, []string{"now"}},
		{"address already in use", 5, []string{"--listen", taken.Addr().String()}},
		{"connection refused", 5, []string{"--store", "postgres://127.0.0.1:1/none?connect_timeout=1", "--store-wait", "1s"}},
	} {
		args := append([]string{"serve", "--store", "memory:", "--listen", "127.0.0.1:0", "--admin-key-file", key}, c.args...)
		for _, a := range c.args {
			if name, ok := strings.CutPrefix(a, "--"); ok {
				name, _, _ = strings.Cut(name, "=")
				tried[name] = true
			}
		}
		var complaints bytes.Buffer
		// Use no deadline, because serve would try to connect until the deadline.
		ctx, cancel := context.WithCancel(t.Context())
		late := time.AfterFunc(time.Minute, cancel)
		code := Main(ctx, args, Streams{In: strings.NewReader(""), Out: io.Discard, Err: &complaints})
		late.Stop()
		cancel()
		if strings.Contains(complaints.String(), "canary") {
			t.Errorf("perdure serve %s: the complaint has the password", strings.Join(c.args, " "))
		}
		if text := strings.Join(strings.Fields(complaints.String()), " "); code != c.code || !strings.Contains(text, c.want) {
			t.Errorf("perdure serve %s: exit %d, want %d and %q:\n%s", strings.Join(c.args, " "), code, c.code, c.want, complaints.String())
		}
	}

	newServe(&options{}).Flags().VisitAll(func(f *pflag.Flag) {
		if !tried[f.Name] && f.Name != "help" {
			t.Errorf("no test gives serve a bad --%s", f.Name)
		}
	})
}

// A flag wins over the environment, and the environment over the file. The admin key and the token
// come from the environment, and doctor looks at all tenants of a server.
func TestServeEnvironment(t *testing.T) { //nolint:paralleltest // it sets the environment
	dir := t.TempDir()
	t.Setenv(configVariable, writeFile(t, dir, "perdure.toml", "log_format = 'xml'\nlisten = 'nonsense'\nstore = 'memory:'\n"))
	t.Setenv("PERDURE_LISTEN", "127.0.0.1:0")
	t.Setenv("PERDURE_LEASE", "30s")
	t.Setenv("PERDURE_STORE", "")
	t.Setenv(adminKeyVariable, serveKey)
	t.Setenv(tokenVariable, serveKey)
	s := startServe(t)
	url := "grpc://" + s.address
	run := func(want string, code int, args ...string) {
		t.Helper()
		var out bytes.Buffer
		got := Main(t.Context(), append(args, "--store", url), Streams{In: strings.NewReader(""), Out: &out, Err: &out})
		if text := strings.Join(strings.Fields(out.String()), " "); got != code || !strings.Contains(text, want) {
			t.Errorf("perdure %s: exit %d, want %d and %q:\n%s", strings.Join(args, " "), got, code, want, out.String())
		}
	}

	run("Open executions 7", 0, "tenant", "create", "acme", "--open", "7")
	run("order/1 started", 0, "workflow", "start", "order", "--key", "1", "--tenant", "acme")
	run("executions of acme", 9, "doctor")
	run("ok server ready", 9, "doctor")
	run("executions of default 0 open, none blocked", 9, "doctor")
	run("of tenant acme", 0, "key", "create", "--tenant", "acme")
	run("acme enabled 7", 0, "tenant", "list")
	run(s.address, 0, "node", "list", "--wide")
	run("[]", 0, "worker", "sessions", "--all", "-o", "json")
	var made bytes.Buffer
	if code := Main(t.Context(), []string{"key", "create", "--tenant", "acme", "-o", "json", "--store", url}, Streams{In: strings.NewReader(""), Out: &made, Err: io.Discard}); code != 0 {
		t.Fatalf("key create: exit %d", code)
	}
	var k struct{ ID, Key string }
	if err := json.Unmarshal(made.Bytes(), &k); err != nil {
		t.Fatal(err)
	}
	t.Setenv(tokenVariable, k.Key)
	run("the key belongs to tenant acme, and the command is for tenant default (give --tenant acme, or set $PERDURE_TENANT)", 7, "workflow", "list")
	run("order/1", 0, "workflow", "list", "--tenant", "acme")
	run("only a caller with an admin key may choose the tenant", 7, "workflow", "list", "--tenant", "default")
	run("tenant:read needs an admin key, and the caller has a key of tenant acme", 7, "tenant", "list")
	t.Setenv(tokenVariable, serveKey)
	run("must be between 0 and", 2, "key", "rotate", k.ID, "--overlap", "-1s")
	run("of tenant acme", 0, "key", "rotate", k.ID, "--overlap", "0")
	run("there is no key "+k.ID, 3, "key", "revoke", k.ID)
	t.Setenv(tokenVariable, "perdure_none_none")
	run("the key is not known", 7, "tenant", "list")
	s.end()

	t.Setenv("PERDURE_LEASE", "soon")
	var complaints bytes.Buffer
	code := Main(t.Context(), []string{"serve", "--log-format", "text"}, Streams{In: strings.NewReader(""), Out: io.Discard, Err: &complaints})
	if text := strings.Join(strings.Fields(complaints.String()), " "); code != exitRefused || !strings.Contains(text, `$PERDURE_LEASE is "soon": must be a duration`) {
		t.Errorf("a bad variable: exit %d: %s", code, text)
	}
}
