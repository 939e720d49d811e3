//go:build unix

package cli

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	gojwt "github.com/golang-jwt/jwt/v5"

	"github.com/perdure/perdure/internal/authz/policy"
)

// process is a perdure serve in a process of its own, and the files that it reads.
type process struct {
	t       *testing.T
	dir     string
	cmd     *exec.Cmd
	log     *lines
	address string
	// rounds is how often the server was asked to read its files again.
	rounds int
	trust  *x509.CertPool
	client tls.Certificate
}

// reloadFiles writes the files that the server reads, and returns the arguments of the server.
func (p *process) reloadFiles() (args []string) {
	write := func(name, text string) string { return writeFile(p.t, p.dir, name, text) }
	p.certify()
	write("admin", serveKey)
	write("company.cedar", policy.DefaultText())
	p.signer("k1")
	config := write("perdure.toml", p.config("lease = '30s'"))
	return []string{"serve", "--config", config}
}

// config returns a configuration with further lines.
func (p *process) config(more string) string {
	file := func(name string) string { return filepath.Join(p.dir, name) }
	return fmt.Sprintf(`store = 'memory:'
listen = '127.0.0.1:0'
log_format = 'json'
admin_key_file = %q
policies = %q
tls_cert = %q
tls_key = %q
tls_client_ca = %q
jwt_keys = %q
jwt_issuer = 'https://id.example'
jwt_audience = 'perdure'
%s
`, file("admin"), file("company.cedar"), file("cert.pem"), file("key.pem"), file("clients.pem"), file("keys.json"), more)
}

// certify writes a new certificate of the server and a new authority for certificates of clients,
// and makes the requests of the test use them.
func (p *process) certify() {
	p.t.Helper()
	_, _, p.trust = certificate(p.t, p.dir)
	cert, key, _ := certificate(p.t, p.t.TempDir())
	authority, err := os.ReadFile(cert)
	if err != nil {
		p.t.Fatal(err)
	}
	writeFile(p.t, p.dir, "clients.pem", string(authority))
	if p.client, err = tls.LoadX509KeyPair(cert, key); err != nil {
		p.t.Fatal(err)
	}
}

// signer writes a key set with one new key, and returns a function that signs tokens of a reader.
func (p *process) signer(id string) (sign func() string) {
	p.t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		p.t.Fatal(err)
	}
	writeFile(p.t, p.dir, "keys.json", fmt.Sprintf(`{"keys":[{"kty":"OKP","crv":"Ed25519","kid":%q,"x":%q}]}`, id, base64.RawURLEncoding.EncodeToString(public)))
	return func() string {
		token := gojwt.NewWithClaims(gojwt.SigningMethodEdDSA, gojwt.MapClaims{
			"iss": "https://id.example", "aud": "perdure", "sub": "ann", "tenant": "default", "roles": []string{"reader"}, "iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix(),
		})
		token.Header["kid"] = id
		text, err := token.SignedString(private)
		if err != nil {
			p.t.Fatal(err)
		}
		return text
	}
}

// start starts the process and waits until it serves.
func (p *process) start() {
	p.t.Helper()
	p.log = &lines{news: make(chan struct{}, 1)}
	p.cmd = exec.CommandContext(p.t.Context(), "perdure", p.reloadFiles()...)
	p.cmd.Stderr, p.cmd.Dir = p.log, p.dir
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.until("the server serves", func() bool {
		p.address = p.line("serving").Address
		return p.address != ""
	})
}

// logged is a line of the log.
type logged struct {
	Msg, Address string
	Problems     int
}

// line returns the last line of the log with a message. It returns the zero value if there is none.
func (p *process) line(msg string) (last logged) {
	for text := range strings.Lines(p.log.String()) {
		var l logged
		if json.Unmarshal([]byte(text), &l) == nil && l.Msg == msg {
			last = l
		}
	}
	return last
}

// until waits until a condition holds.
func (p *process) until(what string, fact func() bool) {
	p.t.Helper()
	for end := time.Now().Add(2 * time.Minute); !fact(); {
		if time.Now().After(end) {
			p.t.Fatalf("it does not become true that %s:\n%s", what, p.log)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// hangUp sends SIGHUP, and waits until the process has read its files.
func (p *process) hangUp() {
	p.t.Helper()
	p.rounds++
	if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		p.t.Fatal(err)
	}
	p.until("the files were read", func() bool { return strings.Count(p.log.String(), "the settings were read again") >= p.rounds })
}

// request makes a request on a new connection. It returns status 0 if it cannot connect.
func (p *process) request(method, path, token, body string) (status int, text string) {
	p.t.Helper()
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: p.trust, MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{p.client}}}
	defer transport.CloseIdleConnections()
	r, err := http.NewRequestWithContext(p.t.Context(), method, "https://"+p.address+path, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "application/json")
	res, err := (&http.Client{Transport: transport}).Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer res.Body.Close()
	all, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, err.Error()
	}
	return res.StatusCode, string(all)
}

// want fails the test if a read with a token does not have the given status.
func (p *process) want(status int, what, token string) {
	p.t.Helper()
	if got, text := p.request(http.MethodGet, "/v1/me", token, ""); got != status {
		p.t.Errorf("%s: %d, want %d: %s", what, got, status, text)
	}
}

// starts reports whether a caller may start an execution.
func (p *process) starts(token, key string) bool {
	p.t.Helper()
	status, text := p.request(http.MethodPost, "/v1/executions", token, `{"workflow":"order","key":"`+key+`"}`)
	if status != http.StatusCreated && status != http.StatusOK && status != http.StatusForbidden {
		p.t.Errorf("a start: %d %s", status, text)
	}
	return status != http.StatusForbidden
}

// warnings returns what the health of the server warns about.
func (p *process) warnings(token string) []string {
	p.t.Helper()
	status, text := p.request(http.MethodGet, "/v1/health", token, "")
	var health struct{ Warnings []string }
	if err := json.Unmarshal([]byte(text), &health); err != nil || status != http.StatusOK {
		p.t.Fatalf("the health: %d %s, %v", status, text, err)
	}
	return health.Warnings
}

// end stops the process and checks that it ends without an error.
func (p *process) end() {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.t.Fatal(err)
	}
	if err := p.cmd.Wait(); err != nil {
		p.t.Errorf("the server ends with %v:\n%s", err, p.log)
	}
}

const everythingAllowed = "permit (principal, action, resource);"

// When a server process gets SIGHUP, it uses its changed files: the certificates, the admin key,
// the keys of tokens, the policies, the level of its log and which requests it logs. It also reads
// certificates and policies without a signal. Files that cannot be used change nothing, and the
// health of the server names them.
func TestReloadOfAProcess(t *testing.T) {
	t.Parallel()
	const nextKey = "fedcba9876543210fedcba9876543210"
	p := &process{t: t, dir: t.TempDir()}
	p.start()
	first := p.signer("k1") // the server has another key with this name
	p.want(http.StatusUnauthorized, "a token of another key", first())
	p.hangUp()
	p.until("the server has the new key set", func() bool {
		status, _ := p.request(http.MethodGet, "/v1/me", first(), "")
		return status == http.StatusOK
	})
	if p.starts(first(), "1") || len(p.warnings(serveKey)) != 0 {
		t.Errorf("a reader may start, or there are warnings: %v", p.warnings(serveKey))
	}
	if !p.starts(serveKey, "open") {
		t.Error("an admin may not start")
	}
	waiting, old := make(chan int, 1), *p
	go func() {
		status, _ := old.request(http.MethodGet, "/v1/executions/order/open/result?wait=2m", serveKey, "")
		waiting <- status
	}()
	p.until("the call waits", func() bool {
		_, metrics := p.request(http.MethodGet, "/metrics", serveKey, "")
		return strings.Contains(metrics, `perdure_door_requests_open{door="rest",method="await-execution"} 1`)
	})

	// Change all files.
	p.certify()
	writeFile(t, p.dir, "admin", nextKey+"\n")
	writeFile(t, p.dir, "company.cedar", everythingAllowed)
	writeFile(t, p.dir, "perdure.toml", p.config("lease = '20s'\nverbose = true"))
	second := p.signer("k2")
	p.hangUp()
	p.until("the server has the second key set", func() bool {
		status, _ := p.request(http.MethodGet, "/v1/me", second(), "")
		return status == http.StatusOK
	})
	check := func(what string) {
		t.Helper()
		p.want(http.StatusOK, what+": the new admin key", nextKey)
		p.want(http.StatusUnauthorized, what+": the old admin key", serveKey)
		p.want(http.StatusOK, what+": a token of the new key", second())
		p.want(http.StatusUnauthorized, what+": a token of the old key", first())
		if !p.starts(second(), what) {
			t.Errorf("%s: the new policies do not decide", what)
		}
		old.want(0, what+": a client that knows the old certificates", nextKey)
		half := *p
		half.client = old.client
		half.want(0, what+": a client with a certificate of the old authority", nextKey)
	}
	check("changed")
	if status := <-waiting; status != http.StatusUnauthorized {
		t.Errorf("a call with the old admin key that waits ends with %d", status)
	}
	if all := p.warnings(nextKey); len(all) != 1 || !strings.Contains(all[0], "need a restart: lease") {
		t.Errorf("the warnings are %v", all)
	}
	p.until("details are logged", func() bool { return strings.Contains(p.log.String(), `"level":"DEBUG","msg":"request"`) })

	// Write files that cannot be used.
	for _, file := range []string{"cert.pem", "company.cedar", "keys.json", "perdure.toml", "admin"} {
		writeFile(t, p.dir, file, "not = [right")
	}
	p.hangUp()
	p.until("the health has all problems", func() bool { return len(p.warnings(nextKey)) == 5 })
	check("broken")
	for _, part := range []string{"certificate", "policies", "keys for tokens", "configuration", "admin key"} {
		if all := strings.Join(p.warnings(nextKey), "\n"); !strings.Contains(all, part) || strings.Contains(all, nextKey) {
			t.Errorf("no warning about the %s:\n%s", part, all)
		}
	}

	// The server reads the certificates and the policies without a signal.
	p.certify()
	writeFile(t, p.dir, "company.cedar", policy.DefaultText())
	p.until("the server reads its certificate by itself", func() bool {
		status, _ := p.request(http.MethodGet, "/v1/me", nextKey, "")
		return status == http.StatusOK
	})
	p.until("the server reads its policies by itself", func() bool { return !p.starts(second(), "again") })

	// Repair all files.
	writeFile(t, p.dir, "admin", nextKey)
	writeFile(t, p.dir, "perdure.toml", p.config("lease = '30s'\naccess_log = 1"))
	third := p.signer("k3")
	p.hangUp()
	p.until("no problem is left", func() bool { return len(p.warnings(nextKey)) == 0 })
	p.want(http.StatusOK, "a token of the last key", third())
	p.until("requests are logged", func() bool { return strings.Contains(p.log.String(), `"level":"INFO","msg":"request"`) })
	p.end()
	for _, secret := range []string{serveKey, nextKey} {
		if strings.Contains(p.log.String(), secret) {
			t.Error("the log has an admin key")
		}
	}
}
