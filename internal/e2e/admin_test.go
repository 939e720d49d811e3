package e2e_test

import (
	"context"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/authz/policy"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/node"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/internal/remote"
)

// Two servers use one database. An admin creates an API key at one server, and both accept it. The
// admin revokes the key at the same server, and both refuse it. Calls with the key that wait at the
// other server end when the key is revoked.
func TestKeysOfTwoServers(t *testing.T) {
	t.Parallel()
	const key = "0123456789abcdef0123456789abcdef"
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	url := pgtest.URL(t)
	policies, err := policy.Default()
	if err != nil {
		t.Fatal(err)
	}
	serve := func() *node.Server {
		static, err := authn.NewAdminKey(key, model.DefaultTenant)
		if err != nil {
			t.Fatal(err)
		}
		s, err := node.Serve(ctx, node.ServerConfig{
			Node: node.Config{URL: url, AllowUnsafe: true}, Listen: "127.0.0.1:0", Authenticator: authn.NewKeyring(static), Authorizer: policies, Tenant: model.DefaultTenant,
		})
		if err != nil {
			t.Fatal(err)
		}

		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			if err := s.Close(ctx); err != nil {
				t.Error(err)
			}
		})

		return s
	}
	dial := func(s *node.Server, token string) (*remote.Backend, error) {
		b, err := remote.Dial(ctx, remote.Config{Addresses: []string{s.Addr().String()}, PlainText: true, Token: token})
		if err == nil {
			t.Cleanup(func() { _ = b.Close() })
		}
		return b, err
	}

	one, two := serve(), serve()
	operator, err := dial(one, key)
	if err != nil {
		t.Fatal(err)
	}
	admin := operator.Admin()
	if _, err := admin.CreateTenant(ctx, api.TenantChange{Name: "acme"}); err != nil {
		t.Fatal(err)
	}
	k, err := admin.CreateKey(ctx, api.KeyRequest{Tenant: "acme"})
	if err != nil {
		t.Fatal(err)
	}

	b, err := dial(two, k.Secret)
	for fault.Is(err, fault.Unauthenticated) { // until the other server has read the key
		b, err = dial(two, k.Secret)
	}
	if err != nil || b.Tenant() != "acme" {
		t.Fatalf("the key at the other server: %v", err)
	}
	address := model.Address{Tenant: "acme", Type: "shop", Key: "a"}
	if _, err := b.Start(ctx, api.StartRequest{Address: address}); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := b.Await(ctx, api.Target{Address: address})
		ended <- err
	}()

	if nodes, err := admin.Nodes(ctx); err != nil || len(nodes) != 2 {
		t.Errorf("nodes %+v, %v", nodes, err)
	}
	if err := admin.RevokeKey(ctx, k.ID); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !fault.Is(err, fault.Unauthenticated) {
		t.Errorf("the call that waits at the other server: %v", err)
	}
	for _, s := range []*node.Server{one, two} {
		if _, err := dial(s, k.Secret); !fault.Is(err, fault.Unauthenticated) {
			t.Errorf("a revoked key: %v", err)
		}
	}
}
