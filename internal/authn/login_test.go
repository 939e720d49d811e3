package authn_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// signed accepts every token.
type signed struct{}

func (signed) Verify(string, time.Time) (authn.Token, error) { return authn.Token{}, nil }

// A session ends when the key or token that opened it ends, and when it expires. The stored record
// has no secret.
func TestLogins(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		static, err := authn.NewAdminKey(key, "default")
		if err != nil {
			t.Fatal(err)
		}
		ring := authn.NewKeyring(static)
		ring.UseTokens(signed{})
		k, _ := authn.NewKey("acme")
		ring.Set([]authn.Key{k}, nil)
		admin, err := ring.Authenticate(t.Context(), present(key))
		if err != nil {
			t.Fatal(err)
		}

		open := func(tenant string, of authn.Credential) (authn.Login, string) {
			l, secret := authn.NewLogin()
			l.Tenant, l.Name, l.Credential, l.Expires = tenant, "someone", of, model.TimeOf(time.Now().Add(time.Hour))
			body, err := json.Marshal(l)
			if err != nil || strings.Contains(string(body), secret[len(secret)-20:]) {
				t.Errorf("%s has the secret, or %v", body, err)
			}
			l, err = authn.ReadLogin(tenant, l.ID, body)
			if err != nil {
				t.Fatal(err)
			}
			return l, secret
		}
		enter := func(secret string) (authn.Identity, error) {
			return ring.Authenticate(t.Context(), map[string][]string{authn.SessionHeader: {secret}})
		}
		refused := func(what, secret string) {
			t.Helper()
			if who, err := enter(secret); err == nil || who.Name != "" {
				t.Errorf("%s: %+v, %v", what, who, err)
			}
		}

		byKey, keySecret := open("acme", authn.Credential{Kind: authn.ByKey, ID: k.ID})
		byStatic, staticSecret := open("", admin.Credential)
		byToken, tokenSecret := open("acme", authn.Credential{Kind: authn.ByToken, ID: "signer-1"})
		foreign, foreignSecret := open("", authn.Credential{Kind: authn.ByStatic, ID: "0123456789abcdef"})
		stolen, stolenSecret := open("beta", authn.Credential{Kind: authn.ByKey, ID: k.ID})
		ring.SetLogins([]authn.Login{byKey, byStatic, byToken, foreign, stolen})
		who, err := enter(keySecret)
		if err != nil || who.Tenant != "acme" || who.Admin || who.Credential.Kind != authn.BySession {
			t.Errorf("%+v, %v", who, err)
		}
		if who, err := enter(staticSecret); err != nil || !who.Admin || who.Tenant != "default" {
			t.Errorf("%+v, %v", who, err)
		}
		if _, err := enter(tokenSecret); err != nil {
			t.Error(err)
		}
		refused("the admin key of another server", foreignSecret)
		refused("the key of another tenant", stolenSecret)
		refused("the id of one and the secret of another", keySecret[:29]+tokenSecret[29:])

		ring.Set([]authn.Key{k}, map[string]bool{"acme": true})
		synctest.Wait()
		if cause := context.Cause(who.Valid); !fault.Is(cause, fault.Denied) && !fault.Is(cause, fault.Unauthenticated) {
			t.Errorf("the calls of a session whose tenant is disabled end with %v", cause)
		}
		refused("a disabled tenant", keySecret)
		refused("a disabled tenant", tokenSecret)
		ring.Set([]authn.Key{k}, nil)
		if who, err = enter(keySecret); err != nil || who.Valid.Err() != nil {
			t.Errorf("the tenant is enabled again: %+v, %v", who, err)
		}
		if _, err := enter(tokenSecret); err != nil {
			t.Errorf("the tenant is enabled again: %v", err)
		}

		ring.Withdraw(func(signer string) bool { return signer != "signer-1" })
		refused("a withdrawn signer", tokenSecret)
		ring.Set(nil, nil)
		synctest.Wait()
		if cause := context.Cause(who.Valid); !fault.Is(cause, fault.Unauthenticated) {
			t.Errorf("the calls of a session whose key is gone end with %v", cause)
		}
		refused("a key that is gone", keySecret)

		other, err := authn.NewAdminKey("another admin key 0123456789", "default")
		if err != nil {
			t.Fatal(err)
		}
		if ring.ReplaceAdmin(static) || admin.Valid.Err() != nil {
			t.Error("the same admin key counts as another one")
		}
		session, err := enter(staticSecret)
		if err != nil || !ring.ReplaceAdmin(other) {
			t.Errorf("the admin key was not replaced, %v", err)
		}
		synctest.Wait()
		for what, who := range map[string]authn.Identity{"the former admin key": admin, "a session of it": session} {
			if cause := context.Cause(who.Valid); !fault.Is(cause, fault.Unauthenticated) {
				t.Errorf("the calls with %s end with %v", what, cause)
			}
		}
		if _, err := ring.Authenticate(t.Context(), present(key)); !fault.Is(err, fault.Unauthenticated) {
			t.Errorf("the former admin key: %v", err)
		}
		if who, err := ring.Authenticate(t.Context(), present("another admin key 0123456789")); err != nil || !who.Admin {
			t.Errorf("the new admin key: %+v, %v", who, err)
		}
		refused("a session of the former admin key", staticSecret)
		again, err := authn.NewAdminKey(key, "default")
		if err != nil || !ring.ReplaceAdmin(again) {
			t.Errorf("the first admin key is not taken back, %v", err)
		}
		byStatic, staticSecret = open("", admin.Credential)
		ring.SetLogins([]authn.Login{byStatic})
		if _, err := enter(staticSecret); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Hour)
		refused("an old session", staticSecret)
	})
	if authn.CheckGuard("a", authn.Guard("a")) != nil || authn.CheckGuard("a", authn.Guard("b")) == nil || authn.CheckGuard("a", "") == nil {
		t.Error("a guard does not belong to its session")
	}
}
