package cli

import (
	"encoding/json"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure/internal/api"
)

func newSetting(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use: "setting", Short: "Stored settings of a tenant: limits, breakers, paused queues, allowance",
		Long: `Stored settings of a tenant: limits, breakers, paused queues, allowance. The commands limit, breaker, queue and tenant change them one by one. These commands show their versions and replace one by compare-and-set.

On a server they need an admin key.`,
	}
	cmd.AddCommand(newSettingList(o), newSettingSet(o), newSettingDelete(o))
	return cmd
}

// settingShape is a setting in JSON.
type settingShape struct {
	Kind    string          `json:"kind"`
	Name    string          `json:"name"`
	Version int64           `json:"version"`
	Changed string          `json:"changed,omitempty"`
	Fixed   bool            `json:"fixed,omitempty"`
	Body    json.RawMessage `json:"body,omitempty"`
}

func shapeSetting(s *api.Setting) settingShape {
	return settingShape{Kind: s.Kind, Name: s.Name, Version: s.Version, Changed: when(s.At), Fixed: s.Fixed, Body: s.Body}
}

func newSettingList(o *options) *cobra.Command {
	var kind string
	cmd := &cobra.Command{
		Use: "list", Short: "List the settings of the tenant", Args: cobra.NoArgs, Example: "  perdure setting list --tenant acme --kind limit",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.withAdmin(cmd.Context(), true, func(a api.Admin) error {
				found, err := a.Settings(cmd.Context(), o.tenant, kind)
				if err != nil {
					return err
				}
				list, rows := make([]settingShape, len(found)), make([][]string, len(found))
				for i := range found {
					list[i] = shapeSetting(&found[i])
					rows[i] = []string{found[i].Kind, found[i].Name, strconv.FormatInt(found[i].Version, 10), second(found[i].At), dash(string(found[i].Body))}
				}
				if o.structured() {
					return o.json(list)
				}
				return o.table("KIND\tNAME\tVERSION\tCHANGED\tSETTING", rows)
			})
		},
	}

	cmd.Flags().StringVar(&kind, "kind", "", "only settings of this kind: limit, breaker, queue or tenant")
	return cmd
}

func newSettingSet(o *options) *cobra.Command {
	var text string
	c := api.SettingChange{}
	cmd := &cobra.Command{
		Use: "set kind name", Short: "Create or replace a setting by its stored form", Args: cobra.ExactArgs(2),
		Example: `  perdure setting set limit smtp --input '{"name": "smtp", "per": "name", "concurrency": 5}' --version 17`,
		RunE: func(cmd *cobra.Command, args []string) error {
			body, err := o.input("--input", text)
			if err != nil {
				return err
			}
			c.Body = body.Data
			return o.changeSetting(cmd, args, c)
		},
	}

	cmd.Flags().StringVar(&text, "input", "", "the setting as JSON, @file, or - for standard input")
	_ = cmd.MarkFlagRequired("input")
	settingVersion(cmd)
	return cmd
}

func newSettingDelete(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use: "delete kind name", Short: "Remove a setting", Args: cobra.ExactArgs(2), Example: "  perdure setting delete limit smtp --version 17",
		RunE: func(cmd *cobra.Command, args []string) error { return o.changeSetting(cmd, args, api.SettingChange{}) },
	}
	settingVersion(cmd)
	return cmd
}

func settingVersion(cmd *cobra.Command) {
	cmd.Flags().Int64("version", 0, "version that the setting must have, 0 if it must not exist; any by default")
}

// changeSetting makes a change of the setting that the arguments name.
func (o *options) changeSetting(cmd *cobra.Command, args []string, c api.SettingChange) error {
	c.Tenant, c.Kind, c.Name = o.tenant, args[0], args[1]
	if cmd.Flags().Changed("version") {
		v, err := cmd.Flags().GetInt64("version")
		if err != nil {
			return err
		}
		c.Version = &v
	}

	return o.withAdmin(cmd.Context(), false, func(a api.Admin) error {
		s, err := a.SetSetting(cmd.Context(), c)
		switch {
		case err != nil:
			return err
		case len(c.Body) == 0:
			return o.printDone("deleted setting", c.Kind+"/"+c.Name)
		case o.structured():
			return o.json(shapeSetting(&s))
		}
		return o.printDone("set", c.Kind+"/"+c.Name+" to version "+strconv.FormatInt(s.Version, 10))
	})
}
