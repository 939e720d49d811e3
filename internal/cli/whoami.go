package cli

import (
	"context"
	"os/user"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure/internal/authz"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/remote"
)

// whoami is the identity with which a command acts, in JSON.
type whoami struct {
	URL     string `json:"url"`
	Profile string `json:"profile,omitempty"`
	Tenant  string `json:"tenant"`
	// Key says where the key comes from: a file or a variable.
	Key  string `json:"key,omitempty"`
	User string `json:"user,omitempty"`
	// Caller is the name that the server knows the caller by.
	Caller  string   `json:"caller,omitempty"`
	Admin   bool     `json:"admin,omitempty"`
	Roles   []string `json:"roles,omitempty"`
	Actions []string `json:"actions,omitempty"`
	Tenants []string `json:"tenants,omitempty"`
	Expires string   `json:"expires,omitempty"`
}

func newWhoami(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "whoami", Short: "Show the user, the tenant, the roles and the server or store of commands", Args: cobra.NoArgs,
		Long: `Show the server or the store that commands use, the tenant that they act in, and where the key comes from. On a server the command connects, so it fails if the key is
wrong; the tenant is that of the key, unless you choose another one with an admin key. On a store the command acts as the user of this machine.

On a server the command also shows the roles of the key, when it ends, and what it may do: groups of actions such as read, and single actions of other groups. With -o json it shows all actions. perdure auth actions lists the actions of each group.`,
		Example: "  perdure whoami\n  perdure whoami --profile prod",
		RunE: func(cmd *cobra.Command, _ []string) error {
			w, err := o.identify(cmd.Context())
			if err != nil {
				return err
			}
			return o.printWhoami(w)
		},
	}
}

// identify asks the server, if there is one, which tenant the key belongs to.
func (o *options) identify(ctx context.Context) (*whoami, error) {
	t := o.choice
	w := &whoami{URL: withoutPassword(t.url.value), Profile: t.profile.value, Tenant: o.tenant}
	if !remote.IsURL(o.store) {
		u, err := user.Current()
		if err != nil {
			return nil, fault.New(fault.Internal, "find the user: %w", err)
		}
		w.User = u.Username
		return w, nil
	}

	if w.Key = t.key.value; w.Key != "" && !t.keyInFile {
		w.Key = "$" + w.Key
	}
	in := o.own()
	in.any = true // the tenant of the key is the answer, so it may be any tenant
	s, err := o.lookIn(ctx, in)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	d, ok := s.(dialed)
	if !ok {
		return w, nil
	}
	me, err := d.b.Me(ctx)
	if err != nil {
		return nil, err
	}
	w.Tenant, w.Caller, w.Admin = me.Tenant, me.Name, me.Admin
	w.Roles, w.Actions, w.Tenants, w.Expires = me.Roles, me.Actions, me.Tenants, when(me.Expires)
	return w, nil
}

// rights says briefly what the caller may do. It names a group of actions if the caller may take
// all of them. Of the other groups it names the single actions that the caller may take.
func (w *whoami) rights() string {
	missing := map[authz.Group]bool{}
	for _, r := range authz.Table() {
		if !slices.Contains(w.Actions, string(r.Action)) {
			missing[r.Group] = true
		}
	}

	var words []string
	for _, g := range authz.Groups() {
		if !missing[g] {
			words = append(words, string(g))
		}
	}
	for _, action := range w.Actions {
		if r := authz.ByAction(authz.Action(action)); r == nil || missing[r.Group] {
			words = append(words, action)
		}
	}
	return strings.Join(words, ", ")
}

func (o *options) printWhoami(w *whoami) error {
	if o.structured() {
		return o.json(w)
	}
	rows := [][]string{{"URL", w.URL}, {"Profile", dash(w.Profile)}, {"Tenant", w.Tenant}, {"Key", dash(w.Key)}, {"User", dash(w.User)}}
	if len(w.Roles) > 0 {
		rows = append(rows, []string{"Caller", w.Caller}, []string{"Roles", strings.Join(w.Roles, ", ")},
			[]string{"May", dash(w.rights())}, []string{"Expires", dash(w.Expires)})
	}
	if len(w.Tenants) > 0 {
		rows = append(rows, []string{"Tenants", strings.Join(w.Tenants, ", ")})
	}
	return o.table("", rows)
}
