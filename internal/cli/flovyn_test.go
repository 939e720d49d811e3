package cli

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	gojwt "github.com/golang-jwt/jwt/v5"

	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/authn/jwt"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

const contractFile = `
database_url = "postgres://file/db"
server_port = 1
unknown = "ignored"
[[orgs]]
id = "0f7c1c1e-5b5a-4c3e-9a35-2f6a52f7a111"
name = "Test"
slug = "acme"
tier = "FREE"
[nats]
enabled = true
[auth]
enabled = true
[auth.static_api_key]
keys = [ { key = "flovyn_wk_test_0123456789abcdef", org_id = "0f7c1c1e-5b5a-4c3e-9a35-2f6a52f7a111", principal_type = "Worker", principal_id = "worker:test" } ]
[auth.endpoints.grpc]
authorizer = "cedar"
`

// The environment wins over the file. Keys of the file belong to its organizations, and all other
// credentials are refused.
func TestFlovynContract(t *testing.T) {
	t.Parallel()
	file := writeFile(t, t.TempDir(), "config.toml", contractFile)
	read := func(env map[string]string) (*contract, error) {
		return readContract(func(name string) string { return env[name] })
	}

	c, err := read(map[string]string{"CONFIG_FILE": file, "GRPC_SERVER_PORT": "2", "DATABASE_URL": "postgres://env/db", "NATS__ENABLED": "true"})
	if err != nil || c.DatabaseURL != "postgres://env/db" || c.ServerPort != 1 || c.GRPCPort != 2 {
		t.Fatalf("the contract is %+v, %v", c, err)
	}
	orgs, err := c.organizations()
	if err != nil {
		t.Fatal(err)
	}
	admin, err := authn.NewAdminKey("an admin key that is long enough", model.DefaultTenant)
	if err != nil {
		t.Fatal(err)
	}
	auth, warnings, err := c.authenticator(orgs, admin)
	if err != nil || len(warnings) != 0 {
		t.Fatalf("warnings %q, %v", warnings, err)
	}
	who := func(key string) (authn.Identity, error) {
		return auth.Authenticate(t.Context(), map[string][]string{"authorization": {"Bearer " + key}})
	}
	if got, err := who("flovyn_wk_test_0123456789abcdef"); err != nil || got.Tenant != "acme" || got.Admin {
		t.Errorf("the static key: %+v, %v", got, err)
	}
	token := "e30.eyJzdWIiOiJ1In0.x"                                      // {"sub":"u"}, without a signature
	placeholder := "fct_placeholder-0f7c1c1e-5b5a-4c3e-9a35-2f6a52f7a111" // what clients without a token present
	for _, key := range []string{"another key of the same length!!", token, placeholder} {
		if _, err := who(key); !fault.Is(err, fault.Unauthenticated) {
			t.Errorf("key %q: %v", key, err)
		}
	}

	// The switch for tests accepts unsigned tokens, and causes a warning.
	c.Auth.JWT.SkipVerification = true
	if auth, warnings, err = c.authenticator(orgs, admin); err != nil || !strings.Contains(strings.Join(warnings, " "), "not verified") {
		t.Fatalf("warnings %q, %v", warnings, err)
	}
	if got, err := who(token); err != nil || !got.Older || !got.Admin {
		t.Errorf("a token: %+v, %v", got, err)
	}
	if got, err := who(placeholder); err != nil || got.Older || !got.Admin {
		t.Errorf("a placeholder: %+v, %v", got, err)
	}
	if _, err := who(placeholder + "0"); !fault.Is(err, fault.Unauthenticated) {
		t.Errorf("a longer placeholder: %v", err)
	}
	// {"sub":"u","exp":1}
	if _, err := who("e30.eyJzdWIiOiJ1IiwiZXhwIjoxfQ.x"); !fault.Is(err, fault.Unauthenticated) {
		t.Errorf("an expired token: %v", err)
	}

	c.Auth.Static.Keys[0].OrgID = "0f7c1c1e-5b5a-4c3e-9a35-2f6a52f7a999"
	if _, _, err := c.authenticator(orgs, admin); !fault.Is(err, fault.Invalid) {
		t.Errorf("a key of an unknown organization: %v", err)
	}
	c, err = read(map[string]string{"SPRING_DATASOURCE_URL": "jdbc:postgresql://db:5432/app", "SPRING_DATASOURCE_USERNAME": "u", "SPRING_DATASOURCE_PASSWORD": "p"})
	if err != nil || c.DatabaseURL != "postgres://u:p@db:5432/app" || c.ServerPort != 8000 || c.GRPCPort != 9090 {
		t.Errorf("the older contract is %+v, %v", c, err)
	}
	for name, text := range map[string]string{
		"SERVER_PORT": "x", "GRPC_SERVER_PORT": "99999", "SPRING_DATASOURCE_URL": "jdbc:mysql://db/app", "CONFIG_FILE": file + ".missing",
	} {
		if _, err := read(map[string]string{name: text}); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "$"+name) {
			t.Errorf("$%s is %q: %v", name, text, err)
		}
	}
	broken := writeFile(t, t.TempDir(), "broken.toml", "[auth\n")
	if _, err := read(map[string]string{"CONFIG_FILE": broken}); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), broken) {
		t.Errorf("a broken file: %v", err)
	}
}

// The container contract accepts tokens of an identity provider, and verifies them.
func TestFlovynContractVerifiesTokens(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	f := &serveFlags{}
	f.tokens.Issuer, f.tokens.Audience, f.tokens.TenantClaim, f.tokens.RolesClaim, f.tokens.Algorithms = "http://localhost:3000", "flovyn-server", "tenant", "roles", jwt.Algorithms()
	f.tokens.keys = writeFile(t, dir, "keys.json", fmt.Sprintf(`{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"k1","x":%q}]}`, base64.RawURLEncoding.EncodeToString(public)))
	env := map[string]string{"CONFIG_FILE": writeFile(t, dir, "config.toml", contractFile)}
	c, err := readContract(func(name string) string { return env[name] })
	if err != nil {
		t.Fatal(err)
	}
	f.logs = "text"
	o := &options{Streams: Streams{Err: io.Discard}, machine: thisMachine()}
	cfg, stop, err := o.checkFlovyn(t.Context(), f, c)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()

	token := gojwt.NewWithClaims(gojwt.SigningMethodEdDSA, gojwt.MapClaims{
		"iss": "http://localhost:3000", "aud": "flovyn-server", "sub": "ann", "tenant": "acme", "roles": []string{"owner"}, "iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix(),
	})
	token.Header["kid"] = "k1"
	text, err := token.SignedString(private)
	if err != nil {
		t.Fatal(err)
	}
	who := func(text string) (authn.Identity, error) {
		return cfg.Authenticator.Authenticate(t.Context(), map[string][]string{"authorization": {"Bearer " + text}})
	}
	if got, err := who(text); err != nil || got.Tenant != "acme" || got.Admin || !got.Older {
		t.Errorf("a signed token: %+v, %v", got, err)
	}
	if _, err := who(text + "x"); !fault.Is(err, fault.Unauthenticated) {
		t.Errorf("a damaged token: %v", err)
	}
}
