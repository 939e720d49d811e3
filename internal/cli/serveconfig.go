package cli

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/perdure/perdure/internal/fault"
)

// configVariable names the configuration file, as --config does.
const configVariable = "PERDURE_CONFIG"

// origins says where each setting of a server comes from, by its key: "flag", "$PERDURE_LISTEN" or
// "perdure.toml:3". A setting with its default has no entry.
type origins map[string]string

// problem adds the place of a setting to its error, if the configuration file has it.
func (from origins) problem(key string, err error) error {
	if err == nil || !from.file(key) {
		return err
	}
	return fmt.Errorf("%s: %w", from[key], err)
}

// file reports whether the configuration file has a setting.
func (from origins) file(key string) bool {
	place := from[key]
	return place != "" && place != flagOrigin && !strings.HasPrefix(place, "$")
}

// flagOrigin is the origin of values from the command line.
const flagOrigin = "flag"

// configure sets the flags of serve that the command line does not give: from the environment, and
// from the configuration file where the environment has nothing. A flag --tls-cert is
// $PERDURE_TLS_CERT and the key tls_cert. It reports all problems in one error.
func configure(cmd *cobra.Command, file string) (origins, error) {
	from, problems, err := readSettings(cmd, file)
	if err != nil {
		return nil, err
	}
	return from, joinProblems(problems)
}

// readSettings is like configure, for a caller that also checks the values. problems are unknown
// keys and values that cannot be read. The caller reports them together with the problems that it
// finds itself. err is set only if the whole file cannot be used.
func readSettings(cmd *cobra.Command, file string) (from origins, problems []error, err error) {
	f, err := readConfig(configFile(file))
	if err != nil {
		return nil, nil, err
	}

	flags := configurable(cmd)
	known := slices.Sorted(maps.Keys(flags))
	from = origins{}
	done := map[string]bool{}
	for _, key := range slices.Concat(f.inOrder("", f.values), known) {
		if done[key] {
			continue
		}
		done[key] = true
		if flags[key] == nil {
			problems = append(problems, f.unknownSetting(key, known))
			continue
		}
		origin, err := f.setting(key, flags[key])
		if err != nil {
			problems = append(problems, err)
		}
		if origin != "" {
			from[key] = origin
		}
	}
	return from, append(problems, checkVariables(os.Environ(), known)...), nil
}

// setting sets a flag, and returns where its value comes from. The origin is empty if the flag
// keeps its default.
func (f *tomlFile) setting(key string, flag *pflag.Flag) (origin string, err error) {
	value, given := f.values[key]
	switch value.(type) {
	case nil, string, bool, int64, float64:
	default: // a value of another type is wrong, even if a flag wins over it
		return "", fault.New(fault.Invalid, "%s: %s is a %T, must be a text, a number or a truth value", f.at(key), key, value)
	}
	if flag.Changed {
		return flagOrigin, nil
	}
	name := "PERDURE_" + strings.ToUpper(key)
	if text := os.Getenv(name); text != "" {
		if err := flag.Value.Set(text); err != nil {
			return "", fault.New(fault.Invalid, "$%s is %q: %w", name, text, err)
		}
		return "$" + name, nil
	}

	if !given {
		return "", nil
	}
	text := fmt.Sprint(value)
	if err := flag.Value.Set(text); err != nil {
		return "", fault.New(fault.Invalid, "%s: %s is %q: %w", f.at(key), key, text, err)
	}
	return f.at(key), nil
}

// unknownSetting refuses a key that is not a setting of a server.
func (f *tomlFile) unknownSetting(key string, known []string) error {
	if key == "admin_key" {
		err := fault.New(fault.Invalid, "%s: the admin key does not belong in the configuration", f.at(key))
		return fault.WithHint(err, "write it to a file of its own and name that in admin_key_file")
	}
	return f.unknownKey("", key, known)
}

// configurable returns the flags that can be configured, by their keys.
func configurable(cmd *cobra.Command) map[string]*pflag.Flag {
	all := map[string]*pflag.Flag{}
	add := func(f *pflag.Flag) {
		if f.Name != "config" && f.Name != "help" {
			all[strings.ReplaceAll(f.Name, "-", "_")] = f
		}
	}
	cmd.LocalNonPersistentFlags().VisitAll(add)
	for _, name := range []string{"store", "databases", "schema", "verbose"} {
		if f := cmd.Flag(name); f != nil {
			add(f)
		}
	}
	return all
}

// configFile returns the path of the configuration file, from --config or from the environment.
func configFile(flag string) string { return cmp.Or(flag, os.Getenv(configVariable)) }

// readConfig reads a configuration file. If there is no file, the result has no keys.
func readConfig(file string) (*tomlFile, error) {
	if file == "" {
		return &tomlFile{}, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fault.New(fault.Invalid, "read the configuration: %w", err)
	}
	return parseTOML(file, text)
}
