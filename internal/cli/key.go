package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/authz"
)

func newKey(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use: "key", Short: "Keys with which programs connect to a server",
		Long: `Keys with which programs connect to a server. A key belongs to one tenant, or is an admin key. The store has only a hash of it, so a lost key cannot be shown again: revoke it and create another.

On a server these commands need an admin key.`,
	}
	cmd.AddCommand(newKeyCreate(o), newKeyList(o), newKeyRotate(o), newKeyRevoke(o))
	return cmd
}

// keyShape is a key in JSON.
type keyShape struct {
	ID      string `json:"id"`
	Tenant  string `json:"tenant,omitempty"`
	Admin   bool   `json:"admin"`
	Note    string `json:"note,omitempty"`
	Created string `json:"created,omitempty"`
	// Roles are the roles that the key names.
	Roles   []string `json:"roles,omitempty"`
	Expires string   `json:"expires,omitempty"`
	Used    string   `json:"used,omitempty"`
}

func shapeKey(k *api.KeyInfo) keyShape {
	return keyShape{ID: k.ID, Tenant: k.Tenant, Admin: k.Admin, Note: k.Note, Created: when(k.Created), Roles: k.Roles, Expires: when(k.Expires), Used: when(k.Used)}
}

func newKeyCreate(o *options) *cobra.Command {
	var r api.KeyRequest
	cmd := &cobra.Command{
		Use: "create", Short: "Create a key of the tenant, or an admin key, and print it once", Args: cobra.NoArgs,
		Example: "  perdure key create --tenant acme --note 'worker in Frankfurt'\n  perdure key create --tenant acme --role worker --expires-in 2160h\n  perdure key create --admin --note ann",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !r.Admin {
				r.Tenant = o.tenant
			}
			return o.withAdmin(cmd.Context(), false, func(a api.Admin) error {
				k, err := a.CreateKey(cmd.Context(), r)
				if err != nil {
					return err
				}
				return o.printKey(&k)
			})
		},
	}

	cmd.Flags().BoolVar(&r.Admin, "admin", false, "create an admin key, which may act in every tenant and change all of them")
	cmd.Flags().StringVar(&r.Note, "note", "", "what the key is for")
	cmd.Flags().StringSliceVar(&r.Roles, "role", nil, "what the key may do: reader, client, worker, operator, or a role of your policies (default: everything in its tenant)")
	cmd.Flags().Var(span(&r.Lifetime, 0), "expires-in", "time after which the key ends by itself (default: never)")
	return cmd
}

// printKey prints a new key with its secret.
func (o *options) printKey(k *api.NewKey) error {
	if o.structured() {
		return o.json(struct {
			keyShape
			Key string `json:"key"`
		}{shapeKey(&k.KeyInfo), k.Secret})
	}
	fmt.Fprintf(o.Err, "Key %s of %s. It is shown only now:\n", k.ID, keyOwner(&k.KeyInfo))
	_, err := fmt.Fprintln(o.Out, k.Secret)
	return err
}

// keyRoles says what a key may do.
func keyRoles(k *api.KeyInfo) string {
	switch {
	case k.Admin:
		return authz.RoleAdmin
	case len(k.Roles) == 0:
		return authz.RoleOwner
	}
	return strings.Join(k.Roles, ", ")
}

// keyOwner says which tenant a key belongs to, or that it is an admin key.
func keyOwner(k *api.KeyInfo) string {
	if k.Admin {
		return "admins"
	}
	return "tenant " + k.Tenant
}

func newKeyList(o *options) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use: "list", Short: "List the keys of the tenant", Args: cobra.NoArgs, Example: "  perdure key list --tenant acme\n  perdure key list --all",
		RunE: func(cmd *cobra.Command, _ []string) error {
			tenant := o.tenant
			if all {
				tenant = ""
			}
			return o.withAdmin(cmd.Context(), true, func(a api.Admin) error {
				keys, err := a.Keys(cmd.Context(), tenant)
				if err != nil {
					return err
				}
				list := make([]keyShape, len(keys))
				rows := make([][]string, len(keys))
				for i := range keys {
					list[i] = shapeKey(&keys[i])
					rows[i] = []string{keys[i].ID, keyOwner(&keys[i]), keyRoles(&keys[i]), orDash(keys[i].Used), dash(keys[i].Note), orDash(keys[i].Expires), orDash(keys[i].Created)}
				}
				if o.structured() {
					return o.json(list)
				}
				return o.table("KEY\tOF\tROLE\tUSED\tNOTE?\tEXPIRES?\tCREATED?", rows)
			})
		},
	}

	cmd.Flags().BoolVar(&all, "all", false, "keys of all tenants, and admin keys")
	return cmd
}

func newKeyRevoke(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "revoke id", Short: "Revoke a key and end the connections that use it", Args: cobra.ExactArgs(1), Example: "  perdure key revoke k3v9x2m7q1ab",
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.withAdmin(cmd.Context(), false, func(a api.Admin) error {
				id, err := completeKey(cmd.Context(), a, args[0])
				if err != nil {
					return err
				}

				if err := a.RevokeKey(cmd.Context(), id); err != nil {
					return err
				}
				return o.printDone("revoked key", id)
			})
		},
	}
}

// completeKey returns the id of the only key whose id begins with a text.
func completeKey(ctx context.Context, a api.Admin, text string) (string, error) {
	all, err := a.Keys(ctx, "")
	if err != nil {
		return "", err
	}
	ids := make([]string, len(all))
	for i := range all {
		ids[i] = all[i].ID
	}
	return complete("key", text, ids)
}

func newKeyRotate(o *options) *cobra.Command {
	var overlap time.Duration
	cmd := &cobra.Command{
		Use: "rotate id", Short: "Replace a key by a new one and print that once", Args: cobra.ExactArgs(1),
		Long:    "Replace a key by a new one of the same tenant, with the same roles and the same note. The old key works until the overlap is over, so that programs can change to the new one without a pause.",
		Example: "  perdure key rotate k3v9x2m7q1ab --overlap 24h",
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.withAdmin(cmd.Context(), false, func(a api.Admin) error {
				id, err := completeKey(cmd.Context(), a, args[0])
				if err != nil {
					return err
				}
				k, err := a.RotateKey(cmd.Context(), api.RotateRequest{ID: id, Overlap: overlap})
				if err != nil {
					return err
				}
				return o.printKey(&k)
			})
		},
	}

	cmd.Flags().DurationVar(&overlap, "overlap", time.Hour, "how long the old key still works; 0 ends it immediately")
	return cmd
}
