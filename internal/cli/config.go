package cli

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/remote"
)

func newConfig(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use: "config", Short: "Profiles: the servers and stores that commands work on",
		Long: `Profiles name the servers and stores that commands work on, with the tenant, the certificates to trust, and where the key is. They are in perdure/profiles.toml of the user's directory for settings, or in the file of $` + profilesVariable + `. A profile never has the key itself.

A flag wins over the environment, and the environment over the profile. A command that names a store or a server with a flag uses no profile. If $PERDURE_STORE or $` + serverVariable + ` is set, a command uses a profile only if --profile names it. perdure serve and perdure dev use a profile only if --profile names it.`,
		Example: `  perdure config set prod --server grpc://perdure.example:7800 --tenant acme --ca ca.pem --key-file ~/.config/perdure/prod.key
  perdure config use prod
  perdure workflow list --profile prod
  perdure config show --origin`,
	}
	cmd.AddCommand(newConfigSet(o), newConfigList(o), newConfigUse(o), newConfigRemove(o), newConfigShow(o))
	return cmd
}

// profileShape is a profile in JSON.
type profileShape struct {
	Profile string `json:"profile"`
	Current bool   `json:"current"`
	Server  string `json:"server,omitempty"`
	Store   string `json:"store,omitempty"`
	Tenant  string `json:"tenant,omitempty"`
	CA      string `json:"ca,omitempty"`
	KeyFile string `json:"key_file,omitempty"`
	KeyEnv  string `json:"key_env,omitempty"`
}

func (all *profiles) shape(name string) profileShape {
	p := all.Named[name]
	return profileShape{name, name == all.Current, p.Server, withoutPassword(p.Store), p.Tenant, p.CA, p.KeyFile, p.KeyEnv}
}

func newConfigSet(o *options) *cobra.Command {
	var ca, keyFile, keyEnv string
	cmd := &cobra.Command{
		Annotations: map[string]string{noTarget: "yes"},
		Use:         "set name", Short: "Create or change a profile", Args: cobra.ExactArgs(1),
		Long: `Create a profile, or change the given values of an existing one. An empty value removes what the profile has. The first profile becomes the current one.

The key is in a file that only its user can read (mode 0600), or in an environment variable; the profile has the name of the file or of the variable.`,
		Example: `  perdure config set prod --server grpc://perdure.example:7800 --tenant acme --key-file prod.key
  perdure config set here --store file:app.db`,
		RunE: func(cmd *cobra.Command, args []string) error {
			all, err := readProfiles()
			if err != nil {
				return err
			}
			p := all.Named[args[0]]
			// A key that login has stored is for the old server. Another server must not get this
			// key.
			moves := all.loggedIn(args[0]) && (cmd.Flags().Changed("server") && o.server != p.Server || cmd.Flags().Changed("store"))
			if moves {
				p.KeyFile = ""
			}
			if err := p.change(cmd.Flags(), map[string]string{"server": o.server, "store": o.store, "tenant": o.tenant, "ca": ca, "key-file": keyFile, "key-env": keyEnv}); err != nil {
				return err
			}
			if err := joinProblems(p.check(args[0])); err != nil {
				return err
			}
			if p.KeyFile != "" {
				if _, err := readKey(p.KeyFile); err != nil {
					return err
				}
			}

			if moves {
				if err := all.forgetLogin(args[0]); err != nil {
					return err
				}
			}
			all.Named[args[0]] = p
			if len(all.Named) == 1 {
				all.Current = args[0]
			}
			if err := all.write(); err != nil {
				return err
			}
			return o.printProfile(all, args[0], "set")
		},
	}
	cmd.Flags().StringVar(&ca, "ca", "", "file of the certificates that sign the certificate of the server (default: the certificates of the system)")
	cmd.Flags().StringVar(&keyFile, "key-file", "", "file that has the key; only its user may read it")
	cmd.Flags().StringVar(&keyEnv, "key-env", "", "environment variable that has the key")
	return cmd
}

// change sets the values that the command line gives. It makes the paths of files absolute, because
// commands in other directories use the profile too.
func (p *profile) change(flags *pflag.FlagSet, values map[string]string) (err error) {
	if flags.Changed("server") && flags.Changed("store") {
		return fault.New(fault.Invalid, "--store and --server exclude each other: a server has its own store")
	}
	for _, name := range []string{"ca", "key-file"} {
		if values[name] != "" {
			if values[name], err = filepath.Abs(values[name]); err != nil {
				return err
			}
		}
	}
	for name, to := range map[string]*string{"server": &p.Server, "store": &p.Store, "tenant": &p.Tenant, "ca": &p.CA, "key-file": &p.KeyFile, "key-env": &p.KeyEnv} {
		if flags.Changed(name) {
			*to = values[name]
		}
	}

	switch {
	case flags.Changed("server"):
		p.Store = ""
	case flags.Changed("store") && remote.IsURL(p.Store):
		p.Server, p.Store = p.Store, ""
	case flags.Changed("store"):
		p.Server, p.CA, p.KeyFile, p.KeyEnv = "", "", "", ""
	}
	switch {
	case flags.Changed("key-file") && !flags.Changed("key-env"):
		p.KeyEnv = ""
	case flags.Changed("key-env") && !flags.Changed("key-file"):
		p.KeyFile = ""
	}
	return nil
}

func (o *options) printProfile(all *profiles, name, done string) error {
	if o.structured() {
		return o.json(all.shape(name))
	}
	_, err := fmt.Fprintf(o.Out, "%s profile %s\n", done, name)
	return err
}

func newConfigList(o *options) *cobra.Command {
	return &cobra.Command{
		Annotations: map[string]string{noTarget: "yes"},
		Use:         "list", Short: "List profiles", Args: cobra.NoArgs, Example: "  perdure config list",
		RunE: func(*cobra.Command, []string) error {
			all, err := readProfiles()
			if err != nil {
				return err
			}

			return o.printProfiles(all)
		},
	}
}

func (o *options) printProfiles(all *profiles) error {
	shapes, rows := []profileShape{}, [][]string{}
	for _, name := range all.names() {
		s := all.shape(name)
		shapes = append(shapes, s)
		mark, key := "", s.KeyFile
		if s.Current {
			mark = "*"
		}
		if s.KeyEnv != "" {
			key = "$" + s.KeyEnv
		}
		rows = append(rows, []string{mark, name, s.Server + s.Store, dash(s.Tenant), dash(s.CA), dash(key)})
	}

	if o.structured() {
		return o.json(shapes)
	}
	return o.table("CURRENT\tPROFILE\tSERVER OR STORE\tTENANT\tCA?\tKEY?", rows)
}

func newConfigUse(o *options) *cobra.Command {
	return &cobra.Command{
		Annotations: map[string]string{noTarget: "yes"},
		Use:         "use name", Short: "Make a profile the one that commands use", Args: cobra.ExactArgs(1), Example: "  perdure config use prod",
		ValidArgsFunction: profileNames,
		RunE: func(_ *cobra.Command, args []string) error {
			all, err := readProfiles()
			if err != nil {
				return err
			}
			if _, err := all.find(args[0]); err != nil {
				return err
			}
			all.Current = args[0]
			if err := all.write(); err != nil {
				return err
			}
			return o.printProfile(all, args[0], "using")
		},
	}
}

func newConfigRemove(o *options) *cobra.Command {
	return &cobra.Command{
		Annotations: map[string]string{noTarget: "yes"},
		Use:         "remove name", Short: "Remove a profile", Args: cobra.ExactArgs(1), Example: "  perdure config remove prod",
		Long:              "Remove a profile. If commands use it, they use no profile afterwards. The file of its key stays, unless perdure login has written it.",
		ValidArgsFunction: profileNames,
		RunE: func(_ *cobra.Command, args []string) error {
			all, err := readProfiles()
			if err != nil {
				return err
			}
			if _, err := all.find(args[0]); err != nil {
				return err
			}

			removed := all.shape(args[0])
			if err := all.forgetLogin(args[0]); err != nil {
				return err
			}
			delete(all.Named, args[0])
			if all.Current == args[0] {
				all.Current = ""
			}
			if err := all.write(); err != nil {
				return err
			}

			if o.structured() {
				return o.json(removed)
			}
			_, err = fmt.Fprintf(o.Out, "removed profile %s\n", args[0])
			return err
		},
	}
}

// profileNames completes the names of profiles.
func profileNames(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	all, err := readProfiles()
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return all.names(), cobra.ShellCompDirectiveNoFileComp
}

// originLine is one value of the configuration in JSON.
type originLine struct {
	Key    string `json:"key"`
	Value  string `json:"value"`
	Origin string `json:"origin"`
}

func newConfigShow(o *options) *cobra.Command {
	var origin bool
	var file string
	cmd := &cobra.Command{
		Use: "show", Short: "Show what commands, or a server, would use", Args: cobra.NoArgs,
		Long: `Show the store or the server, the tenant, the certificates and the place of the key that a command would use here. With --config, show the settings that a server would have with a configuration file and this environment.

With --origin every value says where it comes from: a flag, a variable, a line of the file, a profile, or the default. Keys and passwords are not shown.`,
		Example: "  perdure config show --origin\n  perdure config show --config perdure.toml --origin",
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := o.shownSettings(cmd, file)
			if err != nil {
				return err
			}
			return o.printSettings(all, origin)
		},
	}
	cmd.Flags().BoolVar(&origin, "origin", false, "say where each value comes from")
	cmd.Flags().StringVar(&file, "config", "", "show the settings of a server with this configuration file")
	return cmd
}

func (o *options) printSettings(all []originLine, origin bool) error {
	if o.structured() {
		return o.json(all)
	}
	head, rows := "KEY\tVALUE", make([][]string, len(all))
	if origin {
		head += "\tORIGIN"
	}
	for i, l := range all {
		if rows[i] = []string{l.Key, dash(l.Value)}; origin {
			rows[i] = append(rows[i], dash(l.Origin))
		}
	}
	return o.table(head, rows)
}

// shownSettings returns what config show prints.
func (o *options) shownSettings(cmd *cobra.Command, file string) ([]originLine, error) {
	if !cmd.Flags().Changed("config") {
		t := o.choice
		key := t.key.value
		if key != "" && !t.keyInFile {
			key = "$" + key
		}
		return []originLine{
			{"profile", t.profile.value, t.profile.origin},
			{"url", withoutPassword(t.url.value), t.url.origin},
			{"tenant", t.tenant.value, t.tenant.origin},
			{"ca", t.ca.value, t.ca.origin},
			{"key", key, t.key.origin},
		}, nil
	}

	serve, _, err := cmd.Root().Find([]string{"serve"})
	if err != nil {
		return nil, err
	}
	from, err := configure(serve, file)
	if err != nil {
		return nil, err
	}
	flags := configurable(serve)
	all := make([]originLine, 0, len(flags))
	for _, key := range slices.Sorted(maps.Keys(flags)) {
		value := withoutPassword(flags[key].Value.String())
		if key == "databases" {
			value = showDatabases(flags[key].Value.String())
		}
		line := originLine{key, value, "default"}
		if from[key] != "" {
			line.Origin = from[key]
		}
		all = append(all, line)
	}
	return all, nil
}
