package cli

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/remote"
)

const (
	// caVariable names the file of the certificates that sign the certificate of the server.
	caVariable = "PERDURE_CA"
	// tokenFileVariable names the file that has the key for a server.
	tokenFileVariable = "PERDURE_TOKEN_FILE"
)

// noProfile marks the commands that serve a store themselves. They use a profile only if --profile
// names it, so that the current profile of a user does not become the store of a new server.
const noProfile = "no-profile"

// noTarget marks the commands that change profiles and do not use a store.
const noTarget = "no-target"

// sourced is a value and where it comes from.
type sourced struct{ value, origin string }

// choice is the store or the server that a command works on, and the identity of the caller there.
type choice struct {
	url, tenant, profile sourced
	ca                   sourced
	// key says where the key comes from. Its value is the name of a file or of a variable, never
	// the key itself.
	key sourced
	// keyInFile is true if key names a file.
	keyInFile bool
	// secret is a key that login checks; it is used instead of key.
	secret string
}

// choose decides what a command works on: a flag wins over the environment, and the environment
// over the profile. The certificate and the key of a profile are only used for the server of the
// profile.
func (o *options) choose(cmd *cobra.Command) error {
	flags := cmd.Flags()
	t := &choice{}
	p, err := o.chooseProfile(cmd, t)
	if err != nil {
		return err
	}
	if err := o.chooseURL(flags, t, &p); err != nil {
		return err
	}
	if t.profile.value == "" {
		p = profile{}
	}

	t.tenant = first(sourced{os.Getenv("PERDURE_TENANT"), "$PERDURE_TENANT"}, t.of(p.Tenant), sourced{model.DefaultTenant, "default"})
	if flags.Changed("tenant") {
		t.tenant = sourced{o.tenant, flagOrigin}
	}
	o.tenantGiven = t.tenant.origin != "default"

	t.ca = first(sourced{os.Getenv(caVariable), "$" + caVariable}, t.of(p.CA))
	t.chooseKey(&p)
	o.store, o.tenant, o.choice = t.url.value, t.tenant.value, t
	return nil
}

// first returns the first value that is not empty.
func first(all ...sourced) sourced {
	for _, s := range all {
		if s.value != "" {
			return s
		}
	}
	return sourced{}
}

// of returns a value together with its origin: the profile of the choice.
func (t *choice) of(value string) sourced { return sourced{value, "profile " + t.profile.value} }

// chooseProfile finds the profile of a command. A command uses no profile if a flag names a store
// or a server. It also uses none if the environment names a store or a server, unless a flag names
// a profile.
func (o *options) chooseProfile(cmd *cobra.Command, t *choice) (profile, error) {
	named := cmd.Flags().Changed("profile")
	addressed := cmd.Flags().Changed("store") || cmd.Flags().Changed("server")
	switch {
	case named && addressed:
		return profile{}, fault.New(fault.Invalid, "--profile names a store or a server, and so do --store and --server: give one of them")
	case addressed, cmd.Annotations[noProfile] != "" && !named:
		return profile{}, nil
	case !named && (os.Getenv("PERDURE_STORE") != "" || os.Getenv(serverVariable) != ""):
		return profile{}, nil
	}

	all, err := readProfiles()
	if err != nil {
		return profile{}, err
	}
	t.profile = first(sourced{os.Getenv(profileVariable), "$" + profileVariable}, sourced{all.Current, all.path})
	if named {
		t.profile = sourced{o.profile, flagOrigin}
	}
	if t.profile.value == "" {
		return profile{}, nil
	}
	return all.find(t.profile.value)
}

// chooseURL decides between the flags, the environment and the profile.
func (o *options) chooseURL(flags *pflag.FlagSet, t *choice, p *profile) error {
	switch {
	case flags.Changed("store") && flags.Changed("server"):
		return fault.New(fault.Invalid, "--store and --server exclude each other: a server has its own store")
	case flags.Changed("server"):
		if !remote.IsURL(o.server) {
			return fault.WithHint(fault.New(fault.Invalid, "--server is %q, must be the URL of a server", o.server), "use grpc://host:7800, or unix:<path>")
		}
		t.url = sourced{o.server, flagOrigin}
	case flags.Changed("store"):
		t.url = sourced{o.store, flagOrigin}
	case t.profile.value != "":
		t.url = t.of(cmp.Or(p.Server, p.Store))
	default:
		t.url = first(sourced{os.Getenv("PERDURE_STORE"), "$PERDURE_STORE"}, sourced{os.Getenv(serverVariable), "$" + serverVariable}, sourced{defaultStore, "default"})
	}

	return nil
}

// chooseKey decides where the key comes from.
func (t *choice) chooseKey(p *profile) {
	switch {
	case os.Getenv(tokenVariable) != "":
		t.key = sourced{tokenVariable, "$" + tokenVariable}
	case os.Getenv(tokenFileVariable) != "":
		t.key, t.keyInFile = sourced{os.Getenv(tokenFileVariable), "$" + tokenFileVariable}, true
	case p.KeyEnv != "":
		t.key = t.of(p.KeyEnv)
	case p.KeyFile != "":
		t.key, t.keyInFile = t.of(p.KeyFile), true
	}
}

// token returns the key for the server. It is empty if there is none.
func (t *choice) token() (string, error) {
	switch {
	case t != nil && t.secret != "":
		return t.secret, nil
	case t == nil || t.key.value == "":
		return "", nil
	case t.keyInFile:
		return readKey(t.key.value)
	}
	key := os.Getenv(t.key.value)
	if key == "" {
		return "", fault.New(fault.Invalid, "%s says that $%s has the key, and it is empty", t.key.origin, t.key.value)
	}
	return key, nil
}

// trust returns which certificates of servers the command accepts. It returns nil for the root
// certificates of the system.
func (t *choice) trust() (*tls.Config, error) {
	if t == nil || t.ca.value == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(t.ca.value)
	if err != nil {
		return nil, fault.New(fault.Invalid, "read the certificates that sign that of the server (%s): %w", t.ca.origin, err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fault.New(fault.Invalid, "%s has no certificate (%s)", t.ca.value, t.ca.origin)
	}
	return &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, nil
}

// passwordParameters are parameters of the URL of a PostgreSQL database that are secret: the
// password of the user, and the password of the client's private key.
var passwordParameters = []string{"password", "sslpassword"}

// withoutPassword returns the URL of a store without its password, so that people may see it.
func withoutPassword(text string) string {
	u, err := url.Parse(text)
	switch {
	case err != nil && strings.HasPrefix(text, "postgres"):
		return "postgres://…" // perhaps the password has a character that a URL cannot have
	case err != nil:
		return text
	}
	if q := u.Query(); slices.ContainsFunc(passwordParameters, q.Has) {
		for _, name := range passwordParameters {
			if q.Has(name) {
				q.Set(name, "xxxxx")
			}
		}
		u.RawQuery = q.Encode()
		return u.Redacted()
	}
	if u.User == nil {
		return text
	}
	return u.Redacted()
}
