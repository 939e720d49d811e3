package cli

import (
	"context"
	"log/slog"
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
	flags.StringVar(&f.keys, "jwt-keys", "", "file or https URL of the key set of an identity provider; the server then accepts its tokens (JWT)")
	flags.StringVar(&f.Issuer, "jwt-issuer", "", "issuer that tokens must have")
	flags.StringVar(&f.Audience, "jwt-audience", "", "audience that tokens must have")
	flags.StringSliceVar(&f.Algorithms, "jwt-algorithms", jwt.Algorithms(), "algorithms that tokens may use")
	flags.StringVar(&f.TenantClaim, "jwt-tenant-claim", "tenant", "claim that has the tenant of the caller")
	flags.StringVar(&f.RolesClaim, "jwt-roles-claim", "roles", "claim that has the roles of the caller")
	flags.StringVar(&f.AdminRole, "jwt-admin-role", "", "role in a token that makes its caller an admin (default: none does)")
}

// accept has a keyring accept tokens, if the flags say so, until stop is called. It refuses to
// start without the keys of the issuer.
func (f *tokenFlags) accept(ctx context.Context, ring *authn.Keyring, log *slog.Logger) (stop func(), err error) {
	if f.keys == "" {
		if f.Issuer != "" || f.Audience != "" || f.AdminRole != "" {
			return nil, fault.New(fault.Invalid, "--jwt-issuer, --jwt-audience and --jwt-admin-role need --jwt-keys")
		}
		return func() {}, nil
	}
	source, err := jwt.NewSource(f.keys)
	if err != nil {
		return nil, fault.New(fault.KindOf(err), "--jwt-keys: %w", err)
	}
	if len(f.Algorithms) == 0 {
		return nil, fault.New(fault.Invalid, "--jwt-algorithms names no algorithm")
	}
	if _, err := jwt.New(f.Config, nil, nil); err != nil { // say what is wrong before asking anyone
		return nil, err
	}
	keys, err := source.Load(ctx)
	if err != nil {
		return nil, fault.New(fault.Invalid, "--jwt-keys: %w", err)
	}
	v, err := jwt.New(f.Config, keys, source.Refresh)
	if err != nil {
		return nil, err
	}

	ring.UseTokens(v)
	ring.Withdraw(keys.Has)
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var ended sync.WaitGroup
	ended.Go(func() {
		source.Run(ctx, log, func(now *jwt.KeySet) {
			v.Trust(now)
			ring.Withdraw(now.Has)
		})
	})
	return func() {
		cancel()
		ended.Wait()
	}, nil
}
