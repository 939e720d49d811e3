package cli

import (
	"context"
	"log/slog"
	"strings"
	"sync"

	"github.com/spf13/pflag"

	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/authn/jwt"
	"github.com/perdure/perdure/internal/fault"
)

// tokenFlags say which signed tokens a server accepts.
type tokenFlags struct {
	jwt.Config

	keys string
}

func (f *tokenFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.keys, "jwt-keys", "", "file or https URL of the key set of an identity provider, whose tokens (JWT) the server then accepts (default: what --jwt-issuer says)")
	flags.StringVar(&f.Issuer, "jwt-issuer", "", "issuer that tokens must have; without --jwt-keys its https URL, which says where its keys are (OpenID Connect discovery)")
	flags.StringVar(&f.Audience, "jwt-audience", "", "audience that tokens must have")
	flags.StringSliceVar(&f.Algorithms, "jwt-algorithms", jwt.Algorithms(), "algorithms that tokens may use")
	flags.StringVar(&f.TenantClaim, "jwt-tenant-claim", "tenant", "claim that has the tenant of the caller")
	flags.StringVar(&f.TenantsClaim, "jwt-tenants-claim", "", "claim that has a list of tenants; the caller chooses one of them for each call (default: callers have one tenant)")
	flags.StringVar(&f.RolesClaim, "jwt-roles-claim", "roles", "claim that has the roles of the caller")
	flags.StringVar(&f.AdminRole, "jwt-admin-role", "", "role in a token that makes its caller an admin (default: none does)")
}

// setting returns the name of the setting that says where the keys of the issuer are.
func (f *tokenFlags) setting() string {
	if f.keys == "" {
		return "jwt_issuer"
	}
	return "jwt_keys"
}

// tokenKeys are the keys that sign tokens, while a server runs.
type tokenKeys struct {
	trouble

	source   *jwt.Source
	verifier *jwt.Verifier
	ring     *authn.Keyring
	current  *jwt.KeySet
	log      *slog.Logger
}

// reload makes the source read the keys immediately if an operator asks for it. The source also
// reads them from time to time by itself.
func (k *tokenKeys) reload(_ context.Context, r reloading) {
	if r.asked {
		k.source.Reload()
	}
}

// take uses keys that were read again. If they could not be read, the previous keys stay in use.
func (k *tokenKeys) take(now *jwt.KeySet, err error) {
	if err != nil {
		if k.set("the keys for tokens could not be read again, so the former ones stay: " + err.Error()) {
			k.log.Warn("the keys for tokens could not be read again; the old ones stay", "error", err)
		}
		return
	}
	if !now.Same(k.current) {
		k.verifier.Trust(now)
		k.ring.Withdraw(now.Has)
		k.current = now
		k.log.Info("the keys for tokens have changed")
	}
	k.set("")
}

// accept makes a keyring accept tokens, if the flags say so, until the caller calls stop. It fails
// if it cannot read the keys of the issuer. keys is nil if the server accepts no tokens.
func (f *tokenFlags) accept(ctx context.Context, ring *authn.Keyring, log *slog.Logger) (keys *tokenKeys, stop func(), err error) {
	if f.keys == "" && f.Issuer == "" {
		if f.Audience != "" || f.AdminRole != "" {
			return nil, nil, fault.New(fault.Invalid, "--jwt-audience and --jwt-admin-role need --jwt-issuer")
		}
		return nil, func() {}, nil
	}
	k := &tokenKeys{ring: ring, log: log}
	flag := "--" + strings.ReplaceAll(f.setting(), "_", "-")
	if f.keys != "" {
		k.source, err = jwt.NewSource(f.keys)
	} else {
		k.source, err = jwt.Discover(f.Issuer)
	}
	if err != nil {
		return nil, nil, fault.New(fault.KindOf(err), "%s: %w", flag, err)
	}
	if len(f.Algorithms) == 0 {
		return nil, nil, fault.New(fault.Invalid, "--jwt-algorithms names no algorithm")
	}
	// Check the configuration before asking another machine.
	if _, err := jwt.New(f.Config, nil, nil); err != nil {
		return nil, nil, err
	}
	if k.current, err = k.source.Load(ctx); err != nil {
		return nil, nil, fault.New(fault.Invalid, "%s: %w", flag, err)
	}
	if k.verifier, err = jwt.New(f.Config, k.current, k.source.Refresh); err != nil {
		return nil, nil, err
	}

	ring.UseTokens(k.verifier)
	ring.Withdraw(k.current.Has)
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var ended sync.WaitGroup
	ended.Go(func() { k.source.Run(ctx, k.take) })
	return k, func() {
		cancel()
		ended.Wait()
	}, nil
}
