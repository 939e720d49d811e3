package cli

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/authz"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/flovyn"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/node"
)

// contract is the configuration of a Flovyn server, from its file and the environment. It ignores
// unknown keys, as a Flovyn server does.
type contract struct {
	DatabaseURL string `toml:"database_url"`
	ServerPort  int    `toml:"server_port"`
	GRPCPort    int    `toml:"grpc_server_port"`
	Orgs        []struct {
		ID, Name, Slug, Tier, Region string
	} `toml:"orgs"`
	Auth struct {
		Enabled *bool `toml:"enabled"`
		JWT     struct {
			SkipVerification bool `toml:"skip_verification"`
		} `toml:"jwt"`
		Static struct {
			Keys []staticKey `toml:"keys"`
		} `toml:"static_api_key"`
	} `toml:"auth"`
}

// staticKey is a key of the configuration file.
type staticKey struct {
	Key           string `toml:"key"`
	OrgID         string `toml:"org_id"`
	PrincipalType string `toml:"principal_type"`
	PrincipalID   string `toml:"principal_id"`
	Role          string `toml:"role"`
}

// roles are the roles of the holder of the key. A worker may also start workflows, because SDKs use
// one key for both. Other holders are owners of their organization.
func (k *staticKey) roles() []string {
	if strings.EqualFold(k.PrincipalType, "worker") {
		return []string{authz.RoleClient, authz.RoleWorker}
	}
	return nil
}

// skipVariables are environment variables that switch off the verification of signatures. Only this
// contract has them.
var skipVariables = []string{"FLOVYN_SECURITY_JWT_SKIP_SIGNATURE_VERIFICATION", "JWT_SKIP_SIGNATURE_VERIFICATION"}

// readContract reads the file and then the environment. The environment wins.
func readContract(getenv func(string) string) (*contract, error) {
	c := &contract{ServerPort: 8000, GRPCPort: 9090}
	if file := getenv("CONFIG_FILE"); file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fault.New(fault.Invalid, "read $CONFIG_FILE: %w", err)
		}
		if err := toml.NewDecoder(bytes.NewReader(text)).Decode(c); err != nil {
			return nil, fault.New(fault.Invalid, "%s: %w", file, err)
		}
	}

	c.DatabaseURL = cmp.Or(getenv("DATABASE_URL"), c.DatabaseURL)
	if jdbc := getenv("SPRING_DATASOURCE_URL"); c.DatabaseURL == "" && jdbc != "" {
		address, err := url.Parse(strings.TrimPrefix(jdbc, "jdbc:"))
		if err != nil {
			return nil, fault.New(fault.Invalid, "$SPRING_DATASOURCE_URL: %w", err)
		}
		if address.Scheme != "postgresql" && address.Scheme != "postgres" {
			return nil, fault.New(fault.Invalid, "$SPRING_DATASOURCE_URL is for %q, must be jdbc:postgresql://host/database", address.Scheme)
		}
		address.Scheme = "postgres"
		address.User = url.UserPassword(getenv("SPRING_DATASOURCE_USERNAME"), getenv("SPRING_DATASOURCE_PASSWORD"))
		c.DatabaseURL = address.String()
	}

	for name, port := range map[string]*int{"SERVER_PORT": &c.ServerPort, "GRPC_SERVER_PORT": &c.GRPCPort} {
		if text := getenv(name); text != "" {
			n, err := strconv.Atoi(text)
			if err != nil || n < 0 || n > 65535 {
				return nil, fault.New(fault.Invalid, "$%s is %q, must be a port", name, text)
			}
			*port = n
		}
	}

	if text := getenv("FLOVYN_SECURITY_ENABLED"); text != "" {
		on := !isFalse(text)
		c.Auth.Enabled = &on
	}
	for _, name := range skipVariables {
		if text := getenv(name); text != "" && !isFalse(text) {
			c.Auth.JWT.SkipVerification = true
		}
	}
	return c, nil
}

func isFalse(text string) bool {
	return slices.Contains([]string{"false", "0", "no", "off"}, strings.ToLower(text))
}

// organizations returns the organizations of the file.
func (c *contract) organizations() (*flovyn.Orgs, error) {
	orgs := flovyn.NewOrgs()
	for _, o := range c.Orgs {
		if err := orgs.Put(flovyn.Org{ID: o.ID, Slug: o.Slug, Name: o.Name, Tier: o.Tier, Region: o.Region}); err != nil {
			return nil, err
		}
	}
	return orgs, nil
}

// authenticator returns an authenticator that knows the keys of the file. Warnings name the
// settings that are not safe.
func (c *contract) authenticator(orgs *flovyn.Orgs, admin *authn.AdminKey) (a authenticator, warnings []string, err error) {
	if c.Auth.Enabled != nil && !*c.Auth.Enabled {
		return authn.Open{Tenant: model.DefaultTenant, Choose: true}, []string{"authentication is off: every caller is an admin"}, nil
	}

	ring := authn.NewKeyring(admin)
	for _, k := range c.Auth.Static.Keys {
		tenant, ok := orgs.Tenant(k.OrgID)
		if !ok {
			return nil, nil, fault.New(fault.Invalid, "the static key of %s belongs to organization %s, which is not configured", k.PrincipalID, k.OrgID)
		}
		if err := ring.Trust(k.Key, authn.Identity{Tenant: tenant, Name: k.PrincipalID, Roles: k.roles()}); err != nil {
			return nil, nil, err
		}
	}

	if c.Auth.JWT.SkipVerification {
		ring.TrustUnsigned()
		warnings = append(warnings, "signatures of tokens are not verified: every caller with a token is an admin; use this for tests only")
	}

	return ring, warnings, nil
}

type authenticator interface {
	Authenticate(ctx context.Context, header map[string][]string) (authn.Identity, error)
}

// serveFlovyn runs a server that is configured like a container of a Flovyn server.
func (o *options) serveFlovyn(ctx context.Context, f *serveFlags) error {
	c, err := readContract(os.Getenv)
	if err != nil {
		return refuseStart(err)
	}
	cfg, stop, err := o.checkFlovyn(ctx, f, c)
	if err != nil {
		return refuseStart(err)
	}
	defer stop()
	return o.runServer(ctx, f, cfg)
}

// checkFlovyn makes the checks of checkServe for a server of this contract, and returns its
// configuration. The server accepts signed tokens until stop is called.
func (o *options) checkFlovyn(ctx context.Context, f *serveFlags, c *contract) (cfg node.ServerConfig, stop func(), err error) {
	var problems []error
	add := func(key string, err error) {
		if err = f.from.problem(key, err); err != nil {
			problems = append(problems, err)
		}
	}

	p := &serveParts{}
	url := cmp.Or(c.DatabaseURL, o.store)
	o.checkEveryServer(f, p, url, add)
	if f.production {
		add("production", c.checkProduction())
	}
	cfg, warnings, err := c.server(f)
	add("", err)
	if err := joinProblems(problems); err != nil {
		return cfg, nil, err
	}

	stop = func() {}
	if ring, ok := cfg.Authenticator.(*authn.Keyring); ok {
		if p.tokens, stop, err = f.tokens.accept(ctx, ring, p.log); err != nil {
			return cfg, nil, f.from.problem(f.tokens.setting(), err)
		}
	}
	for _, w := range warnings {
		p.log.Warn("this server is not safe", "because", w)
	}
	f.reloads = p.reloader(f)
	cfg.Authorizer, cfg.Problems, cfg.Warnings = p.policies, f.reloads.problems, warnings
	cfg.Node = o.nodeConfig(f, p.log)
	cfg.Node.URL = url
	return cfg, stop, nil
}

// checkProduction refuses settings that the contract allows only for tests.
func (c *contract) checkProduction() error {
	var problems []error
	if c.Auth.Enabled != nil && !*c.Auth.Enabled {
		problems = append(problems, fault.WithHint(fault.New(fault.Invalid, "authentication is off, and --production is set"),
			"remove FLOVYN_SECURITY_ENABLED=false"))
	}
	if c.Auth.JWT.SkipVerification {
		problems = append(problems, fault.WithHint(fault.New(fault.Invalid, "signatures of tokens are not verified, and --production is set"),
			"remove skip_verification, and give --jwt-keys, --jwt-issuer and --jwt-audience"))
	}
	return joinProblems(problems)
}

// server returns the configuration of the server, without the node and without the settings of the
// flags of serve. Warnings name the settings that are not safe.
func (c *contract) server(f *serveFlags) (cfg node.ServerConfig, warnings []string, err error) {
	orgs, err := c.organizations()
	if err != nil {
		return cfg, nil, err
	}
	// A server of this contract needs no admin. If no admin key is set, a random one ensures that
	// no caller is an admin.
	admin, err := authn.NewAdminKey(cmp.Or(os.Getenv(adminKeyVariable), rand.Text()+rand.Text()), model.DefaultTenant)
	if err != nil {
		return cfg, nil, err
	}
	auth, warnings, err := c.authenticator(orgs, admin)
	if err != nil {
		return cfg, nil, err
	}

	warnings = append(warnings, "connections are not encrypted")
	cfg = node.ServerConfig{
		Listen: net.JoinHostPort("", strconv.Itoa(c.GRPCPort)), Authenticator: auth, Tenant: model.DefaultTenant, Grace: f.grace, Orgs: orgs, Web: restAPI(false),
	}
	if c.ServerPort != c.GRPCPort {
		cfg.AlsoListen = []string{net.JoinHostPort("", strconv.Itoa(c.ServerPort))}
	}
	return cfg, warnings, nil
}
