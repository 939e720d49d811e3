package cli

import (
	"context"
	"os/user"

	"github.com/spf13/cobra"

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
}

func newWhoami(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "whoami", Short: "Show the user, the tenant and the server or store of commands", Args: cobra.NoArgs,
		Long: `Show the server or the store that commands use, the tenant that they act in, and where the key comes from. On a server the command connects, so it fails if the key is
wrong; the tenant is that of the key, unless you choose another one with an admin key. On a store the command acts as the user of this machine.`,
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
	if d, ok := s.(dialed); ok {
		w.Tenant = d.b.Tenant()
	}
	return w, nil
}

func (o *options) printWhoami(w *whoami) error {
	if o.structured() {
		return o.json(w)
	}
	return o.table("", [][]string{{"URL", w.URL}, {"Profile", dash(w.Profile)}, {"Tenant", w.Tenant}, {"Key", dash(w.Key)}, {"User", dash(w.User)}})
}
