package restapi

import (
	"context"
	"net/http"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/authn"
)

// addKeys adds the operations on keys.
func (s *Server) addKeys() {
	add(s, operation{id: "list-keys", method: http.MethodGet, path: "/keys", tag: adminTag, summary: "List keys without their secrets"}, s.listKeys)
	add(s, operation{id: "create-key", method: http.MethodPost, path: "/keys", tag: adminTag, summary: "Create a key; only this reply has its secret", status: http.StatusCreated}, s.createKey)
	add(s, operation{id: "rotate-key", method: http.MethodPost, path: "/keys/{id}/rotate", tag: adminTag, summary: "Replace a key; only this reply has the new secret", status: http.StatusCreated}, s.rotateKey)
	add(s, operation{id: "revoke-key", method: http.MethodDelete, path: "/keys/{id}", tag: adminTag, summary: "Revoke a key and end what uses it", status: http.StatusNoContent}, s.revokeKey)
}

// Key is a key without its secret.
type Key struct {
	ID      string     `json:"id"`
	Tenant  string     `json:"tenant,omitempty" doc:"None for an admin key"`
	Admin   bool       `json:"admin"`
	Note    string     `json:"note,omitempty"`
	Roles   []string   `json:"roles,omitempty" doc:"The roles of the key; a key without roles may do everything in its tenant"`
	Created *time.Time `json:"created,omitempty"`
	Expires *time.Time `json:"expires,omitempty"`
	Used    *time.Time `json:"used,omitempty" doc:"When it was last used, to within about ten minutes"`
}

func keyOf(k *api.KeyInfo) Key {
	return Key{k.ID, k.Tenant, k.Admin, k.Note, k.Roles, at(k.Created), at(k.Expires), at(k.Used)}
}

type keysInput struct {
	Tenant string `query:"tenant" doc:"Only keys of this tenant; all keys by default"`
}

func (s *Server) listKeys(ctx context.Context, _ *authn.Identity, in *keysInput) (*reply[page[Key]], error) {
	got, err := s.config.Admin.Keys(ctx, in.Tenant)
	if err != nil {
		return nil, err
	}
	return ok(page[Key]{Items: each(got, keyOf)})
}

// newKey is a key with its secret.
type newKey struct {
	Key

	Secret string `json:"secret" doc:"The secret that callers present; the server does not store it"`
}

func newKeyReply(k api.NewKey, err error) (*reply[newKey], error) {
	if err != nil {
		return nil, err
	}
	return ok(newKey{keyOf(&k.KeyInfo), k.Secret})
}

type createKeyInput struct {
	Body struct {
		Tenant    string   `json:"tenant,omitempty" example:"acme" doc:"None for an admin key"`
		Admin     bool     `json:"admin,omitempty"`
		Note      string   `json:"note,omitempty"`
		Roles     []string `json:"roles,omitempty" example:"[\"worker\"]"`
		ExpiresIn string   `json:"expires_in,omitempty" example:"2160h"`
	}
}

func (s *Server) createKey(ctx context.Context, _ *authn.Identity, in *createKeyInput) (*reply[newKey], error) {
	lifetime, err := readDuration("expires_in", in.Body.ExpiresIn)
	if err != nil {
		return nil, err
	}
	b := &in.Body
	return newKeyReply(s.config.Admin.CreateKey(ctx, api.KeyRequest{Tenant: b.Tenant, Admin: b.Admin, Note: b.Note, Roles: b.Roles, Lifetime: lifetime}))
}

// KeyPath names a key.
type KeyPath struct {
	ID string `path:"id" example:"k3v9x2m7q1ab"`
}

type rotateInput struct {
	KeyPath

	Body *struct {
		Overlap string `json:"overlap,omitempty" example:"24h" doc:"How long the old key still works; by default it ends immediately"`
	} `required:"false"`
}

func (s *Server) rotateKey(ctx context.Context, _ *authn.Identity, in *rotateInput) (*reply[newKey], error) {
	overlap, err := time.Duration(0), error(nil)
	if in.Body != nil {
		overlap, err = readDuration("overlap", in.Body.Overlap)
	}
	if err != nil {
		return nil, err
	}
	return newKeyReply(s.config.Admin.RotateKey(ctx, api.RotateRequest{ID: in.ID, Overlap: overlap}))
}

func (s *Server) revokeKey(ctx context.Context, _ *authn.Identity, in *KeyPath) (*none, error) {
	return done(s.config.Admin.RevokeKey(ctx, in.ID))
}
