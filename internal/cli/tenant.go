package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// withAdmin opens the store, or connects to the server, for commands that concern all tenants. If
// dry is true, the command only reads. The tenant that the command names is an argument of the
// request. It is not the tenant in which the caller acts.
func (o *options) withAdmin(ctx context.Context, dry bool, do func(a api.Admin) error) error {
	open := o.actIn
	if dry {
		open = o.lookIn
	}
	n, err := open(ctx, scope{tenant: model.DefaultTenant, any: true})
	if err != nil {
		return err
	}
	return errors.Join(do(n.Admin()), n.Close())
}

func newTenant(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use: "tenant", Short: "Tenants and what they may use",
		Long: `Tenants and what they may use. On a server these commands need an admin key.`,
	}
	cmd.AddCommand(newTenantList(o), newTenantShow(o), newTenantCreate(o), newTenantSet(o),
		o.switchTenant("disable", "Refuse the keys of a tenant and end its connections; its executions are kept", true),
		o.switchTenant("enable", "Accept the keys of a tenant again", false))
	return cmd
}

// tenantShape is a tenant in JSON.
type tenantShape struct {
	Tenant    string `json:"tenant"`
	Disabled  bool   `json:"disabled"`
	Open      int64  `json:"open,omitempty"`
	Starts    int64  `json:"starts,omitempty"`
	Weight    int    `json:"weight,omitempty"`
	Retention string `json:"retention,omitempty"`
	Note      string `json:"note,omitempty"`
	Created   string `json:"created,omitempty"`
}

func shapeTenant(t *api.TenantInfo) tenantShape {
	s := tenantShape{
		Tenant: t.Name, Disabled: t.Disabled, Open: t.Allowance.Open, Starts: t.Allowance.Starts, Weight: t.Allowance.Weight, Note: t.Note, Created: when(t.Created),
	}
	if t.Allowance.Retention > 0 {
		s.Retention = t.Allowance.Retention.String()
	}
	return s
}

func (s *tenantShape) state() string {
	if s.Disabled {
		return "disabled"
	}
	return "enabled"
}

func newTenantList(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List tenants", Args: cobra.NoArgs, Example: "  perdure tenant list --server grpc://host:7800",
		Long: "List tenants that were created, and tenants that have executions or settings.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.withAdmin(cmd.Context(), true, func(a api.Admin) error {
				all, err := a.Tenants(cmd.Context())
				if err != nil {
					return err
				}
				list := make([]tenantShape, len(all))
				rows := make([][]string, len(all))
				for i := range all {
					s := shapeTenant(&all[i])
					list[i] = s
					rows[i] = []string{s.Tenant, s.state(), number(int(s.Open)), number(int(s.Starts)), number(s.Weight), dash(s.Retention), dash(s.Note)}
				}
				if o.structured() {
					return o.json(list)
				}
				return o.table("TENANT\tSTATE\tOPEN\tSTARTS/S\tWEIGHT?\tRETENTION?\tNOTE?", rows)
			})
		},
	}
}

func newTenantShow(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "show tenant", Short: "Show a tenant and its allowance", Args: cobra.ExactArgs(1), Example: "  perdure tenant show acme",
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.withAdmin(cmd.Context(), true, func(a api.Admin) error {
				t, err := a.Tenant(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				return o.printTenant(&t)
			})
		},
	}
}

func (o *options) printTenant(t *api.TenantInfo) error {
	s := shapeTenant(t)
	if o.structured() {
		return o.json(s)
	}
	return o.table("", [][]string{
		{"Tenant", s.Tenant},
		{"State", s.state()},
		{"Open executions", orNoLimit(s.Open)},
		{"Starts per second", orNoLimit(s.Starts)},
		{"Weight", strconv.Itoa(max(s.Weight, 1))},
		{"Retention", orText(s.Retention, "that of the server")},
		{"Note", dash(s.Note)},
		{"Created", stamp(t.Created)},
	})
}

func orNoLimit(n int64) string {
	if n == 0 {
		return "no limit"
	}
	return strconv.FormatInt(n, 10)
}

func orText(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// tenantFlags are the fields of a tenant that a command changes.
type tenantFlags struct {
	note         string
	open, starts int64
	weight       int
	retention    time.Duration
}

func (f *tenantFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.note, "note", "", "what the tenant is, for people")
	flags.Int64Var(&f.open, "open", 0, "the largest number of open executions; clients cannot start more; 0 for no limit")
	flags.Int64Var(&f.starts, "starts", 0, "most executions that clients start per second and node; 0 for no limit")
	flags.IntVar(&f.weight, "weight", 0, "share among tenants whose tasks wait for the same workers; 0 for 1")
	flags.DurationVar(&f.retention, "retention", 0, "how long closed executions are kept; 0 for the time of the server")
}

// change returns a change of those fields for which the user has given a flag.
func (f *tenantFlags) change(cmd *cobra.Command, name string) api.TenantChange {
	c := api.TenantChange{Name: name}
	given := cmd.Flags().Changed
	if given("note") {
		c.Note = &f.note
	}
	if given("open") {
		c.Open = &f.open
	}
	if given("starts") {
		c.Starts = &f.starts
	}
	if given("weight") {
		c.Weight = &f.weight
	}
	if given("retention") {
		c.Retention = &f.retention
	}

	return c
}

func newTenantCreate(o *options) *cobra.Command {
	var f tenantFlags
	cmd := &cobra.Command{
		Use: "create tenant", Short: "Create a tenant", Args: cobra.ExactArgs(1),
		Example: "  perdure tenant create acme --open 10000 --starts 100\n  perdure key create --tenant acme",
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.withAdmin(cmd.Context(), false, func(a api.Admin) error {
				t, err := a.CreateTenant(cmd.Context(), f.change(cmd, args[0]))
				if err != nil {
					return err
				}
				return o.printTenant(&t)
			})
		},
	}

	f.add(cmd)
	return cmd
}

func newTenantSet(o *options) *cobra.Command {
	var f tenantFlags
	cmd := &cobra.Command{
		Use: "set tenant", Short: "Change the allowance or the note of a tenant", Args: cobra.ExactArgs(1),
		Long:    "Change the allowance or the note of a tenant. Fields whose flags are not given stay as they are. Every node applies the change within seconds.",
		Example: "  perdure tenant set acme --open 20000\n  perdure tenant set acme --starts 0",
		RunE: func(cmd *cobra.Command, args []string) error {
			c := f.change(cmd, args[0])
			if c == (api.TenantChange{Name: args[0]}) {
				return fault.New(fault.Invalid, "give at least one of --open, --starts, --weight, --retention and --note")
			}
			return o.withAdmin(cmd.Context(), false, func(a api.Admin) error {
				t, err := a.SetTenant(cmd.Context(), c)
				if err != nil {
					return err
				}
				return o.printTenant(&t)
			})
		},
	}

	f.add(cmd)
	return cmd
}

func (o *options) switchTenant(use, short string, off bool) *cobra.Command {
	return &cobra.Command{
		Use: use + " tenant", Short: short, Args: cobra.ExactArgs(1), Example: "  perdure tenant " + use + " acme",
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.withAdmin(cmd.Context(), false, func(a api.Admin) error {
				if _, err := a.SetTenant(cmd.Context(), api.TenantChange{Name: args[0], Disabled: &off}); err != nil {
					return err
				}
				return o.printDone(use+"d tenant", args[0])
			})
		},
	}
}

// printDone prints that a change is done.
func (o *options) printDone(done, name string) error {
	if o.structured() {
		return o.json(struct {
			Name string `json:"name"`
			Done string `json:"done"`
		}{name, done})
	}
	_, err := fmt.Fprintf(o.Out, "%s %s\n", done, name)
	return err
}
