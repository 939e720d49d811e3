package cli

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/authz"
	"github.com/perdure/perdure/internal/authz/policy"
	"github.com/perdure/perdure/internal/fault"
)

// readPolicies reads policies from a file. Without a file, it returns the default policies.
func readPolicies(file string) (*policy.Policies, error) {
	if file == "" {
		return policy.Default()
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fault.New(fault.Invalid, "read the policies: %w", err)
	}
	return policy.Parse(file, text)
}

func newAuth(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use: "auth", Short: "Policies that say what callers of a server may do",
		Long: `Policies that say what callers of a server may do. They are written in Cedar. A server uses the default policies, or the
file that perdure serve --policies names.`,
	}
	cmd.AddCommand(newAuthCheck(o), newAuthActions(o), newAuthPolicies(o), newAuthSchema(o))
	return cmd
}

// authShape is a decision in JSON.
type authShape struct {
	Allowed  bool     `json:"allowed"`
	Action   string   `json:"action"`
	Group    string   `json:"group"`
	Resource string   `json:"resource"`
	Roles    []string `json:"roles"`
	Policies []string `json:"policies"`
	Errors   []string `json:"errors"`
}

func newAuthCheck(o *options) *cobra.Command {
	var file, caller string
	var roles []string
	var admin bool
	cmd := &cobra.Command{
		Use: "check action", Short: "Explain whether a caller may take an action", Args: cobra.ExactArgs(1),
		Long: `Explain whether a caller may take an action, and which policies say so. The action is one of perdure auth actions, a method such
as Terminate, or an operation of the REST API such as terminate-execution. The command exits with 7 when the caller may not.`,
		Example: `  perdure auth check execution:terminate --role client
  perdure auth check StartMany --role reader --policies company.cedar
  perdure auth check tenant:write --admin`,
		RunE: func(_ *cobra.Command, args []string) error {
			policies, err := readPolicies(file)
			if err != nil {
				return err
			}
			rule, err := findRule(args[0])
			if err != nil {
				return err
			}
			who := authn.Identity{Tenant: o.tenant, Name: caller, Admin: admin, Roles: roles}
			e, err := policies.Explain(&who, rule.Action)
			if err != nil {
				return err
			}
			return o.printDecision(&who, rule, e)
		},
	}

	cmd.Flags().StringVar(&file, "policies", "", "file of policies (default: the default policies)")
	cmd.Flags().StringSliceVar(&roles, "role", nil, "roles of the caller (default: owner, or admin with --admin)")
	cmd.Flags().BoolVar(&admin, "admin", false, "the caller has an admin key")
	cmd.Flags().StringVar(&caller, "caller", "key example", "name of the caller, as policies see it")
	return cmd
}

// findRule finds a row of the table of actions: by an action, by the last part of the name of a
// method, or by an operation.
func findRule(text string) (*authz.Rule, error) {
	if r := authz.ByAction(authz.Action(text)); r != nil {
		return r, nil
	}
	if r := authz.ByOperation(text); r != nil {
		return r, nil
	}
	for _, r := range authz.Table() {
		for _, m := range r.Methods {
			if m == text || strings.HasSuffix(m, "/"+text) {
				return &r, nil
			}
		}
	}
	return nil, fault.WithHint(fault.New(fault.NotFound, "there is no action, method or operation %q", text), "perdure auth actions lists them")
}

// printDecision prints a decision. For a refusal it returns an error of kind Denied, so that
// scripts see it in the exit code.
func (o *options) printDecision(who *authn.Identity, r *authz.Rule, e policy.Explanation) error {
	var err error
	if o.structured() {
		err = o.json(authShape{
			e.Allowed, string(r.Action), string(r.Group), string(r.Resource), authz.RolesOf(who), append([]string{}, e.Policies...), append([]string{}, e.Errors...),
		})
	} else {
		verdict := "allowed"
		if !e.Allowed {
			verdict = "refused"
		}
		fmt.Fprintf(o.Out, "%s: %s (group %s, resource %s) for %s\n", verdict, r.Action, r.Group, r.Resource, strings.Join(authz.RolesOf(who), ", "))
		switch {
		case len(e.Errors) > 0:
			fmt.Fprintf(o.Out, "A policy failed, so the caller is refused: %s\n", strings.Join(e.Errors, "; "))
		case len(e.Policies) == 0:
			fmt.Fprintln(o.Out, "No policy permits it.")
		default:
			fmt.Fprintf(o.Out, "Decided by: %s\n", strings.Join(e.Policies, ", "))
		}
	}

	if err == nil && !e.Allowed {
		err = fault.New(fault.Denied, "the caller may not %s", r.Action)
	}
	return err
}

func newAuthActions(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "actions", Short: "List the actions that policies can name", Args: cobra.NoArgs, Example: "  perdure auth actions",
		RunE: func(*cobra.Command, []string) error {
			table := authz.Table()
			list := make([]actionShape, len(table))
			rows := make([][]string, len(table))
			for i, r := range table {
				methods := make([]string, len(r.Methods))
				for j, m := range r.Methods {
					methods[j] = m[strings.LastIndex(m, "/")+1:]
				}
				list[i] = actionShape{string(r.Action), string(r.Group), string(r.Resource), append([]string{}, r.Methods...), append([]string{}, r.Operations...)}
				rows[i] = []string{string(r.Action), string(r.Group), string(r.Resource), dash(strings.Join(methods, " ")), dash(strings.Join(r.Operations, " "))}
			}
			if o.structured() {
				return o.json(list)
			}
			return o.table("ACTION\tGROUP\tRESOURCE\tMETHODS\tOPERATIONS?", rows)
		},
	}
}

// actionShape is a row of the table of actions in JSON.
type actionShape struct {
	Action     string   `json:"action"`
	Group      string   `json:"group"`
	Resource   string   `json:"resource"`
	Methods    []string `json:"methods"`
	Operations []string `json:"operations"`
}

func newAuthPolicies(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "policies", Short: "Print the default policies", Args: cobra.NoArgs, Example: "  perdure auth policies > company.cedar",
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprint(o.Out, policy.DefaultText())
			return err
		},
	}
}

func newAuthSchema(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "schema", Short: "Print the Cedar schema of policies", Args: cobra.NoArgs, Example: "  perdure auth schema > perdure.cedarschema",
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprint(o.Out, policy.Schema())
			return err
		},
	}
}
